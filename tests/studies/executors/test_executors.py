"""Executors: one contract for all; what each worker gets of the machine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalesearch.errors import UserError
from scalesearch.studies.config.sections import Resources
from scalesearch.studies.executors.base import JobCrashed, JobDone, TrainingJob
from scalesearch.studies.executors.local import InProcessRunner, assign_devices, make_runner
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.trials.trial import State
from tests.errors import refuses
from tests.processes import HANG, wait_until
from tests.studies.fakes import fake_work, make_driver, make_plan

BACKENDS = ["inprocess", "pool", pytest.param("ray", marks=pytest.mark.ray)]


def make_job(folder, number, action="work"):
    job_folder = folder / f"{number}-{action}"
    job_folder.mkdir()
    (job_folder / "action").write_text(action)
    (job_folder / "job.json").write_text("{}")
    return TrainingJob(number, job_folder)


def work(folder):
    """Write a result, raise an error or die, as the file ``action`` names."""
    place = Path(folder)
    action = (place / "action").read_text()
    if action == "raise":
        raise RuntimeError("first line\nsecond line")
    if action == "refuse":
        raise UserError("invalid recipe")
    if action == "die":
        os._exit(9)
    if action == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "environment":
        torch = sys.modules.get("torch")
        facts = {"threads": os.environ.get("OMP_NUM_THREADS"), "niceness": os.nice(0),
                 "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
                 "torch": torch and torch.cuda.is_initialized()}
        (place / "environment").write_text(json.dumps(facts))
    if action == "wait":
        finish_job(place, lambda *_: wait(place))
    (place / "result.json").write_text(f"{os.getpid()}")


def wait(folder):
    """Wait until the process is interrupted, and note that."""
    (folder / "waiting").write_text(f"{os.getpid()}")
    try:
        while True:
            time.sleep(0.05)  # Ray does not interrupt a system call
    finally:
        (folder / "interrupted").touch()


def run_jobs(runner, jobs):
    """Submit the jobs, and wait for their events by trial."""
    for job in jobs:
        runner.submit(job)
    events = []
    while len(events) < len(jobs):
        events += runner.poll(0.2)
    return {event.job.trial: event for event in events}


@pytest.mark.parametrize("backend", BACKENDS)
def test_contract(tmp_path, backend):
    runner = make_runner(backend, 2, Resources(), work)
    try:
        assert runner.poll(5.0) == []
        assert runner.slots == (1 if backend == "inprocess" else 2)
        deaths = [] if backend == "inprocess" else ["die", "killed"]
        actions = ["work", "raise", "work", "refuse", *deaths, "work"]
        jobs = [make_job(tmp_path, number, action) for number, action in enumerate(actions)]
        events = run_jobs(runner, jobs)
        for job, action in zip(jobs, actions):
            event = events[job.trial]
            if action == "work":
                assert event == JobDone(job)
            else:
                assert isinstance(event, JobCrashed) and event.job == job
            assert (job.folder / "result.json").exists() == (action == "work")
        assert events[1].reason.startswith("RuntimeError: first line") and events[1].can_retry
        assert events[3].reason.endswith("invalid recipe") and not events[3].can_retry
        if backend != "inprocess":
            pids = {(jobs[number].folder / "result.json").read_text() for number in (0, 2, 6)}
            assert len(pids) == 3 and f"{os.getpid()}" not in pids
        assert runner.poll(5.0) == []
        if backend == "inprocess":
            runner.submit(make_job(tmp_path, 98))
        else:
            jobs = [make_job(tmp_path, number, "wait") for number in (98, 99)]
            for job in jobs:
                runner.submit(job)
            wait_until(lambda: all((job.folder / "waiting").exists() for job in jobs))
        runner.stop()
        assert runner.poll(0) == []
        assert len(list(tmp_path.glob("*/interrupted"))) == (0 if backend == "inprocess" else 2)
    finally:
        runner.stop()


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_study_with_two_workers(tmp_path, backend):
    runner = make_runner(backend, 2, Resources(), fake_work)
    driver = make_driver(tmp_path / "study", make_plan(4), runner=runner)
    assert driver.run() == "4 candidates trained"
    done = driver.trials.with_state(State.COMPLETE)
    pids = [(driver.study.trial_folder(trial) / "trained").read_text() for trial in done]
    assert len(set(pids)) == 4 and str(os.getpid()) not in "".join(pids).split()


def test_interrupt_reaches_caller_of_inprocess_runner(tmp_path):
    def interrupted(folder):
        raise KeyboardInterrupt

    runner = InProcessRunner(interrupted)
    runner.submit(make_job(tmp_path, 1))
    with pytest.raises(KeyboardInterrupt):
        runner.poll(0)


def test_pool_kills_workers_that_do_not_stop(tmp_path):
    runner = make_runner("pool", 1, Resources(), work)
    job = make_job(tmp_path, 1, "wait")
    runner.submit(job)
    waiting = job.folder / "waiting"
    try:
        wait_until(lambda: waiting.exists() and waiting.read_text())  # it is empty for a moment
        pid = int(waiting.read_text())
        os.kill(pid, signal.SIGSTOP)
    finally:  # a worker that is left keeps the process of the tests from ending
        runner.stop(grace=0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.full
def test_pool_workers_end_with_their_driver_and_do_not_run_its_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"""
from pathlib import Path
from scalesearch.studies.config.sections import Resources
from scalesearch.studies.executors.local import make_runner
from tests.studies.executors.test_executors import make_job, work

folder = Path({str(tmp_path)!r})
(folder / "started").touch(exist_ok=False)
runner = make_runner("pool", 1, Resources(), work)
runner.submit(make_job(folder, 1, "wait"))
while True:
    runner.poll(1.0)
""")
    driver = subprocess.Popen([sys.executable, script], env=os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})
    folder = tmp_path / "1-wait"
    wait_until((folder / "waiting").exists, driver)
    driver.kill()
    driver.wait()
    wait_until((folder / "interrupted").exists)
    wait_until(lambda: not (folder / "lease.json").exists())


@pytest.mark.full
def test_pool_starts_if_the_folder_of_temporary_files_has_a_long_path(tmp_path):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    script = "from scalesearch.studies.executors.local import start_forkserver; start_forkserver()"
    subprocess.run([sys.executable, "-c", script], env=os.environ | {"TMPDIR": str(long)},
                   check=True, timeout=HANG)


@pytest.mark.full
@pytest.mark.ray
def test_environment_of_ray_worker(tmp_path):
    with refuses("too-few-resources", "1 CPU and 5 GPU", key="resources"):
        make_runner("ray", 1, Resources(gpus_per_trial=5), work)
    runner = make_runner("ray", 2, Resources(), work)
    try:
        job = make_job(tmp_path, 50, "environment")
        assert run_jobs(runner, [job])[50] == JobDone(job)
        assert json.loads((job.folder / "environment").read_text()) == {
            "threads": "1", "niceness": os.nice(0), "devices": "", "torch": False}
    finally:
        runner.stop()


def test_environment_of_pool_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    runner = make_runner("pool", 3, Resources(gpus_per_trial=1), work)
    assert runner.slots == 2
    jobs = [make_job(tmp_path, number, "environment") for number in range(2)]
    run_jobs(runner, jobs)
    facts = [json.loads((job.folder / "environment").read_text()) for job in jobs]
    assert [fact["devices"] for fact in facts] == ["4", "7"]
    # PyTorch is loaded before the processes are forked, and CUDA is not initialized.
    assert [fact["torch"] for fact in facts] == [False, False]


@pytest.mark.parametrize(("visible", "workers", "gpus", "devices"), [
    ("0,1", 3, 0, [None] * 3), ("0,1", 3, 0.5, ["0", "1", "0"]), ("0,1", 9, 0.34, ["0", "1"] * 2),
    ("0,1", 9, 0.51, ["0", "1"]), ("0,1,2,3,4", 9, 2, ["0,1", "2,3"]), ("3", 1, 1, ["3"]),
])
def test_devices_of_pool_workers(monkeypatch, visible, workers, gpus, devices):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert assign_devices(workers, gpus) == devices


def test_pool_needs_devices_for_one_worker(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with refuses("too-few-resources", "needs 2 GPU", "has 1", key="resources"):
        assign_devices(1, 2)


@pytest.mark.full
def test_niceness_is_only_raised(tmp_path):
    code = """
import json, os, sys
from pathlib import Path
from scalesearch.studies.executors import worker

worker._train = lambda *_: {"state": "complete"}
for nice in map(int, sys.argv[2:]):
    (Path(sys.argv[1]) / "job.json").write_text(json.dumps({"threads": 1, "nice": nice}))
    worker.train_job(sys.argv[1])
    (Path(sys.argv[1]) / "result.json").unlink()
    print(os.nice(0))
"""
    raised = min(os.nice(0) + 7, 19)  # the tests may run at low priority
    output = subprocess.check_output([sys.executable, "-c", code, str(tmp_path), str(raised),
                                      str(raised - 4)], text=True)
    assert output.split() == [str(raised)] * 2


@pytest.mark.parametrize(("amounts", "capacity"), [
    ({"CPU": 1, "GPU": 0}, 6), ({"CPU": 1, "GPU": 0.5}, 2), ({"CPU": 3, "GPU": 0}, 1),
    ({"CPU": 0, "GPU": 0}, float("inf")), ({"CPU": 0.1, "GPU": 0, "rare": 1}, 3),
    ({"CPU": 5, "GPU": 0}, 0)])
def test_capacity_of_cluster(monkeypatch, amounts, capacity):
    ray_cluster = pytest.importorskip("scalesearch.studies.executors.ray_cluster")
    nodes = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0, "rare": 3.0}, {"CPU": 99.0}]
    listing = [{"Alive": number < 2, "Resources": node} for number, node in enumerate(nodes)]
    monkeypatch.setattr(ray_cluster.ray, "nodes", lambda: listing)
    assert ray_cluster.cluster_capacity(amounts) == capacity
    if capacity == 0:
        with refuses("too-few-resources", "4 CPU, 1 GPU; 2 CPU, 0 GPU", key="resources"):
            ray_cluster.check_resources(amounts)


def test_silent_cluster_is_reported_at_once(monkeypatch):
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray would retry for minutes"))
    with refuses("cluster-unreachable", "127.0.0.1:1", key="ray"):
        make_runner("ray", 1, Resources(address="127.0.0.1:1"))
