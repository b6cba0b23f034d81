"""Changed studies: which changes are refused when a study is resumed, and what is suggested."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from scalesearch.spaces import read_space
from scalesearch.studies.trials.compatibility import training_differences
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import TeacherMeta
from scalesearch.studies.trials.trial import Origin, State
from scalesearch.terminal import format_count
from tests.studies.quick_studies import study_command

STUDY = """\
study: changed
data: { builtin: grammar, pairs: 300, vocab: 300 }
recipe: { steps: 6, max_tokens: 256, beam: 1 }
objectives: { loss: min, params.total: min }
protocol: { source: 12, target: 12 }
budget: params.total <= 60k
space:
  width: 16 | 32 | 48
  encoder: { depth: 1..4, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 } } }
  decoder: { depth: 1, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 | 64 } } }
reference: [ { name: small, set: { width: 16, encoder.depth: 1, decoder.ffn.relu.hidden: 32 } } ]
sampler: { type: random }
trials: 8
out: old
"""


def measure(place, job):
    """Return the metrics of a job without training."""
    space = read_space(place / "architecture.yaml")
    params = dict(space.resolve(lambda path, parameter: pytest.fail(f"{path} is open")))
    loss = 10 / (params["width"] + params["encoder.depth"])
    return {"loss": loss, "bleu": 100 - loss, "split": "valid"}


@pytest.fixture
def call(tmp_path, monkeypatch, capsys, cache):
    """Function that runs ``study run`` in a folder with the study file."""
    return partial(study_command(tmp_path, monkeypatch, capsys, cache, STUDY, measure), "run")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(("change", "what"), [
    (("space.width=20 | 32", "budget=params.total <= 50k"), "the space and the limits"),
    (("objectives={bleu: max, macs.total: min}", "protocol.source=20"),
     "the objectives and the cost protocol (source)"),
    (("objectives.latency=min",), "the objectives and the measurements of the recipe")])
def test_changed_search_is_refused_and_warm_start_suggested(call, change, what):
    call("s.yaml", "--trials", "3")
    sets = [word for setting in change for word in ("--set", setting)]
    output = call("s.yaml", "--resume", "--trials", "3", *sets, status=2)
    assert f"since this study started, {what} changed. Undo the change" in output
    assert "warm_start=old" in output
    if "latency" in change[0]:  # no trial has measured it
        return
    output = call("s.yaml", "--trials", "3", *sets, "--set", "warm_start=old", "--out", "new")
    old, new = (StudyDir(Path(folder)).load() for folder in ("old", "new"))
    imported = new.trials.with_origin(Origin.IMPORTED)
    candidates = format_count(len(imported), "finished candidate")
    assert f"Warm start: {candidates} imported" in output and imported
    for trial in imported:
        record = old.record(old.trials[trial.source["trial"]])
        assert new.record(trial)["metrics"] == record["metrics"]
        assert trial.values.keys() == {objective.name for objective in new.meta.objectives}


@pytest.mark.parametrize(("change", "what"),
                         [("recipe.steps=7", "the training recipe"),
                          ("seed=3", "the training seed"), ("data.pairs=301", "the data")])
def test_change_of_training_is_refused(call, change, what):
    call("s.yaml", "--trials", "1")
    output = call("s.yaml", "--resume", "--set", change, status=2)
    assert what in output and "changed, so old and new candidates are not comparable" in output
    assert "start another study with --out" in output and "warm_start" not in output


@pytest.mark.full
def test_new_recipe_field_with_default_changes_nothing(call):
    """With its default, the study can be resumed and its candidates can be imported."""
    call("s.yaml", "--trials", "1")
    old = StudyDir(Path("old")).load()
    for file in old.folder.glob("trials/*/record.json"):
        del (text := json.loads(file.read_text()))["recipe"]["subword_dropout"]
        file.write_text(json.dumps(text))
    old.update_meta(recipe={key: value
                            for key, value in old.meta.recipe.items() if key != "subword_dropout"})
    assert "training recipe" in call("s.yaml", "--resume", "--set", "recipe.subword_dropout=0.1",
                                     status=2)
    call("s.yaml", "--resume", "--trials", "2")
    call("s.yaml", "--set", "warm_start=old", "--out", "new", "--trials", "1")
    imported = StudyDir(Path("new")).load().trials.with_origin(Origin.IMPORTED)
    assert len(imported) == len(old.load().trials.with_state(State.COMPLETE)) > 1


def test_new_field_of_teacher_recipe_changes_nothing(call):
    call("s.yaml", "--trials", "1")
    meta = StudyDir(Path("old")).load().meta
    earlier = {key: value for key, value in meta.recipe.items() if key != "subword_dropout"}
    before, same, other = (replace(meta, teacher=TeacherMeta("id", recipe=recipe)) for recipe in (
        earlier, meta.recipe, {**meta.recipe, "subword_dropout": 0.1}))
    assert training_differences(before, same) == [] and training_differences(
        before, other) == ["the teacher"]
