"""A full disk at every write of a study: it stops with a message and can be resumed."""

import os
import resource
import stat
import subprocess
import sys

import pytest

from scalesearch.files import DiskFullError
from scalesearch.studies.trials.study_dir import StudyDir, resumable
from tests.errors import refuses
from tests.processes import HANG
from tests.studies.engine.test_driver import trained
from tests.studies.engine.test_promotion import RUNGS, rung_shares, work
from tests.studies.fakes import make_driver, make_plan, state_of

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
from scalesearch.files import DiskFullError
from tests.studies.fakes import make_driver, make_plan
try:
    make_driver(sys.argv[1], make_plan(8), storage=False).run()
except DiskFullError as full:
    sys.exit(str(full))
"""


def plan():
    return make_plan(4, rungs=RUNGS)


class Full:
    """Make every sync after the next ``writes`` ones fail, until changed."""

    def __init__(self, monkeypatch, writes):
        self.left = writes
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            return  # a folder takes no room
        if self.left <= 0:
            raise OSError(28, "No space left on device")
        self.left -= 1
        self._sync(handle)


@pytest.mark.full
@pytest.mark.all_instances
@pytest.mark.parametrize("first", range(7))
def test_study_resumes_after_a_full_disk_at_any_write(tmp_path, monkeypatch, first):
    """Every seventh write from ``first`` on meets a full disk, so together all of them do."""
    whole = make_driver(tmp_path / "whole", plan(), work=work)
    whole.run()
    disk = Full(monkeypatch, first)
    stops = 0
    while stops < 200:
        try:
            driver = make_driver(tmp_path / "cut", plan(), work=work, storage=False)
            driver.run()
            break
        except DiskFullError as full:
            assert "No space left on device" in str(full) and "Free space" in str(full)
            stops = stops + 1
            disk.left = 7 if (tmp_path / "cut" / "study.json").exists() else 100
    assert stops > 4
    assert state_of(StudyDir(tmp_path / "cut").load().trials) == state_of(whole.trials)
    assert rung_shares(tmp_path / "cut").keys() == rung_shares(tmp_path / "whole").keys()
    assert len(driver.search.study.trials) == len(whole.search.study.trials)
    assert all(trial.crashes == 0 for trial in driver.trials)


@pytest.mark.full
def test_study_stopped_by_a_file_size_limit_resumes(tmp_path):
    """By the system's own limit, in a process of its own."""
    make_driver(tmp_path / "whole", make_plan(8)).run()
    most = (tmp_path / "whole" / "events.jsonl").stat().st_size // 2
    code = [sys.executable, "-c", LIMITED, str(tmp_path / "cut")]
    stopped = subprocess.run([*code, str(most)], capture_output=True, text=True, timeout=HANG)
    assert stopped.returncode == 1, stopped.stderr
    assert "events.jsonl: cannot be written" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    subprocess.run([*code, str(resource.RLIM_INFINITY)], check=True, timeout=HANG)
    mine, whole = (StudyDir(tmp_path / name).load().trials for name in ("cut", "whole"))
    assert state_of(mine) == state_of(whole)
    assert set(trained(tmp_path / "cut").values()) == {1}


def test_full_disk_of_a_worker_stops_the_study_without_an_attempt(tmp_path):
    def full(folder):
        raise DiskFullError("checkpoint.pt: cannot be written: Free space, then run the command "
                            "again")

    with refuses("disk-full", "checkpoint.pt"):
        make_driver(tmp_path, make_plan(2), work=full).run()
    again = make_driver(tmp_path, make_plan(2))
    assert again.run() == "2 candidates trained"
    assert [trial.crashes for trial in again.trials.with_state("complete")] == [0, 0]


def test_message_explains_how_to_resume(tmp_path):
    with refuses("disk-full", "--resume"), resumable(tmp_path):
        raise DiskFullError("Free space, then run the command again")
    with refuses("disk-full") as caught, resumable(tmp_path):
        raise DiskFullError("again with --resume: 3 updates were done")
    assert str(caught.value) == "again with --resume: 3 updates were done", "once is enough"
    with refuses("disk-error", "Input/output error", "--resume"), resumable(tmp_path):
        raise OSError(5, "Input/output error", "x")
