"""Identities, costs, checkpoints and study files are those in the golden files."""

import copy

import pytest

from tools import golden


@pytest.mark.full
@pytest.mark.parametrize("name", golden.PARTS)
def test_package_matches_golden_file(name):
    assert golden.changes(name)[:5] == [], "see tools/golden.py"


def test_structure_ignores_names_only():
    value = {"kind": "relu", "sizes": [1, 2], "inner": {"kind": "relu", "of": "own"}}
    renamed = {"type": "ReLU", "widths": [1, 2], "part": {"type": "ReLU", "source": "none"}}
    assert golden.structure(value) == golden.structure(renamed)
    for other in ({**value, "sizes": [1, 3]}, {**value, "kind": "gelu"}, {**value, "more": None}):
        assert golden.structure(value) != golden.structure(other)


def test_write_accepts_renames_only(tmp_path, monkeypatch, capsys):
    stored = {"kind": "a", "digest": "=01", "values": [1, 2.0, None]}
    computed = copy.deepcopy(stored)
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    monkeypatch.setattr(golden, "PARTS", {"part": lambda old: computed})
    monkeypatch.setattr(golden, "TOLERANCES", {"part": 0.0})
    assert golden.update(force=False) == 0 and golden.load("part") == stored
    computed = {"type": "b", "digest": "=01", "values": [1, 2.0, None]}
    assert golden.update(force=False) == 0 and golden.load("part") == computed
    assert "'kind' -> 'type'" in capsys.readouterr().out
    for wrong in ({"digest": "=02"}, {"values": [1, 3.0, None]}, {"values": [1, 2.0]},
                  {"type": None}, {"values": 1}):
        before = golden.load("part")
        computed = {**computed, **wrong}
        assert golden.update(force=False) > 0 and golden.load("part") == before
        computed = before
