"""Warm starts: imported trials, enqueued architectures, and resume after a kill."""

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from scalesearch.schedule import Rungs, find_promotable
from scalesearch.spaces.syntax.parameters import IntRange
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.config.sections import WARM_START_FILE, WarmStartSpec
from scalesearch.studies.optuna_sync.attributes import TRIAL_NUMBER_ATTR
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import EventType, Origin, State, Trial
from scalesearch.studies.warm_start import (
    WarmStart,
    apply_warm_start,
    choose_warm_start,
    import_trial,
)
from tests.errors import refuses
from tests.studies.engine.test_driver import trained
from tests.studies.fakes import META, FakeSpace, architecture_of, make_driver, make_plan

SHARED = {"recipe": {"steps": 9, "threads": 1, "measure": "none"}}
OTHERS = {
    "data": {"data": {"hash": "other"}},
    "recipe": {"recipe": {"steps": 10}},
    "seed": {"study_seed": 2},
    "teacher": {"teacher": {"architecture": "x"}},
}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A finished study of twelve trials."""
    folder = tmp_path_factory.mktemp("old") / "study"
    make_driver(folder, make_plan(12, record_fields=SHARED), kind="random").run()
    return folder


def warm(folder, old, plan, most=3, messages=None):
    """A driver of a study in ``folder`` with a warm start from ``old``."""
    study = StudyDir(folder)
    if not study.has_started():
        study.create(replace(META, name="new"), "width: 8\n")
    study.load()
    study.teacher_fields = plan.record_fields
    enqueued = apply_warm_start(study, plan.spec.replace(warm_start=WarmStartSpec((str(old),))),
                                plan.evaluator, most,
                                (messages if messages is not None else []).append)
    return make_driver(folder, replace(plan, enqueued=enqueued), kind="local")


def choose(plan, most, *folders, **limits):
    """The warm start of a new study."""
    study = StudyDir(Path("new"))
    study.meta = META
    study.teacher_fields = plan.record_fields
    spec = plan.spec.replace(warm_start=WarmStartSpec(tuple(map(str, folders)), **limits))
    return choose_warm_start(study, spec, plan.evaluator, most)


def finished(folder):
    return StudyDir(folder).load().trials.with_state(State.COMPLETE)


def test_comparable_trials_are_imported(old, tmp_path):
    messages = []
    driver = warm(tmp_path, old, make_plan(4, record_fields=SHARED), messages=messages)
    assert messages == [
        "Warm start: 12 finished candidates imported, 0 architectures of other fronts "
        "to be trained here first."
    ]
    assert driver.run() == "4 candidates and 12 imported candidates trained"
    trials = driver.trials
    mine = [trial for trial in trials.with_state(State.COMPLETE) if trial.origin == Origin.IMPORTED]
    assert [(t.architecture, t.values) for t in mine] == [
        (t.architecture, t.values) for t in finished(old)]
    new = [trial for trial in trials.with_state(State.COMPLETE) if trial.origin.charged]
    assert len(new) == 4 and not {t.architecture for t in new} & {t.architecture for t in mine}
    # The folder of an imported trial holds files of the other study.
    assert all(trained(tmp_path)[t.folder] == 1 for t in (*mine, *new)) and not any(
        t.attempts for t in mine)


def test_one_imported_candidate_is_singular():
    start = WarmStart((Trial(0, State.COMPLETE),), (), {}, ())
    assert start.describe().startswith("Warm start: 1 finished candidate imported, ")


def test_imported_trials_are_on_front_with_source(old, tmp_path):
    warm(tmp_path, old, make_plan(1, record_fields=SHARED)).run()
    results = load_results(tmp_path)
    other = StudyDir(old).load()
    number = finished(tmp_path)[0].number
    record = results.study.record(results.study.trials[number])
    assert record["origin"] == Origin.IMPORTED and record["study"] == "new" and record[
        "trial"] == number
    source = record["source"]
    assert source["study"] == "fake" and source["folder"] == str(
        other.trial_folder(other.trials[source["trial"]]).resolve())
    assert other.trials[source["trial"]].architecture == record["architecture"]
    assert record["metrics"]["bleu"] == record["values"]["bleu"]
    # only where something new dominates it
    assert set(load_results(old).front["id"]) - set(results.front["id"]) <= {
        trial.architecture for trial in finished(tmp_path) if trial.origin == Origin.IMPORTED}
    assert len(results.front) >= len(load_results(old).front)


@pytest.mark.parametrize("what", OTHERS)
def test_front_is_enqueued_if_scores_differ_in_scale(old, tmp_path, what):
    shared = {**SHARED, **OTHERS[what]}
    messages = []
    driver = warm(tmp_path, old, make_plan(5, record_fields=shared), most=3, messages=messages)
    assert (
        "0 finished candidates imported, 3 architectures of other fronts to be trained here first "
        "(the other study has "
        f"{'other' if what == 'data' else 'another'} {what})" in messages[0]
    )
    driver.run()
    trials = list(driver.trials)
    assert [trial.origin for trial in trials[:3]] == [Origin.ENQUEUED] * 3
    assert {trial.architecture for trial in trials[:3]} <= set(load_results(old).front["id"])
    assert len(driver.trials.with_state(State.COMPLETE)) == 5  # they are among the study's own five
    assert all(trained(tmp_path)[trial.folder] == 1 for trial in trials[:3])


def test_equivalent_recipes_are_comparable(old, tmp_path):
    shared = {**SHARED, "recipe": {"steps": 9, "threads": 4, "measure": "latency", "name": "mine"}}
    assert len(choose(make_plan(4, record_fields=shared), 3, old).imported) == 12


def test_missing_metric_prevents_import(old):
    plan = make_plan(4, record_fields=SHARED,
                     objectives=(parse_objective("latency", "min"),
                                 parse_objective("params.total", "min")))
    selection = choose(plan, 2, old)
    assert not selection.imported and len(
        selection.enqueued) == 2 and selection.differences == ("other metrics",)


def test_limits_and_space_of_the_new_study_apply(old):
    tight = make_plan(4, most=1500, record_fields=SHARED)
    fits = [trial for trial in finished(old) if trial.costs["params.total"] <= 1500]
    selection = choose(tight, 3, old)
    assert {trial.architecture for trial in selection.imported} == {
        trial.architecture for trial in fits
    }
    assert 0 < len(fits) < 12
    assert selection.skipped == {"violate a limit of this study": 12 - len(fits)}

    class Narrow(FakeSpace):
        def resolve(self, ask):
            width = ask("width", IntRange(8, 24, 8))
            return super().resolve(lambda path, parameter: width if path == "width"
                                  else ask(path, parameter))

    plan = make_plan(4, record_fields=SHARED)
    plan.evaluator.space = Narrow()
    inside = [trial for trial in finished(old) if trial.params["width"] <= 24]
    selection = choose(plan, 3, old)
    assert {trial.architecture for trial in selection.imported} == {
        trial.architecture for trial in inside
    }
    assert selection.skipped == {"do not fit this space": 12 - len(inside)} and 0 < len(inside) < 12


def test_two_sources_import_each_architecture_once(old, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(old, twin)
    selection = choose(make_plan(4, record_fields=SHARED), 3, old, twin)
    assert (
        len(selection.imported) == len({trial.architecture for trial in selection.imported}) == 12
    )
    assert selection.skipped == {"are duplicates": 12}


def test_number_of_enqueued_trials_is_limited(old):
    plan = make_plan(4, record_fields={**SHARED, "study_seed": 2})
    assert len(choose(plan, 3, old, max_candidates=1).enqueued) == 1
    assert not choose(plan, 3, old, max_candidates=0).enqueued


@pytest.mark.parametrize("shared", [SHARED, {**SHARED, "study_seed": 2}])
def test_resumed_study_does_not_need_its_source(old, tmp_path, shared):
    source = tmp_path / "gone"
    shutil.copytree(old, source)
    warm(tmp_path / "whole", source, make_plan(6, record_fields=shared)).run()
    warm(tmp_path / "parts", source, make_plan(2, record_fields=shared)).run()
    shutil.rmtree(source)
    warm(tmp_path / "parts", source, make_plan(6, record_fields=shared)).run()
    whole, parts = (StudyDir(tmp_path / name).load().trials for name in ("whole", "parts"))
    assert [(t.params, t.state, t.values, t.origin) for t in whole] == [
        (t.params, t.state, t.values, t.origin) for t in parts]


def test_import_continues_after_kill(old, tmp_path, monkeypatch):
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


def test_deleted_source_is_reported(old, tmp_path):
    source = tmp_path / "gone"
    shutil.copytree(old, source)
    selection = choose(make_plan(4, record_fields=SHARED), 3, source)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / WARM_START_FILE).write_text(msgspec.json.encode(selection).decode())
    shutil.rmtree(source)
    with refuses("source-trial-missing"):
        warm(tmp_path / "new", source, make_plan(4, record_fields=SHARED))


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"imported": [{}], "enqueued": [], "skipped": {}, "differences": []}'])
def test_damaged_selection_file_is_reported(old, tmp_path, text):
    make_driver(tmp_path, make_plan(0))
    (tmp_path / WARM_START_FILE).write_text(text)
    with refuses("file-damaged", WARM_START_FILE):
        warm(tmp_path, old, make_plan(4, record_fields=SHARED))


def test_damaged_record_of_source_is_reported(old, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(old, twin)
    selection = choose(make_plan(4, record_fields=SHARED), 3, twin)
    make_driver(tmp_path / "new", make_plan(0))
    (tmp_path / "new" / WARM_START_FILE).write_text(msgspec.json.encode(selection).decode())
    (Path(selection.imported[0].source["folder"]) / "record.json").write_text("{")
    with refuses("file-damaged", "record.json"):
        warm(tmp_path / "new", twin, make_plan(4, record_fields=SHARED))


def test_imported_trial_gets_label_of_reference(old, tmp_path):
    best = max(finished(old), key=lambda trial: trial.values["bleu"])
    reference = FixedArchitecture("theirs", architecture_of(best.config), best.params)
    driver = warm(tmp_path, old, make_plan(1, record_fields=SHARED, references=(reference,)))
    driver.run()
    labeled = [trial for trial in driver.trials if trial.label == "theirs"]
    assert [(trial.origin, trial.state) for trial in labeled] == [
        (Origin.IMPORTED, State.COMPLETE), (Origin.REFERENCE, State.DUPLICATE)]


def test_imported_trials_do_not_compete_on_rungs(old, tmp_path):
    plan = make_plan(4, record_fields=SHARED, rungs=Rungs((0.5, 1.0), 2))
    driver = warm(tmp_path, old, plan)
    imported = len(driver.trials)
    for number in range(2):
        announced = plan.evaluator.evaluate({"width": 8 * (number + 1), "depth": 1,
                                             "kind": "plain"})
        driver.search.add(driver.study.propose(announced.replace(number=imported + number)))
        driver._append(EventType.RUNG, driver.trials[imported + number], loss=1.0 + number)
    history = driver.search.history()
    assert imported == 12 and len(history) == 14
    assert find_promotable(history, plan.spec.rungs,
                           plan.spec.objectives).user_attrs[TRIAL_NUMBER_ATTR] == imported


def test_imports_before_an_interruption_are_not_repeated(old, tmp_path):
    study = StudyDir(tmp_path / "new")
    plan = make_plan(4, record_fields=SHARED)
    study.create(replace(META, name="new"), "width: 8\n")
    for trial in choose(plan, 3, old).imported[:4]:
        import_trial(study, trial.replace(origin=Origin.IMPORTED))
    driver = warm(tmp_path / "new", old, plan)
    identities = [trial.identity for trial in driver.trials.with_origin(Origin.IMPORTED)]
    assert len(identities) == len(set(identities)) == 12


def test_trials_with_infeasible_costs_are_skipped(old):
    plan = make_plan(4, record_fields=SHARED)
    evaluate = plan.evaluator.evaluate
    plan.evaluator.evaluate = lambda params: evaluate(params).replace(
        state=State.INFEASIBLE, architecture=None, constraints={"artifact": 1.0},
        reason="cannot be held")
    selection = choose(plan, 3, old)
    assert not selection.imported and selection.skipped == {"violate a limit of this study": 12}
