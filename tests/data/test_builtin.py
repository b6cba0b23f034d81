"""The built-in corpus of the package."""

from pathlib import Path

import pytest

from scalesearch.data import sources
from scalesearch.data.sources import HELD_OUT_PAIRS, read_builtin
from scalesearch.data.spec import MAX_PAIRS
from tests.errors import refuses


def test_builtin_splits_do_not_overlap() -> None:
    corpus = read_builtin(MAX_PAIRS)
    assert {split: len(pairs) for split, pairs in corpus.items()} == {
        "train": MAX_PAIRS, "validation": HELD_OUT_PAIRS, "test": HELD_OUT_PAIRS}
    for side in (0, 1):
        held_out = [pair[side] for pair in corpus["validation"] + corpus["test"]]
        assert len(set(held_out)) == len(held_out)
        assert not {pair[side] for pair in corpus["train"]} & set(held_out)


def test_fewer_pairs_are_a_prefix() -> None:
    few = read_builtin(10)
    more = read_builtin(3000)
    assert few["train"] == more["train"][:10]
    assert (few["validation"], few["test"]) == (more["validation"], more["test"])
    assert few["train"][0] == (
        "This guest will laugh about the answers.", "Dieser Gast wird über die Antworten lachen.")


@pytest.mark.parametrize("damage", [b"", None])
def test_changed_builtin_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                 damage: bytes | None) -> None:
    other = tmp_path / "grammar.tsv.xz"
    if damage is not None:
        other.write_bytes(sources.GRAMMAR_FILE.read_bytes()[:-1] + damage)
    monkeypatch.setattr(sources, "GRAMMAR_FILE", other)
    with refuses("builtin-data-damaged", key="data.builtin"):
        read_builtin(10)
