"""Counts of answer sheets: those of listing, or a refusal before anything is listed."""

import pytest

from scalesearch.library import find_file
from scalesearch.space import Space, read_space
from scalesearch.space.parameters import count
from tests.errors import refuses

TIED = """
width: 8..64 step 8
encoder:
  heads: 1 | 2 if width >= 32 else 1
  ffn: { relu: { hidden: 4 | 8 if width > 16 else 4 } }
"""


def test_a_space_tied_beyond_listing_is_refused_before_anything_is_listed(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """95 parameters, 10^10 combinations of 17 of them: 26 CPU-seconds went into saying so."""
    monkeypatch.setattr(count, "enumerate_runs", lambda run: pytest.fail("combinations are listed"))
    with refuses("too-many-dependencies"):
        read_space(find_file("slim", "spaces")).n_configurations()


@pytest.mark.parametrize("most", [7, 8])
def test_what_can_be_listed_is_counted_to_the_last(most: int) -> None:
    space = Space.parse(TIED)
    if most == 7:
        with refuses("too-many-dependencies"):
            count.count_configurations(space.parameter_space, most)
    else:
        assert count.count_configurations(space.parameter_space,
                                          most) == sum(1 for _ in space.enumerate())
