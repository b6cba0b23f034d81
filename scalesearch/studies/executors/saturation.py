"""Number of trials that a GPU trains at a time, found by measuring their total speed."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from scalesearch.files import try_read_json, write_json
from scalesearch.studies.executors.worker import ProgressReport
from scalesearch.training.gpus import MAX_TRIALS_PER_GPU, Gpu

SPEEDS_FILE = "gpu_speeds.json"
WINDOW_SECONDS = 60.0  # of a measurement
INTERVAL_SECONDS = 1.0  # between two readings of the progress
MIN_GAIN = 1.1  # of speed, for which twice as many trials train at a time
MAX_LOSS = 1.05  # of speed, for which half as many trials train at a time; each ends sooner


class GpuSpeeds(msgspec.Struct):
    """Content of ``gpu_speeds.json``.

    Attributes:
        device: model of the GPUs.
        updates_per_second: of all trials together, by the number of trials per GPU.
    """

    device: str
    updates_per_second: dict[str, float]


class SaturationPoint:
    """Limit on the trials per GPU, refined in the first minutes of a study.

    The total speed of all trials is measured while all places are taken, for ``WINDOW_SECONDS``
    per limit. The limit starts at ``MAX_TRIALS_PER_GPU``. It is doubled while that pays off;
    otherwise it is halved while that costs nothing. Trials that run when the limit falls continue.

    Updates of small and large candidates count the same, so a mixture of sizes that changes adds
    noise.

    Attributes:
        limit: trials per GPU.
        speeds: updates per second of all trials, by the limits that were measured.

    Args:
        gpus: the GPUs.
        slots: limit on the trials on all GPUs.
        folder: folder for the measured speeds, of the study; None keeps them in memory.
        clock: returns seconds.
    """

    def __init__(self, gpus: Sequence[Gpu], slots: int, folder: Path | None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._n_gpus = len(gpus)
        self._max_limit = max(1, slots // len(gpus))
        self._file = None if folder is None else folder / SPEEDS_FILE
        self._clock = clock
        self._device = gpus[0].model
        self.speeds: dict[int, float] = {}
        stored = None if self._file is None else try_read_json(self._file, GpuSpeeds)
        if stored is not None and stored.device == self._device:
            self.speeds = {int(limit): speed for limit, speed in stored.updates_per_second.items()}
        self.limit = self._choose_limit()
        self._last_reading = clock()
        self._old_folders: set[Path] = set()  # of trials when the limit changed
        self._window_start = 0.0
        self._n_updates = 0
        # steps of the trials at the last reading; empty before a window
        self._steps: dict[Path, int] = {}

    def observe(self, folders: Sequence[Path]) -> None:
        """Read the progress of the trials in ``folders``.

        They train, or wait until trials that started under a higher limit have ended.
        """
        now = self._clock()
        if now - self._last_reading < INTERVAL_SECONDS:
            return
        self._last_reading = now
        if self.limit in self.speeds:
            return
        n_places = self.limit * self._n_gpus
        # Trials that started under another limit still run next to those of this limit.
        is_mixed = len(folders) > n_places and not self._old_folders.isdisjoint(folders)
        if len(folders) < n_places or is_mixed:
            self._steps = {}
            return
        steps = {}
        for folder in folders:
            report = try_read_json(folder / "progress.json", ProgressReport)
            steps[folder] = (report.step if report else None) or 0
        if not self._steps:
            self._window_start = now
            self._n_updates = 0
        self._n_updates += sum(max(0, step - self._steps.get(folder, step))
                               for folder, step in steps.items())
        self._steps = steps
        if now - self._window_start >= WINDOW_SECONDS:
            self.speeds[self.limit] = self._n_updates / (now - self._window_start)
            if self._file is not None:
                content = {str(limit): speed for limit, speed in self.speeds.items()}
                write_json(self._file, {"device": self._device, "updates_per_second": content})
            self.limit = self._choose_limit()
            self._old_folders = set(folders)
            self._steps = {}

    def _choose_limit(self) -> int:
        """Return the limit to measure next, or the best one."""
        speeds = self.speeds
        start = limit = min(MAX_TRIALS_PER_GPU, self._max_limit)
        while limit in speeds and 2 * limit <= self._max_limit:
            if speeds.get(2 * limit, float("inf")) < MIN_GAIN * speeds[limit]:
                break
            limit *= 2
        while limit in speeds and limit <= start and limit > 1:
            if MAX_LOSS * speeds.get(limit // 2, float("inf")) < speeds[limit]:
                break
            limit //= 2
        return limit
