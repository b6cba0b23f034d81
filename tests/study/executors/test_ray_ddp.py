"""A candidate in two processes, started by the worker or by Ray Train."""

import json
from pathlib import Path

import pytest

from scalesearch.study.config.sections import Resources
from scalesearch.study.executors.base import JobDone, TrainingJob
from scalesearch.study.executors.factory import has_ray_train
from scalesearch.study.executors.local import InProcessRunner
from scalesearch.study.executors.worker import train_job
from scalesearch.train import Recipe
from tests.errors import refuses
from tests.study.executors.test_executors import ends
from tests.train.conftest import corpus, tiny  # noqa: F401 - a fixture

RECIPE = {"steps": 6, "max_tokens": 200, "lr": 1e-3, "beam": 1, "dropout": 0.0, "device": "cpu",
          "precision": "fp32", "validate_every": 1}


def make_job(corpus, folder: Path, processes: int) -> TrainingJob:  # noqa: F811 - the fixture
    folder.mkdir()
    (folder / "architecture.yaml").write_text(tiny().to_yaml())
    recipe = Recipe.from_mapping(RECIPE).to_json()
    (folder
     / "job.json").write_text(json.dumps({"trial": processes, "data": corpus.spec.to_json(),
                                          "cache": str(corpus.folder.parent), "recipe": recipe,
                                          "seed": 1, "threads": 1, "processes": processes}))
    return TrainingJob(processes, folder, 1)


def losses(job: TrainingJob) -> list[float]:
    result = json.loads((job.folder / "result.json").read_text())
    assert (result["state"], result["processes"]) == ("complete", job.trial)
    return [point["validation_loss"] for point in result["curve"]]


def test_worker_starts_processes_of_its_job(corpus, tmp_path) -> None:  # noqa: F811
    first, second = (make_job(corpus, tmp_path / str(number), number) for number in (1, 2))
    events = ends(InProcessRunner(train_job), [first, second])
    assert all(isinstance(event, JobDone) for event in events.values()), events
    assert losses(first) == pytest.approx(losses(second), rel=1e-6)


@pytest.mark.ray
@pytest.mark.skipif(not has_ray_train(), reason="Ray Train is not installed")
def test_ray_train_runs_candidate_and_reports_errors(corpus, tmp_path) -> None:  # noqa: F811
    from scalesearch.study.executors.ray import RayRunner
    from scalesearch.study.executors.ray_ddp import RayTrainWork

    first, second, bad = (
        make_job(corpus, tmp_path / str(number), number % 10) for number in (1, 2, 12)
    )
    (bad.folder / "architecture.yaml").write_text("width: 16 | 32\n")
    train_job(str(first.folder))
    halves = Resources(cpus_per_trial=0.5, processes_per_trial=2)
    runner = RayRunner(RayTrainWork(halves), 1, halves)
    try:
        assert isinstance(ends(runner, [second])[2], JobDone)
        assert losses(first) == pytest.approx(losses(second), rel=1e-6)
        failed = ends(runner, [bad])[2]
        assert not failed.can_retry and "leaves width open" in failed.reason
    finally:
        runner.stop()


def test_resources_cover_all_processes(monkeypatch) -> None:
    from scalesearch.study.executors import ray as module

    params = {}
    monkeypatch.setattr(module, "connect", lambda address: None)
    monkeypatch.setattr(module.ray, "nodes",
                        lambda: [{"Alive": True, "Resources": {"CPU": 7, "GPU": 1}}])
    monkeypatch.setattr(module.ray, "remote",
                        lambda **options: params.update(options) or (lambda function: function))
    runner = module.RayRunner(
        train_job, 2, Resources(cpus_per_trial=3, gpus_per_trial=0.5, processes_per_trial=2))
    assert (params["num_cpus"], params["num_gpus"]) == (6, 1)
    assert "6 CPU and 1 GPU each for 2 processes" in runner.describe()
    with refuses("too-few-resources", "9 CPU and 0 GPU", key="resources"):
        module.RayRunner(train_job, 2, Resources(cpus_per_trial=3, processes_per_trial=3))
