"""The contract that all runners meet."""

import os
import sys
from pathlib import Path
from subprocess import check_output as call

import pytest

from scalesearch.errors import UserError
from scalesearch.study.config.sections import Resources
from scalesearch.study.executors.base import JobCrashed, JobDone, TrainingJob
from scalesearch.study.executors.local import InProcessRunner
from scalesearch.study.trials.trial import State
from tests.errors import refuses
from tests.study.fakes import fake_work, make_driver, make_plan


def job(tmp_path, number, what="work"):
    folder = tmp_path / f"{number}-{what}"
    folder.mkdir()
    (folder / "what").write_text(what)
    return TrainingJob(number, folder, 1)


def work(folder):
    """Finish, raise or exit, as the file ``what`` of the folder names."""
    what = (Path(folder) / "what").read_text()
    if what == "raise":
        raise RuntimeError("it broke\nin two lines")
    if what == "refuse":
        raise UserError("this can never work")
    if what == "die":
        os._exit(9)
    if what == "environment":
        names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
        (Path(folder) / "seen").write_text(repr([*map(os.environ.get, names), os.nice(0)]))
    (Path(folder) / "result.json").write_text(f"{os.getpid()}")


def ends(runner, jobs):
    """Submit the jobs and return the final event of each."""
    for job in jobs:
        runner.submit(job)
    events = []
    while len(events) < len(jobs):
        events += runner.poll(0.2)
    return {event.job.trial: event for event in events}


def check_contract(runner, tmp_path, crashes):
    """Check jobs that finish, raise, are refused or crash."""
    assert runner.poll(5.0) == []
    kinds = ["work", "raise", "work", "refuse", *crashes, "work"]
    events = ends(runner, [job(tmp_path, number, what) for number, what in enumerate(kinds)])
    assert sorted(events) == list(range(len(kinds)))
    for number, what in enumerate(kinds):
        event = events[number]
        assert isinstance(event, JobDone if what == "work" else JobCrashed), (what, event)
        assert (event.job.folder / "result.json").exists() == (what == "work")
    assert events[1].reason.startswith("RuntimeError: it broke") and events[1].can_retry
    assert events[3].reason.endswith("this can never work") and not events[3].can_retry
    assert runner.poll(5.0) == []


def test_contract_in_process(tmp_path):
    runner = InProcessRunner(work)
    check_contract(runner, tmp_path, [])
    runner.submit(job(tmp_path, 99))
    runner.stop()
    assert runner.poll(0) == [] and runner.slots == 1


def test_interrupt_passes_the_in_process_runner(tmp_path):
    def interrupted(folder):
        raise KeyboardInterrupt

    runner = InProcessRunner(interrupted)
    runner.submit(job(tmp_path, 1))
    with pytest.raises(KeyboardInterrupt):
        runner.poll(0)


@pytest.mark.parametrize("reserves", [False, True])
@pytest.mark.parametrize("gpus", [0.0, 0.5, 1.0])
def test_gpus_are_hidden_only_from_workers_without_gpus(reserves, gpus):
    """A task that reserves for its processes has no GPU; they inherit its environment."""
    from scalesearch.study.executors.ray import RayRunner, ResourceRequest

    runner = object.__new__(RayRunner)
    runner._resources = Resources(gpus_per_trial=gpus)
    runner._work_reserves_resources = reserves
    runner._request = ResourceRequest.of(runner._resources, reserves)
    options = runner._remote_task(fake_work)._default_options
    assert options["num_gpus"] == (0.0 if reserves else gpus)
    assert ("CUDA_VISIBLE_DEVICES" in options["runtime_env"]["env_vars"]) == (gpus == 0)


@pytest.mark.ray
def test_contract_with_ray_and_study_with_two_workers(tmp_path):
    """One Ray runtime for all checks, since its start takes seconds."""
    from scalesearch.study.executors.ray import RayRunner

    with refuses("too-few-resources", "1 CPU and 5 GPU", key="resources"):
        RayRunner(work, 1, Resources(gpus_per_trial=5))
    runner = RayRunner(work, 2, Resources())
    check_contract(runner, tmp_path, ["die"])
    assert ends(runner, [job(tmp_path, 50, "environment")])[50]
    assert (tmp_path / "50-environment" / "seen").read_text() == f"['1', '', {os.nice(0)}]"
    runner._task = runner._remote_task(fake_work)
    driver = make_driver(tmp_path / "study", make_plan(4), runner=runner)
    assert driver.run() == "4 candidates trained"
    done = driver.trials.with_state(State.COMPLETE)
    pids = [(driver.study.trial_folder(trial) / "trained").read_text() for trial in done]
    assert len(set(pids)) == 4 and str(os.getpid()) not in "".join(pids).split()


def test_worker_has_niceness_of_the_study_file():
    code = (
        "import os; from scalesearch.study.executors.worker import raise_niceness as s; "
        "s(7); s(3); print(os.nice(0))"
    )
    assert call([sys.executable, "-c", code]).strip() == b"7"


@pytest.mark.parametrize(("need", "room"),
                         [(({"CPU": 1, "GPU": 0},), 6), (({"CPU": 1, "GPU": 0.5},), 2),
                          (({"CPU": 3, "GPU": 0},), 1), (({"CPU": 2, "GPU": 0}, 2), 1),
                          (({"CPU": 2, "GPU": 0}, 3), 0), (({"CPU": 2, "GPU": 0}, 3, True), 1),
                          (({"CPU": 0, "GPU": 0},), None),
                          (({"CPU": 0.1, "GPU": 0, "rare": 1},), 3), (({"CPU": 5, "GPU": 0},), 0)])
def test_number_of_workers_that_fit_on_nodes(monkeypatch, need, room):
    from scalesearch.study.executors import ray_cluster

    nodes = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0, "rare": 3.0}, {"CPU": 99.0}]
    listing = [{"Alive": number < 2, "Resources": node} for number, node in enumerate(nodes)]
    monkeypatch.setattr(ray_cluster.ray, "nodes", lambda: listing)
    params = ray_cluster.ResourceRequest(*need)
    assert params.worker_capacity() == room
    if room == 0:
        with refuses("too-few-resources", "4 CPU, 1 GPU; 2 CPU, 0 GPU", key="resources"):
            ray_cluster.check_resources(params)
    else:
        ray_cluster.check_resources(params)


def test_unreachable_cluster_is_reported_immediately(monkeypatch):
    from scalesearch.study.executors.ray import RayRunner

    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("it would try for minutes"))
    with refuses("cluster-unreachable", "127.0.0.1:1", key="ray"):
        RayRunner(work, 1, Resources(address="127.0.0.1:1"))
