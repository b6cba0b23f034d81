"""Killed processes of Ray: jobs are lost without a hang, and later jobs are trained."""

import json
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from scalesearch.study.config.sections import Resources
from scalesearch.study.executors.base import CRASH_LOST, JobCrashed, JobDone, TrainingJob
from tests.errors import refuses
from tests.study import slow_work


def make_job(folder, number, seconds):
    place = folder / str(number)
    place.mkdir()
    (place / "architecture.yaml").write_text(json.dumps({"width": 8, "depth": 1, "kind": "plain"}))
    (place / "job.json").write_text(json.dumps({"trial": number, "sleep": seconds}))
    return TrainingJob(number, place, 1)


def started_here(name):
    """Processes with a name that are children of this process."""
    processes = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = file.read_text().rpartition(")")
        except OSError:
            continue
        if head.partition("(")[2] == name and int(
                tail.split()[1]) == os.getpid() and tail.split()[0] not in "ZX":
            processes.append(int(file.parent.name))
    return processes


def first_event(runner):
    while not (events := runner.poll(0.2)):
        pass
    return events


@pytest.mark.ray
@pytest.mark.slow
def test_dead_raylet_and_control_service_are_restarted(tmp_path):
    from scalesearch.study.executors.ray import RayRunner

    runner = RayRunner(slow_work.work, 2, Resources(cpus_per_trial=0.5))
    try:
        for number, name in enumerate(("raylet", "gcs_server")):
            job = make_job(tmp_path, 10 + number, 1000)
            runner.submit(job)
            while not (job.folder / "lease.json").exists():
                assert runner.poll(0.2) == []
            (victim,) = started_here(name)
            os.kill(victim, signal.SIGKILL)
            (event,) = first_event(runner)
            assert isinstance(event,
                              JobCrashed) and event.cause == CRASH_LOST and event.can_retry, event
            quick = make_job(tmp_path, number, 0)
            runner.submit(quick)
            (event,) = first_event(runner)
            assert event == JobDone(quick)
    finally:
        runner.stop()
    assert not started_here("raylet") and not started_here("gcs_server")


def test_start_waits_for_slow_node(monkeypatch):
    """On a busy machine, registration takes longer than Ray's limit of 30 seconds."""
    from scalesearch.study.executors import ray_local

    responses = [{"labels": {}}, *[RuntimeError()] * 3]

    def get_node(*_):
        response = responses.pop()
        if isinstance(response, Exception):
            raise response
        return response

    time = 0.0

    def sleep(seconds):
        nonlocal time
        time += 40.0

    monkeypatch.setattr(ray_local.services, "get_node", get_node)
    monkeypatch.setattr(ray_local, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: time))
    with ray_local.patient_start():
        assert ray_local.services.get_node("address", "node") == {"labels": {}} and time == 120.0
        responses.extend([RuntimeError()] * 9)
        with pytest.raises(RuntimeError):
            ray_local.services.get_node("address", "node")
    assert ray_local.services.get_node is get_node


def runner_without_ray(monkeypatch, address):
    from scalesearch.study.executors import ray as module

    monkeypatch.setattr(module, "connect", lambda address: None)
    monkeypatch.setattr(module.ray, "shutdown", lambda: None)
    monkeypatch.setattr(module, "check_resources", lambda need: None)
    monkeypatch.setattr(module.RayRunner, "_remote_task", lambda self, work: None)
    return module.RayRunner(slow_work.work, 1, Resources(address=address))


def test_lost_cluster_stops_study_with_resume_command(monkeypatch, tmp_path):
    runner = runner_without_ray(monkeypatch, "far:1")
    with refuses("cluster-lost", "gcs_server", "--resume", key="resources"):
        runner._report_lost("gcs_server")


def test_repeated_deaths_of_ray_stop_the_study(monkeypatch, tmp_path):
    runner = runner_without_ray(monkeypatch, None)
    for _ in range(5):
        runner._running = {"task": TrainingJob(1, tmp_path, 1)}
        assert [event.cause for event in runner._report_lost("the raylet")] == [CRASH_LOST]
    with refuses("cluster-lost", "raylet", "6 times", "--resume", key="resources"):
        runner._report_lost("the raylet")


def test_short_outage_of_cluster_is_tolerated():
    from scalesearch.study.executors.ray_services import CHECK_INTERVAL, ClusterHealth

    time = 0.0
    door = socket.create_server(("127.0.0.1", 0))
    address = door.getsockname()
    patient = ClusterHealth(20.0, {"gcs_server": address}, lambda: time)
    hasty = ClusterHealth(0.0, {"gcs_server": address}, lambda: time)
    door.close()
    assert (patient.lost_service(), hasty.lost_service()) == ("", "")  # nothing was measured yet
    time = CHECK_INTERVAL
    assert (patient.lost_service(), hasty.lost_service(), patient.silent_service()) == (
        "", "gcs_server", "gcs_server")
    time = 20.0
    assert patient.lost_service() == "gcs_server"
    with socket.create_server(address):
        time += CHECK_INTERVAL
        assert (patient.lost_service(), hasty.lost_service(), patient.silent_service()) == (
            "",
            "",
            "",
        )
