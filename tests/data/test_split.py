"""Ragged arrays and splits: taking, truncating and padding rows."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.data import RaggedArray, Split

rows = st.lists(st.lists(st.integers(4, 2**31 - 1), max_size=6), min_size=1, max_size=8)


@given(lists=rows, data=st.data())
def test_ragged_array_is_a_sequence_of_lists(lists: list[list[int]], data: st.DataObject) -> None:
    array = RaggedArray.from_lists(lists)
    assert array.flat.dtype == np.int32
    assert [row.tolist() for row in array] == lists
    assert array[-1].tolist() == lists[-1]
    chosen = data.draw(st.lists(st.integers(0, len(lists) - 1)))
    assert array.take(np.array(chosen,
                              np.int64)) == RaggedArray.from_lists([lists[i] for i in chosen])
    assert RaggedArray.concatenate(
        [array, array.take(np.array([0]))]) == RaggedArray.from_lists([*lists, lists[0]])
    longest = data.draw(st.integers(0, 6))
    assert array.truncate(longest) == RaggedArray.from_lists([row[:longest] for row in lists])


@given(lists=rows, before=st.sampled_from([None, 2]), after=st.sampled_from([None, 3]))
def test_pad_adds_prefix_suffix_and_padding(lists: list[list[int]], before: int | None,
                                                         after: int | None) -> None:
    matrix = RaggedArray.from_lists(lists).pad(np.arange(len(lists)), before, after)
    framed = [[before] * (before is not None) + row + [after] * (after is not None)
              for row in lists]
    width = max(map(len, framed))
    assert matrix.dtype == np.int64
    assert matrix.tolist() == [row + [0] * (width - len(row)) for row in framed]


def test_row_index_beyond_the_end_is_refused() -> None:
    with pytest.raises(IndexError):
        RaggedArray.from_lists([[4]])[1]


def test_split_pickles() -> None:
    split = Split.from_lists([[4], [5, 6]], [[7, 8], [9]], ["a", "b"], ["c", "d"])
    copy = pickle.loads(pickle.dumps(split))
    assert (copy.source_ids, copy.target_ids) == (split.source_ids, split.target_ids)
    assert (copy.source_text, copy.target_text, len(copy)) == (["a", "b"], ["c", "d"], 2)
    with pytest.raises(ValueError, match="1 source and 0 target"):
        Split.from_lists([[4]], [])


def test_split_without_targets_has_empty_targets() -> None:
    split = Split.from_lists([[4], [5, 6]])
    assert [row.tolist() for row in split.target_ids] == [[], []]
    assert split.target_text == ["", ""]
