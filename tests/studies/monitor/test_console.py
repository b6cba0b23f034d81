"""Terminal output: lines for logs and a screen for terminals, both from the same events."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.executors.lease import hold_lease
from scalesearch.studies.executors.local import InProcessRunner
from scalesearch.studies.executors.worker import ProgressReport
from scalesearch.studies.monitor.console import LineConsole, LiveConsole
from scalesearch.studies.monitor.events import describe_event
from scalesearch.studies.monitor.format import format_column, format_number, format_value
from scalesearch.studies.monitor.heartbeat import RUNNING, STOPPED, Heartbeat, Owner
from scalesearch.studies.monitor.running import describe_progress
from scalesearch.studies.monitor.snapshot import SnapshotBuilder
from scalesearch.studies.trials.trial import EventType, Origin, Rung, State, Trial
from tests.studies.event_study import rendered
from tests.studies.fakes import architecture_of, breaking_work, fake_work, make_driver, make_plan


def test_lines_report_starts_and_results(tmp_path):
    lines = []
    make_driver(tmp_path, make_plan(2), view=LineConsole(lines.append)).run()
    assert len(lines) == 4
    assert lines[0].endswith("in training") and "trial 0 (" in lines[0]
    assert "complete after 0 wall seconds: bleu " in lines[1] and "params.total " in lines[1]


@pytest.mark.parametrize(("config", "unit"),
                         [({"width": 8}, "token"), ({"width": 8, "vocab": 400}, "character")])
def test_rung_event_names_unit_of_loss(config, unit):
    text = describe_event(EventType.RUNG,
                          Trial(3, State.PAUSED, config=config, rungs=(Rung(2.2144),)))
    assert text == f"trial 3 is paused at rung 1: validation loss 2.214 nats per {unit}"


def test_start_event_names_the_architecture_once():
    for label in ("base", "combination ab12"):
        trial = Trial(0, State.PENDING, label=label, architecture="ab12")
        text = describe_event(EventType.STARTED, trial)
        assert label in text and text.count("ab12") == 1


def test_start_event_counts_starts_not_attempts():
    text = describe_event(EventType.STARTED, Trial(0, State.PENDING, attempts=3))
    assert text == "trial 0 in training, start 3"  # `attempts:` of a study counts crashes


def test_lines_report_reason_of_restart(tmp_path):
    lines = []
    make_driver(tmp_path, make_plan(1), work=breaking_work, view=LineConsole(lines.append)).run()
    assert sum("its worker died (RuntimeError: the worker broke); restarted" in line
               for line in lines) == 2


def test_screen_shows_counts_and_progress(tmp_path):
    """The time left uses the pace of the first trial, and later the times of finished trials."""
    console = Console(file=io.StringIO(), width=110)
    screens = []

    def screen_text():
        console.print(screen.render(110))
        text = console.file.getvalue()
        console.file.seek(0)
        console.file.truncate()
        return text

    def work(folder):
        facts = {"type": "update", "share": 0.25, "loss": 3.21, "seconds": 20, "step": 40}
        (Path(folder) / "progress.json").write_text(json.dumps(facts))
        with hold_lease(Path(folder)):
            screens.append(screen_text())
        fake_work(folder)

    driver = make_driver(tmp_path, make_plan(3), runner=InProcessRunner(work))
    facts = {"workers": 1, "executor": "in this process", "candidates": 3, "references": 0}
    with Heartbeat(tmp_path, facts).running_study() as heartbeat:
        screen = LiveConsole(driver.study)
        heartbeat.finish(driver.run())
    assert "0.2 of 3 full-budget runs" in screens[0] and "No finished trials" in screens[0]
    assert "3.210" in screens[0] and "0:01:00" in screens[0] and "about 0:03:40 left" in screens[0]
    assert "2.2 of 3 full-budget runs" in screens[2]
    assert "Front so far" in screens[2] and "In training" in screens[2]
    text = screen_text()
    assert "3 of 3" in text and "In training" not in text and "about" not in text
    assert "finished" in text and "Hypervolume" in text
    assert "trial 2 complete after 0 wall seconds" not in text


def test_screen_shows_latest_events(tmp_path):
    driver = make_driver(tmp_path, make_plan(1), work=breaking_work)
    screen = LiveConsole(driver.study)
    driver.callback = screen
    driver.run()
    console = Console(file=io.StringIO(), width=140)
    console.print(screen.render(140))
    text = console.file.getvalue()
    assert text.count("its worker died (RuntimeError: the worker broke); restarted") == 2
    assert "trial 0 complete after 0 wall seconds" in text


def test_screen_counts_further_seeds_of_architectures(tmp_path):
    architectures = [
        FixedArchitecture(str(width),
                          architecture_of({"width": width, "depth": 1, "kind": "plain"}), {})
        for width in (8, 16)]
    driver = make_driver(tmp_path, make_plan(0, references=tuple(architectures)))
    driver.run()

    def screen(state, seeds):
        driver.study.update_meta(seeds=Seeds(1, 0, references=seeds))
        owner = Owner(state, workers=1, candidates=0, references=2)
        return rendered(SnapshotBuilder(driver.study).take(owner), 110)

    assert "about 0:00:00 left" in screen(RUNNING, 1)
    assert "further seeds of architectures 0 of 2" in screen(RUNNING, 2)
    replicate = driver.trials[0].replace(number=2, state=State.PENDING, origin=Origin.REPLICATE,
                        original=0, seed=2)
    driver.study.propose(replicate)
    assert "In training" in screen(RUNNING, 2) and "Interrupted" not in screen(RUNNING, 2)
    assert "Interrupted" in screen(STOPPED, 2) and "about" not in screen(STOPPED, 2)


@pytest.mark.parametrize(("value", "text"),
                         [(27.314, "27.31"), (1_240_000, "1.24M"), (0.0021, "0.0021"),
                          (35_000, "35k"), (2.5e9, "2.5G"), (999, "999"), (999_700, "1M"),
                          (999_400, "999k"), (999_600_000, "1G"), (9999.7, "10k")])
def test_format_number(value, text):
    assert format_number(value) == text


def test_bytes_have_a_unit():
    assert format_value(1920, "memory.cache") == "1.9 KiB"
    assert format_value(1920, "params.total") == "1920"
    assert format_column([1920, None, 49_152], "memory.cache") == ["1.9 KiB", "", "48.0 KiB"]
    ended = Trial(0, State.COMPLETE, values={"bleu": 27.314, "artifact.bytes": 2_500_000.0})
    assert describe_event(EventType.ENDED, ended).endswith("bleu 27.31, artifact.bytes 2.4 MiB")


@pytest.mark.parametrize(("values", "cells"), [
    ((38.3, 38.27, None), ["38.30", "38.27", ""]), ((0.0,), ["0"]), ((3, 12), ["3", "12"]),
    ((94_464, 150_656, 212_992), ["94.5k", "150.7k", "213.0k"]),
    ((120_000, 2_500_000), ["0.120M", "2.500M"]), ((2.5e9, 12e9), ["2.50G", "12.00G"])])
def test_column_has_equal_decimals(values, cells):
    assert format_column(values) == cells


def test_describe_progress_of_empty_report():
    assert describe_progress(ProgressReport()) == "in training"
    assert describe_progress(ProgressReport("decode", done=3, total=9)) == "translating, 3 of 9"
