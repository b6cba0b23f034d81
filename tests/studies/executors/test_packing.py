"""Trials that share GPUs in the pool: places, visible devices, and cores."""

import json
import os
import time
from pathlib import Path

import pytest

from scalesearch.library import find_file
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.config.sections import Resources
from scalesearch.studies.engine.run import describe_start
from scalesearch.studies.executors import local
from scalesearch.studies.executors.base import JobDone, TrainingJob
from scalesearch.studies.executors.local import InProcessRunner, PoolRunner
from scalesearch.training.gpus import Gpu
from scalesearch.training.recipe import Recipe
from tests.processes import HANG, wait_until

GIB = 2**30


def record_place(folder: str) -> None:
    """Write the visible devices, cores and times of a job."""
    start = time.time()
    time.sleep(0.3)
    if (other := Path(folder) / "other").exists():
        (Path(folder) / "started").touch()
        wait_until((Path(other.read_text()) / "started").exists)
    place = {"devices": os.environ["CUDA_VISIBLE_DEVICES"], "start": start, "end": time.time(),
             "cores": sorted(os.sched_getaffinity(0)), "pipe": os.environ.get("PIPE")}
    (Path(folder) / "place.json").write_text(json.dumps(place))


@pytest.fixture
def places(tmp_path: Path, monkeypatch):
    """Run jobs with these needs in GiB on GPUs of 80 GiB; return where they ran."""

    def run(needs: list[float], n_gpus: int, workers: int = 8,
            overlaps: bool = False) -> list[dict]:
        gpus = [Gpu(f"GPU-{index}", 80 * GIB) for index in range(n_gpus)]
        monkeypatch.setattr(local, "find_gpus", lambda: gpus)
        monkeypatch.setattr(local, "predict_memory",
                            lambda folder: int(needs[int(folder.name)] * GIB))
        runner = PoolRunner(record_place, workers, Resources())
        try:
            for number in range(len(needs)):
                (tmp_path / str(number)).mkdir()
                if overlaps:  # the first two jobs wait for each other
                    (tmp_path / str(number) / "other").write_text(str(tmp_path / str(1 - number)))
                runner.submit(TrainingJob(number, tmp_path / str(number)))
            events = []
            deadline = time.monotonic() + HANG
            while len(events) < len(needs) and time.monotonic() < deadline:
                events += runner.poll(20)
        finally:
            runner.stop()
        assert len(events) == len(needs)
        assert all(isinstance(event, JobDone) for event in events)
        assert not any(gpu.reserved for gpu in gpus)
        return [json.loads((tmp_path / str(number) / "place.json").read_text())
                for number in range(len(needs))]

    return run


def overlap(first: dict, second: dict) -> bool:
    return first["start"] < second["end"] and second["start"] < first["end"]


def test_jobs_that_do_not_fit_together_run_one_after_the_other(places) -> None:
    first, second = places([50, 50], n_gpus=1)
    assert first["end"] <= second["start"]


def test_jobs_that_fit_share_a_gpu(places) -> None:
    first, second = places([20, 20], n_gpus=1, overlaps=True)
    assert overlap(first, second)
    assert first["devices"] == second["devices"] == "GPU-0"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_jobs_that_share_a_gpu_have_their_own_cores(places) -> None:
    first, second = places([20, 20], n_gpus=1, workers=2, overlaps=True)
    assert first["cores"] and second["cores"]
    assert not set(first["cores"]) & set(second["cores"])


def test_jobs_are_spread_over_gpus(places) -> None:
    ran = places([20, 30, 25], n_gpus=2)
    assert [job["devices"] for job in ran] == ["GPU-0", "GPU-1", "GPU-0"]


def test_job_larger_than_a_gpu_has_it_alone(places) -> None:
    small, large = places([1, 500], n_gpus=1)
    assert not overlap(small, large)


def test_workers_limit_jobs_that_share_a_gpu(places) -> None:
    first, second = places([1, 1], n_gpus=1, workers=1)
    assert not overlap(first, second)


@pytest.mark.parametrize(("recipe", "shares_gpus", "warns"), [
    ({"minutes": 1.0}, True, True), ({"cpu_minutes": 1.0}, True, True), ({"steps": 9}, True, False),
    ({"minutes": 1.0}, False, False)])
def test_budgets_in_minutes_are_unfair_on_a_shared_gpu(recipe, shares_gpus, warns) -> None:
    class SharedRunner(InProcessRunner):
        slots = 8

    SharedRunner.shares_gpus = shares_gpus
    spec = read_study(find_file("quick", "studies"))
    lines = describe_start(spec.replace(recipe=Recipe(**recipe)), SharedRunner(record_place))
    assert any(line.startswith("Warning") for line in lines) == warns
