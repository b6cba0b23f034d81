"""The package gives the identities, costs, checkpoints and study files that the golden files hold."""

import copy

import pytest

from tools import golden


@pytest.mark.parametrize("name", golden.PARTS)
def test_package_matches_golden_file(name):
    assert golden.changes(name)[:5] == [], "see tools/golden.py: compare, and write what a rename changes"


def test_structure_ignores_names_only():
    value = {"kind": "relu", "sizes": [1, 2], "inner": {"kind": "relu", "of": "own"}}
    renamed = {"type": "ReLU", "widths": [1, 2], "part": {"type": "ReLU", "source": "none"}}
    assert golden.structure(value) == golden.structure(renamed)
    for other in ({**value, "sizes": [1, 3]}, {**value, "kind": "gelu"}, {**value, "more": None}):
        assert golden.structure(value) != golden.structure(other)


def test_rename_is_told_from_other_changes(tmp_path, monkeypatch, capsys):
    stored = {"kind": "a", "digest": "=01", "values": [1, 2.0, None]}
    found = copy.deepcopy(stored)
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    monkeypatch.setattr(golden, "PARTS", {"part": lambda old: found})
    monkeypatch.setattr(golden, "TOLERANCES", {"part": 0.0})
    assert golden.update("part", force=False) == 0 and golden.load("part") == stored
    found = {"type": "b", "digest": "=01", "values": [1, 2.0, None]}
    assert golden.update("part", force=False) == 0 and golden.load("part") == found
    assert "'kind' -> 'type'" in capsys.readouterr().out
    for wrong in ({"digest": "=02"}, {"values": [1, 3.0, None]}, {"values": [1, 2.0]}, {"type": None}, {"values": 1}):
        before, found = golden.load("part"), {**found, **wrong}
        assert golden.update("part", force=False) == 1 and golden.load("part") == before
        found = before
