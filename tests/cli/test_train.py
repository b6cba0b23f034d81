"""The commands ``scalesearch train`` and ``scalesearch translate``."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from scalesearch.cli import train as train_verb
from scalesearch.cli import translate as translate_verb
from scalesearch.errors import UserError
from scalesearch.training.input_files import load_data
from tests.corpora import ENGLISH, write_text
from tests.errors import refuses

SMALL = ["--set", "width=16", "--set", "encoder.depth=1", "--set", "decoder.depth=1", "--set",
         "encoder.heads=2", "--set", "decoder.heads=2"]
RECIPE = ["--set", "recipe.steps=6", "--set", "recipe.max_tokens=200", "--set", "recipe.threads=1"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data file next to its text."""
    return write_text(tmp_path)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(verb, *args: str, text: str | bytes = "") -> Result:
    return CliRunner().invoke(verb.command, [str(arg) for arg in args], input=text,
                              catch_exceptions=True)


def trained(data: Path, out: Path, *more: str) -> Result:
    return run(train_verb, "transformer", "--data", data, *SMALL, *RECIPE, "--out", out, *more)


def test_train_then_translate(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = trained(data, out, "--seed", "4")
    assert done.exit_code == 0, done.output
    for text in (
        "validation",
        "test",
        "tok:13a",
        "greedy",
        "tokens per CPU-second",
        "seed 4",
        "update",
    ):
        assert text in done.output
    lines = "one red dog\n\n   \nthe old house 7\n"
    for beam in ("1", "3"):
        plain = run(translate_verb, out, "--beam", beam, text=lines)
        assert plain.exit_code == 0
        assert len(plain.stdout.split("\n")) == 5 and plain.stdout.split("\n")[1:3] == ["", ""]
        objects = [json.loads(line)
                   for line in run(translate_verb, out, "--beam", beam, "--json",
                                   text=lines) .stdout.splitlines()]
        assert [item["source"] for item in objects] == lines.split("\n")[:4]
        assert [item["translation"] for item in objects] == plain.stdout.split("\n")[:4]
        assert objects[1]["score"] is None and objects[0]["score"] < 0


def test_json_output_is_one_object(data: Path, tmp_path: Path) -> None:
    done = trained(data, tmp_path / "out", "--json")
    report = json.loads(done.stdout)
    assert report["state"] == "complete" and report["steps"] == 6
    assert report == json.loads((tmp_path / "out" / "result.json").read_text())


def test_existing_run_needs_resume_or_overwrite(data: Path, tmp_path: Path) -> None:
    first = trained(data, tmp_path / "out", "--json")
    again = trained(data, tmp_path / "out")
    assert isinstance(again.exception, UserError) and "--resume" in str(again.exception)
    assert json.loads(trained(data, tmp_path / "out", "--json",
                              "--resume").stdout) == json.loads(first.stdout)


def test_missing_run_is_reported(data: Path, tmp_path: Path) -> None:
    done = trained(data, tmp_path / "out", "--json", "--resume")
    assert done.exit_code == 0
    assert done.stderr.startswith(f"nothing to resume in {tmp_path / 'out'}; starting from the "
                                  "beginning\n")
    other = trained(data, tmp_path / "out", "--resume", "--set", "recipe.lr=1")
    assert isinstance(other.exception, UserError) and "lr.base was" in str(other.exception)
    assert "training" not in other.output.replace("holds another training", "")


@pytest.mark.parametrize("seed", ["-1", str(2**32)])
def test_invalid_seed_leaves_no_folder(data: Path, tmp_path: Path, seed: str) -> None:
    done = trained(data, tmp_path / "out", "--seed", seed)
    assert (done.exit_code, (tmp_path / "out").exists()) == (
        2, False) and "is not in the range" in done.output


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_folder_with_other_files_is_refused(data: Path, tmp_path: Path, resume: list[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    done = trained(data, out, *resume)
    assert isinstance(done.exception,
                      UserError) and "(notes.txt). Choose an empty" in str(done.exception)
    # what a training leaves that was stopped before its first save
    (out / "notes.txt").rename(out / "recipe.json")
    assert trained(data, out, *resume).exit_code == 0


def test_changed_setting_is_refused_before_writing(data: Path, tmp_path: Path) -> None:
    from scalesearch.training import checkpoint

    out = tmp_path / "out"
    out.mkdir()
    checkpoint.save_state(out, {"identity": {"lr": {"base": 1.0}}})
    done = trained(data, out, "--resume")
    assert isinstance(done.exception,
                      UserError) and "lr.base was 1.0 and is now" in str(done.exception)
    assert [path.name for path in out.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [("--data", "data:\n  source: en\n  targt: de\n", ":3:3: unknown key `targt`"),
     ("--data", "builtin: grammar\npairs: 0\n", ":2:8: pairs: 0 is out of bounds"),
     ("--data", "data: {source: [}\n", ":1:17: not YAML"),
     ("--data", "", ": the file is empty; give `builtin` or a file"),
     ("--data", "source: en\ntarget: de\ntrain: no\nvalidation: val\ntest: test\n",
      ":3:8: data: train: "),
     ("--data", "source: en\ntarget: de\ntrain: trian\nvalidation: val\ntest: test\n",
      "/data.yaml:3:8: data: train: "),
     ("--recipe", "steps: 3\nlrr: 1\n", ":2:1: unknown key `lrr`"),
     ("--recipe", "# nothing\n", ": the file is empty")])
def test_errors_in_files_have_positions(data: Path, tmp_path: Path, option: str, text: str,
                                           message: str) -> None:
    data.write_text(text)
    done = run(train_verb, "transformer", *SMALL, option, data, "--out", tmp_path / "out")
    assert isinstance(done.exception, UserError) and message in str(done.exception)


def test_failed_training_exits_with_1(data: Path, tmp_path: Path) -> None:
    done = trained(data, tmp_path / "out", "--set", "recipe.lr=1e30", "--set", "recipe.warmup=0",
                   "--set", "recipe.clip_norm=0")
    assert done.exit_code == 1 and "failed: the loss is" in done.output


def test_recipe_file_can_be_combined_with_set(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("recipe: {preset: quick, steps: 3, max_tokens: 200, threads: 1}\n")
    done = run(train_verb, "transformer", "--data", data, *SMALL, "--recipe", file, "--set",
               "recipe.steps=2", "--out", tmp_path / "out", "--json")
    assert json.loads(done.stdout)["steps"] == 2


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--recipe", "quik"], "presets quick, short, base"),
        (["--set", "recipe.lrr=1"], "--set recipe.lrr=1: unknown key `lrr`"),
        (["--set", "recipe.steps=7"], "--set: recipe.steps is given twice"),
        (["--set", "recipe.lr"], "--set recipe.lr: write it as key=value"),
        (["--data", "nowhere.yaml"], "nowhere.yaml"),
        (["--set", "widht=3"], "widht"),
    ],
)
def test_invalid_options_are_reported_before_training(
        data: Path, tmp_path: Path, args: list[str], text: str) -> None:
    done = trained(data, tmp_path / "out", *args)
    assert isinstance(done.exception, UserError) and text in str(done.exception)
    assert not (tmp_path / "out" / "result.json").exists()


def test_translate_refuses_invalid_checkpoint_and_text(data: Path, tmp_path: Path) -> None:
    missing = run(translate_verb, tmp_path / "nothing", text="x\n")
    assert isinstance(missing.exception, UserError) and "no checkpoint" in str(missing.exception)
    trained(data, tmp_path / "out")
    bad = run(translate_verb, tmp_path / "out", text=b"good\nb\xffd\n")
    assert isinstance(bad.exception,
                      UserError) and "line 2: not UTF-8 at byte 2" in str(bad.exception)


def test_language_model_has_perplexities_and_no_translations(tmp_path: Path) -> None:
    for split, count in (("train", 60), ("val", 8), ("test", 8)):
        (tmp_path
         / f"{split}.txt").write_text("".join(f"{ENGLISH[i % 5]} {i}\n" for i in range(count)))
    file = tmp_path / "text.yaml"
    file.write_text("data: {task: language-model, train: train.txt, validation: val.txt, test: "
                    "test.txt, vocab: 60, window: 16}\n")
    only = [*SMALL[:2], *SMALL[4:6], *SMALL[8:], "--set", "model=decoder-only"]
    done = run(train_verb, "transformer", "--data", file, *only, *RECIPE, "--out", tmp_path / "out",
               "--set", "recipe.measure=both")
    assert done.exit_code == 0, done.output
    for text in ("Perplexity", "Bits", "window:16|stride:8", "windows", "latency: ", "memory: "):
        assert text in done.output
    refused = run(translate_verb, tmp_path / "out", text="a\n")
    assert isinstance(refused.exception, UserError) and "language-model" in str(refused.exception)
    wrong = run(train_verb, "transformer", "--data", file, *SMALL, *RECIPE, "--out",
                tmp_path / "other")
    with refuses("other-model", "needs `model: decoder-only`"):
        raise wrong.exception


@pytest.mark.parametrize(("task", "options", "code"), [
    ("language-model", [], "other-model"),
    pytest.param("translation", ["--set", "recipe.device=cuda"], "no-gpu",
                 marks=pytest.mark.skipif(torch.cuda.is_available(), reason="needs no GPU"))])
def test_wrong_model_and_device_are_reported_before_the_text_is_read(
        tmp_path: Path, task: str, options: list[str], code: str) -> None:
    file = tmp_path / "data.yaml"
    file.write_text(f"task: {task}\ntrain: nowhere.tsv\nvalidation: nowhere.tsv\n")
    done = run(train_verb, "transformer", "--data", file, *SMALL, *options, "--out",
               tmp_path / "out")
    with refuses(code):
        raise done.exception


@pytest.mark.parametrize("is_data_file", [True, False])
def test_data_of_a_run_is_a_data_file(
        data: Path, is_data_file: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data.parent)
    corpus = load_data(data.name)
    left = data.parent / "data.json" if is_data_file else data.parent / "model/data.json"
    left.parent.mkdir(exist_ok=True)
    left.write_text(json.dumps(asdict(corpus.facts)))
    assert load_data(str(left)).facts.hash == corpus.facts.hash


@pytest.mark.full
def test_standard_input_is_read_and_truncated_like_files(data: Path, tmp_path: Path) -> None:
    positions = ["--set", "embedding.positions=learned", "--set", "embedding.max_length=60"]
    assert trained(data, tmp_path / "out", *positions).exit_code == 0
    long = " ".join(["red"] * 90)
    done = run(translate_verb, tmp_path / "out", text=f"one red dog\n{long}\nthe old house\n")
    assert done.exit_code == 0 and done.stdout.count("\n") == 3
    marked = run(translate_verb, tmp_path / "out", "--json", text="\ufeffone red dog\r\n".encode())
    plain = run(translate_verb, tmp_path / "out", "--json", text="one red dog\n")
    assert marked.stdout == plain.stdout


@pytest.mark.full
def test_fine_tuning_starts_from_the_weights_of_a_model(data: Path, tmp_path: Path) -> None:
    first = json.loads(trained(data, tmp_path / "first", "--json").stdout)
    # another text of the same task, from which another vocabulary would be fitted
    new = tmp_path / "new"
    new.mkdir()
    write_text(new, 40)
    for file in new.glob("*.de"):
        file.write_text(file.read_text().replace("Hund", "Dackel"))
    unclear = run(train_verb, tmp_path / "first", "--data", new / "data.yaml", *RECIPE, "--out",
                  tmp_path / "out")
    with refuses("weights-unused", "--from", "architecture.yaml"):
        raise unclear.exception
    assert not (tmp_path / "out").exists()
    same = [*RECIPE[2:], "--set", "recipe.lr=0", "--set", "recipe.steps=1", "--json"]
    options = ["--from", tmp_path / "first", "--data", data, "--out", tmp_path / "same", *same]
    unchanged = json.loads(run(train_verb, *options).stdout)
    assert unchanged["metrics"]["loss"] == pytest.approx(first["metrics"]["loss"], abs=1e-6)
    done = run(train_verb, "--from", tmp_path / "first", "--data", new / "data.yaml", *RECIPE,
               "--out", tmp_path / "out", "--json")
    result = json.loads(done.stdout)
    assert done.exit_code == 0 and str(tmp_path / "first") in done.stderr.replace("\n", "")
    assert (tmp_path / "out/tokenizer.model").read_bytes() == (
        tmp_path / "first/tokenizer.model").read_bytes()
    assert result["initial_model"]["folder"] == str(tmp_path / "first")
    assert len(result["initial_model"]["weights"]) == 16 and first["initial_model"] == {}
    # resuming without the model would be another run
    resumed = ["--data", new / "data.yaml", *RECIPE, "--out", tmp_path / "out", "--resume"]
    again = run(train_verb, "--from", tmp_path / "first", *resumed, "--json")
    assert json.loads(again.stdout) == result
    with refuses("other-training", "initial_weights"):
        raise run(train_verb, tmp_path / "first/architecture.yaml", *resumed).exception


def test_fine_tuning_keeps_architecture_vocabulary_and_task(data: Path, tmp_path: Path) -> None:
    assert trained(data, tmp_path / "first").exit_code == 0
    start = ["--from", tmp_path / "first", *RECIPE, "--out", tmp_path / "out"]
    with refuses("models-incompatible", "architecture"):
        raise run(train_verb, "transformer", *SMALL[2:], "--set", "width=32", *start, "--data",
                  data).exception
    text = data.read_text()
    for change, code in (("vocab: 50", "given-twice"), ("lowercase: yes", "models-incompatible"),
                         ("task: summarization", "models-incompatible")):
        data.write_text(text.replace("vocab: 60", change))
        with refuses(code):
            raise run(train_verb, *start, "--data", data).exception
    assert run(train_verb, "--data", data, *RECIPE, "--out", tmp_path / "out").exit_code == 2
