"""A data spec says what is wrong with it, keeps paths as written, and survives the way through JSON."""

import json
from pathlib import Path

import pytest

from scalesearch.data import DataSpec, PairOfFiles
from scalesearch.errors import UserError

FILES = {"source": "en", "target": "de", "train": "d/train", "valid": "d/val", "test": "d/test"}


@pytest.mark.parametrize(("mapping", "said"), [
    ({"builtin": "grammar", "vocabulary": 10}, "unknown key `vocabulary`; did you mean `vocab`?"),
    ({"builtin": "grammar", "xyz": 1}, "unknown key `xyz`; known are task, builtin, pairs"),
    ({"builtin": "grammer"}, "no built-in corpus is called 'grammer'; grammar is"),
    ({"builtin": "grammar", "train": "d/train"}, "`train` is for text files"),
    ({}, "give `builtin: grammar`, or `source`"),
    ({**FILES, "pairs": 3}, "`pairs` is only for `builtin: grammar`; of text files, give `limit`"),
    ({"builtin": "grammar", "pairs": 50_001}, "pairs: the built-in corpus has 50000 training pairs, found 50001"),
    ({"builtin": "grammar", "seed": 7}, "unknown key `seed`: the built-in corpus is one fixed text"),
    ({**FILES, "valid": ""}, "valid: '' is no path prefix"),
    ({**FILES, "test": [{"source": "a"}]}, "test: {'source': 'a'} is no path prefix"),
    ({**FILES, "vocab": "8k"}, "vocab: expected a whole number of at least 5, found '8k'"),
    ({**FILES, "vocab": True}, "vocab: expected a whole number"),
    ({**FILES, "vocab": 100, "tokenizer": "m.model"}, "`vocab` (to fit a vocabulary) or `tokenizer`"),
    ({**FILES, "model": "word"}, "model: expected bpe or unigram, found 'word'"),
    ({**FILES, "lowercase": "yes"}, "lowercase: expected true or false, found 'yes'"),
    ({**FILES, "coverage": 0.5}, "coverage: expected a number from 0.9 to 1, found 0.5"),
    ({**FILES, "max_ratio": 0.5}, "max_ratio: expected a number of at least 1"),
    ({**FILES, "max_length": None}, "max_length: expected a whole number of at least 1, found None"),
    ({**FILES, "limit": 0}, "limit: expected a whole number of at least 1, found 0"),
    ({**FILES, "source": 3}, "source: expected text, found 3"),
    ("grammar", "expected keys such as"),
])
def test_what_is_wrong_is_said(mapping: dict, said: str) -> None:
    with pytest.raises(UserError) as error:
        DataSpec.from_mapping(mapping)
    assert said in str(error.value)


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(UserError) as error:
        DataSpec.from_mapping({"source": "en", "model": "word", "limit": -1})
    assert [line.split(":")[1] for line in str(error.value).splitlines()] == [
        " `target` is missing", " `train` is missing", " `valid` is missing", " `test` is missing", " limit", " model"]


@pytest.mark.parametrize("mapping", [
    {"builtin": "grammar", "pairs": 500, "vocab": 300},
    FILES,
    {**FILES, "train": ["d/a", {"source": "x.txt", "target": "y.txt"}], "limit": 10, "lowercase": True},
    {**FILES, "tokenizer": "$DIR/m.model", "max_ratio": 2.5, "name": "mine"},
])
def test_json_and_back_is_the_same(mapping: dict) -> None:
    spec = DataSpec.from_mapping(mapping)
    assert mapping.items() <= spec.to_json().items()
    assert DataSpec.from_mapping(json.loads(json.dumps(spec.to_json()))) == spec
    assert len({spec, spec}) == 1


def test_defaults_fit_the_shape() -> None:
    assert DataSpec.from_mapping(FILES).vocab == 8000
    assert DataSpec.from_mapping({**FILES, "tokenizer": "m.model"}).vocab is None
    builtin = DataSpec(builtin="grammar")
    assert (builtin.pairs, builtin.vocab) == (20_000, 2000)


def test_a_description_names_text_and_vocabulary() -> None:
    assert DataSpec(builtin="grammar", pairs=9).describe() == (
        "built-in grammar (synthetic), 9 pairs; bpe vocabulary of 2000")
    assert DataSpec.from_mapping({**FILES, "limit": 5, "lowercase": True, "tokenizer": "m"}).describe() == (
        "en-de from d/train; tokenizer m; first 5 pairs; lower-cased")


def test_paths_are_expanded_only_when_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CORPORA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    spec = DataSpec(source="en", target="de", train="$CORPORA/train", valid="~/val", test="plain/test",
                    tokenizer="${CORPORA}/m.model")
    assert spec.train == ("$CORPORA/train",)
    full = spec.resolve(tmp_path / "base")
    assert (full.train, full.valid, full.test) == (
        (f"{tmp_path}/train",), (f"{tmp_path}/home/val",), (f"{tmp_path}/base/plain/test",))
    assert full.tokenizer == f"{tmp_path}/m.model"
    assert full.resolve() == full


def test_both_files_of_a_pair_are_resolved(tmp_path: Path) -> None:
    spec = DataSpec.from_mapping({**FILES, "test": {"source": "a", "target": "b"}})
    assert spec.resolve(tmp_path).test == (PairOfFiles(f"{tmp_path}/a", f"{tmp_path}/b"),)


def test_a_variable_that_is_not_set_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(UserError, match=r"train: \$NOWHERE/train needs the .* NOWHERE.*export NOWHERE=/path"):
        DataSpec.from_mapping({**FILES, "train": "$NOWHERE/train"}).resolve()
