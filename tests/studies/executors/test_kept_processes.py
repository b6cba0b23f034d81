"""Processes of the pool that train several trials: equal results, limits, and failures."""

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scalesearch.data import Corpus
from scalesearch.signals import SignalInterrupt, interrupt_on_signal
from scalesearch.studies.config.sections import Resources
from scalesearch.studies.executors import local, process_state
from scalesearch.studies.executors.base import JobCrashed, JobDone, TrainingJob
from scalesearch.studies.executors.local import PoolRunner
from scalesearch.studies.executors.process_state import ProcessState
from scalesearch.studies.executors.worker import train_job
from scalesearch.training.gpus import Gpu
from tests.studies.executors.test_executors import run_jobs
from tests.training.conftest import corpus, recipe, tiny  # noqa: F401, a fixture

GIB = 2**30


def act(folder: str) -> None:
    """Do what the file ``action`` names, and write the process and its settings to ``facts``."""
    place = Path(folder)
    action = (place / "action").read_text()
    facts = {"pid": os.getpid(), "dtype": str(torch.get_default_dtype()),
             "threads": torch.get_num_threads(), "folder": os.getcwd(),
             "deterministic": torch.are_deterministic_algorithms_enabled(),
             "precision": torch.get_float32_matmul_precision(),
             "sdp": torch.backends.cuda.cudnn_sdp_enabled(), "variable": os.environ.get("LEAK"),
             "numbers": [random.random(), float(np.random.rand()), torch.rand(()).item()]}  # noqa: NPY002
    (place / "facts").write_text(json.dumps(facts))
    if action == "raise":
        raise RuntimeError("an error")
    if action == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "change":
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("medium")
        torch.backends.cuda.enable_cudnn_sdp(False)
        os.environ["LEAK"] = "yes"
        os.chdir(place)
    (place / "result.json").write_text(json.dumps(
        {"state": "failed" if action == "fail" else "complete"}))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Run jobs one after the other in a pool with one worker; return their facts."""
    runners = []

    def run_actions(actions: list[str], trials_per_process: int = 9) -> list[dict[str, Any]]:
        runner = PoolRunner(act, 1, Resources(trials_per_process=trials_per_process))
        runners.append(runner)
        all_facts = []
        for number, action in enumerate(actions):
            job = make_job(tmp_path, number, action)
            event = run_jobs(runner, [job])[number]
            is_crash = action in ("raise", "killed")
            assert isinstance(event, JobCrashed if is_crash else JobDone)
            all_facts.append(json.loads((job.folder / "facts").read_text()))
        return all_facts

    yield run_actions
    for runner in runners:
        runner.stop()
        assert not runner._idle and len(runner._free) == 1


def make_job(folder: Path, number: int, action: str = "work") -> TrainingJob:
    place = folder / str(number)
    place.mkdir()
    (place / "action").write_text(action)
    (place / "job.json").write_text("{}")
    return TrainingJob(number, place)


@pytest.mark.parametrize("failure", ["raise", "killed", "fail"])
def test_process_is_kept_until_a_failure_or_its_limit(run, failure: str) -> None:
    pids = [facts["pid"] for facts in run(["work", "work", failure, "work", "work", "work", "work"],
                                          trials_per_process=3)]
    assert pids[0] == pids[1] == pids[2] and pids[3] == pids[4] == pids[5]
    assert len({pids[0], pids[3], pids[6]}) == 3


@pytest.mark.parametrize("failure", ["raise", "killed", "fail"])
def test_process_ends_after_a_failure(run, failure: str) -> None:
    pids = [facts["pid"] for facts in run(["work", failure, "work"])]
    assert pids[0] == pids[1] != pids[2]


def test_settings_of_a_trial_do_not_reach_the_next(run) -> None:
    first, second, third = run(["change", "change", "work"])
    assert first == second == third


def test_signal_waits_until_a_process_has_started(tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    runner = PoolRunner(act, 1, Resources())
    started = []

    class Process:
        def __init__(self, **_: Any) -> None:
            pass

        def start(self) -> None:
            signal.raise_signal(signal.SIGINT)
            started.append(self)

    monkeypatch.setattr(runner._context, "Process", Process)
    try:
        with pytest.raises(SignalInterrupt), interrupt_on_signal():
            run_jobs(runner, [make_job(tmp_path, 0)])
    finally:
        runner.stop()
    assert len(started) == 1


def test_cpu_trials_have_new_processes_by_default(tmp_path: Path) -> None:
    runner = PoolRunner(act, 1, Resources(gpus_per_trial=0.0))
    try:
        jobs = [make_job(tmp_path, number) for number in range(2)]
        run_jobs(runner, jobs)
        assert len({(job.folder / "facts").read_text() for job in jobs}) == 2
    finally:
        runner.stop()


@pytest.fixture
def pool_with_dead_process(tmp_path: Path) -> Iterator[PoolRunner]:
    """A pool whose idle process has died."""
    runner = PoolRunner(act, 1, Resources(trials_per_process=9))
    try:
        run_jobs(runner, [make_job(tmp_path, 0)])
        (idle,) = runner._idle
        idle.process.kill()
        idle.process.join()
        yield runner
    finally:
        runner.stop()


def test_idle_process_that_dies_is_replaced_and_stop_ends_idle_processes(
        tmp_path: Path, pool_with_dead_process: PoolRunner) -> None:
    runner = pool_with_dead_process
    assert isinstance(run_jobs(runner, [make_job(tmp_path, 1)])[1], JobDone)
    (idle,) = runner._idle
    runner.stop()
    assert not idle.process.is_alive()


def test_process_that_dies_before_it_receives_a_job_is_a_crash(
        tmp_path: Path, pool_with_dead_process: PoolRunner,
        monkeypatch: pytest.MonkeyPatch) -> None:
    runner = pool_with_dead_process
    with monkeypatch.context() as patch:  # it is alive when it is chosen
        patch.setattr(local.ForkServerProcess, "is_alive", lambda process: True)
        runner.submit(make_job(tmp_path, 1))
    (event,) = runner.poll(10)
    assert isinstance(event, JobCrashed) and event.can_retry and event.job.trial == 1
    assert isinstance(run_jobs(runner, [make_job(tmp_path, 2)])[2], JobDone)


@pytest.fixture
def gpu_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., set[int]]]:
    """Run jobs with these needs in GiB together, on GPUs of 80 GiB; return their processes."""
    gpus: list[Gpu] = []
    needs: list[float] = []
    runners = []
    monkeypatch.setattr(local, "find_gpus", lambda: gpus)
    monkeypatch.setattr(local, "predict_memory", lambda folder: int(needs[int(folder.name)] * GIB))

    def run_together(new_needs: list[float], n_gpus: int = 1) -> set[int]:
        if not runners:
            gpus.extend(Gpu(f"GPU-{index}", 80 * GIB) for index in range(n_gpus))
            runners.append(PoolRunner(act, 2, Resources()))
        jobs = [make_job(tmp_path, len(needs) + number) for number in range(len(new_needs))]
        needs.extend(new_needs)
        run_jobs(runners[0], jobs)
        assert not any(gpu.reserved for gpu in gpus)
        return {json.loads((job.folder / "facts").read_text())["pid"] for job in jobs}

    run_together.runners = runners  # type: ignore[attr-defined]
    yield run_together
    runners[0].stop()


def test_idle_process_trains_on_its_gpu_only(gpu_pool) -> None:
    pids = gpu_pool([20, 20], n_gpus=2)
    devices = {worker.process.pid: worker.place.devices for worker in gpu_pool.runners[0]._idle}
    assert set(devices.values()) == {"GPU-0", "GPU-1"}
    assert gpu_pool([20, 20]) == pids
    assert {worker.process.pid: worker.place.devices
            for worker in gpu_pool.runners[0]._idle} == devices


def test_idle_process_ends_if_its_memory_is_needed(gpu_pool) -> None:
    pids = gpu_pool([20, 20])
    assert len(pids) == 2
    assert len(gpu_pool([71]) & pids) == 1  # 71 GiB and an idle process fit
    assert len(gpu_pool.runners[0]._idle) == 2
    assert len(gpu_pool([72]) & pids) == 1
    assert len(gpu_pool.runners[0]._idle) == 1
    assert len(gpu_pool([20, 20]) & pids) == 1


@pytest.mark.parametrize(("sizes", "is_kept"), [([1.0, 1.9], True), ([1.0, 2.1], False)])
def test_process_that_grows_ends(tmp_path: Path, monkeypatch, sizes: list[float],
                                 is_kept: bool) -> None:
    state = ProcessState()
    event = JobDone(make_job(tmp_path, 1))
    for size in sizes:
        monkeypatch.setattr(process_state, "resident_bytes", partial(float, size * GIB))
        kept = state.is_reusable_after(event)
    assert kept == is_kept


def test_trials_of_one_process_equal_those_of_new_processes(corpus: Corpus,  # noqa: F811
                                                            tmp_path: Path) -> None:
    """Weights, losses and scores are equal to the last bit."""
    architectures = [tiny(width=16), tiny(width=24, encoder__depth=2)]
    results = {}
    for trials_per_process in (1, 2):
        jobs = []
        for number, architecture in enumerate(architectures):
            place = tmp_path / f"{trials_per_process}-{number}"
            place.mkdir()
            (place / "architecture.yaml").write_text(architecture.to_yaml())
            how = recipe(steps=6, bucketing="yes" if number else "no", optimizer="soap")
            job = {"data": corpus.spec.model_dump(), "cache": str(corpus.folder.parent), "seed": 5,
                   "threads": 1, "recipe": how.model_dump()}
            (place / "job.json").write_text(json.dumps(job))
            jobs.append(TrainingJob(number, place))
        runner = PoolRunner(train_job, 1, Resources(trials_per_process=trials_per_process))
        try:
            assert all(isinstance(event, JobDone) for event in run_jobs(runner, jobs).values())
        finally:
            runner.stop()
        results[trials_per_process] = [outcome(job.folder) for job in jobs]
    assert results[1] == results[2]


def outcome(folder: Path) -> tuple[bytes, list[float], dict[str, Any]]:
    """Weights, curve and scores of a training run."""
    result = json.loads((folder / "result.json").read_text())
    assert result["state"] == "complete"
    losses = [(item["train_loss"], item["validation_loss"]) for item in result["curve"]]
    scores = {name: value for name, value in result["metrics"].items() if name != "seconds"}
    return (folder / "model.safetensors").read_bytes(), losses, scores
