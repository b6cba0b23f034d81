"""``kill -9`` of the driver at random times: no result is lost or trained twice."""

import random
import signal
import subprocess
import sys
import time

import pytest

from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State
from tests.processes import ended, wait_until
from tests.studies.engine.test_driver import trained
from tests.studies.fakes import make_driver, make_plan
from tests.studies.slow_work import results

TRIALS = 14


def start(folder):
    command = [sys.executable, "-m", "tests.studies.fakes", str(folder), str(TRIALS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(folder, count):
    """Start a driver, and kill it shortly after ``count`` results."""
    folder.mkdir(exist_ok=True)
    (folder / "pace").write_text(str(count + 2))
    process = start(folder)
    wait_until(lambda: results(folder) >= count, process)
    time.sleep(random.Random(count).uniform(0, 0.03))
    process.send_signal(signal.SIGKILL)
    assert ended(process)[0] == -signal.SIGKILL


@pytest.mark.full
def test_killed_study_equals_uninterrupted(tmp_path):
    folder = tmp_path / "killed"
    for count in (1, 4, 8):
        kill_after(folder, count)
    (folder / "pace").unlink()
    _, out, err = ended(start(folder))
    assert out == f"{TRIALS} candidates trained\n", err

    make_driver(tmp_path / "whole", make_plan(TRIALS)).run()
    mine, whole = (StudyDir(path).load().trials for path in (folder, tmp_path / "whole"))
    assert [(t.params, t.state, t.values) for t in mine] == [
        (t.params, t.state, t.values) for t in whole
    ]
    # Training may be cut short by a kill and started again, but never after its result was there.
    done = mine.with_state(State.COMPLETE)
    starts = trained(folder)
    assert set(starts) == {trial.folder for trial in done}
    assert sum(starts.values()) <= len(done) + 3
    assert all(starts[trial.folder] == 1 for trial in done if trial.attempts == 1)
