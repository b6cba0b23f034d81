"""Lease of a candidate: one worker at a time, with a heartbeat; dead and silent workers."""

import json
import os
import subprocess
import sys
import time

import pytest

from scalesearch.studies.executors import lease
from scalesearch.studies.executors.base import CRASH_FAULT, CRASH_LOST, TrainingJob, run_job
from scalesearch.studies.executors.worker import ProgressFile, finish_job
from tests.studies.fakes import fake_result


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({"trial": 3, "attempt": 2}))
    (tmp_path
     / "architecture.yaml").write_text(json.dumps({"width": 8, "depth": 1, "kind": "plain"}))
    return tmp_path


class Clock:
    """A clock that advances only during ``sleep``, which calls ``beat``."""

    def __init__(self, beat=lambda: None):
        self.time = 0.0
        self.beat = beat

    def timing(self):
        return lease.HeartbeatTiming(now=lambda: self.time, sleep=self.sleep)

    def sleep(self, seconds):
        self.time += seconds
        self.beat()


def foreign(folder):
    """Write the lease of a worker of another machine."""
    (folder
     / lease.LEASE_FILE).write_text(json.dumps({"host": "far", "machine": "other", "pid": 7}))


def test_lease_has_holder_and_heartbeat(folder):
    holders = []

    def work(place, job):
        first = (place / lease.LEASE_FILE).stat().st_mtime_ns
        while (place / lease.LEASE_FILE).stat().st_mtime_ns <= first:
            time.sleep(0.01)
        holders.append(lease.read_holder(place))
        return fake_result(place, job)

    finish_job(folder, work, lease.HeartbeatTiming(interval=0.01))
    owner, = holders
    assert owner.pid == os.getpid()
    assert not (folder / lease.LEASE_FILE).exists() and (folder / "result.json").exists()


def crash_cause(folder, error):
    """The cause of the crash of a job whose work raises an error."""
    def work(folder):
        raise error

    return run_job(work, TrainingJob(3, folder)).cause


def test_second_worker_leaves_candidate_without_error(folder):
    hold = ("import sys, filelock; l = filelock.FileLock(sys.argv[1]); l.acquire(); "
            "print(flush=True); sys.stdin.read()")
    first = subprocess.Popen([sys.executable, "-c", hold, str(folder / lease.LOCK_FILE)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    first.stdout.readline()
    with pytest.raises(lease.LeaseHeldError) as error:
        finish_job(folder, fake_result, lease.HeartbeatTiming(lock_timeout=0.0))
    assert "is held by" in str(error.value)
    assert crash_cause(folder, error.value) == CRASH_LOST
    assert crash_cause(folder, OSError()) == CRASH_FAULT
    first.kill()
    first.communicate()
    finish_job(folder, fake_result)
    assert (folder / "trained").read_text().split() == [str(os.getpid())]


def test_lease_of_dead_worker_is_taken_over(folder):
    dead = {**lease.process_facts(), "pid": 1}
    (folder / lease.LEASE_FILE).write_text(json.dumps(dead))
    clock = Clock()
    lease.wait_for_other_machine(folder, clock.timing())
    assert clock.time == 0
    foreign(folder)
    finish_job(folder, fake_result, clock.timing())
    assert clock.time == lease.HEARTBEAT_TIMING.timeout and (folder / "result.json").exists()


def test_remote_worker_with_heartbeat_keeps_lease(folder):
    foreign(folder)
    clock = Clock(lambda: os.utime(folder / lease.LEASE_FILE, (clock.time, clock.time)))
    with pytest.raises(lease.LeaseHeldError) as error:
        finish_job(folder, fake_result, clock.timing())
    assert "is held by" in str(error.value)
    assert clock.time == lease.HEARTBEAT_TIMING.lock_timeout and not (folder / "trained").exists()


def test_worker_without_heartbeat_writes_no_result(folder):
    def work(place, job):
        report = ProgressFile(place, every=0)
        report({"type": "update", "step": 1})
        foreign(place)
        report({"type": "update", "step": 2})
        raise AssertionError("it should have stopped")

    with pytest.raises(lease.LeaseHeldError) as error:
        finish_job(folder, work)
    assert "taken over" in str(error.value)
    assert not (folder / "result.json").exists() and not (folder / "crash.txt").exists()
    assert lease.read_holder(folder).machine == "other" and json.loads(
        (folder / "progress.json").read_text())["step"] == 1


def test_partial_files_are_deleted_only_by_lease_holder(folder, event_study):
    for name in ("lease.json", "result.json", "checkpoint.pt", "job.json", "record.json"):
        (folder / f".{name}.abcdefgh").write_text("half")
    finish_job(folder, fake_result)
    assert {file.name for file in folder.glob(".*")} == {
        lease.LOCK_FILE, ".job.json.abcdefgh", ".record.json.abcdefgh"}
    place = event_study.study.folder / "trials" / "0000-x"
    place.mkdir(parents=True)
    parts = [event_study.study.folder / ".study.json.abcdefgh", place / ".job.json.abcdefgh",
             place / ".result.json.abcdefgh", event_study.study.folder / ".report.html.abcdefgh"]
    for part in parts:
        part.write_text("half")
    with event_study.study.exclusive():
        assert [part.exists() for part in parts] == [False, False, True, True]


def test_result_after_takeover_is_not_written(folder):
    with pytest.raises(lease.LeaseHeldError) as error:
        finish_job(folder, lambda place, job: foreign(place) or fake_result(place, job))
    assert "taken over" in str(error.value)
    assert not (folder / "result.json").exists()
