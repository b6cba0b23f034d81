"""Data files: equivalent to keys of the study file, with paths relative to the data file."""

from pathlib import Path

import pytest

from scalesearch.studies.config.reader import parse_study, read_study
from tests.errors import refuses

STUDY = """\
study: mine
space: transformer
data: {data}
recipe: quick
objectives: {{ bleu: max, params.total: min }}
"""
KEYS = ("source: en\ntarget: de\ntrain: text/train\nvalidation: text/valid\ntest: text/test\n"
        "vocab: 100\n")


def study(folder: Path, data: str, *sets: str):
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(STUDY.format(data=data))
    return read_study(folder / "study.yaml", sets)


@pytest.mark.parametrize("text",
                         [KEYS, "data:\n" + "".join(f"  {line}\n" for line in KEYS.splitlines())])
def test_file_is_equivalent_to_its_keys_with_full_paths(text, tmp_path):
    (tmp_path / "data.yaml").write_text(text)
    data = study(tmp_path, "data.yaml").data
    assert data.vocab == 100 and data.train == (str(tmp_path / "text/train"),)


def test_file_is_found_next_to_the_study_or_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "here.yaml").write_text(KEYS)
    monkeypatch.chdir(tmp_path)
    assert study(tmp_path / "studies", "here.yaml").data.train == (str(tmp_path / "text/train"),)
    (tmp_path / "studies" / "here.yaml").write_text(KEYS)
    assert study(tmp_path / "studies",
                 "here.yaml").data.train == (str(tmp_path / "studies/text/train"),)


def test_override_names_a_file_and_changes_its_keys(tmp_path, monkeypatch):
    (tmp_path / "data.yaml").write_text(KEYS)
    monkeypatch.chdir(tmp_path)
    data = parse_study(STUDY.format(data="builtin"), Path("s.yaml"),
                        ["data=data.yaml", "data.vocab=50"]).data
    assert data.vocab == 50 and data.builtin is None
    assert study(tmp_path, "data.yaml", "data=builtin").data.builtin == "grammar"


def test_errors_in_the_data_file_have_positions(tmp_path):
    (tmp_path / "data.yaml").write_text(KEYS + "vocabb: 3\n")
    with refuses("unknown-key", "data.yaml:7:1", "vocabb"):
        study(tmp_path, "data.yaml")


@pytest.mark.parametrize("name", ["nowhere.yaml", "gramar"])
def test_missing_file_is_named_once(name, tmp_path):
    with refuses("no-such-file", "study.yaml:3:7", name) as caught:
        study(tmp_path, name)
    assert len(caught.value.problems) == 1


def test_unset_variable_is_reported(tmp_path, monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    (tmp_path / "data.yaml").write_text(KEYS.replace("text/train", "$NOT_SET/train"))
    with refuses("variable-not-set", "NOT_SET"):
        study(tmp_path, "data.yaml")
