"""What people see: lines for logs, a screen for terminals; both from the same events."""

import io
import json

import pytest
from rich.console import Console

from scalesearch.study.executors.local import InProcessRunner
from scalesearch.study.monitor.console import Lines, Screen, describe_progress, short
from scalesearch.study.trials.plan import Reference
from tests.study.fakes import OBJECTIVES, architecture_of, breaking_work, fake_work, make_driver, make_plan


def test_lines_say_what_starts_and_what_came_of_it(tmp_path):
    said = []
    make_driver(tmp_path, make_plan(2), view=Lines(said.append)).run()
    assert len(said) == 4
    assert said[0].endswith("in training") and "trial 0 (" in said[0]
    assert "complete after 0 wall seconds: bleu " in said[1] and "params.total " in said[1]


def test_lines_say_why_a_worker_is_started_again(tmp_path):
    said = []
    make_driver(tmp_path, make_plan(1), work=breaking_work, view=Lines(said.append)).run()
    assert sum("its worker died (RuntimeError: the worker broke); started again" in line for line in said) == 2


def test_the_screen_counts_what_is_there_and_shows_progress(tmp_path):
    console = Console(file=io.StringIO(), width=110)
    shown = []

    def work(folder):
        facts = {"kind": "update", "share": 0.25, "loss": 3.21, "tokens_per_second": 12345, "eta_seconds": 61}
        with open(f"{folder}/progress.json", "w") as file:
            json.dump(facts, file)
        console.print(screen.render())
        shown.append(console.file.getvalue())
        console.file.seek(0)
        console.file.truncate()
        fake_work(folder)

    driver = make_driver(tmp_path, make_plan(3), runner=InProcessRunner(work))
    screen = Screen(console, driver.ledger, OBJECTIVES, 3, 1, tmp_path)
    driver.run()
    assert "0 of 3" in shown[0] and "unknown yet" in shown[0] and "0 on the front" in shown[0]
    assert "25%, loss 3.210, 12,345 tokens/s, 0:01:01 left" in shown[0]
    console.print(screen.render())
    over = console.file.getvalue()
    assert "3 of 3" in over and "time left" not in over and "progress" not in over and "bleu: max" in over
    assert "time left" in shown[2] and "progress" in shown[2]
    assert "2 of 3" in shown[2] and "about 0:00:0" in shown[2] and "bleu: max" in shown[2]


def test_further_seeds_of_rows_are_still_to_come_and_nothing_is_left_where_nobody_works(tmp_path):
    rows = [Reference(str(width), architecture_of({"width": width, "depth": 1, "kind": "plain"}), {})
            for width in (8, 16)]
    driver = make_driver(tmp_path, make_plan(0, references=tuple(rows)))
    driver.run()

    def shown(**how):
        console = Console(file=io.StringIO(), width=110)
        console.print(Screen(console, driver.ledger, OBJECTIVES, 2, 1, tmp_path, **how).render())
        return console.file.getvalue()

    assert "time left" not in shown() and "time left" in shown(seeds=2)
    assert "running" in shown(seeds=2) and "to go on" not in shown(seeds=2)
    assert "to go on" in shown(seeds=2, alive=False) and "time left" not in shown(seeds=2, alive=False)


@pytest.mark.parametrize(("value", "text"), [(27.314, "27.31"), (1_240_000, "1.24M"), (0.0021, "0.0021"),
                                             (35_000, "35k"), (2.5e9, "2.5G"), (999, "999")])
def test_numbers_are_short(value, text):
    assert short(value) == text


def test_progress_without_facts_still_says_something():
    assert describe_progress({}) == "in training"
    assert describe_progress({"kind": "decode", "done": 3, "of": 9}) == "translating, 3 of 9"
