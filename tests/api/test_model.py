"""Trained models from Python: train, translate, score, export, load."""

from pathlib import Path

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
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models")
    write_text(where)
    return where


@pytest.fixture(scope="module")
def model(place: Path) -> Model:
    return ss.train(ss.space(SMALL).sample(1), place / "data.yaml", RECIPE, place / "model",
                    report=lambda event: None)


def test_a_training_is_there_with_its_scores(model, place):
    assert model.metrics["bleu"] >= 0 and model.result.steps == 12 and model.artifact is None
    assert model.architecture.id == ss.space(SMALL).sample(1).id and model.architecture.id in repr(
        model)
    assert "BLEU" in model._repr_html_()
    assert sum(weight.numel() for weight in model.module().parameters()) == model.result.n_params


def test_the_same_call_returns_what_is_trained(model, place):
    before = (place / "model" / "result.json").read_bytes()
    again = ss.train(place / "model", place / "data.yaml", RECIPE, place / "model")
    assert (place / "model" / "result.json").read_bytes() == before and again.folder == model.folder
    with refuses("other-training", "steps"):
        ss.train(model.architecture, place / "data.yaml", {**RECIPE, "steps": 13}, place / "model")
    with refuses("training-exists", place / "model"):
        ss.train(model.architecture, place / "data.yaml", RECIPE, place / "model", resume=False)


def test_translations_are_those_of_the_command_line(model, place):
    lines = ["the dog sees the cat", "", "one red dog"]
    done = CliRunner().invoke(translate_verb, [str(model.folder)],
                              input="".join(f"{line}\n" for line in lines))
    assert model.translate(lines) == done.stdout.splitlines() and model.translate(lines)[1] == ""
    assert model.translate("one red dog") == model.translate(lines)[2:]
    assert len(model.translate(lines, beam=1, length_penalty=0.5)) == 3


def test_scores_are_those_of_files_or_of_lines(model, place):
    files = place / "test.en", place / "test.de"
    of_files = model.score(*files, resamples=20)
    lines = [file.read_text().splitlines() for file in files]
    assert model.score(*lines, resamples=20) == of_files and of_files["chrf"]["half"] >= 0
    assert of_files["bleu"]["score"] == pytest.approx(model.metrics["test"]["bleu"])
    for wrong in ((files[0], lines[1]), (lines[0], lines[1][:-1])):
        with refuses("unequal-lines"):
            model.score(*wrong)


def test_an_artifact_is_a_model_again(model, place):
    made = model.export("torch", place / "artifact", data=place / "data.yaml")
    assert made.artifact.format == "torch" and ss.load(
        place / "artifact").translate("two cats") == model.translate("two cats")
    assert made.metrics
    with refuses("already-exists", "artifact", "out="):
        model.export("torch", place / "artifact")


def test_what_is_no_model_is_refused(place, tmp_path):
    with refuses("no-checkpoint", tmp_path):
        ss.load(tmp_path)
    with refuses("unknown-key", "stepz", "steps"):
        ss.train("transformer", "builtin", {"stepz": 3}, tmp_path / "new")
    with refuses("no-such-file", "nowhere.yaml"):
        ss.train("transformer", "nowhere.yaml", RECIPE, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_training_that_fails_says_why(place, tmp_path):
    with refuses("training-failed", tmp_path / "new"):
        ss.train(ss.space(SMALL).sample(1), place / "data.yaml", {**RECIPE, "lr": 1e30},
                 tmp_path / "new", report=lambda event: None)
