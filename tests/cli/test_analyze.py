"""The command ``scalesearch analyze``."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from scalesearch.cli import analyze as analyze_command
from scalesearch.cli import train as train_verb
from scalesearch.errors import UserError
from tests.corpora import ENGLISH, write_text

TABLES = ("heads", "tokens", "ffn", "load", "gradients")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data file next to its text."""
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def checkpoint(data: Path) -> Path:
    """A small PartialFormer after a few updates."""
    out = data.parent / "trained"
    done = run(train_verb, data, "small/partialformer", "--set", "width=16", "--set",
               "recipe.steps=4", "--set", "recipe.max_tokens=200", "--set", "recipe.threads=1",
               "--data", data, "--out", out)
    assert done.exit_code == 0, done.output
    return out


def run(verb, data: Path, *arguments: object) -> Result:
    settings = {"XDG_CACHE_HOME": str(data.parent / "cache"), "COLUMNS": "200"}
    return CliRunner(env=settings).invoke(verb.command, [str(argument) for argument in arguments])


@pytest.mark.full
def test_all_tables_are_printed(data: Path, checkpoint: Path) -> None:
    done = run(
        analyze_command, data, checkpoint, "--data", data, "--split", "test", "--sentences", 5
    )
    assert done.exit_code == 0, done.output
    for text in (
        "Head diversity",
        "Token uniformity",
        "Active FFN units",
        "Uses of parameter groups",
        "Gradient of",
        "first 5 sentences",
        "encoder.layers.0.attention",
        "eta ffn with gate",
    ):
        assert text in done.stdout


@pytest.mark.full
def test_csv_figures_and_json_are_written(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    to = tmp_path / "deep" / "analysis"
    done = run(analyze_command, data, checkpoint, "--data", data, "--to", to, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report == json.loads((to / "analysis.json").read_text())
    assert (report["sentences"], report["split"], len(report["heads"])) == (8, "validation", 7)
    for name in TABLES:
        rows = list(csv.DictReader((to / f"{name}.csv").open()))
        listed = report[name] if isinstance(report[name], list) else report[name]["groups"]
        assert [list(row) for row in rows] == [list(row) for row in listed] and rows
        assert (to / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (to / f"{name}.svg").read_text()
    for row, listed in zip(csv.DictReader((to / "heads.csv").open()), report["heads"]):
        assert float(row["diversity"]) == listed["diversity"]


@pytest.mark.full
def test_vocabulary_of_checkpoint_is_used(data: Path, checkpoint: Path) -> None:
    other = data.parent / "other.yaml"
    other.write_text(data.read_text().replace("vocab: 60", "vocab: 50"))
    first, second = (
        json.loads(run(analyze_command, data, checkpoint, "--data", file, "--json").stdout)
        for file in (data, other)
    )
    assert first["heads"] == second["heads"] and first["gradients"] == second["gradients"]


def test_invalid_input_is_reported(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    task.write_text(data.read_text().replace("{", "{task: summarization, "))
    for arguments, text in (
        ((tmp_path, "--data", data), "no checkpoint"),
        ((checkpoint, "--data", "nowhere.yaml"), "nowhere.yaml"),
        ((checkpoint, "--data", task), "trained for translation"),
        ((checkpoint, "--data", data, "--to", data / "inside"), "--to"),
    ):
        done = run(analyze_command, data, *arguments)
        assert isinstance(done.exception, UserError) and text in str(done.exception), done.exception


def test_diverged_model_is_reported(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    diverged = shutil.copytree(checkpoint, tmp_path / "diverged")
    weights = load_file(diverged / "model.safetensors")
    save_file({name: value * float("nan") for name, value in weights.items()},
              diverged / "model.safetensors")
    done = run(analyze_command, data, diverged, "--data", data)
    assert isinstance(done.exception, UserError) and "diverged" in str(done.exception)


def test_language_model_is_analyzed(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.txt").write_text(
            "".join(f"{line} {i}\n" for i in range(12) for line in ENGLISH))
    file = tmp_path / "data.yaml"
    file.write_text("data: {task: language-model, train: train.txt, validation: val.txt, test: "
                    "test.txt, vocab: 60, window: 32}\n")
    shape = ("model=decoder-only", "width=16", "decoder.depth=1", "decoder.heads=2")
    sets = [part for setting in shape for part in ("--set", setting)]
    done = run(train_verb, file, "transformer", *sets, "--set", "recipe.steps=2", "--set",
               "recipe.max_tokens=200", "--set", "recipe.threads=1", "--data", file, "--out",
               tmp_path / "out")
    assert done.exit_code == 0, done.output
    report = json.loads(
        run(analyze_command, file, tmp_path / "out", "--data", file, "--json").stdout
    )
    assert [row["part"]
            for row in report["heads"]] == ["self_attention"] and report["gradients"]["norm"] > 0
