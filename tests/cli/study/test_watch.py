"""``study watch`` in another process: once, as JSON, in a pipe, and on a terminal."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from functools import partial

import pytest

from scalesearch.studies.monitor.heartbeat import FINISHED, STOPPED
from tests.cli.study.commands import call_study
from tests.errors import refuses
from tests.processes import HANG, in_the_background, wait_until
from tests.studies.event_study import EventStudy
from tests.studies.fakes import make_driver, make_plan

WATCH = (sys.executable, "-m", "scalesearch", "study", "watch")


call = partial(call_study, "watch")


@pytest.fixture
def running(tmp_path):
    """A study of six trials on another machine, whose first trial is in training."""
    event_study = EventStudy(tmp_path / "study")
    event_study.write_owner(candidates=6, references=0)
    event_study.propose(0)
    event_study.write_worker_files(0, step=100, share=0.25, loss=4.5, seconds=30)
    return event_study


class Watching:
    """``study watch`` in another process; with ``size`` (lines, columns), on a terminal."""

    def __init__(self, event_study, size=None, *options):
        self.output = b""
        ends = pty.openpty() if size else os.pipe()
        if size:
            fcntl.ioctl(ends[1], termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        environment = {key: value
                       for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen([*WATCH, str(event_study.study.folder), "--every", "0.1",
                                         *options], stdin=subprocess.DEVNULL, stdout=ends[1],
                                        stderr=subprocess.STDOUT, preexec_fn=in_the_background,
                                        env={**environment, "TERM": "xterm"})
        os.close(ends[1])
        self.reader = threading.Thread(target=self._read, args=(ends[0],), daemon=True)
        self.reader.start()

    def _read(self, end):
        try:
            while data := os.read(end, 65536):
                self.output += data
        except OSError:  # a terminal whose other end is closed
            pass

    def until(self, words):
        wait_until(lambda: words in self.output.decode(errors="replace")
                   or self.process.poll() is not None)
        assert words in self.output.decode(errors="replace")

    def end(self):
        status = self.process.wait(HANG)
        self.reader.join(HANG)
        return status, self.output.decode()


def test_watch_once_writes_no_files(tmp_path):
    make_driver(tmp_path, make_plan(4)).run()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    text = call(tmp_path, "--once", COLUMNS="80")
    snapshot = json.loads(call(tmp_path, "--json"))
    assert "Front so far" in text and all(len(line) <= 80 for line in text.splitlines())
    assert (
        snapshot["study"] == "fake"
        and snapshot["counts"]["complete"] == 4
        and snapshot["owner"]["state"] == "unknown"
    )
    assert snapshot["front_summary"]["hypervolume"]["value"] > 0 and len(snapshot["events"]) == 5
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_json_has_running_trials(running):
    snapshot = json.loads(call(running.study.folder, "--json"))
    assert snapshot["owner"]["host"] == "far" and snapshot["owner"]["heartbeat_age"] < 60
    assert [(running_trial["trial"], running_trial["step"], running_trial["trained_share"])
            for running_trial in snapshot["running"]] == [(0, 100, 0.25)]
    # five trials remain on two workers; a run takes 120 s of updates after 10 s of start-up
    assert snapshot["eta"]["seconds"] == pytest.approx(3 * 130, abs=3)
    assert snapshot["progress"]["share"] == 0.25 / 6


def test_status_has_owner_and_running_trials(running):
    running.study.update_meta(teacher={"architecture": "abc"})
    output = call_study("status", running.study.folder, COLUMNS="80")
    assert "running on far, process 1" in output and "Teacher: waiting" in output
    assert "0.2 of 6 full-budget runs" in output and "100/400" in output
    snapshot = json.loads(call_study("status", running.study.folder, "--json"))
    assert (snapshot["owner"]["pid"], snapshot["running"][0]["trial"]) == (1, 0)
    assert snapshot["teacher_progress"]["stage"] == "waiting"


def test_missing_study_is_reported(tmp_path):
    with refuses("no-study"):
        call(tmp_path / "later", "--once")
    with refuses("no-study"):
        call(tmp_path, "--once")


@pytest.mark.full
def test_pipe_gets_one_line_per_event(running):
    watching = Watching(running)
    watching.until("in training")
    running.end(0, 90)
    watching.until("trial 0 complete after 90 wall seconds")
    running.write_owner(state=FINISHED, reason="nothing new in 1000 proposals", candidates=6,
                      references=0)
    status, text = watching.end()
    assert status == 0 and text.count("trial 0 complete") == 1 and "\x1b" not in text
    assert "finished: nothing new in 1000 proposals" in text and "Front: 1" in text


@pytest.mark.full
@pytest.mark.parametrize(("size", "options"), [((40, 100), []), (None, ["--wait"])],
                         ids=["terminal", "pipe"])
def test_watch_continues_after_resume(running, size, options):
    watching = Watching(running, size, *options)
    watching.until("running on far")
    running.write_owner(state=STOPPED, reason="interrupted", candidates=6, references=0)
    watching.until("stopped: interrupted")
    running.write_owner(candidates=6, references=0)
    running.end(0, 90, bleu=21.5)
    watching.until("21.5")
    running.write_owner(state=FINISHED, reason="6 candidates trained", candidates=6, references=0)
    status, text = watching.end()
    assert status == 0 and ("\x1b["
                            in text) == bool(size) and "finished: 6 candidates trained" in text


@pytest.mark.full
@pytest.mark.parametrize(("size", "options"), [((40, 100), ["--no-wait"]), (None, [])],
                         ids=["terminal", "pipe"])
def test_watch_can_end_when_the_study_stops(running, size, options):
    watching = Watching(running, size, *options)
    watching.until("running on far")
    running.write_owner(state=STOPPED, reason="interrupted", candidates=6, references=0)
    status, text = watching.end()
    assert status == 0 and "stopped: interrupted" in text


@pytest.mark.full
@pytest.mark.parametrize("size", [None, (40, 100)])
def test_ctrl_c_ends_only_the_watch(running, size):
    watching = Watching(running, size)
    watching.until("in training")
    watching.process.send_signal(signal.SIGINT)
    status, text = watching.end()
    assert status == 0 and "Traceback" not in text
