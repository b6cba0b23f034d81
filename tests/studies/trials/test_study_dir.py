"""The folder: one owner, a log that stays readable, events that fold to the same state."""

import errno
import json
import os
import subprocess
import sys

from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State, Trial
from tests.errors import refuses
from tests.studies.fakes import make_driver, make_plan

HOLD = """
import sys, time
from pathlib import Path
from scalesearch.studies.trials.study_dir import StudyDir
with StudyDir(Path(sys.argv[1])).exclusive():
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_second_owner_is_rejected_while_the_first_lives(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "mine\n"
    with refuses("study-running", first.pid), StudyDir(tmp_path).exclusive():
        pass
    first.kill()
    first.communicate()
    with StudyDir(tmp_path).exclusive():
        assert (tmp_path / ".owner").read_text().startswith(f"process {os.getpid()} ")


def test_folder_that_cannot_be_created_is_refused_with_its_existing_parent(tmp_path, monkeypatch):
    def refuse(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr("scalesearch.studies.trials.study_dir.make_folder", refuse)  # as in /proc
    with refuses("cannot-write", f"created in {tmp_path} "), \
            StudyDir(tmp_path / "x" / "y").exclusive():
        pass


def test_folder_without_a_study_is_rejected(tmp_path):
    with refuses("no-study"):
        StudyDir(tmp_path).load()


def test_study_folder_of_an_older_format_is_refused(tmp_path):
    make_driver(tmp_path, make_plan(1)).run()
    meta = json.loads((tmp_path / "study.json").read_text())
    assert meta["format"] == 4
    (tmp_path / "study.json").write_text(json.dumps({**meta, "format": 3}))
    with refuses("other-format", 3, 4, "--out"):
        StudyDir(tmp_path).load()


def test_damaged_line_is_reported(tmp_path):
    make_driver(tmp_path, make_plan(3)).run()
    log = tmp_path / "events.jsonl"
    lines = log.read_text().splitlines()
    lines[3] = lines[3][:20]
    log.write_text("\n".join(lines) + "\n")
    with refuses("log-damaged", "events.jsonl:4:"):
        StudyDir(tmp_path).load()


def test_line_that_a_crash_truncated_is_moved_out_of_the_log(tmp_path):
    study = make_driver(tmp_path, make_plan(1)).study
    study.propose(Trial(0, State.FAILED))
    log = tmp_path / "events.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:20])
    study.log.repair()
    assert log.read_bytes() == whole and (tmp_path / "events.torn").read_bytes() == whole[:20]
    study.propose(Trial(1, State.FAILED))
    assert len(StudyDir(tmp_path).load().trials) == 2


def test_full_disk_leaves_the_log_unchanged(tmp_path, monkeypatch):
    driver = make_driver(tmp_path, make_plan(2))
    driver.run()
    before = (tmp_path / "events.jsonl").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refuses("disk-full", "No space left", "unchanged"):
        driver.study.append("started", 0, attempt=9)
    assert (tmp_path / "events.jsonl").read_bytes() == before


def test_log_folds_to_the_state_of_the_driver(tmp_path):
    driver = make_driver(tmp_path, make_plan(8))
    driver.run()
    assert list(StudyDir(tmp_path).load().trials) == list(driver.trials)
