"""Heartbeat of a study while it runs, and the reason of its end."""

import os
import subprocess
import sys
import time

import pytest

from scalesearch.errors import UserError
from scalesearch.files import DiskFullError
from scalesearch.studies.monitor import heartbeat
from scalesearch.studies.monitor.heartbeat import (
    FINISHED,
    RUNNING,
    STOPPED,
    UNKNOWN,
    Heartbeat,
    read_owner,
)
from scalesearch.studies.monitor.render import describe_owner


def test_heartbeat_is_renewed_and_stores_end(tmp_path):
    assert read_owner(tmp_path).state == UNKNOWN
    facts = {"workers": 3, "executor": "here", "candidates": 5, "references": 1}
    with Heartbeat(tmp_path, facts, interval=0.01).running_study() as beat:
        first = (tmp_path / heartbeat.OWNER_FILE).stat().st_mtime_ns
        owner = read_owner(tmp_path, clock=lambda: 0.0)
        assert (owner.state, owner.pid) == (RUNNING, os.getpid())
        assert (owner.workers, owner.candidates) == (3, 5)
        while (tmp_path / heartbeat.OWNER_FILE).stat().st_mtime_ns <= first:
            time.sleep(0.01)
        assert "last heartbeat 0 s" in describe_owner(owner)
        assert beat.finish("5 candidates trained") == "5 candidates trained"
    owner = read_owner(tmp_path)
    assert (owner.state, owner.reason, owner.is_over) == (FINISHED, "5 candidates trained", True)


@pytest.mark.parametrize(("error", "words"), [
    (KeyboardInterrupt(), "interrupted"), (UserError("too many\nfailed"), "too many"),
    (DiskFullError("no room"), "no room"), (RuntimeError(), "RuntimeError"),
])
def test_interrupted_study_stores_reason(tmp_path, error, words):
    with pytest.raises(type(error)), Heartbeat(tmp_path, {}).running_study():
        raise error
    assert (read_owner(tmp_path).state, read_owner(tmp_path).reason) == (STOPPED, words)


def test_unwritable_heartbeat_is_ignored(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with Heartbeat(tmp_path / "file", {}).running_study() as beat:
        assert beat.finish("done") == "done"
    assert (tmp_path / "file").read_text() == "no folder"


def test_owner_state_of_dead_process_and_missing_heartbeat(event_study):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file = event_study.study.folder / heartbeat.OWNER_FILE
    event_study.write_owner(pid=ended.pid, machine=heartbeat.machine_id())
    os.utime(file, (1000, 1000))
    # With a recent heartbeat, the process may only be invisible.
    assert read_owner(event_study.study.folder, clock=lambda: 1009.0).state == RUNNING
    owner = read_owner(event_study.study.folder, clock=lambda: 1010.0)
    assert owner.state == STOPPED and owner.reason == f"its process {ended.pid} has died"
    event_study.write_owner()
    os.utime(file, (1000, 1000))
    owner = read_owner(event_study.study.folder, clock=lambda: 1120.0)
    assert owner.state == RUNNING and not owner.is_over
    assert owner.reason == "no heartbeat for 120 s"
    file.write_text("{")
    assert read_owner(event_study.study.folder).state == UNKNOWN
