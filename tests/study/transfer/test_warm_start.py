"""Warm starts: what is taken over from another study, what is trained first, and that it is the same after a kill."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from scalesearch.schedule.rungs import Rungs, find_promotable
from scalesearch.space.syntax.parameters import IntRange
from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.config.objectives import parse_objective
from scalesearch.study.config.sections import WARM_START_FILE, WarmStartSpec
from scalesearch.study.optuna_sync.attributes import TRIAL_NUMBER_ATTR
from scalesearch.study.results.results import load_results
from scalesearch.study.transfer.imports import import_trial
from scalesearch.study.transfer.warm_start import apply_warm_start, choose_warm_start
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import EventType, Origin, State
from tests.errors import refuses
from tests.study.engine.test_driver import trained
from tests.study.fakes import META, FakeSpace, architecture_of, make_driver, make_plan

SHARED = {**META.record_fields, "recipe": {"steps": 9, "threads": 1, "measure": "none"}}
OTHERS = {
    "data": {"data": {"hash": "other"}},
    "recipe": {"recipe": {"steps": 10}},
    "seed": {"study_seed": 2},
    "teacher": {"teacher": {"architecture": "x"}},
}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A finished study of twelve."""
    folder = tmp_path_factory.mktemp("old") / "study"
    make_driver(folder, make_plan(12, record_fields=SHARED), kind="random").run()
    return folder


def warm(folder, old, plan, most=3, said=None, spec=None):
    """A driver whose study in ``folder`` begins with what ``old`` has found."""
    study = StudyDir(folder)
    if not study.has_started():
        study.create(replace(META, name="new"), "study: new\n", "width: 8\n")
    study.load()
    plan = apply_warm_start(study, spec or WarmStartSpec((str(old),)), plan, most,
                            (said if said is not None else []).append)
    return make_driver(folder, plan, kind="local")


def finished(folder):
    return StudyDir(folder).load().trials.with_state(State.COMPLETE)


def test_the_same_training_is_not_done_again(old, tmp_path):
    said = []
    driver = warm(tmp_path, old, make_plan(4, record_fields=SHARED), said=said)
    assert said == ["Warm start: 12 finished candidates imported, 0 architectures of other fronts "
                    "to be trained here first."]
    assert driver.run() == "4 candidates trained"
    trials = driver.trials
    mine = [trial for trial in trials.with_state(State.COMPLETE) if trial.origin == Origin.IMPORTED]
    assert [(t.architecture, t.values) for t in mine] == [
        (t.architecture, t.values) for t in finished(old)]
    new = [trial for trial in trials.with_state(State.COMPLETE) if trial.origin.charged]
    assert len(new) == 4 and not {t.architecture for t in new} & {t.architecture for t in mine}
    # What lies in the folder of a taken one is the other study's training.
    assert all(trained(tmp_path)[t.folder] == 1 for t in (*mine, *new)) and not any(
        t.attempts for t in mine)


def test_what_was_taken_stands_on_the_front_and_says_where_it_is_from(old, tmp_path):
    warm(tmp_path, old, make_plan(1, record_fields={**SHARED, "study": "new"})).run()
    results = load_results(tmp_path)
    theirs = StudyDir(old).load()
    number = finished(tmp_path)[0].number
    record = results.study.record(results.study.trials[number])
    assert record["origin"] == Origin.IMPORTED and record["study"] == "new" and record[
        "trial"] == number
    source = record["source"]
    assert source["study"] == "fake" and source["folder"] == str(
        theirs.trial_folder(theirs.trials[source["trial"]]).resolve())
    assert theirs.trials[source["trial"]].architecture == record["architecture"]
    assert record["metrics"]["bleu"] == record["values"]["bleu"]
    # only where something new dominates it
    assert set(load_results(old).front["id"]) - set(results.front["id"]) <= {
        trial.architecture for trial in finished(tmp_path) if trial.origin == Origin.IMPORTED}
    assert len(results.front) >= len(load_results(old).front)


@pytest.mark.parametrize("what", OTHERS)
def test_where_scores_are_on_another_scale_the_front_is_trained_first(old, tmp_path, what):
    shared = {**SHARED, **OTHERS[what]}
    said = []
    driver = warm(tmp_path, old, make_plan(5, record_fields=shared), most=3, said=said)
    assert "0 finished candidates imported, 3 architectures of other fronts to be trained here first (the other study has " \
           f"{'other' if what == 'data' else 'another'} {what})" in said[0]  # noqa: E501
    driver.run()
    trials = list(driver.trials)
    assert [trial.origin for trial in trials[:3]] == [Origin.ENQUEUED] * 3
    assert {trial.architecture for trial in trials[:3]} <= set(load_results(old).front["id"])
    assert len(driver.trials.with_state(State.COMPLETE)) == 5  # they are among the study's own five
    assert all(trained(tmp_path)[trial.folder] == 1 for trial in trials[:3])


def test_recipes_that_train_alike_count_as_the_same(old, tmp_path):
    shared = {**SHARED, "recipe": {"steps": 9, "threads": 4, "measure": "latency", "name": "mine"}}
    assert len(choose_warm_start(WarmStartSpec((str(old),)), make_plan(4, record_fields=shared),
                                 3).imported) == 12


def test_a_metric_that_nobody_measured_has_to_be_measured_here(old):
    plan = make_plan(4, record_fields=SHARED,
                     objectives=(parse_objective("latency", "min"),
                                 parse_objective("params.total", "min")))
    found = choose_warm_start(WarmStartSpec((str(old),)), plan, 2)
    assert not found.imported and len(
        found.enqueued) == 2 and found.differences == ("other metrics",)


def test_limits_and_spaces_of_this_study_decide(old):
    tight = make_plan(4, most=1500, record_fields=SHARED)
    fits = [trial for trial in finished(old) if trial.costs["params.total"] <= 1500]
    found = choose_warm_start(WarmStartSpec((str(old),)), tight, 3)
    assert {
        known.architecture for known in found.imported} == {trial.architecture for trial in fits}
    assert 0 < len(fits) < 12
    assert found.skipped == {"miss a limit of this study": 12 - len(fits)}

    class Narrow(FakeSpace):
        def resolve(self, ask):
            width = ask("width", IntRange(8, 24, 8))
            return super().resolve(lambda path, parameter: width if path == "width"
                                  else ask(path, parameter))

    plan = make_plan(4, record_fields=SHARED)
    plan.evaluator.space = Narrow()
    inside = [trial for trial in finished(old) if trial.params["width"] <= 24]
    found = choose_warm_start(WarmStartSpec((str(old),)), plan, 3)
    assert {
        known.architecture for known in found.imported} == {trial.architecture for trial in inside}
    assert found.skipped == {"do not fit this space": 12 - len(inside)} and 0 < len(inside) < 12


def test_two_studies_give_each_network_once(old, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(old, twin)
    found = choose_warm_start(WarmStartSpec((str(old), str(twin))),
                              make_plan(4, record_fields=SHARED), 3)
    assert len(found.imported) == len({known.architecture for known in found.imported}) == 12
    assert found.skipped == {"are duplicates": 12}


def test_as_many_are_trained_first_as_the_file_says(old):
    plan = make_plan(4, record_fields={**SHARED, "study_seed": 2})
    assert len(choose_warm_start(WarmStartSpec((str(old),), max_candidates=1), plan,
                                 3).enqueued) == 1
    assert not choose_warm_start(WarmStartSpec((str(old),), max_candidates=0), plan, 3).enqueued


@pytest.mark.parametrize("shared", [SHARED, {**SHARED, "study_seed": 2}])
def test_a_resumed_study_needs_the_other_one_no_more(old, tmp_path, shared):
    gone = tmp_path / "gone"
    shutil.copytree(old, gone)
    warm(tmp_path / "whole", gone, make_plan(6, record_fields=shared)).run()
    warm(tmp_path / "parts", gone, make_plan(2, record_fields=shared)).run()
    shutil.rmtree(gone)
    warm(tmp_path / "parts", gone, make_plan(6, record_fields=shared)).run()
    whole, parts = (StudyDir(tmp_path / name).load().trials for name in ("whole", "parts"))
    assert [(t.params, t.state, t.values, t.origin) for t in whole] == [
        (t.params, t.state, t.values, t.origin) for t in parts]


def test_a_kill_while_taking_over_takes_the_rest_later(old, tmp_path, monkeypatch):
    study = StudyDir(tmp_path)
    append = StudyDir.append
    left = iter(range(5))

    def dies(self, *event, **facts):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return append(self, *event, **facts)

    monkeypatch.setattr(StudyDir, "append", dies)
    with pytest.raises(KeyboardInterrupt):
        warm(tmp_path, old, make_plan(4, record_fields=SHARED))
    monkeypatch.undo()
    assert len(study.load().trials) == 5 and (tmp_path / WARM_START_FILE).is_file()
    warm(tmp_path, old, make_plan(4, record_fields=SHARED))
    assert [trial.architecture for trial in finished(tmp_path)] == [
        trial.architecture for trial in finished(old)]


def test_what_is_gone_before_it_was_taken_is_told(old, tmp_path):
    gone = tmp_path / "gone"
    shutil.copytree(old, gone)
    known = choose_warm_start(WarmStartSpec((str(gone),)), make_plan(4, record_fields=SHARED), 3)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / WARM_START_FILE).write_text(json.dumps(known.to_json()))
    shutil.rmtree(gone)
    with refuses("source-trial-missing"):
        warm(tmp_path / "new", gone, make_plan(4, record_fields=SHARED))


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"imported": [{}], "enqueued": [], "skipped": {}, ' '"differences": []}'])
def test_what_was_chosen_and_is_damaged_is_named(old, tmp_path, text):
    make_driver(tmp_path, make_plan(0))
    (tmp_path / WARM_START_FILE).write_text(text)
    with refuses("file-damaged", WARM_START_FILE):
        warm(tmp_path, old, make_plan(4, record_fields=SHARED))


def test_a_record_that_is_damaged_where_it_is_imported_from_is_named(old, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(old, twin)
    known = choose_warm_start(WarmStartSpec((str(twin),)), make_plan(4, record_fields=SHARED), 3)
    make_driver(tmp_path / "new", make_plan(0))
    (tmp_path / "new" / WARM_START_FILE).write_text(json.dumps(known.to_json()))
    (Path(known.imported[0].source["folder"]) / "record.json").write_text("{")
    with refuses("file-damaged", "record.json"):
        warm(tmp_path / "new", twin, make_plan(4, record_fields=SHARED))


def test_a_reference_that_is_known_already_lends_its_label(old, tmp_path):
    best = max(finished(old), key=lambda trial: trial.values["bleu"])
    reference = FixedArchitecture("theirs", architecture_of(best.config), best.params)
    driver = warm(tmp_path, old, make_plan(1, record_fields=SHARED, references=(reference,)))
    driver.run()
    labeled = [trial for trial in driver.trials if trial.label == "theirs"]
    assert [(trial.origin, trial.state) for trial in labeled] == [
        (Origin.IMPORTED, State.COMPLETE), (Origin.REFERENCE, State.DUPLICATE)]


def test_what_was_imported_takes_no_ones_place_on_a_rung(old, tmp_path):
    plan = make_plan(4, record_fields=SHARED, rungs=Rungs((0.5, 1.0), 2))
    driver = warm(tmp_path, old, plan)
    imported = len(driver.trials)
    for number in range(2):
        announced = plan.evaluator.evaluate({"width": 8 * (number + 1), "depth": 1,
                                             "kind": "plain"})
        driver.search.add(driver.study.propose(replace(announced, number=imported + number)))
        driver._append(EventType.RUNG, driver.trials[imported + number], loss=1.0 + number)
    history = driver.search.history()
    assert imported == 12 and len(history) == 14
    assert find_promotable(history, plan.rungs,
                           plan.objectives).user_attrs[TRIAL_NUMBER_ATTR] == imported


def test_what_a_fork_has_brought_along_is_not_taken_twice_and_hides_nothing(old, tmp_path):
    study = StudyDir(tmp_path / "fork")
    plan = make_plan(4, record_fields=SHARED)
    study.create(replace(META, name="new"), "study: new\n", "width: 8\n")
    for trial in choose_warm_start(WarmStartSpec((str(old),)), plan, 3).imported[:4]:
        import_trial(study, replace(trial, origin=Origin.IMPORTED), plan.record_fields)
    driver = warm(tmp_path / "fork", old, plan)
    taken = [trial.identity for trial in driver.trials.with_origin(Origin.IMPORTED)]
    assert len(taken) == len(set(taken)) == 12
    again = make_plan(4, record_fields={**SHARED, "study_seed": 2})
    study = StudyDir(tmp_path / "other")
    carried = replace(finished(old)[0], origin=Origin.ENQUEUED)
    study.create(replace(META, name="new"), "study: new\n", "width: 8\n")
    source = choose_warm_start(WarmStartSpec((str(old),)), plan, 3).imported[0].source
    import_trial(study, replace(carried, source=source), again.record_fields)
    driver = warm(tmp_path / "other", old, again, most=3)
    driver.run()
    assert len([one
                for one in driver.trials.with_origin(Origin.ENQUEUED) if one.source is None]) == 3


def test_what_the_costs_of_this_study_refuse_is_left_out_as_infeasible(old):
    plan = make_plan(4, record_fields=SHARED)
    evaluate = plan.evaluator.evaluate
    plan.evaluator.evaluate = lambda params: replace(
        evaluate(params), state=State.INFEASIBLE, architecture=None, constraints={"artifact": 1.0},
        reason="cannot be held")
    found = choose_warm_start(WarmStartSpec((str(old),)), plan, 3)
    assert not found.imported and found.skipped == {"miss a limit of this study": 12}
