"""``scalesearch analyze``, as a user calls it."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from scalesearch.cli import analyze as analyse_verb
from scalesearch.cli import train as train_verb
from scalesearch.errors import UserError
from tests.corpora import ENGLISH, write_text

TABLES = ("heads", "tokens", "ffn", "load", "gradients")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data file beside its text."""
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
    cache = {"XDG_CACHE_HOME": str(data.parent / "cache")}
    return CliRunner(env=cache).invoke(verb.command, [str(argument) for argument in arguments])


def test_prints_every_table(data: Path, checkpoint: Path) -> None:
    done = run(analyse_verb, data, checkpoint, "--data", data, "--split", "test", "--sentences", 5)
    assert done.exit_code == 0, done.output
    for said in ("Head diversity", "Token uniformity", "Active FFN units", "Uses of parameter groups",
                 "Gradient of", "first 5 sentences of test", "encoder.layers.0.attention",
                 "eta ffn with gate"):
        assert said in done.stdout


def test_writes_csv_figures_and_json(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    to = tmp_path / "deep" / "analysis"
    done = run(analyse_verb, data, checkpoint, "--data", data, "--to", to, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found == json.loads((to / "analysis.json").read_text())
    assert (found["sentences"], found["split"], len(found["heads"])) == (8, "validation", 7)
    for name in TABLES:
        rows = list(csv.DictReader((to / f"{name}.csv").open()))
        listed = found[name] if isinstance(found[name], list) else found[name]["groups"]
        assert [list(row) for row in rows] == [list(row) for row in listed] and rows
        assert (to / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (to / f"{name}.svg").read_text()
    for row, listed in zip(csv.DictReader((to / "heads.csv").open()), found["heads"]):
        assert float(row["diversity"]) == listed["diversity"]


def test_the_checkpoints_own_vocabulary_is_used(data: Path, checkpoint: Path) -> None:
    other = data.parent / "other.yaml"
    other.write_text(data.read_text().replace("vocab: 60", "vocab: 50"))
    one, two = (json.loads(run(analyse_verb, data, checkpoint, "--data", file, "--json").stdout)
                for file in (data, other))
    assert one["heads"] == two["heads"] and one["gradients"] == two["gradients"]


def test_bad_input_is_said(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    task.write_text(data.read_text().replace("{", "{task: summarization, "))
    for arguments, said in (
        ((tmp_path, "--data", data), "no checkpoint"),
        ((checkpoint, "--data", "nowhere.yaml"), "nowhere.yaml"),
        ((checkpoint, "--data", task), "trained for translation"),
        ((checkpoint, "--data", data, "--to", data / "inside"), "--to"),
    ):
        done = run(analyse_verb, data, *arguments)
        assert isinstance(done.exception, UserError) and said in str(done.exception), done.exception


def test_a_model_that_has_diverged_is_said_to_be_one(
        data: Path, checkpoint: Path, tmp_path: Path) -> None:
    gone = shutil.copytree(checkpoint, tmp_path / "gone")
    weights = load_file(gone / "model.safetensors")
    save_file({name: value * float("nan") for name, value in weights.items()},
              gone / "model.safetensors")
    done = run(analyse_verb, data, gone, "--data", data)
    assert isinstance(done.exception, UserError) and "diverged" in str(done.exception)


def test_a_language_model_is_looked_into_as_well(tmp_path: Path) -> None:
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
    found = json.loads(run(analyse_verb, file, tmp_path / "out", "--data", file, "--json").stdout)
    assert [row["part"]
            for row in found["heads"]] == ["self_attention"] and found["gradients"]["norm"] > 0
