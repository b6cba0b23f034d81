"""Trained models from Python: train, translate, score, export, load."""

from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner

import scalesearch as ss
from scalesearch.api.model import Model
from scalesearch.cli.translate import command as translate_verb
from tests.api.spaces import SMALL
from tests.corpora import write_text
from tests.errors import refuses

RECIPE = {"steps": 12, "max_tokens": 200, "lr": 5e-3, "beam": 2, "dropout": 0,
          "validate_every": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_text(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return ss.train(ss.space(SMALL).sample(1), folder / "data.yaml", RECIPE, folder / "model",
                    report=lambda event: None)


def test_trained_model_has_its_scores(model, folder):
    assert model.metrics["bleu"] >= 0 and model.result.steps == 12 and model.artifact is None
    assert model.architecture.id == ss.space(SMALL).sample(1).id and model.architecture.id in repr(
        model)
    assert "BLEU" in model._repr_html_()
    assert sum(weight.numel() for weight in model.module().parameters()) == model.result.n_params


def test_repeated_call_returns_the_trained_model(model, folder):
    before = (folder / "model" / "result.json").read_bytes()
    again = ss.train(folder / "model", folder / "data.yaml", RECIPE, folder / "model")
    assert (folder / "model" / "result.json").read_bytes() == before
    assert again.folder == model.folder
    with refuses("other-training", "steps"):
        ss.train(model.architecture, folder / "data.yaml", {**RECIPE, "steps": 13},
                 folder / "model")
    with refuses("training-exists", folder / "model"):
        ss.train(model.architecture, folder / "data.yaml", RECIPE, folder / "model", resume=False)


def test_translations_equal_those_of_the_command_line(model, folder):
    lines = ["the dog sees the cat", "", "one red dog"]
    done = CliRunner().invoke(translate_verb, [str(model.folder)],
                              input="".join(f"{line}\n" for line in lines))
    assert model.translate(lines) == done.stdout.splitlines() and model.translate(lines)[1] == ""
    assert model.translate("one red dog") == model.translate(lines)[2:]
    assert len(model.translate(lines, beam=1, length_penalty=0.5)) == 3


def test_scores_of_files_and_lines_are_equal(model, folder):
    files = folder / "test.en", folder / "test.de"
    of_files = model.score(*files, resamples=20)
    lines = [file.read_text().splitlines() for file in files]
    assert model.score(*lines, resamples=20) == of_files and of_files["chrf"]["half"] >= 0
    assert of_files["bleu"]["score"] == pytest.approx(model.metrics["test"]["bleu"])
    for wrong in ((files[0], lines[1]), (lines[0], lines[1][:-1])):
        with refuses("unequal-lines"):
            model.score(*wrong)


@pytest.mark.parametrize(("call", "argument"), [
    (lambda model: model.translate(None), "lines"), (lambda model: model.translate([1]), "lines"),
    (lambda model: model.translate(Path("file")), "lines"),
    (lambda model: model.translate("a", beam="4"), "beam"),
    (lambda model: model.generate("a", temperature="hot"), "temperature"),
    (lambda model: model.score("a", 3), "target"),
    (lambda model: model.score(["a"], [3]), "source and target"),
    (lambda model: model.export(3), "format")])
def test_arguments_of_other_types_are_rejected(model, call, argument):
    with refuses("bad-value", place=f"{argument}: expected "):
        call(model)


def test_lines_may_be_iterators_and_series(model, folder):
    files = folder / "test.en", folder / "test.de"
    expected = model.score(*files, resamples=20)
    with files[0].open() as source, files[1].open() as target:
        assert model.score(source, target, resamples=20) == expected
    series = [pandas.Series(file.read_text().splitlines()) for file in files]
    assert model.score(*series, resamples=20) == expected
    assert model.translate(iter(["two cats"])) == model.translate("two cats")


def test_exported_artifact_loads_as_a_model(model, folder):
    exported = model.export("torch", folder / "artifact", data=folder / "data.yaml")
    assert exported.artifact.format == "torch" and ss.load(
        folder / "artifact").translate("two cats") == model.translate("two cats")
    assert exported.metrics
    with refuses("already-exists", "artifact", "out="):
        model.export("torch", folder / "artifact")
    other = folder / "other"  # formats other than torch have no result
    other.mkdir()
    (other / "artifact.json").write_bytes((folder / "artifact/artifact.json").read_bytes())
    assert Model(other).metrics == model.metrics
    recipe = folder / "artifact/recipe.json"
    recipe.write_text(recipe.read_text().replace('"beam": 2', '"beam": 3'))
    with refuses("file-damaged", "recipe.json"):
        ss.load(folder / "artifact")


def test_invalid_models_and_recipes_are_rejected(folder, tmp_path):
    with refuses("no-checkpoint", tmp_path):
        ss.load(tmp_path)
    with refuses("unknown-key", "stepz", "steps"):
        ss.train("transformer", "builtin", {"stepz": 3}, tmp_path / "new")
    with refuses("no-such-file", "nowhere.yaml"):
        ss.train("transformer", "nowhere.yaml", RECIPE, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with refuses("no-checkpoint", tmp_path, "study.best()"):
        ss.compress(tmp_path, "quick")


def test_compression_prints_its_trials(model):
    assert "3 candidates" in repr(ss.compress(model, RECIPE | {"score_splits": "validation"},
                                              trials=3))


def test_compression_optimizes_the_main_metric_of_the_task(tmp_path):
    """The error for a classifier, which cannot be compressed, does not name BLEU."""
    (tmp_path / "train.tsv").write_text("good film\tyes\nbad film\tno\n" * 8)
    data = {"task": "classification", "train": str(tmp_path / "train.tsv"),
            "validation": str(tmp_path / "train.tsv"), "vocab": 24}
    classifier = {"model": "encoder-only", "classes": 2, "width": 16,
                  "encoder": {"depth": 1, "heads": 2}}
    ss.train(classifier, data, RECIPE, tmp_path / "model", report=lambda event: None)
    with refuses("parent-unsupported", "encoder-decoder") as error:
        ss.compress(tmp_path / "model", RECIPE)
    assert "bleu" not in str(error.value)


def test_architecture_may_be_a_mapping(folder):
    keys = {"width": 16, "encoder": {"depth": 1, "heads": 2}, "decoder": {"depth": 1, "heads": 2}}
    model = ss.train(keys, folder / "data.yaml", RECIPE, folder / "mapping",
                     report=lambda event: None)
    assert model.architecture.config["width"] == 16


def test_failed_training_raises_an_error(folder, tmp_path):
    with refuses("training-failed", tmp_path / "new"):
        ss.train(ss.space(SMALL).sample(1), folder / "data.yaml", {**RECIPE, "lr": 1e30},
                 tmp_path / "new", report=lambda event: None)
