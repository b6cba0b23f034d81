"""Ray's own processes, killed under a runner: its jobs are lost, not hung, and the next ones are trained."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from scalesearch.errors import UserError
from scalesearch.study.executors.base import LOST, Crashed, Done, Job
from tests.study import slow_work


def make_job(folder, number, seconds):
    place = folder / str(number)
    place.mkdir()
    (place / "architecture.yaml").write_text(json.dumps({"width": 8, "depth": 1, "kind": "plain"}))
    (place / "job.json").write_text(json.dumps({"trial": number, "sleep": seconds}))
    return Job(number, place, 1)


def started_here(name):
    """Processes of that name that this one has started."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = file.read_text().rpartition(")")
        except OSError:
            continue
        if head.partition("(")[2] == name and int(tail.split()[1]) == os.getpid() and tail.split()[0] not in "ZX":
            found.append(int(file.parent.name))
    return found


def first_event(runner, limit=240):
    until = time.monotonic() + limit
    while not (events := runner.poll(0.2)) and time.monotonic() < until:
        pass
    return events


@pytest.mark.ray
@pytest.mark.slow
def test_a_raylet_and_a_control_service_that_die_are_noticed_and_started_again(tmp_path):
    from scalesearch.study.executors.ray import RayRunner

    runner = RayRunner(slow_work.work, workers=2, cpus=0.5)
    try:
        for number, name in enumerate(("raylet", "gcs_server")):
            job = make_job(tmp_path, 10 + number, 1000)
            runner.submit(job)
            until = time.monotonic() + 120
            while not (job.folder / "lease.json").exists() and time.monotonic() < until:
                assert runner.poll(0.2) == []
            (victim,) = started_here(name)
            os.kill(victim, signal.SIGKILL)
            (event,) = first_event(runner)
            assert isinstance(event, Crashed) and event.kind == LOST and event.again, event
            quick = make_job(tmp_path, number, 0)
            runner.submit(quick)
            (event,) = first_event(runner)
            assert event == Done(quick)
    finally:
        runner.stop()
    assert not started_here("raylet") and not started_here("gcs_server")


def runner_without_ray(monkeypatch, address):
    from scalesearch.study.executors import ray as module

    monkeypatch.setattr(module, "_connect", lambda address: None)
    monkeypatch.setattr(module.ray, "shutdown", lambda: None)
    monkeypatch.setattr(module, "refuse_the_impossible", lambda need: None)
    monkeypatch.setattr(module.RayRunner, "_remote", lambda self, work: None)
    return module.RayRunner(slow_work.work, workers=1, address=address)


def test_a_cluster_that_is_gone_ends_the_study_with_how_to_go_on(monkeypatch, tmp_path):
    runner = runner_without_ray(monkeypatch, "far:1")
    with pytest.raises(UserError, match=r"gcs_server does not answer any more.*--resume once the cluster is back"):
        runner._lose("gcs_server")


def test_a_ray_that_dies_again_and_again_ends_the_study(monkeypatch, tmp_path):
    runner = runner_without_ray(monkeypatch, None)
    for _ in range(5):
        runner._running = {"task": Job(1, tmp_path, 1)}
        assert [event.kind for event in runner._lose("the raylet")] == [LOST]
    with pytest.raises(UserError, match=r"the raylet died 6 times and no training ended between.*--resume"):
        runner._lose("the raylet")


def test_a_short_silence_of_a_cluster_is_waited_for(monkeypatch):
    from scalesearch.study.executors import ray_health as module

    monkeypatch.setattr(module, "_doors", lambda: {"gcs_server": ("127.0.0.1", 1)})
    monkeypatch.setattr(module, "EVERY", 0.0)
    patient, hasty = module.Pulse(1000.0), module.Pulse(0.0)
    assert (patient.look(), patient.gone(), hasty.gone()) == ("gcs_server", "", "gcs_server")
    monkeypatch.setattr(module, "answers", lambda host, port: True)
    assert (hasty.gone(), patient.look()) == ("", "")
