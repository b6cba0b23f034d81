"""Data specs: validation, paths, and JSON."""

import json
from pathlib import Path

import pytest

from scalesearch.data import DataSpec, FilePair
from scalesearch.spaces import ConfigError
from tests.errors import refuses

FILES = {"source": "en", "target": "de", "train": "d/train", "validation": "d/val",
         "test": "d/test"}


def problems(mapping: object) -> dict[str, str]:
    """Map the underlined text of each problem of a data spec to message and help."""
    with pytest.raises(ConfigError) as error:
        DataSpec.from_mapping(mapping)  # type: ignore[arg-type]
    result = {}
    for problem in error.value.problems:
        line = problem.position.source.lines[problem.position.line]
        result[line[problem.position.column : problem.position.end]] = (
            f"{problem.message}; {problem.help}")
    return result


@pytest.mark.parametrize(
    ("mapping", "underlined", "expected_text"),
    [({"builtin": "grammar", "vocabulary": 10}, "vocabulary", "`vocab`"),
     ({"builtin": "grammar", "xyz": 1}, "xyz", "`builtin`"),
     ({"builtin": "grammer"}, "grammer", "`grammar`"),
     ({"builtin": "grammar", "train": "d/train"}, "d/train", "text files"),
     ({}, "{}", "`builtin: grammar`"), ({**FILES, "pairs": 3}, "3", "`max_pairs`"),
     ({"builtin": "grammar", "pairs": 50_001}, "50001", "<= 50000"),
     ({"builtin": "grammar", "seed": 7}, "seed", "one fixed text"),
     ({**FILES, "validation": ""}, "", "{source: FILE, target: FILE}"),
     ({**FILES, "test": [{"source": "a"}]}, "{'source': 'a'}", "{source: FILE, target: FILE}"),
     ({**FILES, "test": {"src": "a", "target": "b"}}, "src", "`source`"),
     ({**FILES, "test": ["d/test", {"source": "a", "tgt": "b"}]}, "tgt", "`target`"),
     ({**FILES, "vocab": "many"}, "many", "whole number"),
     ({**FILES, "vocab": True}, "yes", "whole number"),
     ({**FILES, "vocab": 100, "tokenizer": "m.model"}, "m.model", "`vocab`"),
     ({**FILES, "vocab_type": "word"}, "word", "`bpe`"),
     ({**FILES, "lowercase": "maybe"}, "maybe", "`yes`"),
     ({**FILES, "character_coverage": 0.5}, "0.5", ">= 0.9"),
     ({**FILES, "max_ratio": 0.5}, "0.5", ">= 1"),
     ({**FILES, "max_length": None}, "none", "whole number"),
     ({**FILES, "max_pairs": 0}, "0", ">= 1"),
     ({**FILES, "source": {"a": 1}}, "{'a': 1}", "a text"),
     ({**FILES, "mix_distilled": True}, "yes", "`distilled`"),
     ({**FILES, "target": "en"}, "en", "different suffixes"),
     ({**FILES, "window": 8}, "8", "`language-model`"),
     ({**FILES, "task": "language-model"}, "en", "pairs of texts"),
     ({**FILES, "train": {"source": "a", "target": ["b", "c"]}},
      "{'source': 'a', 'target': ['b', 'c']}", "validation and test"),
     ({**FILES, "task": "correction", "tokenize": "char"}, "char", "`translation`"),
     ("grammer", "grammer", "`grammar`"),
     ([1], "[1]", "`grammar`")])
def test_problems_have_position_and_help(
        mapping: object, underlined: str, expected_text: str) -> None:
    result = problems(mapping)
    assert underlined in result and expected_text in result[underlined], result


def test_all_problems_are_reported_together() -> None:
    assert set(problems({"source": "en", "vocab_type": "word", "max_pairs": -1})) == {"word", "-1"}
    with pytest.raises(ConfigError) as error:
        DataSpec.from_mapping({"source": "en"})
    assert [problem.message.split("`")[1] for problem in error.value.problems] == [
        "target", "train", "validation"]


@pytest.mark.parametrize("mapping",
                         [{"builtin": "grammar", "pairs": 500, "vocab": 300}, FILES,
                          {**FILES, "train": ["d/a", {"source": "x.txt", "target": "y.txt"}],
                           "max_pairs": 10, "lowercase": True},
                          {**FILES, "tokenizer": "$DIR/m.model", "max_ratio": 2.5, "name": "mine"}])
def test_json_round_trip(mapping: dict) -> None:
    spec = DataSpec.from_mapping(mapping)
    assert mapping.items() <= spec.model_dump().items()
    assert DataSpec.from_mapping(json.loads(json.dumps(spec.model_dump()))) == spec
    assert len({spec, spec}) == 1


def test_mapping_can_hold_pairs_of_files() -> None:
    pair = FilePair("a.en", "a.de")
    assert DataSpec.from_mapping({**FILES, "train": pair}).train == (pair,)
    assert DataSpec.from_mapping({**FILES, "train": ["d/a", pair]}).train == ("d/a", pair)


def test_defaults_depend_on_the_source_of_text() -> None:
    assert DataSpec.from_mapping(FILES).fitted_vocab_size == 8000
    assert DataSpec.from_mapping({**FILES, "tokenizer": "m.model"}).fitted_vocab_size is None
    builtin = DataSpec(builtin="grammar")
    assert (builtin.pairs, builtin.fitted_vocab_size) == (20_000, 2000)


def test_describe_names_text_and_vocabulary() -> None:
    assert DataSpec(builtin="grammar", pairs=9).describe() == (
        "built-in grammar (synthetic), 9 pairs; bpe vocabulary of 2,000")
    assert DataSpec.from_mapping({**FILES, "max_pairs": 5, "lowercase": True,
                                  "tokenizer": "m"}).describe() == (
        "en-de from d/train; tokenizer m; first 5 pairs; lower-cased")


def test_with_absolute_paths_expands_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CORPORA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    spec = DataSpec(source="en", target="de", train="$CORPORA/train", validation="~/val",
                    test="plain/test", tokenizer="${CORPORA}/m.model")
    assert spec.train == ("$CORPORA/train",)
    full = spec.with_absolute_paths(tmp_path / "base")
    assert (full.train, full.validation, full.test) == (
        (f"{tmp_path}/train",), (f"{tmp_path}/home/val",), (f"{tmp_path}/base/plain/test",))
    assert full.tokenizer == f"{tmp_path}/m.model"
    assert full.with_absolute_paths() == full


def test_with_absolute_paths_expands_file_pairs(tmp_path: Path) -> None:
    spec = DataSpec.from_mapping({**FILES, "test": {"source": "a", "target": "b"}})
    assert spec.with_absolute_paths(tmp_path).test == (FilePair(f"{tmp_path}/a", f"{tmp_path}/b"),)


def test_unset_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    with refuses("variable-not-set", "export NOWHERE=/path", key="data.train"):
        DataSpec.from_mapping({**FILES, "train": "$NOWHERE/train"}).with_absolute_paths()
