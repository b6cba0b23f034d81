"""Studies from Python: mapping or file, callbacks, frames with units, figures, the best model."""

from pathlib import Path

import matplotlib
import numpy
import pandas as pd
import pytest
import yaml

import scalesearch as ss
from scalesearch.api.study import Study
from tests.api.spaces import SMALL
from tests.corpora import DATA
from tests.errors import refuses

KEYS = {"study": "small", "space": ss.space(SMALL), "data": yaml.safe_load(DATA), "budget": "tiny",
        "trials": 3,
        "recipe": {"steps": 8, "max_tokens": 200, "lr": 5e-3, "beam": 1, "dropout": 0,
                   "score_splits": "validation"},
        "objectives": {"bleu": "max", "params.total": "min"}, "sampler": "random"}


class Recorder(ss.Callback):
    def __init__(self):
        self.ended_trials = []
        self.closed = False

    def ended(self, trial):
        self.ended_trials.append(trial.number)

    def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def run(text_folder):
    recorder = Recorder()
    return ss.study(KEYS).run([recorder], quiet=True), recorder


@pytest.fixture
def study(run) -> Study:
    return run[0]


@pytest.mark.full
def test_callbacks_are_called(run):
    done = run[0].trials().query("state == 'complete'")["trial"].tolist()
    assert run[1].ended_trials == done and len(done) == 3 and run[1].closed


def test_mapping_is_equivalent_to_a_file(text_folder):
    (text_folder / "space.yaml").write_text(SMALL)
    (text_folder / "file.yaml").write_text(yaml.safe_dump({**KEYS, "space": "space.yaml"}))
    from_mapping = ss.study(KEYS).spec
    from_file = ss.study("file.yaml").spec
    for key in ("name", "out", "space", "data", "recipe", "objectives", "trials", "seed",
                "sampler"):
        assert getattr(from_mapping, key) == getattr(from_file, key), key
    assert from_mapping.budget.text == from_file.budget.text
    again = ss.study({**KEYS, "recipe": from_mapping.recipe, "data": from_mapping.data,
                      "space": KEYS["space"].definition}).spec
    assert again.recipe == from_mapping.recipe and again.data == from_mapping.data


def test_overrides_replace_values_of_the_file(text_folder):
    study = ss.study(KEYS, {"recipe.steps": 9}, trials=5, out="elsewhere")
    assert (study.spec.recipe.steps, study.spec.trials, study.folder.name) == (9, 5, "elsewhere")
    assert "not started" in repr(study) and "bleu max" in study._repr_html_()
    with refuses("one-worker-only"):
        ss.study(KEYS, backend="inprocess", workers=2)


def test_mapping_replaces_that_of_the_file_and_none_unsets_a_key(text_folder):
    (text_folder / "space.yaml").write_text(SMALL)
    (text_folder / "file.yaml").write_text(yaml.safe_dump({**KEYS, "space": "space.yaml"}))
    objectives = {"bleu": "max", "macs.total": "min"}
    spec = ss.study("file.yaml", objectives=objectives, budget=None, data={"builtin": "grammar"},
                    space=ss.space("small/plain"), trials=numpy.int64(2)).spec
    assert {objective.name: objective.direction for objective in spec.objectives} == objectives
    assert (spec.budget, spec.data.builtin, spec.data.train) == (None, "grammar", ())
    assert (spec.space, spec.trials) == (ss.space("small/plain").definition, 2)


def test_architectures_are_references():
    wide = ss.space("small/plain").set(width=512).smallest()
    for source, settings in ((KEYS, {"reference": wide}), ({**KEYS, "reference": [wide]}, {})):
        (reference,) = ss.study(source, settings, budget=None).spec.references
        assert (reference.label, reference.architecture.id) == (wide.id, wide.id)


@pytest.mark.parametrize("callbacks", [ss.Callback, [ss.Callback], 3])
def test_callbacks_of_other_types_are_rejected(callbacks, study):
    with refuses("bad-value", place="callbacks: "):
        study.run(callbacks)


def test_frames_have_units(study):
    front = study.front()
    trials = study.trials()
    assert len(trials) >= 3 and set(front["trial"]) <= set(trials["trial"])
    for frame in (front, trials):
        assert frame.attrs["units"]["params.total"] == "parameters" and frame.attrs["units"][
            "bleu"] == "BLEU" and frame.attrs["units"]["loss_per_char"] == "nats per character"
        assert frame.attrs["units"]["memory.weights"].startswith(
            "bytes") and "trial" not in frame.attrs["units"]
        assert frame.attrs["objectives"] == {"bleu": "max", "params.total": "min"}
        assert frame.attrs["protocol"]["name"] == "forward" and set(
            frame.attrs["units"]) <= set(frame)


def test_front_is_displayed_and_its_parts_are_plain_frames(study):
    front = study.front()
    assert "Front of small" in repr(front) and "Hypervolume" in front._repr_html_()
    assert type(front.head(1)) is type(front[["bleu"]]) is pd.DataFrame
    assert "Front of small" in repr(study) and "<table" in study._repr_html_()


def test_plot_of_the_front(study):
    figure = study.plot()
    assert isinstance(figure,
                      matplotlib.figure.Figure) and figure._repr_png_().startswith(b"\x89PNG")
    assert "MACs" in study.plot("macs.total").axes[0].get_xlabel() or study.plot(
        "macs.total", "loss")
    for cost in ("params.encoder", "load.mean"):
        points = [line.get_xdata() for line in study.plot(cost).axes[0].lines]
        trials = study.results.study.trials
        best = trials[int(study.front()["trial"].iloc[0])]
        assert any(best.costs[cost] in xs for xs in points)
    with refuses("unknown-metric", "foo", "params.encoder", "loss_per_char"):
        study.plot("foo")


def test_best_trial_under_a_constraint(study):
    trials = study.trials().query("state == 'complete' and is_feasible")
    limit = int(trials["params.total"].median())
    best = study.best("bleu", constraint=f"params.total <= {limit}")
    assert best.metrics["bleu"] == trials[trials["params.total"] <= limit]["bleu"].max()
    assert "params.total" in best.selection_reason
    small = study.best("params.total", constraint="bleu >= 0 and norm == pre")
    assert small.architecture.cost()["params.total"] == trials["params.total"].min()
    assert study.best().metrics["bleu"] == study.front()["bleu"].max()
    assert study.model(1).architecture.id == study.trials().set_index("trial").loc[1, "id"]
    assert len(small.translate(["one red dog"])) == 1
    with refuses("bad-value", place="trial: expected a whole number"):
        study.model("1")


@pytest.mark.parametrize(
    ("objective", "under", "code"),
    [("bleu", "bleu > 1000", "nothing-meets"), ("bleu", "params.totl > 1", "unknown-key"),
     ("bleu", "bleu >", "bad-syntax"), ("bleu", "test.bleu > 1", "unknown-key"),
     ("test.bleu", None, "selection-on-test"), ("blue", None, "unknown-objective")])
def test_selection_of_no_trial_is_rejected(study, objective, under, code):
    with refuses(code):
        study.best(objective, constraint=under)


def test_folder_opens_as_a_study(study):
    opened = ss.load(study.folder)
    assert isinstance(opened, Study) and repr(opened) == repr(study)
    for source in (study.folder, study.folder / "study.yaml"):  # as on the command line
        assert ss.study(source) == Study(study.folder)
    assert opened.report().stat().st_size > 1000
    with refuses("options-conflict", study.folder):
        ss.study(study.folder, out="elsewhere")
    with refuses("unknown-key", "trails"):
        ss.study(study.folder, trails=5)


def test_study_resumes_from_its_folder_in_any_directory(study, tmp_path, monkeypatch):
    folder = study.folder.absolute()
    before = (study.folder / "events.jsonl").read_bytes()
    monkeypatch.chdir(tmp_path)
    again = ss.load(folder).run(quiet=True)
    assert again.folder == folder and (
        folder / "events.jsonl").read_bytes() == before and Path.cwd() == tmp_path
    with refuses("study-exists"):
        ss.load(folder).run(resume=False)


def test_finished_study_is_not_run_again(study, run):
    before = (study.folder / "events.jsonl").read_bytes()
    study.run(ss.Callback(), quiet=True)
    assert (study.folder / "events.jsonl").read_bytes() == before
    with refuses("study-exists", "small"):
        study.run(resume=False, quiet=True)


@pytest.mark.parametrize("table", ["front", "trials"])
def test_frames_have_the_searched_parameters(study, table):
    frame = getattr(study, table)()
    full = getattr(study, table)(all_params=True)
    parameters = {name for name in full if name.startswith("param.")}
    sampled = {"param.width", "param.encoder.depth"}
    assert parameters & set(frame) == sampled
    assert set(full) - set(frame) == parameters - sampled and frame.equals(full[[*frame]])


@pytest.mark.full
def test_finished_study_is_extended_from_its_folder(text_folder):
    study = ss.study(KEYS, trials=1, out="extended").run(quiet=True)
    ss.study(study.folder, trials=2).run(quiet=True)
    assert len(ss.load(study.folder).trials().query("state == 'complete'")) == 2


def test_key_of_an_argument_is_named_once():
    with refuses("bad-value", "`x`", place="trials=x: expected"):
        ss.study("quick", trials="x")


def test_errors_of_a_mapping_have_positions():
    with refuses("missing-key", place="`"):
        ss.study({"study": "x"})
    with refuses("bad-value", place="data.train: `source`"):
        ss.study({"study": "x", "objectives": {"loss": "min"}, "recipe": {"steps": 4},
                  "space": {"width": 8}, "data": {"train": "text"}})
    with refuses("not-serializable", "object"):
        ss.study({"study": object()})
    with refuses("not-serializable", "HypervolumeGP"):
        ss.study({"study": "x", "objective": len})
