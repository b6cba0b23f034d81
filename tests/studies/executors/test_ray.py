"""Ray of a study: private to its process, leaves nothing behind; its death loses no trial."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalesearch import files
from scalesearch.errors import UserError
from scalesearch.studies.config.sections import Resources
from scalesearch.studies.executors import ray_environment
from scalesearch.studies.executors.base import (
    CRASH_FAULT,
    CRASH_LOST,
    JobCrashed,
    JobDone,
    TrainingJob,
)
from scalesearch.studies.executors.local import make_runner
from tests.errors import refuses
from tests.processes import HANG
from tests.studies import slow_work

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
COUNT_NODES = """
import sys
from ray._raylet import GcsClient
print(len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=60)))
"""
HOLD_LOCK = ("import sys, filelock; l = filelock.FileLock(sys.argv[1]); l.acquire(); "
             "print(flush=True); sys.stdin.read()")


def process_parents():
    """Return the parents of all processes of this machine, without zombies, and their names."""
    parents = {}
    names = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = file.read_text().rpartition(")")
        except OSError:
            continue
        state, parent = tail.split()[:2]
        if state not in "ZX":
            parents[int(file.parent.name)] = int(parent)
            names[int(file.parent.name)] = head.partition("(")[2]
    return parents, names


def children(name):
    """Return the children of this process of that name."""
    parents, names = process_parents()
    return [pid for pid, parent in parents.items() if parent == os.getpid() and names[pid] == name]


def own_sockets():
    """Return the sockets, as links name them, of this process and its descendants."""
    parents, _ = process_parents()
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    sockets = set()
    for link in (link for pid in family for link in Path(f"/proc/{pid}/fd").glob("*")):
        try:
            sockets.add(os.readlink(link))
        except OSError:
            continue
    return sockets


def listening_addresses(sockets):
    """Return the addresses, in hexadecimal, at which ``sockets`` listen."""
    rows = [line.split() for name in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [row[1].partition(":")[0] for row in rows
            if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def count_nodes(address, **environment):
    """Return the number of nodes that another process counts; empty if Ray refuses it."""
    others = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
    done = subprocess.run([sys.executable, "-c", COUNT_NODES, address], capture_output=True,
                          text=True, timeout=HANG,
                          env={**others, "HOME": "/nonexistent", **environment})
    return done.stdout.strip()


@pytest.mark.ray
def test_ray_on_this_machine_is_private():
    import ray

    before = own_sockets()  # of other tests in this process
    runner = make_runner("ray", 1, Resources(), print)
    try:
        folder = Path(os.environ["RAY_TMPDIR"])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and list(folder.glob("ray/session*"))
        addresses = listening_addresses(own_sockets() - before)
        assert len(addresses) <= 7 and addresses and set(addresses) <= LOOPBACK
        address = ray.get_runtime_context().gcs_address
        token = os.environ["RAY_AUTH_TOKEN"]
        assert count_nodes(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token) == "1"
        assert count_nodes(address, RAY_AUTH_MODE="disabled") == ""
        assert count_nodes(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="a" * 64) == ""
    finally:
        runner.stop()
    assert not folder.exists() and "RAY_TMPDIR" not in os.environ


def test_settings_are_private_whatever_the_environment(monkeypatch):
    monkeypatch.setattr(os, "environ", {"RAY_AUTH_MODE": "disabled"})
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    ray_environment.prepare_environment("head:6379")
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    ray_environment.prepare_environment(None)
    assert os.environ.items() >= ray_environment.PRIVATE_SETTINGS.items()
    token = os.environ["RAY_AUTH_TOKEN"]
    assert len(token) == 64
    ray_environment.prepare_environment(None)
    assert os.environ["RAY_AUTH_TOKEN"] == token


def test_ray_with_other_settings_is_refused(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with refuses("ray-not-started", "imported before", key="resources"):
        ray_environment.prepare_environment(None)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    ray_environment.prepare_environment(None)
    assert "RAY_AUTH_TOKEN" not in os.environ


@pytest.mark.parametrize("variable", ["TMPDIR", "RAY_TMPDIR"])
def test_long_folder_of_temporary_files_is_replaced_by_a_short_one(variable, tmp_path, monkeypatch):
    long = tmp_path / ("x" * 60)  # as SLURM and macOS set it
    long.mkdir()
    monkeypatch.setenv(variable, str(long))
    monkeypatch.setattr(ray_environment.tempfile, "tempdir", None)
    with ray_environment.private_folder() as folder:
        assert os.environ["RAY_TMPDIR"] == str(folder) and not list(long.iterdir())
        inner = Path(*Path(ray_environment.LONGEST_SOCKET_PATH).parts[1:])
        (folder / inner).parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / inner))
    assert os.environ.get("RAY_TMPDIR") == (str(long) if variable == "RAY_TMPDIR" else None)


def test_folders_of_dead_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_environment.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(files, "MAX_SOCKET_PATH_BYTES", 1000)
    dead, alive, other = (tmp_path / f"scalesearch-ray-{name}" for name in ("a", "b", "c"))
    home = tmp_path / "home"
    for folder in (dead, alive, home):
        folder.mkdir()
        (folder / ".lock").touch()
    other.symlink_to(home)
    owner = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, str(alive / ".lock")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        owner.stdout.readline()
        with ray_environment.private_folder() as folder:
            assert not dead.exists() and alive.exists() and (home / ".lock").exists()
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        owner.communicate()


def test_ray_that_cannot_be_started_leaves_nothing(monkeypatch):
    ray = pytest.importorskip("ray")
    folders = set()

    def fail(*_, **__):
        folders.add(Path(os.environ["RAY_TMPDIR"]))
        raise RuntimeError("no port is free")

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(UserError) as error:
        make_runner("ray", 1, Resources())
    assert error.value.code == "ray-not-started" and len(folders) == 3
    assert not any(folder.exists() for folder in folders) and "RAY_TMPDIR" not in os.environ


def make_slow_job(folder, number, seconds):
    job_folder = folder / str(number)
    job_folder.mkdir()
    (job_folder / "architecture.yaml").write_text(
        json.dumps({"width": 8, "depth": 1, "kind": "plain"}))
    (job_folder / "job.json").write_text(json.dumps({"trial": number, "sleep": seconds}))
    return TrainingJob(number, job_folder)


def first_event(runner):
    while not (events := runner.poll(0.2)):
        pass
    return events[0]


@pytest.mark.ray
@pytest.mark.slow
def test_dead_services_are_restarted(tmp_path):
    runner = make_runner("ray", 2, Resources(cpus_per_trial=0.5), slow_work.work)
    try:
        for number, name in enumerate(("raylet", "gcs_server")):
            job = make_slow_job(tmp_path, 10 + number, 1000)
            runner.submit(job)
            while not (job.folder / "lease.json").exists():
                assert runner.poll(0.2) == []
            (victim,) = children(name)
            os.kill(victim, signal.SIGKILL)
            event = first_event(runner)
            assert isinstance(event, JobCrashed) and event.cause == CRASH_LOST and event.can_retry
            quick = make_slow_job(tmp_path, number, 0)
            runner.submit(quick)
            assert first_event(runner) == JobDone(quick)
    finally:
        runner.stop()
    assert not children("raylet") and not children("gcs_server")


def report_and_die(folder):
    """Work whose process writes an error and is killed."""
    (Path(folder) / "lease.json").write_text(json.dumps({"pid": os.getpid()}))
    print("tensor is broken", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.ray
def test_killed_worker_is_reported_in_one_line(tmp_path, capfd):
    runner = make_runner("ray", 1, Resources(cpus_per_trial=0.5), report_and_die)
    try:
        runner.submit(make_slow_job(tmp_path, 1, 0))
        event = first_event(runner)
        time.sleep(1)  # Ray prints messages later
    finally:
        runner.stop()
    assert event.can_retry and event.cause == CRASH_FAULT
    assert "killed" in event.reason and event.reason.endswith(": tensor is broken")
    assert "Worker exit detail" not in "".join(capfd.readouterr())


def runner_without_ray(monkeypatch, address):
    module = pytest.importorskip("scalesearch.studies.executors.ray")
    monkeypatch.setattr(module.RayRunner, "_connect", lambda self: None)
    monkeypatch.setattr(module.RayRunner, "_disconnect", lambda self: None)
    monkeypatch.setattr(module.RayRunner, "_prepare", lambda self: None)
    monkeypatch.setattr(module, "check_resources", lambda amounts: None)
    monkeypatch.setattr(module, "find_cluster_gpus", list)
    return module.RayRunner(slow_work.work, 1, Resources(), address)


def test_dead_cluster_ends_the_study(monkeypatch):
    runner = runner_without_ray(monkeypatch, "far:1")
    with refuses("cluster-lost", "gcs_server", "--resume", key="resources"):
        runner._report_lost("gcs_server")


def test_ray_that_dies_repeatedly_ends_the_study(monkeypatch, tmp_path):
    runner = runner_without_ray(monkeypatch, None)
    for _ in range(5):
        runner._running = {"task": TrainingJob(1, tmp_path)}
        assert [event.cause for event in runner._report_lost("the raylet")] == [CRASH_LOST]
    with refuses("cluster-lost", "raylet", "6 times", "--resume", key="resources"):
        runner._report_lost("the raylet")


def test_short_silence_of_a_cluster_is_tolerated():
    ray = pytest.importorskip("scalesearch.studies.executors.ray")
    time = 0.0
    server = socket.create_server(("127.0.0.1", 0))
    address = server.getsockname()
    patient = ray.ClusterHealth(20.0, {"gcs_server": address}, lambda: time)
    impatient = ray.ClusterHealth(0.0, {"gcs_server": address}, lambda: time)
    server.close()
    assert (patient.lost_service(), impatient.lost_service()) == ("", "")  # not probed yet
    time = ray.CHECK_INTERVAL
    assert patient.lost_service() == ""
    assert impatient.lost_service() == patient.silent_service() == "gcs_server"
    time = 20.0
    assert patient.lost_service() == "gcs_server"
    with socket.create_server(address):
        time += ray.CHECK_INTERVAL
        assert (patient.lost_service(), impatient.lost_service(), patient.silent_service()) == (
            "", "", "")
