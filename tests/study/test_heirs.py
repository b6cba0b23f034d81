"""Studies whose candidates inherit: over the fake space, and one that is real and tiny."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from scalesearch.search.previews import Previews
from scalesearch.space import SpaceErrors
from scalesearch.study.file import read_study
from scalesearch.study.heirs import shortened
from scalesearch.study.ledger import COMPLETE, FAILED, PENDING, PREVIEWED
from scalesearch.study.results import load
from scalesearch.study.seen import spent
from scalesearch.study.store import Store
from scalesearch.study.work import finish
from scalesearch.train import Recipe
from tests.study.fakes import fake_result, make_driver, make_plan

PREVIEWS = Previews(0.25)
JOB = {"threads": 1, "recipe": Recipe(steps=100).to_json()}


def heir_result(folder, job):
    """What training would leave; a preview comes to less."""
    result = fake_result(folder, job)
    (folder / "model.safetensors").write_bytes(b"")
    if "start" in job:
        assert (Path(job["start"]) / "model.safetensors").exists() and job["recipe"]["steps"] == 25
        result["metrics"]["bleu"] = 0.5 * result["metrics"]["bleu"] + 3
        result["inherited"] = {"from": Path(job["start"]).name, "share": 0.9}
    else:
        assert job["recipe"]["steps"] == 100
    return result


def work(folder):
    finish(Path(folder), heir_result)


def plan(trials=10, **changes):
    return make_plan(trials, job=JOB, previews=PREVIEWS, **changes)


def run(folder, trials=10, **more):
    driver = make_driver(folder, plan(trials), work=work, kind="local", **more)
    driver.run()
    return driver


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heirs")
    return folder, run(folder).ledger


def test_compute_is_spent_on_more_candidates_and_no_more_than_there_is(study):
    _, ledger = study
    looked_at = ledger.having(COMPLETE, PREVIEWED)
    assert len(looked_at) > 10 and not ledger.having(PENDING, FAILED)
    assert 9 <= spent(ledger, make_plan().rungs) <= 10 + 1e-9
    previewed = [trial for trial in looked_at if trial.preview is not None]
    assert len(previewed) > 5 and any(trial.state == COMPLETE for trial in previewed)


def test_the_front_holds_only_what_was_trained_in_full(study):
    folder, ledger = study
    found = load(folder)
    assert set(found.table.loc[found.table["front"], "state"]) == {COMPLETE}
    for trial in ledger.having(COMPLETE):
        result = json.loads((Store(folder).trial_folder(trial) / "result.json").read_text())
        assert "inherited" not in result and trial.values["bleu"] == result["metrics"]["bleu"]


def test_records_say_who_was_previewed_from_whom(study):
    folder, ledger = study
    store = Store(folder).load()
    for trial in ledger.having(COMPLETE):
        record = store.record(trial)
        if trial.parent is None:
            assert "preview" not in record
        else:
            parent = ledger.trials[trial.parent]
            assert record["preview"]["inherited"]["from"] == parent.name and parent.state == COMPLETE
            assert record["preview"] | {"inherited": 0} == {
                "parent": parent.number, "share": 0.25, "values": trial.preview, "inherited": 0}
            assert record["values"] != trial.preview
    for trial in ledger.having(PREVIEWED):
        assert trial.values is None and store.record(trial) is None


def test_going_on_proposes_and_previews_what_the_uninterrupted_study_did(study, tmp_path):
    _, whole = study
    run(tmp_path, 10)
    again = Store(tmp_path).load().ledger
    facts = [{n: (t.asked, t.state, t.parent, t.preview, t.values) for n, t in one.trials.items()}
             for one in (whole, again)]
    assert facts[0] == facts[1]


def test_a_preview_that_was_over_when_the_driver_died_is_taken_in_once(study, tmp_path):
    """The log is cut at every event; what was left in the folders is found, and nothing is trained twice."""
    folder, whole = study
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    cut = next(at for at, line in enumerate(lines) if json.loads(line)["event"] == PREVIEWED)
    copy = tmp_path / "copy"
    for file in folder.rglob("*"):
        if file.is_file():
            (copy / file.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (copy / file.relative_to(folder)).write_bytes(file.read_bytes())
    (copy / "events.jsonl").write_bytes(b"".join(lines[:cut]))
    number = json.loads(lines[cut])["trial"]
    assert Store(copy).load().ledger.trials[number].previewing
    ledger = run(copy).ledger
    trained = Counter({path.parent: len(path.read_text().splitlines()) for path in copy.rglob("trained")})
    assert set(trained.values()) == {1} and ledger.trials[number].preview == whole.trials[number].preview


def test_a_preview_that_fails_fails_the_candidate_and_costs_nothing(tmp_path):
    begun = []

    def failing(folder):
        def result(place, job):
            begun.extend([place] if "start" in job else [])
            return {"state": "failed", "reason": "diverged"} if begun == [place] else heir_result(place, job)

        finish(Path(folder), result)

    driver = make_driver(tmp_path, plan(8), work=failing, kind="local")
    driver.run()
    (failed,) = driver.ledger.having(FAILED)
    assert failed.previewing and failed.reason == "diverged" and driver.ledger.having(PREVIEWED, COMPLETE)
    assert spent(driver.ledger, driver.plan.rungs) > 7


def test_a_shortened_recipe():
    whole = Recipe(steps=100, minutes=2.0, warmup=40.0, validate_every=50.0, lr=1e-3).to_json()
    short = shortened(whole, 0.25)
    assert (short["steps"], short["minutes"], short["warmup"], short["validate_every"]) == (25, 0.5, 10.0, 12.5)
    assert short["average_every"] == whole["average_every"] and short["score_on"] == "valid"
    assert short["lr"] == 1e-3 and Recipe.from_mapping(short).to_json() == short
    assert shortened(Recipe(steps=1).to_json(), 0.1)["steps"] == 1


STUDY = """\
data: {{ builtin: grammar, pairs: 300, vocab: 300 }}
recipe: {{ steps: 8, max_tokens: 256, beam: 1, average: none, validate_every: 0, score_on: valid }}
objectives: {{ loss: min, params.total: min }}
space:
  width: 16
  norm: pre
  encoder: {{ depth: 1..2, heads: 2, head_dim: 8, ffn: {{ relu: {{ hidden: 32 | 48 | 64 }} }} }}
  decoder: {{ depth: 1..2, heads: 2, head_dim: 8, ffn: {{ relu: {{ hidden: 32 | 48 | 64 }} }} }}
trials: 6
{more}
"""


def file_of(folder, more):
    (folder / "study.yaml").write_text(STUDY.format(more=more))
    return folder / "study.yaml"


@pytest.mark.parametrize(("more", "message"), [
    ("inherit: { share: 1.5 }", r"study\.yaml:10:10.*above 0 and below 1, not 1.5"),
    ("inherit: yes", r"study\.yaml:10:10.*inherit is `none`, or a mapping"),
    ("inherit: { part: 0.3 }", r"study\.yaml:10:12.*there is no key `part` here"),
    ("inherit: { share: 0.3 }\nproposer: { kind: tpe }", r"study\.yaml:10:10.*goes with proposer.*not with tpe"),
    ("inherit: { share: 0.3 }\nrungs: { first: 0.1 }", r"study\.yaml:10:10.*does not go with rungs"),
])
def test_what_is_wrong_is_said_with_its_place(tmp_path, more, message):
    with pytest.raises(SpaceErrors) as caught:
        read_study(file_of(tmp_path, more))
    assert re.search(message, str(caught.value)), str(caught.value)


def test_a_file_says_it(tmp_path):
    assert read_study(file_of(tmp_path, "inherit: { share: 0.3 }")).previews == Previews(0.3)
    assert read_study(file_of(tmp_path, "inherit: none")).previews is None
    assert read_study(file_of(tmp_path, "inherit: none"), ["inherit.share=0.2"]).previews == Previews(0.2)


def test_a_real_study_inherits_and_trains_from_scratch_what_stands_on_the_front(tmp_path, monkeypatch):
    from rich.console import Console

    from scalesearch.study.launch import launch

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    spec = read_study(file_of(tmp_path, "inherit: { share: 0.3 }\nproposer: { startup: 1 }"), ["trials=3"],
                      tmp_path / "found")
    launch(spec, False, Console(quiet=True))
    store = Store(tmp_path / "found").load()
    heirs = [trial for trial in store.ledger.trials.values() if trial.preview]
    assert heirs and store.meta["inherit"]["share"] == 0.3
    for trial in heirs:
        result = json.loads((store.trial_folder(trial) / "preview" / "result.json").read_text())
        assert 0 < result["inherited"]["share"] <= 1 and result["recipe"]["steps"] == 2
        assert result["inherited"]["from"] == store.ledger.trials[trial.parent].name
    for trial in store.ledger.having(COMPLETE):
        record = store.record(trial)
        assert record["inherited"] == {} and record["steps"] == 8
