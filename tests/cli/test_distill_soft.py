"""``scalesearch distill --targets soft``: probabilities that a student is trained on."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from scalesearch.cli.main import app
from scalesearch.signals import SignalInterrupt
from scalesearch.training import train
from tests.errors import refuses
from tests.training.conftest import recipe, sentences, tiny


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data file next to its text and to the folder ``teacher`` of a trained model."""
    from scalesearch.training.input_files import load_data

    folder = tmp_path_factory.mktemp("soft")
    for split, count, seed in (("train", 60, 1), ("val", 10, 2), ("test", 10, 3)):
        for side, column in (("en", 0), ("de", 1)):
            (folder / f"{split}.{side}").write_text(
                "".join(pair[column] + "\n" for pair in sentences(count, seed)))
    file = folder / "data.yaml"
    file.write_text(yaml.safe_dump({"source": "en", "target": "de", "train": "train",
                                    "validation": "val", "test": "test", "vocab": 60}))
    train(tiny(), load_data(str(file)), recipe(), folder / "teacher")
    return file


@pytest.mark.full
def test_student_trains_on_soft_targets(data: Path, tmp_path: Path) -> None:
    from scalesearch.training.input_files import load_data

    arguments = ["distill", "--targets", "soft", str(data.parent / "teacher"), "--data", str(data),
                 "--out", str(tmp_path / "soft"), "--json"]
    result = CliRunner().invoke(app, [*arguments, "--top-k", "5"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    real = load_data(str(data))
    assert facts["pairs"] == 60 and facts["tokens"] == len(
        real.train.target_ids.flat) + 60 and facts["top"] == 5
    student = load_data(facts["files"][-1])
    assert (
        student.content_hash != real.content_hash
        and student.train.target_ids == real.train.target_ids
    )
    assert any("5 most probable" in note for note in student.notes)
    results = {share: train(tiny(), student, recipe(distillation_weight=share),
                            tmp_path / f"student-{share}") for share in (0, 1)}
    hard = train(tiny(), real, recipe(), tmp_path / "hard")
    assert [point["train_loss"] for point in results[0].curve] == [
        point["train_loss"] for point in hard.curve]
    assert results[1].curve[-1]["validation_loss"] != hard.curve[-1]["validation_loss"]
    with refuses("other-settings", "top"):
        raise CliRunner().invoke(app, [*arguments, "--top-k", "4"]).exception
    with refuses("options-conflict", "--beam"):
        raise CliRunner().invoke(app, [*arguments, "--beam", "4"]).exception


@pytest.mark.full
def test_soften_is_the_earlier_name(data: Path, tmp_path: Path) -> None:
    arguments = [str(data.parent / "teacher"), "--data", str(data), "--out"]
    for number, command in enumerate((["soften"], ["distill", "--targets", "soft"])):
        out = str(tmp_path / str(number))
        CliRunner().invoke(app, [*command, *arguments, out], catch_exceptions=False)
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    assert "soften" not in CliRunner().invoke(app, ["--help"]).stdout


def test_adaptive_softmax_is_refused(data: Path, tmp_path: Path) -> None:
    from scalesearch.training.input_files import load_data

    CliRunner().invoke(app, ["distill", "--targets", "soft", str(data.parent / "teacher"), "--data",
                             str(data), "--out", str(tmp_path / "soft")], catch_exceptions=False)
    banded = tiny(embedding="adaptive", embedding__cutoffs=(20,), embedding__factor=2)
    result = train(banded, load_data(str(tmp_path / "soft.yaml")), recipe(), tmp_path / "run")
    assert result.state == "failed" and "bands" in result.reason


def test_other_vocabulary_and_large_top_k_are_refused(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        yaml.safe_dump(
            yaml.safe_load(data.read_text())
            | {"vocab": 50}
            | {
                split: str(data.parent / name)
                for split, name in (("train", "train"), ("validation", "val"), ("test", "test"))
            }
        )
    )
    teacher = str(data.parent / "teacher")
    with refuses("teacher-vocab-mismatch", teacher):
        raise CliRunner().invoke(
            app, ["distill", "--targets", "soft", teacher, "--data", str(other), "--out",
                  "soft"]).exception
    text = tmp_path / "text.yaml"
    text.write_text(yaml.safe_dump({"task": "language-model"}
                                   | dict.fromkeys(("train", "validation", "test"), "x.txt")))
    for targets in ("soft", "text"):
        with refuses("no-pairs", "language-model", key="data.task"):
            raise CliRunner().invoke(app, ["distill", "--targets", targets, teacher, "--data",
                                           str(text), "--out", "soft"]).exception
    for top_k in (0, 61):
        with refuses("out-of-range", place=f"--top-k {top_k}: expected 1 to "):
            raise CliRunner().invoke(app, ["distill", "--targets", "soft", teacher, "--data",
                                           str(data), "--out", "soft", "--top-k", str(top_k)]
                                     ).exception


@pytest.mark.parametrize("targets, function",
                         [("soft", "soft_targets.write_soft_targets"),
                          ("text", "distill.write_distilled_data")])
def test_ctrl_c_explains_how_to_resume(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       targets: str, function: str) -> None:
    def interrupt(*arguments: Any) -> None:
        arguments[-1](2000, 3000)
        raise SignalInterrupt("SIGINT")

    monkeypatch.setattr(f"scalesearch.training.scoring.{function}", interrupt)
    result = CliRunner().invoke(app, ["distill", "--targets", targets, str(data.parent / "teacher"),
                                      "--data", str(data), "--out", str(tmp_path / "out")],
                                standalone_mode=False)
    assert isinstance(result.exception, click.Abort | KeyboardInterrupt | SystemExit)
    assert "2,000 of 3,000" in result.stderr and "same command" in result.stderr
    assert not result.stdout
