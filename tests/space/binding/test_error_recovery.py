"""Problems of every kind in one file are shown together."""

import pytest

from scalesearch.space import Space, SpaceErrors

BROKEN = """\
width: 64..32
encoder: {heads: wrong}
share: {encoder.ffn: 1-11, decoder.ffn: 3-4}
decoder: {depth: 2..4, head_dim: = encoder.heads}
where:
  - decoder.depht < 3
  - decoder.depth < 0
  - decoder.head_dim < 0
"""


def test_reading_and_meaning_are_complained_about_at_once() -> None:
    with pytest.raises(SpaceErrors) as caught:
        Space.parse(BROKEN)
    lines = [(problem.place.line + 1, problem.message) for problem in caught.value.problems]
    assert [line for line, _ in lines] == [1, 2, 3, 3, 6, 7]
    assert "fits no possible depth" in lines[2][1] and "no candidate can satisfy" in lines[5][1]


def test_what_depends_on_a_broken_key_is_left_in_peace() -> None:
    """head_dim is computed from a broken key: nothing can be said of line 8."""
    with pytest.raises(SpaceErrors) as caught:
        Space.parse(BROKEN)
    assert all(problem.place.line != 7 for problem in caught.value.problems)
