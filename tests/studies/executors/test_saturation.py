"""The number of trials per GPU, refined by measured speeds: a fake clock and fake progress."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from scalesearch.files import write_json
from scalesearch.studies.executors.saturation import (
    INTERVAL_SECONDS,
    SPEEDS_FILE,
    WINDOW_SECONDS,
    SaturationPoint,
)
from scalesearch.training.gpus import Gpu

H100 = Gpu("GPU-a", 80 * 2**30, "NVIDIA H100")


class Simulation:
    """Trials on a GPU whose total speed depends on how many train at a time."""

    def __init__(self, folder: Path, speeds: Mapping[int, float], slots: int) -> None:
        self.now = 0.0
        self.folder = folder
        self.speeds = speeds
        self.point = SaturationPoint([H100], slots, folder, lambda: self.now)
        self.steps: dict[Path, float] = {}

    def run(self, n_trials: int, seconds: float) -> None:
        """Train ``n_trials`` at a time."""
        for _ in range(int(seconds / INTERVAL_SECONDS)):
            self.now += INTERVAL_SECONDS
            folders = [self.folder / str(number) for number in range(n_trials)]
            for folder in folders:
                folder.mkdir(exist_ok=True)
                steps = self.steps.get(folder, 0.0)
                self.steps[folder] = steps + self.speeds[n_trials] / n_trials * INTERVAL_SECONDS
                write_json(folder / "progress.json", {"step": int(self.steps[folder])})
            self.point.observe(folders)

    def run_at_limit(self) -> list[int]:
        """Train as many trials as the limit allows; return the limits that were measured."""
        limits = [self.point.limit]
        for _ in range(6):
            self.run(self.point.limit, WINDOW_SECONDS + 3)
            if self.point.limit != limits[-1]:
                limits.append(self.point.limit)
        return limits


@pytest.fixture(autouse=True)
def quick_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalesearch.studies.executors.saturation.WINDOW_SECONDS", 10.0)
    monkeypatch.setitem(globals(), "WINDOW_SECONDS", 10.0)


@pytest.mark.parametrize(("speeds", "slots", "limits"), [
    ({8: 700, 4: 600}, 8, [8, 4, 8]),  # half as many are slower
    ({8: 270, 4: 270, 2: 200}, 8, [8, 4, 2, 4]),  # half as many are as fast
    ({8: 700, 16: 900, 32: 910}, 32, [8, 16, 32, 16]),  # twice as many are faster
    ({8: 700, 16: 710, 4: 500}, 16, [8, 16, 4, 8]),
    ({3: 100, 1: 99}, 3, [3, 1])])
def test_limit_is_the_number_of_trials_that_saturates_the_gpu(
        tmp_path: Path, speeds: Mapping[int, float], slots: int, limits: list[int]) -> None:
    simulation = Simulation(tmp_path, speeds, slots)
    assert simulation.run_at_limit() == limits
    measured = simulation.point.speeds
    assert measured == {n: pytest.approx(speeds[n], rel=0.02) for n in set(limits)}


def test_speed_is_only_measured_while_all_places_are_taken(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, {8: 700, 7: 600}, 8)
    for _ in range(4):
        simulation.run(8, WINDOW_SECONDS / 2)
        simulation.run(7, WINDOW_SECONDS)
    assert not simulation.point.speeds


def test_speeds_are_kept_in_the_folder_of_the_study(tmp_path: Path) -> None:
    Simulation(tmp_path, {8: 270, 4: 270, 2: 200}, 8).run_at_limit()
    assert SaturationPoint([H100], 8, tmp_path).limit == 4
    assert SaturationPoint([Gpu("GPU-b", 2**30, "NVIDIA A100")], 8, tmp_path).limit == 8
    (tmp_path / SPEEDS_FILE).write_text("{")
    assert SaturationPoint([H100], 8, tmp_path).limit == 8
