"""Warm starts: what is taken over from another study, what is trained first, and that it is the same after a kill."""

import json
import shutil
from dataclasses import replace

import pytest

from scalesearch.errors import UserError
from scalesearch.schedule.rungs import Rungs
from scalesearch.space.syntax.parameters import IntRange
from scalesearch.study.config.objectives import Objective
from scalesearch.study.config.warm_start import FILE, WarmSpec
from scalesearch.study.results.results import load
from scalesearch.study.transfer.warm_start import begin, choose
from scalesearch.study.trials.plan import Reference
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import CHARGED, COMPLETE, DUPLICATE, ENQUEUED, WARM
from tests.study.engine.test_driver import trained
from tests.study.fakes import META, FakeSpace, architecture_of, make_driver, make_plan

FACTS = {"seed": 1, "data": {"hash": "abc"}, "recipe": {"steps": 9, "threads": 1, "measure": "none"}}
OTHERS = {
    "data": {"data": {"hash": "other"}},
    "recipe": {"recipe": {"steps": 10}},
    "seed": {"seed": 2},
    "teacher": {"teacher": {"architecture": "x"}},
}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A finished study of twelve."""
    folder = tmp_path_factory.mktemp("old") / "study"
    make_driver(folder, make_plan(12, facts=FACTS), kind="random").run()
    return folder


def warm(folder, old, plan, most=3, said=None, spec=None):
    """A driver whose study in ``folder`` begins with what ``old`` has found."""
    store = Store(folder)
    if not store.begun():
        store.create({**META, "name": "new"}, "study: new\n", "width: 8\n")
    store.load()
    plan = begin(store, spec or WarmSpec((str(old),)), plan, most, (said if said is not None else []).append)
    return make_driver(folder, plan, kind="local")


def finished(folder):
    return Store(folder).load().ledger.having(COMPLETE)


def test_the_same_training_is_not_done_again(old, tmp_path):
    said = []
    driver = warm(tmp_path, old, make_plan(4, facts=FACTS), said=said)
    assert said == ["Warm start: 12 finished candidates taken over, 0 architectures of other fronts to be trained here "
                    "first."]
    assert driver.run() == "4 candidates trained"
    ledger = driver.store.ledger
    mine = [trial for trial in ledger.having(COMPLETE) if trial.origin == WARM]
    assert [(t.id, t.values) for t in mine] == [(t.id, t.values) for t in finished(old)]
    new = [trial for trial in ledger.having(COMPLETE) if trial.origin in CHARGED]
    assert len(new) == 4 and not {t.id for t in new} & {t.id for t in mine}
    # What lies in the folder of a taken one is the other study's training.
    assert all(trained(tmp_path)[t.name] == 1 for t in (*mine, *new)) and not any(t.attempts for t in mine)


def test_what_was_taken_stands_on_the_front_and_says_where_it_is_from(old, tmp_path):
    warm(tmp_path, old, make_plan(1, facts={**FACTS, "study": "new"})).run()
    results = load(tmp_path)
    theirs = Store(old).load().ledger.trials
    number = finished(tmp_path)[0].number
    record = results.store.record(results.store.ledger.trials[number])
    assert record["origin"] == WARM and record["study"] == "new" and record["trial"] == number
    assert record["taken_from"]["trial"] in theirs and record["taken_from"]["study"] == "fake"
    assert record["metrics"]["bleu"] == record["values"]["bleu"]
    assert set(load(old).front["id"]) - set(results.front["id"]) <= {  # only where something new dominates it
        trial.id for trial in finished(tmp_path) if trial.origin == WARM}
    assert len(results.front) >= len(load(old).front)


@pytest.mark.parametrize("what", OTHERS)
def test_where_scores_are_on_another_scale_the_front_is_trained_first(old, tmp_path, what):
    facts, said = {**FACTS, **OTHERS[what]}, []
    driver = warm(tmp_path, old, make_plan(5, facts=facts), most=3, said=said)
    assert f"0 finished candidates taken over, 3 architectures of other fronts to be trained here first (theirs had " \
           f"{'other' if what == 'data' else 'another'} {what})" in said[0]
    driver.run()
    trials = list(driver.ledger.trials.values())
    assert [trial.origin for trial in trials[:3]] == [ENQUEUED] * 3
    assert {trial.id for trial in trials[:3]} <= set(load(old).front["id"])
    assert len(driver.ledger.having(COMPLETE)) == 5  # they are among the study's own five
    assert all(trained(tmp_path)[trial.name] == 1 for trial in trials[:3])


def test_recipes_that_train_alike_count_as_the_same(old, tmp_path):
    facts = {**FACTS, "recipe": {"steps": 9, "threads": 4, "measure": "latency", "name": "mine"}}
    assert len(choose(WarmSpec((str(old),)), make_plan(4, facts=facts), 3).taken) == 12


def test_a_metric_that_nobody_measured_has_to_be_measured_here(old):
    plan = make_plan(4, facts=FACTS, objectives=(Objective("latency", "min"), Objective("params.total", "min")))
    found = choose(WarmSpec((str(old),)), plan, 2)
    assert not found.taken and len(found.first) == 2 and found.other == ("other metrics",)


def test_limits_and_spaces_of_this_study_decide(old):
    tight = make_plan(4, most=1500, facts=FACTS)
    fits = [trial for trial in finished(old) if trial.cost["params"]["total"] <= 1500]
    found = choose(WarmSpec((str(old),)), tight, 3)
    assert {known.id for known in found.taken} == {trial.id for trial in fits} and 0 < len(fits) < 12
    assert found.left == {"miss a limit of this study": 12 - len(fits)}

    class Narrow(FakeSpace):
        def answer(self, ask):
            answers = {"width": ask("width", IntRange(8, 24, 8))}
            return answers | super().answer(lambda path, question: answers[path] if path in answers else
                                            ask(path, question))

    plan = make_plan(4, facts=FACTS)
    plan.bill.space = Narrow()
    inside = [trial for trial in finished(old) if trial.params["width"] <= 24]
    found = choose(WarmSpec((str(old),)), plan, 3)
    assert {known.id for known in found.taken} == {trial.id for trial in inside}
    assert found.left == {"do not fit this space": 12 - len(inside)} and 0 < len(inside) < 12


def test_two_studies_give_each_network_once(old, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(old, twin)
    found = choose(WarmSpec((str(old), str(twin))), make_plan(4, facts=FACTS), 3)
    assert len(found.taken) == len({known.id for known in found.taken}) == 12
    assert found.left == {"are known already": 12}


def test_as_many_are_trained_first_as_the_file_says(old):
    plan = make_plan(4, facts={**FACTS, "seed": 2})
    assert len(choose(WarmSpec((str(old),), most=1), plan, 3).first) == 1
    assert not choose(WarmSpec((str(old),), most=0), plan, 3).first


@pytest.mark.parametrize("facts", [FACTS, {**FACTS, "seed": 2}])
def test_a_resumed_study_needs_the_other_one_no_more(old, tmp_path, facts):
    gone = tmp_path / "gone"
    shutil.copytree(old, gone)
    warm(tmp_path / "whole", gone, make_plan(6, facts=facts)).run()
    warm(tmp_path / "parts", gone, make_plan(2, facts=facts)).run()
    shutil.rmtree(gone)
    warm(tmp_path / "parts", gone, make_plan(6, facts=facts)).run()
    whole, parts = (Store(tmp_path / name).load().ledger.trials for name in ("whole", "parts"))
    assert {n: (t.params, t.state, t.values, t.origin) for n, t in whole.items()} == {
        n: (t.params, t.state, t.values, t.origin) for n, t in parts.items()}


def test_a_kill_while_taking_over_takes_the_rest_later(old, tmp_path, monkeypatch):
    store = Store(tmp_path)
    append, left = Store.append, iter(range(5))

    def dies(self, *event, **facts):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return append(self, *event, **facts)

    monkeypatch.setattr(Store, "append", dies)
    with pytest.raises(KeyboardInterrupt):
        warm(tmp_path, old, make_plan(4, facts=FACTS))
    monkeypatch.undo()
    assert len(store.load().ledger.trials) == 5 and (tmp_path / FILE).is_file()
    warm(tmp_path, old, make_plan(4, facts=FACTS))
    assert [trial.id for trial in finished(tmp_path)] == [trial.id for trial in finished(old)]


def test_what_is_gone_before_it_was_taken_is_told(old, tmp_path):
    gone = tmp_path / "gone"
    shutil.copytree(old, gone)
    known = choose(WarmSpec((str(gone),)), make_plan(4, facts=FACTS), 3)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / FILE).write_text(json.dumps(known.to_json()))
    shutil.rmtree(gone)
    with pytest.raises(UserError, match="is gone"):
        warm(tmp_path / "new", gone, make_plan(4, facts=FACTS))


def test_a_reference_that_is_known_already_lends_its_label(old, tmp_path):
    best = max(finished(old), key=lambda trial: trial.values["bleu"])
    reference = Reference("theirs", architecture_of(best.answers), best.params)
    driver = warm(tmp_path, old, make_plan(1, facts=FACTS, references=(reference,)))
    driver.run()
    labelled = [trial for trial in driver.ledger.trials.values() if trial.label == "theirs"]
    assert [(trial.origin, trial.state) for trial in labelled] == [(WARM, COMPLETE), ("reference", DUPLICATE)]


def test_who_was_taken_over_takes_no_ones_place_on_a_rung(old, tmp_path):
    from scalesearch.samplers.history import PAUSED, Seen
    from scalesearch.schedule.rungs import promotable
    from scalesearch.study.trials.history import goals_of, history_of

    plan = replace(make_plan(4, facts=FACTS), rungs=Rungs((0.5, 1.0), 2))
    driver = warm(tmp_path, old, plan)
    goals = goals_of(plan.objectives)
    history = history_of(driver.ledger, goals)
    waiting = [Seen(len(history) + n, PAUSED, {}, f"new {n}", {}, {"params.total": 500.0 + n}, (1.0 + n,))
               for n in range(2)]
    assert len(history) == 12 and promotable([*history, *waiting], plan.rungs, goals) == waiting[0]
