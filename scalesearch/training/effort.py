"""Wall-clock and CPU time of a training run, by part and phase."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

UPDATES = "updates"
VALIDATION = "validation"
SCORING = "scoring"
OTHER = "other"
TRAINING_PARTS = (UPDATES, VALIDATION, SCORING, OTHER)
START = "start"
DECODING = "decoding"
EXPORT = "export"
PHASES = (START, UPDATES, VALIDATION, DECODING, SCORING, EXPORT, OTHER)
PART_OF_PHASE = {START: OTHER, DECODING: SCORING, EXPORT: SCORING}  # others are parts


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
    """Timer of a training run, by part and by phase, including earlier processes.

    Budgets count ``updates``. ``validation`` is evaluation on the validation text during training.
    ``scoring`` is the evaluation of the final weights: translations, metrics, losses, latency.
    ``other`` is everything else: building and checking the model, saving, resuming.

    Phases are finer: ``start`` is the time until the first update, ``decoding`` and ``export`` are
    phases of ``scoring``.

    Attributes:
        phases: wall-clock seconds of each phase.
    """

    def __init__(self, read_time: Callable[[], Effort] = read_clocks) -> None:
        self._read_time = read_time
        self._spent = dict.fromkeys(TRAINING_PARTS, Effort())
        self.phases = dict.fromkeys(PHASES, 0.0)
        self._phase = START
        self._read_at = self._read_time()

    @contextmanager
    def measure_part(self, phase: str) -> Iterator[None]:
        """Context that counts time to a part or phase; nested contexts are not counted twice."""
        outer = self._phase
        if phase == UPDATES and outer == START:
            outer = OTHER
        self._enter(phase)
        try:
            yield
        finally:
            self._enter(outer)

    def _enter(self, phase: str) -> None:
        """Count the time since the last call to the current phase, and enter ``phase``."""
        now = self._read_time()
        duration = now - self._read_at
        self._spent[PART_OF_PHASE.get(self._phase, self._phase)] += duration
        self.phases[self._phase] += duration.seconds
        self._phase = phase
        self._read_at = now

    def efforts(self) -> dict[str, Effort]:
        """Return the effort of each part so far."""
        self._enter(self._phase)
        return dict(self._spent)

    def restore(self, efforts: Mapping[str, Sequence[float]], phases: Mapping[str, float]) -> None:
        """Add the time of an earlier process.

        Args:
            efforts: wall-clock and CPU seconds of each part.
            phases: wall-clock seconds of each phase.
        """
        for part, seconds in efforts.items():
            self._spent[part] += Effort(*seconds)
        for phase, wall_seconds in phases.items():
            self.phases[phase] += wall_seconds
