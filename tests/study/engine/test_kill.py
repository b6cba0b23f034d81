"""``kill -9`` of the whole driver at random moments: nothing finished is lost, nothing is trained twice."""

import random
import signal
import subprocess
import sys
import time

import pytest

from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import State
from tests.processes import ended, wait_until
from tests.study.engine.test_driver import trained
from tests.study.fakes import make_driver, make_plan
from tests.study.slow_work import results

TRIALS = 14


def start(folder):
    command = [sys.executable, "-m", "tests.study.fakes", str(folder), str(TRIALS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(folder, count):
    """Starts a driver that gets two results further than ``count`` at most, and kills it a moment after that many."""
    folder.mkdir(exist_ok=True)
    (folder / "pace").write_text(str(count + 2))
    process = start(folder)
    wait_until(lambda: results(folder) >= count, process)
    time.sleep(random.Random(count).uniform(0, 0.03))
    process.send_signal(signal.SIGKILL)
    assert ended(process)[0] == -signal.SIGKILL


def test_a_study_killed_again_and_again_ends_as_the_uninterrupted_one(tmp_path):
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
    done = mine.having(State.COMPLETE)
    starts = trained(folder)
    assert set(starts) == {trial.folder for trial in done}
    assert sum(starts.values()) <= len(done) + 3
    assert all(starts[trial.folder] == 1 for trial in done if trial.attempts == 1)


def test_a_result_that_nobody_recorded_is_taken_in_not_trained_again(tmp_path):
    class Killed(Exception):
        pass

    driver = make_driver(tmp_path, make_plan(4))
    append = driver.study.append

    def die_before_recording(event, trial, **facts):
        if event == "ended" and len(trained(tmp_path)) == 2:
            raise Killed
        return append(event, trial, **facts)

    driver.study.append = die_before_recording
    with pytest.raises(Killed):
        driver.run()
    assert len(StudyDir(tmp_path).load().trials.having(State.COMPLETE)) == 1
    assert make_driver(tmp_path, make_plan(4)).run() == "4 candidates trained"
    assert set(trained(tmp_path).values()) == {1}


def test_a_torn_last_line_is_set_aside_and_the_rest_goes_on(tmp_path):
    make_driver(tmp_path, make_plan(3)).run()
    log = tmp_path / "events.jsonl"
    log.write_bytes(log.read_bytes() + b'{"event": "propo')
    assert make_driver(tmp_path, make_plan(5)).run() == "5 candidates trained"
    assert (tmp_path / "events.torn").read_bytes() == b'{"event": "propo'
    assert len(StudyDir(tmp_path).load().trials.having(State.COMPLETE)) == 5
