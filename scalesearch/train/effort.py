"""Time that a training takes, by part."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

UPDATES = "updates"
VALIDATION = "validation"
SCORING = "scoring"
OTHER = "other"
TRAINING_PARTS = (UPDATES, VALIDATION, SCORING, OTHER)


@dataclass(frozen=True, slots=True)
class Effort:
    """Wall-clock and CPU time, in seconds."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: "Effort") -> "Effort":
        return Effort(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)

    def __sub__(self, other: "Effort") -> "Effort":
        return self + other * -1

    def __mul__(self, factor: float) -> "Effort":
        return Effort(self.seconds * factor, self.cpu_seconds * factor)


Efforts = Mapping[str, Effort]  # by part


def read_clocks() -> Effort:
    """Readings of this process's clocks; CPU time is that of all its threads."""
    return Effort(time.perf_counter(), time.process_time())


def sum_efforts(*efforts: Efforts) -> dict[str, Effort]:
    """The sum of ``efforts``, part by part."""
    return {part: sum((each.get(part, Effort()) for each in efforts), Effort())
            for part in TRAINING_PARTS}


class TrainingTimer:
    """Clock of a training: what its parts have taken since it began, earlier processes included.

    ``updates`` is what budgets count. ``validation`` is looking at the validation text while
    training, ``scoring`` what is measured of the final weights: translations, metrics, losses,
    latency. ``other`` is all the rest: building the model, checking it, saving, resuming.

    """

    def __init__(self, read_time: Callable[[], Effort] = read_clocks) -> None:
        self._read_time = read_time
        self._spent = dict.fromkeys(TRAINING_PARTS, Effort())
        # moved on by what is counted elsewhere: the time since then is of no part
        self._start = self._read_time()

    @contextmanager
    def measure_part(self, name: str) -> Iterator[None]:
        """A stretch of the training that belongs to the part ``name``; stretches do not overlap."""
        start = self._read_time()
        try:
            yield
        finally:
            took = self._read_time() - start
            self.add_effort(name, took)
            self._start += took

    def add_effort(self, name: str, effort: Effort) -> None:
        """Counts ``effort`` of another process."""
        self._spent[name] += effort

    def efforts(self) -> dict[str, Effort]:
        """Effort of each part so far."""
        return {**self._spent, OTHER: self._spent[OTHER] + self._read_time() - self._start}

    def restore(self, efforts: Mapping[str, Sequence[float]]) -> None:
        """Adds what an earlier process had spent: part to wall-clock and CPU seconds."""
        for part, spent in efforts.items():
            self.add_effort(part, Effort(*spent))
