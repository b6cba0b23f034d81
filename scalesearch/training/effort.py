"""Wall-clock and CPU time of a training run, by part."""

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
    """Read the clocks of this process; CPU time is summed over its threads."""
    return Effort(time.perf_counter(), time.process_time())


def sum_efforts(*efforts: Efforts) -> dict[str, Effort]:
    """Sum ``efforts`` part by part."""
    return {part: sum((effort.get(part, Effort()) for effort in efforts), Effort())
            for part in TRAINING_PARTS}


class TrainingTimer:
    """Timer of a training run, by part, including earlier processes.

    Budgets count ``updates``. ``validation`` is evaluation on the validation text during training.
    ``scoring`` is the evaluation of the final weights: translations, metrics, losses, latency.
    ``other`` is everything else: building and checking the model, saving, resuming.
    """

    def __init__(self, read_time: Callable[[], Effort] = read_clocks) -> None:
        self._read_time = read_time
        self._spent = dict.fromkeys(TRAINING_PARTS, Effort())
        # Each measured part moves the start forward: the time since then belongs to no part.
        self._start = self._read_time()

    @contextmanager
    def measure_part(self, name: str) -> Iterator[None]:
        """Context that counts time to the part ``name``; contexts must not be nested."""
        start = self._read_time()
        try:
            yield
        finally:
            duration = self._read_time() - start
            self._spent[name] += duration
            self._start += duration

    def efforts(self) -> dict[str, Effort]:
        """Return the effort of each part so far."""
        return {**self._spent, OTHER: self._spent[OTHER] + self._read_time() - self._start}

    def restore(self, efforts: Mapping[str, Sequence[float]]) -> None:
        """Add the wall-clock and CPU seconds of an earlier process, by part."""
        for part, seconds in efforts.items():
            self._spent[part] += Effort(*seconds)
