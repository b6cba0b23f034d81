"""The report page: well formed, complete, safe; of finished, running, empty studies, with rungs and with seeds."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from scalesearch.cli.study import command
from scalesearch.errors import UserError
from scalesearch.report.page.course import course
from scalesearch.report.page.importance import FEWEST, importances
from scalesearch.search.rungs import Rungs
from scalesearch.study.page import gather, write_page
from scalesearch.study.results import load
from tests.study.fakes import fake_work, make_driver, make_plan
from tests.study.noisy import noisy_work, seeded_plan
from tests.study.pages import FAULT, HOSTILE, page_of, say, study
from tests.study.test_rungs import work as rung_work

SECTIONS = {"front", "candidates", "trust", "course", "answers", "importance", "curves", "costs", "failures",
            "provenance"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def page(folder):
    return page_of(folder)


def test_the_page_is_well_formed_and_fetches_nothing(page):
    assert page.wrong == [] and set(page.ids) >= SECTIONS
    assert "://" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", page.file.read_text())
    assert len(page.alts()) >= 8 and all(page.alts())


def test_every_finished_trial_has_a_row_and_links_to_its_files(page, folder):
    results = load(folder)
    for trial in results.store.ledger.having("complete"):
        assert f"trial-{trial.number}" in page.ids
        for name in ("architecture.yaml", "record.json"):
            assert f"trials/{trial.name}/{name}" in page.hrefs
    rows = [found for tag, found in page.tags if tag == "tr" and found.get("class") == "front"]
    assert {row["id"] for row in rows} == {f"trial-{number}" for number in results.front["trial"]}


def test_every_failure_and_every_missed_limit_is_there(page, folder):
    ledger = load(folder).store.ledger
    failed = ledger.having("failed")
    assert failed and page.text.count(FAULT) == len(failed)
    refused = ledger.having("infeasible")
    assert refused and f"{len(refused):,} proposals were refused" in page.text and "params.total" in page.text


def test_a_label_is_text_wherever_it_stands(page):
    assert HOSTILE in page.text and not any(tag == "img" for tag, _ in page.tags)
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert page.file.read_text().count("<script") == 1


def test_numbers_name_protocol_signature_and_hash(page, folder):
    for words in ("forward: 10 source, 10 target tokens, vocabulary 100", "sig|v:1", "abc", "a synthetic corpus",
                  "one seed a candidate", f"{FEWEST} feasible finished candidates are needed"):
        assert words in page.text
    front = load(folder).front.iloc[0]
    assert f"{int(front['params.total']):,}" in page.text


def test_the_same_study_gives_the_same_page_wherever_it_lies(folder, tmp_path):
    one, other = (write_page(load(folder), tmp_path / name / "a b.html") for name in "xy")
    assert one.read_bytes() == other.read_bytes()
    assert page_of(folder, tmp_path / "elsewhere.html").wrong == []


def test_the_last_hypervolume_is_that_of_the_front(folder, page):
    facts = gather(load(folder), folder)
    steps = course(facts, facts.hypervolume[1])
    assert steps[-1].volume == pytest.approx(facts.hypervolume[0]) and f"{steps[-1].volume:.6g} after" in page.text
    assert np.all(np.diff([step.volume for step in steps]) >= 0) and steps[-1].spent > 0


def test_a_study_without_anything_finished_says_so(tmp_path):
    make_driver(tmp_path, make_plan(1))
    page = page_of(tmp_path)
    assert page.wrong == [] and set(page.ids) >= SECTIONS
    for words in ("No candidate is finished yet", "No feasible candidate is finished yet", "No training has failed"):
        assert words in page.text


def test_a_running_study_says_that_it_is_running(tmp_path):
    events = (study(tmp_path, 6) / "events.jsonl").read_text().splitlines(keepends=True)
    ended = [at for at, line in enumerate(events) if json.loads(line)["event"] == "ended"]
    (tmp_path / "events.jsonl").write_text("".join(events[: ended[3]]))
    page = page_of(tmp_path)
    assert page.wrong == [] and "Some candidates are not finished" in page.text and "pending" in page.text


def test_rungs_are_counted_and_their_losses_shown(tmp_path):
    rungs = Rungs((0.1, 0.3, 1.0), 2)
    make_driver(tmp_path, make_plan(8, rungs=rungs), work=rung_work).run()
    say(tmp_path, "rungs", {"shares": list(rungs.shares), "eta": 2})
    page = page_of(tmp_path)
    passed = sum(bool(trial.rungs) for trial in load(tmp_path).store.ledger.trials.values())
    assert page.wrong == [] and "Rungs of successive halving" in page.text and f"0 10% {passed} " in page.text


def test_further_seeds_come_with_their_verdict(tmp_path):
    make_driver(tmp_path, seeded_plan(), noisy_work).run()
    say(tmp_path, "seeds", {"most": 3, "trials": 8, "confidence": 0.9})
    page, results = page_of(tmp_path), load(tmp_path)
    assert page.wrong == [] and "trainings with further seeds" in page.text and "±" in page.text
    for line in results.verdict.sentences():
        assert " ".join(line.split()) in page.text


def test_importance_finds_the_question_that_decides():
    dice = np.random.default_rng(3)
    sheets = [{"width": int(dice.integers(1, 9)), "kind": str(dice.choice(["a", "b"])), "norm": "pre",
               **({"slope": float(dice.random())} if at % 2 else {})} for at in range(60)]
    found = importances(sheets, [-float(sheet["width"]) for sheet in sheets])
    assert found[0].name == "width" and found[0].value > 0.8 and found[0].low <= found[0].value
    assert {one.name for one in found} == {"width", "kind", "slope"}
    assert sum(one.value for one in found) == pytest.approx(1)
    assert importances(sheets[: FEWEST - 1], [0.0, 1.0] * 10) == []


def test_the_verb_writes_beside_the_study_or_where_it_is_told(tmp_path):
    make_driver(tmp_path / "fake", make_plan(3), fake_work).run()
    call = CliRunner().invoke
    said = call(command, ["report", str(tmp_path / "fake")], catch_exceptions=False)
    assert said.exit_code == 0 and said.output.strip() == str(tmp_path / "fake" / "report.html")
    target = tmp_path / "there" / "page.html"
    found = json.loads(call(command, ["report", str(tmp_path / "fake"), "--to", str(target), "--json"]).output)
    assert found == {"files": [str(target)]} and target.is_file()
    with pytest.raises(UserError, match="this is a folder; give the page's file"):
        call(command, ["report", str(tmp_path / "fake"), "--to", str(tmp_path)], catch_exceptions=False)
