"""``study watch`` from outside the process: once, as JSON, line by line, on a terminal, and interrupted."""

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

import pytest
from click.testing import CliRunner

from scalesearch.cli.study.group import command
from scalesearch.study.monitor.heartbeat import FINISHED, STOPPED
from tests.errors import refuses
from tests.processes import HANG, in_the_background, wait_until
from tests.study.event_study import EventStudy
from tests.study.fakes import make_driver, make_plan

WATCH = (sys.executable, "-m", "scalesearch", "study", "watch")


def call(*arguments, **environment):
    result = CliRunner().invoke(command, ["watch", *map(str, arguments)], catch_exceptions=False,
                                env=environment)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def running(tmp_path):
    """A study of six, which a far machine runs; its first is in training."""
    event_study = EventStudy(tmp_path / "study")
    event_study.write_owner(candidates=6, references=0)
    event_study.propose(0)
    event_study.write_worker_files(0, step=100, share=0.25, loss=4.5, seconds=30)
    return event_study


class Watching:
    """A watch in a process of its own, and what it says; with ``size``, on a terminal of so many lines and columns."""

    def __init__(self, event_study, size=None, *options):
        self.said = b""
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
                self.said += data
        except OSError:  # a terminal whose other end is closed
            pass

    def until(self, words):
        wait_until(lambda: words in self.said.decode(errors="replace")
                   or self.process.poll() is not None)
        assert words in self.said.decode(errors="replace")

    def end(self):
        status = self.process.wait(HANG)
        self.reader.join(HANG)
        return status, self.said.decode()


def test_once_for_people_and_machines_writes_nothing(tmp_path):
    make_driver(tmp_path, make_plan(4)).run()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    text = call(tmp_path, "--once", COLUMNS="80")
    found = json.loads(call(tmp_path, "--json"))
    assert "Front so far" in text and all(len(line) <= 80 for line in text.splitlines())
    assert found["study"] == "fake" and found["counts"]["complete"] == 4 and found["owner"][
        "state"] == "unknown"
    assert found["front"]["hypervolume"]["value"] > 0 and len(found["events"]) == 5
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_is_in_training_as_json(running):
    found = json.loads(call(running.study.folder, "--json"))
    assert found["owner"]["host"] == "far" and found["owner"]["heartbeat_age"] < 60
    assert [(one["trial"], one["step"], one["trained_share"])
            for one in found["running"]] == [(0, 100, 0.25)]
    # five of them on two workers, one of which has 90 s to go
    assert found["eta"]["seconds"] == pytest.approx(3 * 120)
    assert found["progress"]["share"] == 0.25 / 6


def test_status_says_who_runs_it_and_what_is_in_training(running):
    running.study.update_meta(teacher={"architecture": "abc"})
    result = CliRunner().invoke(command, ["status", str(running.study.folder)],
                                catch_exceptions=False)
    assert "running on far, process 1" in result.output and "Teacher: waiting" in result.output
    assert "0.2 of 6 candidates" in result.output and "100 of 400" in result.output
    result = CliRunner().invoke(command, ["status", str(running.study.folder), "--json"],
                                catch_exceptions=False)
    found = json.loads(result.output)
    assert (found["owner"]["pid"], found["running"][0]["trial"]) == (1, 0)
    assert found["teacher_progress"]["stage"] == "waiting"


def test_before_there_is_a_study_it_says_so(tmp_path):
    with refuses("no-study"):
        call(tmp_path / "later", "--once")
    with refuses("no-study"):
        call(tmp_path, "--once")


def test_a_pipe_gets_a_line_a_change_and_the_end(running):
    watching = Watching(running)
    watching.until("in training")
    running.end(0, 90)
    watching.until("trial 0 complete after 90 wall seconds")
    running.write_owner(state=FINISHED, reason="nothing new in 1000 proposals", candidates=6,
                      references=0)
    status, text = watching.end()
    assert status == 0 and text.count("trial 0 complete") == 1 and "\x1b" not in text
    assert "finished: nothing new in 1000 proposals" in text and "Front: 1" in text


@pytest.mark.parametrize(("size", "options"), [((40, 100), []), (None, ["--wait"])],
                         ids=["terminal", "pipe"])
def test_a_study_that_stops_is_watched_on_when_it_is_resumed(running, size, options):
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


@pytest.mark.parametrize(("size", "options"), [((40, 100), ["--no-wait"]), (None, [])],
                         ids=["terminal", "pipe"])
def test_or_the_watch_ends_where_the_study_stops(running, size, options):
    watching = Watching(running, size, *options)
    watching.until("running on far")
    running.write_owner(state=STOPPED, reason="interrupted", candidates=6, references=0)
    status, text = watching.end()
    assert status == 0 and "stopped: interrupted" in text


@pytest.mark.parametrize("size", [None, (40, 100)])
def test_ctrl_c_ends_the_watching_alone(running, size):
    watching = Watching(running, size)
    watching.until("in training")
    watching.process.send_signal(signal.SIGINT)
    status, text = watching.end()
    assert status == 0 and "Traceback" not in text
