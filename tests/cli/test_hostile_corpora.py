"""Arbitrary text: commands train on it, or refuse it with one message within bounds."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalesearch.data.files import MAX_LINE_BYTES, UNCHECKED_BYTES
from scalesearch.training import train
from scalesearch.training.input_files import load_data
from tests.bounds import invoke_bounded
from tests.corpora import write_text
from tests.training.conftest import recipe, tiny

VERBS = ("train", "distill", "soften", "analyze", "study", "run")
TABLES = ("tsv", "jsonl")
SIDES = [f"{split}.{side}" for split in ("train", "val", "test") for side in ("en", "de", *TABLES)]
ODD_LINES = ["", " ", "\t", "\u2028", "\x85", "\x0b\x0c", "\0", "a\0b", "\x1b[2J", "\u2581",
             "\u2581 \u2581", "\u202e", "\ufeff", "\ufffd", "\U0010ffff", "e" + "\u0301" * 500,
             "日本語のテキスト", "\r", "x" * 70_000, "word " * 3000, "S a b",
             "A 0 1|||R|||x|||REQUIRED|||-NONE-|||0", "A 9 1|||R|||x", "=1+1", "[/bold]", "⁇",
             "<s> </s> <unk>", "a\tb", "source\ttext", "text\ttarget", '{"source": "a"}',
             '{"source": "\\ud800", "target": "a"}', '{"source": "a\\nb", "target": "a\\u0000b"}']
WHOLE = {  # contents of files that no line-wise strategy comes upon
    "empty": b"",
    "one end": b"\n",
    "blank": b" \n" * 60,
    "no end": b"one red dog",
    "one line": b"the same\n" * 20_000,
    "half a character": b"one \xed\xa0\x80 dog\n" * 60,
    "Latin-1": "schön\n".encode("latin-1") * 60,
    "UTF-16": "hallo\n".encode("utf-16") * 60,
    "a long line": b"a" * (MAX_LINE_BYTES + 1),
    "20 MB": b"a" * 20_000_000,
    "words in a line": b"red dog " * (MAX_LINE_BYTES // 8),
    "a model": b"\x0a\x0b\x0a\x05<pad>\x15\0\0\0\0\x18\x03",
    "all characters": "".join(f"{chr(code)}\n" for code in range(32, 0x5000)).encode(),
}
PACKED = {"bomb": gzip.compress(bytes(UNCHECKED_BYTES + 1)),
          "lines": gzip.compress(b"a\n" * (UNCHECKED_BYTES // 2 + 1)),
          "cut": gzip.compress(b"eins\n" * 60)[:-9], "plain": b"eins\n" * 60,
          "valid": gzip.compress(b"eins\n" * 60)}
PLACES = ["/dev/zero", "/dev/null", "nowhere", "."]
OPTIONS = {"lowercase": [True], "max_length": [1, 2, 20, 10**9], "max_ratio": [1, 1.5],
           "limit": [1, 30, 10**9], "model": ["unigram"], "coverage": [0.9, 0.9995],
           "name": ["[/bold]", "\x1b[2J", "$"]}
OF_TEXT = {"window": [2, 10**6], "stride": [1, 64]}
TOKENIZERS = ["text/whole.model", "text/whole.model", "text/cut.model", "text/train.en", *PLACES]
VOCABULARIES = [5, 30, 55, 60, 61, 70, 5000, 10**6]
PAIRS = [-1, 0, 1, 60, 500, 10**9]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a parallel text and a model ``model`` trained on it."""
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "text").mkdir()
    train(tiny(), load_data(str(write_text(folder / "text"))), recipe(), folder / "model")
    for split in ("train", "val", "test"):
        source, target = ((folder / "text" / f"{split}.{side}").read_text().splitlines()
                          for side in ("en", "de"))
        (folder / "text" / f"{split}.tsv").write_text(
            "".join(f"{line}\t{translation}\n" for line, translation in zip(source, target)))
        (folder / "text" / f"{split}.jsonl").write_text("".join(
            json.dumps({"source": line, "target": translation, "text": translation}) + "\n"
            for line, translation in zip(source, target)))
    return folder


odd = st.one_of(st.sampled_from(ODD_LINES), st.text(max_size=20))
ends = st.sampled_from(["\n", "\n", "\r\n", "\r", "\u2028"])
codings = st.sampled_from(["utf-8"] * 5 + ["utf-8-sig", "utf-16", "latin-1"])
files = st.one_of(st.sampled_from(sorted(WHOLE)), st.binary(max_size=300),
                  st.builds(lambda lines, end, coding: end.join(lines).encode(coding, "replace"),
                            st.lists(odd, max_size=40), ends, codings))
changes = st.tuples(st.dictionaries(st.integers(0, 59), odd, max_size=5),
                    st.sampled_from(["\n", "\r\n"]), codings)


@st.composite
def damages(draw: Any) -> dict[str, Any]:
    """Strategy: file name to new content, target of a link, or changed lines."""
    damage = draw(st.dictionaries(st.sampled_from(SIDES), changes, max_size=3))
    if draw(st.integers(0, 2)) == 0:
        damage |= draw(st.dictionaries(st.sampled_from(SIDES),
                                      st.one_of(files, st.sampled_from(PLACES)), max_size=1))
    if draw(st.integers(0, 7)) == 0:
        name = draw(st.sampled_from(SIDES))
        damage |= {name: "nowhere", f"{name}.gz": draw(st.sampled_from(sorted(PACKED)))}
    return damage


@st.composite
def data_files(draw: Any) -> dict[str, Any]:
    """Strategy: keys of a data file of any task, with possibly conflicting options."""
    if draw(st.integers(0, 9)) == 0:
        return {"task": "translation", "builtin": "grammar", "pairs": draw(st.sampled_from(PAIRS)),
                "vocab": draw(st.sampled_from(VOCABULARIES))}
    task = draw(st.sampled_from(["translation"] * 4
                                + ["correction", "language-model", "summarization"]))
    text = task == "language-model"
    splits = {"train": "text/train", "validation": "text/val", "test": "text/test"}
    data: dict[str, Any] = {"task": task} | {
        split: path + ".de" * text for split, path in splits.items()}
    data |= {} if text else {"source": "en", "target": "de"}
    if draw(st.integers(0, 3)) == 0:
        ending = draw(st.sampled_from(TABLES))
        data |= {split: f"{path}.{ending}" for split, path in splits.items()}
    if task == "correction" and draw(st.booleans()):
        data |= {"test": {"source": "text/test.en", "target": ["text/test.de", "text/val.de"]}}
    options = OPTIONS | (OF_TEXT if text else {})
    data |= {key: draw(st.sampled_from(options[key])) for key in draw(
        st.lists(st.sampled_from(sorted(options)), max_size=2, unique=True))}
    if draw(st.integers(0, 3)) == 0:
        return data | {"tokenizer": draw(st.sampled_from(TOKENIZERS))}
    return data | {"vocab": draw(st.sampled_from(VOCABULARIES))}


def content_of(content: bytes | str) -> bytes:
    """Bytes of a content, which can be named so that error messages are short."""
    return content if isinstance(content, bytes) else {**WHOLE, **PACKED}[content]


def damaged(place: Path, damage: dict[str, Any]) -> Path:
    """Copy the text with ``damage`` to the folder ``text`` of the working directory."""
    folder = Path("text")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / "text", folder)
    for name, content in damage.items():
        file = folder / name
        if isinstance(content, tuple):
            lines, end, coding = content
            kept = enumerate(file.read_text().splitlines())
            content = "".join(
                lines.get(index, line) + end for index, line in kept).encode(coding, "replace")
        file.unlink(missing_ok=True)
        file.symlink_to(content) if content in PLACES else file.write_bytes(content_of(content))
    return folder


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def read_by(verb: str, model: Path, damage: dict[str, Any], data: dict[str, Any]) -> int:
    """Exit status of a command that reads the text that ``data`` describes."""
    folder = damaged(model.parent, damage)
    only = ["--set", "model=decoder-only"] * (data["task"] == "language-model")
    study = {"study": "s", "space": str(model / "architecture.yaml"), "data": data,
             "recipe": {"steps": 1, "beam": 1, "score_splits": "validation"}, "trials": 1,
             "objectives": {"params.total": "min"}}
    Path("data.yaml").write_text(json.dumps({"data": data}))
    Path("study.yaml").write_text(json.dumps(study))
    whole = (model / "tokenizer.model").read_bytes()
    (folder / "whole.model").write_bytes(whole)
    (folder / "cut.model").write_bytes(whole[: len(whole) // 2])
    options: dict[str, list[Any]] = {
        "train": [model / "architecture.yaml", "--data", "data.yaml", "--set", "recipe.steps=1",
                  *only, "--json",
                  "--out"], "distill": [model, "--data", "data.yaml", "--json", "--out"],
        "soften": [model, "--data", "data.yaml", "--json", "--out"],
        "analyze": [model, "--data", "data.yaml", "--sentences", 3, "--json", "--to"],
        "study": ["run", "study.yaml", "--dry-run", "--out"],
        "run": ["run", "study.yaml", "--backend", "inprocess", "--out"]}
    return invoke_bounded(verb.replace("run", "study"), *options[verb], folder / "out").exit_code


@pytest.mark.full
@pytest.mark.parametrize("verb", VERBS)
def test_valid_text_is_accepted(place: Path, verb: str) -> None:
    data = {"task": "translation", "source": "en", "target": "de", "train": "text/train",
            "validation": "text/val", "test": "text/test", "vocab": 60}
    assert read_by(verb, place / "model", {}, data) == 0


@pytest.mark.parametrize("examples", [2, pytest.param(30, marks=pytest.mark.full),
                                      pytest.param(500, marks=pytest.mark.slow)])
def test_any_text_is_accepted_or_refused(place: Path, examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(damages(), data_files(), st.sampled_from(["train", *VERBS]))
    def check(damage: dict[str, Any], data: dict[str, Any], verb: str) -> None:
        read_by(verb, place / "model", damage, data)

    check()


@pytest.mark.parametrize("examples", [3, pytest.param(10, marks=pytest.mark.full),
                                      pytest.param(300, marks=pytest.mark.slow)])
def test_any_text_is_translated_or_refused(place: Path, examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(damages(), files)
    def check(damage: dict[str, Any], text: bytes | str) -> None:
        folder = damaged(place, damage)
        model = place / "model"
        invoke_bounded(
            "score",
            model,
            "--source",
            folder / "test.en",
            "--target",
            folder / "test.de",
            "--samples",
            10,
        )
        invoke_bounded("translate", model, text=content_of(text))

    check()
