"""Schedules of weight sharing: examples from the papers, and invariants."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.blocks.weight_sharing import (
    SCHEDULES,
    CycleSharing,
    ExplicitSharing,
    FullSharing,
    LoadSharing,
    NoSharing,
    ReverseCycleSharing,
    RunSharing,
    SandwichSharing,
    SequenceSharing,
    SharingSchedule,
    make_schedule,
)


def group_indices(plan: SharingSchedule, depth: int) -> list[int]:
    """The group of each layer, numbered by first use (a restricted growth string)."""
    order: dict[int, int] = {}
    return [order.setdefault(group, len(order)) for group in plan.groups(depth)]


@pytest.mark.parametrize(
    ("plan", "depth", "groups"),
    [
        (NoSharing(), 4, [0, 1, 2, 3]),
        (FullSharing(), 4, [0, 0, 0, 0]),
        (CycleSharing(4), 12, [0, 1, 2, 3] * 3),
        (SequenceSharing(3), 6, [0, 0, 1, 1, 2, 2]),
        (SequenceSharing(3), 7, [0, 0, 0, 1, 1, 2, 2]),
        (ReverseCycleSharing(3), 9, [0, 1, 2, 0, 1, 2, 2, 1, 0]),
        (ReverseCycleSharing(3), 6, [0, 1, 2, 2, 1, 0]),
        (SandwichSharing(), 6, [0, 1, 1, 1, 1, 2]),
        (SandwichSharing(), 2, [0, 1]),
        (RunSharing((1, 3)), 4, [0, 1, 1, 1]),
        (LoadSharing((3, 3)), 6, [0, 1, 0, 1, 0, 1]),
        (LoadSharing((1, 3)), 4, [0, 1, 1, 1]),
        (LoadSharing((3, 1)), 4, [0, 1, 0, 0]),
        (ExplicitSharing((5, 5, 2)), 3, [0, 0, 1]),
    ],
)
def test_groups_are_those_of_the_papers(plan: SharingSchedule, depth: int,
                                        groups: list[int]) -> None:
    assert plan.validate(depth) is None
    assert group_indices(plan, depth) == groups


@st.composite
def plans(draw: st.DrawFn) -> tuple[SharingSchedule, int]:
    depth = draw(st.integers(1, 14))
    name = draw(st.sampled_from([*SCHEDULES, "explicit"]))
    if name == "explicit":
        return ExplicitSharing(
            tuple(draw(st.lists(st.integers(0, 4), min_size=depth, max_size=depth)))), depth
    if name in ("runs", "load"):
        cuts = sorted(draw(st.sets(st.integers(1, max(depth - 1, 1)), max_size=3)) - {depth})
        bounds = [0, *cuts, depth]
        return make_schedule(name, tuple(b - a for a, b in pairwise(bounds))), depth
    low, _ = SCHEDULES[name].argument_counts
    return make_schedule(name, tuple(draw(st.integers(1, 16)) for _ in range(low))), depth


@given(plans())
def test_invariants_of_schedules(plan_and_depth: tuple[SharingSchedule, int]) -> None:
    plan, depth = plan_and_depth
    assert plan.validate(depth) is None
    groups = group_indices(plan, depth)
    owners = plan.owners(depth)
    assert len(groups) == len(owners) == depth
    assert plan.num_groups(depth) == len(set(groups)) == max(groups) + 1
    assert all(group <= max(groups[:i], default=-1) + 1
               for i, group in enumerate(groups)), "a restricted growth string"
    assert all(owners[owner] == owner <= i for i, owner in enumerate(owners))
    assert [groups[owner] for owner in owners] == groups


@pytest.mark.parametrize(
    ("plan", "depth", "reason"),
    [
        (RunSharing((1, 11)), 6, "has 12 layers, but there are 6"),
        (LoadSharing((6, 6)), 11, "has 12 layers"),
        (ExplicitSharing((0, 1)), 3, "lists 2 layers, but there are 3"),
        (ExplicitSharing((0,)), 3, "lists 1 layer, but there are 3"),
        (RunSharing((1,)), 6, "has 1 layer, but there are 6"),
        (CycleSharing(0), 3, "at least one group"),
        (RunSharing((0, 3)), 3, "has a group without layers"),
    ],
)
def test_unfitting_schedules_report_the_reason(plan: SharingSchedule, depth: int,
                                               reason: str) -> None:
    assert reason in (plan.validate(depth) or "")
