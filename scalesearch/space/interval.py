"""Bounds on what an expression can be over a whole space: enough to prove that a constraint can never hold.

Everything here errs on the side of "possible": an empty promise is never made, a proof may be missed.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from scalesearch.space.answers import Questionnaire
from scalesearch.space.evaluate import ABSENT, both, opposite
from scalesearch.space.expressions import (
    Binary,
    Compare,
    Expr,
    Function,
    IfElse,
    Logic,
    Minus,
    Not,
    Ref,
    Value,
)
from scalesearch.space.plans import Ask, CallPlan, Compute, Fixed, Fork, Pick, Plan, Switch, to_json
from scalesearch.space.questions import Choice

Interval = tuple[float, float]
EVERYTHING: Interval = (-math.inf, math.inf)
WIDEN = 1e-12  # what rounding may add to a bound


@dataclass(frozen=True)
class Domain:
    """What a value may be: numbers within ``numbers``, one of ``words`` (``None``: any word or truth), or absent."""

    numbers: Interval | None = None
    words: frozenset[Any] | None = frozenset()
    absent: bool = False


def union(domains: Iterable[Domain]) -> Domain:
    """What any of ``domains`` may be."""
    every = list(domains)
    spans = [domain.numbers for domain in every if domain.numbers is not None]
    numbers = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
    open_ = any(domain.words is None for domain in every)
    words = None if open_ else frozenset().union(*(domain.words or () for domain in every))
    return Domain(numbers, words, any(domain.absent for domain in every))


def of_value(value: Any) -> Domain:
    """The domain of one value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Domain((value, value))
    return Domain(words=None if isinstance(value, list) else frozenset([value]))


def of_plan(plan: Plan, form: Questionnaire) -> Domain:
    """What a plan may give."""
    match plan:
        case Fixed(value):
            return of_value(to_json(value))
        case Pick(_, _, values):
            return union(of_value(to_json(value)) for value in values)
        case Ask(_, question) if not isinstance(question, Choice):
            return Domain((question.low, question.high))
        case Fork(_, _, plans):
            return union(of_plan(inner, form) for inner in plans)
        case Compute(expression, _):
            found = of_expr(expression, form)
            return Domain(found.numbers, found.words, True)  # absent where it does not fit its field
        case Switch(_, then, other):
            return union([of_plan(then, form), of_plan(other, form), Domain(absent=True)])  # if its condition fails
        case CallPlan():
            return Domain(words=None)
    return Domain(EVERYTHING, None, True)


def of_key(key: str, form: Questionnaire, guards: tuple[tuple[str, str], ...] = ()) -> Domain:
    """What the answer ``key`` may be."""
    leaves = form.by_key.get(key, [])
    if not leaves:
        return Domain(absent=True)
    found = union(of_plan(form.plans[leaf.path], form) for leaf in leaves)
    conditional = bool(guards) or any(leaf.guards for leaf in leaves)
    return Domain(found.numbers, found.words, found.absent or conditional)


def of_expr(expr: Expr, form: Questionnaire) -> Domain:
    """What an expression may be."""
    match expr:
        case Value(value):
            return of_value(value)
        case Ref(_, key, guards):
            return of_key(key, form, guards)
        case Minus(operand):
            return _numeric([of_expr(operand, form)], lambda spans: (-spans[0][1], -spans[0][0]))
        case Binary(op, left, right):
            return _numeric([of_expr(left, form), of_expr(right, form)], lambda spans: _binary(op, spans))
        case Function(name, arguments):
            return _numeric([of_expr(argument, form) for argument in arguments], lambda spans: _function(name, spans))
        case IfElse(then, _, other):
            return union([of_expr(then, form), of_expr(other, form)])
    found = truths(expr, form)
    return Domain(words=frozenset(truth for truth in found if truth is not ABSENT), absent=ABSENT in found)


def _numeric(domains: list[Domain], combine: Callable[[list[Interval]], Interval]) -> Domain:
    spans = [domain.numbers for domain in domains if domain.numbers is not None]
    absent = any(domain.absent or domain.words != frozenset() for domain in domains)
    if len(spans) < len(domains):
        return Domain(absent=True)
    try:
        low, high = combine(spans)
    except OverflowError:
        low, high = EVERYTHING
    return Domain((_wider(low, -1), _wider(high, 1)), absent=absent)


def _wider(bound: float, sign: int) -> float:
    if isinstance(bound, int):
        return bound
    return bound if math.isfinite(bound) and bound == int(bound) else bound + sign * abs(bound) * WIDEN


def _binary(op: str, spans: list[Interval]) -> Interval:
    (a, b), (c, d) = spans
    if not all(map(math.isfinite, (a, b, c, d))):
        return EVERYTHING
    if op == "+":
        return a + c, b + d
    if op == "-":
        return a - d, b - c
    if op == "*":
        return _hull(x * y for x, y in itertools.product((a, b), (c, d)))
    if op in ("/", "//") and (c > 0 or d < 0):
        low, high = _hull(x / y for x, y in itertools.product((a, b), (c, d)))
        return (low, high) if op == "/" else (math.floor(low) - 1, math.floor(high) + 1)
    if op == "%" and c > 0:
        return 0, d
    if op == "**" and a >= 1 and abs(max(c, d, key=abs)) * math.log2(b + 1) < 500:
        return _hull(x**y for x, y in itertools.product((a, b), (c, d)))
    return EVERYTHING


def _hull(numbers: Iterable[float]) -> Interval:
    every = list(numbers)
    return min(every), max(every)


def _function(name: str, spans: list[Interval]) -> Interval:
    lows, highs = [low for low, _ in spans], [high for _, high in spans]
    if name in ("min", "max"):
        pick: Callable[[list[float]], float] = min if name == "min" else max
        return pick(lows), pick(highs)
    low, high = spans[0]
    if not (math.isfinite(low) and math.isfinite(high)) or (name in ("log", "sqrt") and low <= 0):
        return EVERYTHING
    of: dict[str, Callable[[float], float]] = {
        "log": math.log, "sqrt": math.sqrt, "floor": math.floor, "ceil": math.ceil, "round": round,
    }  # fmt: skip
    return of[name](low), of[name](high)


def truths(expr: Expr, form: Questionnaire) -> set[Any]:
    """Every truth that ``expr`` may have: True, False, ABSENT."""
    match expr:
        case Compare(first, rest):
            operands = [of_expr(operand, form) for operand in (first, *(other for _, other in rest))]
            pairs = [_compare(op, operands[n], operands[n + 1]) for n, (op, _) in enumerate(rest)]
            return _all(pairs)
        case Logic("and", operands_):
            return _all([truths(operand, form) for operand in operands_])
        case Logic(_, operands_):
            return {opposite(truth) for truth in _all([{opposite(t) for t in truths(o, form)} for o in operands_])}
        case Not(operand):
            return {opposite(truth) for truth in truths(operand, form)}
        case IfElse(then, _, other):
            return truths(then, form) | truths(other, form)
        case Value(value):
            return {value}
        case Ref(_, key, guards):
            found = of_key(key, form, guards)
            words = found.words if found.words is not None else {True, False}
            return set(words) | ({ABSENT} if found.absent else set())
    return {True, False, ABSENT}


def _all(sets: list[set[Any]]) -> set[Any]:
    found: set[Any] = {True}
    for outcomes in sets:
        found = {both([left, right]) for left, right in itertools.product(found, outcomes)}
    return found


def _compare(op: str, left: Domain, right: Domain) -> set[Any]:
    found: set[Any] = {ABSENT} if left.absent or right.absent else set()
    if op in ("==", "!="):
        same, different = _equal(left, right)
        return found | ({op == "=="} if same else set()) | ({op != "=="} if different else set())
    if left.words != frozenset() or right.words != frozenset():
        found.add(ABSENT)  # no order between a word and a number
    if left.numbers is None or right.numbers is None:
        return found
    if op in (">", ">="):
        left, right = right, left
    assert left.numbers and right.numbers
    (a, b), (c, d) = left.numbers, right.numbers
    strict = op in ("<", ">")
    holds, fails = (a < d, b >= c) if strict else (a <= d, b > c)
    return found | ({True} if holds else set()) | ({False} if fails else set())


def _equal(left: Domain, right: Domain) -> tuple[bool, bool]:
    """Whether the two may be equal, and whether they may differ."""
    numbers = False
    if left.numbers and right.numbers:
        numbers = max(left.numbers[0], right.numbers[0]) <= min(left.numbers[1], right.numbers[1])
    words = left.words is None or right.words is None or bool(left.words & right.words)
    single = left == right and (left.words is not None and len(left.words) == 1) and left.numbers is None
    return numbers or words, not single


def can_hold(expr: Expr, form: Questionnaire) -> bool:
    """False only where it is proved that ``expr`` is false for every candidate."""
    return truths(expr, form) != {False}
