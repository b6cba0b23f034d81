"""Damaged and hostile files are read as a space or rejected with a ConfigError, quickly."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.errors import UserError
from scalesearch.spaces import ConfigError
from tests.mutated import PIECES, mutated
from tests.spaces.small import small

VALID = """space: valid
notes: "some text"
width: 4..16 step 4
norm: post | pre
rate: off | 0.05..0.5 log
on: [query, value]
encoder:
  depth: 2 | 3 if width > 4 else 4
  ffn: &ffn
    one of:
      relu: { hidden: = 4 * width }
      pg: { ratio: 1 | 2, act: relu }
decoder: { depth: = encoder.depth, ffn: *ffn }
share:
  encoder.ffn: own | cycle(1..2)
  decoder.ffn: own | encoder.ffn[i]
where:
  - decoder.depth <= encoder.depth and not norm == pre or width > 4
cost:
  protocol: { source: 30 }
  budgets:
    edge: params.total <= 10M
"""


def check_text(text):
    """Assert that ``text`` is a space that round-trips, or raises a ConfigError."""
    try:
        space = small(text)
    except ConfigError as errors:
        assert str(errors)
        assert all(str(problem) for problem in errors.problems)
    else:
        assert small(space.to_yaml()) == space
        space.sample(random.Random(0))


def test_valid_file_is_a_space():
    assert small(VALID).n_configurations() is None


@given(mutated(VALID))
@settings(max_examples=150)
def test_damaged_file_is_a_space_or_an_error(text):
    check_text(text)


@given(st.text(max_size=60))
@settings(max_examples=100)
def test_any_text_is_a_space_or_an_error(text):
    check_text(text)


@given(st.lists(st.one_of(PIECES, st.integers(0, 99).map(str)), max_size=12).map("".join))
@settings(max_examples=40)
def test_any_override_is_read_or_rejected(text):
    space = small(VALID)
    for key in ("width", "rate", "encoder.ffn", "share.encoder.ffn", "on", "label",
                "encoder.ffn.hidden", text):
        try:
            space.with_overrides({key: text})
        except UserError as error:
            assert str(error)


@pytest.mark.parametrize("text",
                         ["width: = " + "-" * 5000 + "1", "width: = " + "not " * 5000 + "1",
                          "width: = " + "2 ** " * 5000 + "1", "width: = 9 ** 9 ** 9 ** 9",
                          "width: = 10 ** 40 ** 2", "width: " + "1 if light else " * 5000 + "2",
                          "width: 1.." + "9" * 39,
                          "width: 4\nencoder.depth: = " + " * ".join(["9999999999"] * 99),
                          "width: 4\nwhere: [" + ", ".join(["width > 3"] * 3000) + "]",
                          "width: " + " | ".join(map(str, range(1, 5000))), "a" * 100_000,
                          "width: 4\nencoder" + ".depth" * 3000 + ": 4",
                          "width: 1..1000000000000 log\nencoder.depth: 1..1000000000000\nwhere: "
                          "[width * encoder.depth == 7]"])
def test_hostile_file_is_read_or_rejected_quickly(text):
    """Computed naively, each of these files would take hours or all memory."""
    check_text(text)
