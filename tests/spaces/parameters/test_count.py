"""Counts of configurations: equal to enumeration, or an error before it."""

import pytest

from scalesearch.library import find_file
from scalesearch.spaces import Space, read_space
from scalesearch.spaces.parameters import count
from tests.errors import refuses

TIED = """
width: 8..64 step 8
encoder:
  heads: 1 | 2 if width >= 32 else 1
  ffn: { relu: { hidden: 4 | 8 if width > 16 else 4 } }
"""


def test_too_many_dependent_keys_are_rejected_before_enumeration(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """95 parameters, of which 17 have 10^10 combinations; enumeration would take too long."""
    monkeypatch.setattr(count, "enumerate_runs", lambda run: pytest.fail("combinations are listed"))
    with refuses("too-many-dependencies"):
        read_space(find_file("slim", "spaces")).n_configurations()


@pytest.mark.parametrize("limit", [7, 8])
def test_count_equals_enumeration_within_the_limit(limit: int) -> None:
    space = Space.parse(TIED)
    if limit == 7:
        with refuses("too-many-dependencies"):
            count.count_configurations(space.parameter_space, limit)
    else:
        assert count.count_configurations(space.parameter_space,
                                          limit) == sum(1 for _ in space.enumerate())
