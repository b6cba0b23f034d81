"""Constraints: satisfaction, and the size of violations."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.spaces.parameters.constraints import MIN_VIOLATION, Constraint
from scalesearch.spaces.schema.cost_names import COST_NAMES
from scalesearch.spaces.syntax.expressions import Compare, KeyRef, Operation, Value
from tests.errors import refuses
from tests.spaces.small import small

HEAD = "width: 1..32\nencoder.ffn: relu | none\n"


def constraint(text):
    return small(f"{HEAD}where:\n  - {text}\n").constraints[0]


@pytest.mark.parametrize(("text", "name"), [
    ("params.total <= 2MB", "params.total"), ("1 MiB >= width", "width"),
    ("memory.cache <= 2MB and macs.total < 3MB", "macs.total"),
    ("1 < params.total <= 10MiB", "params.total")])
def test_limits_in_bytes_are_for_costs_in_bytes(text, name):
    with refuses("not-bytes", f"`{name}`", "`artifact.bytes`"):
        constraint(text)


@pytest.mark.parametrize("text", ["memory.weights <= 2MB", "1KiB <= memory.cache <= 2MB",
                                  "4 * params.total <= 2MB", "params.total <= 2M"])
def test_limits_in_bytes_of_memory_or_of_a_product(text):
    assert constraint(text).costs


NUMBER = st.one_of(st.sampled_from([KeyRef("a", "a"), KeyRef("b", "b"), KeyRef("gone", "gone")]),
                   st.integers(-3, 10**20).map(Value))
COMPARE = st.tuples(NUMBER, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBER).map(
    lambda t: Compare(t[0], ((t[1], t[2]),))
)
TRUTHS = st.recursive(
    COMPARE,
    lambda inner: st.one_of(
        inner.map(lambda e: Operation("not", (e,))),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda t: Operation(t[0], tuple(t[1]))
        ),
        st.tuples(inner, inner, inner).map(lambda t: Operation("if", t)),
    ),
    max_leaves=6,
)


@given(TRUTHS, st.integers(-5, 10**19), st.floats(-5, 1e18, allow_nan=False))
@settings(max_examples=400)
def test_violation_is_positive_only_if_the_constraint_is_not_satisfied(expr, a, b):
    lookup = {"a": a, "b": b}.__getitem__
    constraint = Constraint(expr, None)
    violation = constraint.violation(lookup)
    assert (violation <= 0) == constraint.is_satisfied(lookup)
    assert math.isfinite(violation)


@pytest.mark.parametrize(
    ("text", "width", "violation"),
    [
        ("width <= 4", 8, math.log(2)), ("width <= 16", 8, -math.log(2)),
        ("width >= 16", 8, math.log(2)), ("width < 8", 8, MIN_VIOLATION),
        ("width == 16", 8, math.log(2)), ("width == 8", 8, 0.0), ("width != 8", 8, 1.0),
        ("width <= 4 and width <= 2", 8, math.log(4)), ("width <= 4 or width <= 2", 8, math.log(2)),
        ("not width > 4", 8, math.log(2)), ("not (width > 4 or width > 2)", 8, math.log(4)),
        ("2 <= width <= 4", 8, math.log(2)), ("width - 12 <= 0", 8, -1.0),
        ("width - 8 >= 2", 8, 1.0), ("width / (width - 8) > 3", 8, 1.0),
    ],
)
def test_violation_is_the_logarithm_of_the_ratio(text, width, violation):
    assert constraint(text).violation({"width": width}.__getitem__) == pytest.approx(violation)


def test_violation_of_words_is_one():
    lookup = {"norm": "pre", "width": 4}.__getitem__
    assert constraint("norm == post or width == 8").violation(lookup) == pytest.approx(math.log(2))
    assert Constraint(Compare(KeyRef("norm", "norm"), (("==", Value("post")),)),
                      None).violation(lookup) == 1.0
    assert Constraint(Compare(KeyRef("norm", "norm"), (("!=", Value("post")),)),
                      None).violation(lookup) == -1.0


def test_large_integers_are_compared_exactly():
    lookup = {"width": 10**17 + 1}.__getitem__
    constraint = Constraint(Compare(KeyRef("width", "width"), (("<=", Value(10**17)),)), None)
    assert not constraint.is_satisfied(lookup)
    assert constraint.violation(lookup) == MIN_VIOLATION


def test_constraint_on_a_missing_key_does_not_apply():
    space = small("width: 4\nencoder.ffn: relu | none\nwhere:\n  - encoder.ffn.relu.hidden >= "
                  "100\n  - encoder.ffn.hidden < 5\n")
    none, relu = (space.resolve(lambda name, parameter, pick=pick: pick)
                  for pick in ("none", "relu"))
    assert space.violated_constraints(none) == []
    assert [constraint.text for constraint in space.violated_constraints(relu)] == [
        constraint.text for constraint in space.constraints]
    assert space.constraints[0].violation(none.__getitem__) == 0.0
    assert space.constraints[0].referenced_names() == {"encoder.ffn.hidden", "encoder.ffn"}


def test_all_costs_can_be_used_in_constraints_and_budgets():
    lines = "".join(f"    b{n}: {name} <= 10M\n" for n, name in enumerate(COST_NAMES))
    space = small(f"width: 4\nwhere: [macs.total / params.total < 100]\ncost:\n  budgets:\n{lines}")
    assert {name for budget in space.budgets.values() for name in budget.costs} == set(COST_NAMES)
    assert space.constraints[0].costs == {"macs.total", "params.total"}
    assert space.violated_constraints({"width": 4}) == []
    assert space.constraints[0].violation({"macs.total": 200,
                                     "params.total": 1}.__getitem__) == pytest.approx(math.log(2))


def test_word_that_is_also_a_key_is_a_word_in_comparisons():
    with refuses("never-true"):
        small("width: 4\nnorm: pre\nwhere: [norm == log]\n")
    assert Operation("+", (Value(1), Value(2))) == Operation("+", (Value(1, span=(3, 4)), Value(2)))


@pytest.mark.parametrize(("condition", "label"), [
    ("memory.weights <= 1048576", "memory.weights <= 1MiB"),
    ("memory.cache <= 100MiB", "memory.cache <= 100MiB"),
    ("memory.weights <= 1.5GiB and width <= 1048576",
     "memory.weights <= 1.5GiB and width <= 1048576"),
    ("1KiB <= artifact.bytes <= 10MiB or not memory.cache > 512k",
     "1KiB <= artifact.bytes <= 10MiB or not memory.cache > 512k"),
    ("artifact.bytes <= 10636", "artifact.bytes <= 10636"),
    ("macs.total <= 1048576", "macs.total <= 1048576")])
def test_labels_of_limits_in_bytes_have_binary_units(condition: str, label: str) -> None:
    constraint = small(f"width: 8\nwhere: ['{condition}']").constraints[0]
    assert constraint.label == label
    # the text, of which hashes are made, has no binary units
    assert small(f"width: 8\nwhere: ['{label}']").constraints[0].text == constraint.text
    assert "iB" not in constraint.text
