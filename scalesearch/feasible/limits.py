"""Limits of candidates: constraints and budgets, read, split into comparisons and taken as bounds on costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

from scalesearch.blocks.sizes import is_number
from scalesearch.errors import UserError
from scalesearch.space import Constraint, Space
from scalesearch.space.binding.bind import rename_deprecated_costs
from scalesearch.space.binding.name_resolution import NameResolver
from scalesearch.space.schema.bound_tree import build_index
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.syntax.diagnostics import ConfigError, Problem, suggest_match
from scalesearch.space.syntax.evaluator import EvaluationError, Lookup, evaluate
from scalesearch.space.syntax.expressions import Compare, Expr, KeyRef, Operation, format_expr, keys_of
from scalesearch.space.syntax.lexer import PATH, ValueSyntaxError
from scalesearch.space.syntax.nodes import ScalarNode, scalar_from_text
from scalesearch.space.syntax.value_parser import parse_expression

ADDITIVE_COSTS = tuple(
    name for name in COST_NAMES if not name.startswith(("load.", "artifact.", "latency.")))
FLIPPED_OPERATORS = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}
UPPER_BOUND_OPERATORS = ("<=", "<")
MAX_COST = 1 << 62


# -- reading


def parse_budget(space: Space, node: ScalarNode) -> Constraint:
    """The budget that ``node`` writes: the name of one of the space's, or an expression over answers and costs.

    Raises:
        SpaceErrors: no such budget, or the expression is wrong.
    """
    if node.text in space.budgets:
        return space.budgets[node.text]
    if PATH.fullmatch(node.text) and "." not in node.text:
        there = suggest_match(
            node.text, space.budgets) if space.budgets else "the space names none; write it out"
        raise ConfigError([Problem(node.display_position, f"the space has no budget `{node.text}`",
                                   there, code="unknown-budget")])
    node = rename_deprecated_costs(node)
    problems: list[Problem] = []

    def complain(problem: ValueSyntaxError) -> None:
        problems.append(Problem(node.position_of(problem.span), problem.message, problem.help,
                                code=problem.code))

    try:
        expression = NameResolver(build_index(space.schema), "", True,
                                  complain).resolve_condition(parse_expression(node.text))
    except ValueSyntaxError as problem:
        complain(problem)
    if problems:
        raise ConfigError(problems)
    return Constraint(expression, node.display_position)


def read_budgets(space: Space, texts: Sequence[str]) -> tuple[Constraint, ...]:
    """These budgets (names of the space's, or expressions), part by part.

    Raises:
        SpaceErrors: an unknown cost, a number that is none, an unknown budget.
        UserError: they contradict each other or the space's constraints.
    """
    budgets = [parse_budget(space, scalar_from_text("--budget", "--budget ", text))
               for text in texts]
    limited = tuple(part for budget in budgets for part in split_constraint(budget))
    _check_contradictions([*collect_limits(space), *limited])
    return limited


def select_budgets(space: Space, texts: Sequence[str]) -> tuple[Constraint, ...]:
    """The budgets ``texts``, or all that the space names where there are none; see :func:`read_budgets`."""
    if not (texts or space.budgets):
        raise UserError("no budget",
                        help="give one (--budget), such as 'params.non_embedding <= "
                        "10M and macs.total <= 2G', or name one in the space under cost: budgets:",
                        code="no-budget")
    return read_budgets(space, texts or tuple(space.budgets))


def collect_limits(space: Space, budget: Constraint | None = None) -> tuple[Constraint, ...]:
    """Every limit of a candidate: the space's ``where``, then the budget, part by part."""
    whole = (*space.constraints, *((budget,) if budget else ()))
    return tuple(part for constraint in whole for part in split_constraint(constraint))


def split_constraint(constraint: Constraint) -> tuple[Constraint, ...]:
    """``a and b``, and ``a <= b <= c``, as two limits: how far each is missed is then known by itself."""
    match constraint.expression:
        case Operation("and", operands):
            return tuple(part for operand in operands
                         for part in split_constraint(replace(constraint, expression=operand)))
        case Compare(first, rest) if len(rest) > 1:
            pairs = pairwise(((None, first), *rest))
            return tuple(replace(constraint, expression=Compare(left, (right,)))
                         for (_, left), right in pairs)
    return (constraint,)


# -- comparisons of a cost


def cost_names(constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """The costs that the constraints name, in the order of the ledger."""
    named = {name for constraint in constraints for name in constraint.costs}
    return tuple(name for name in COST_NAMES if name in named)


def _parse_comparison(constraint: Constraint) -> tuple[str, str, Expr] | None:
    """Cost, comparison and what it is compared with, of a limit of that form; sides may be swapped."""
    match constraint.expression:
        case Compare(KeyRef(_, name),
                     ((op, other),)) if name in COST_NAMES and op in FLIPPED_OPERATORS:
            return name, op, other
        case Compare(other,
                     ((op, KeyRef(_, name)),)) if name in COST_NAMES and op in FLIPPED_OPERATORS:
            return name, FLIPPED_OPERATORS[op], other
    return None


def _parse_numeric_bound(constraint: Constraint) -> tuple[str, str, int | float] | None:
    """The same, where the other side is a number."""
    if (sides := _parse_comparison(constraint)) is None or keys_of(sides[2]):
        return None
    try:
        number = evaluate(sides[2], {}.__getitem__)
    except EvaluationError:
        return None
    return (*sides[:2], number) if is_number(number) else None


@dataclass(frozen=True)
class CostBound:
    """``sign`` · ``name`` <= ``limit``."""

    name: str
    sign: int
    limit: int

    @property
    def clipped_limit(self) -> int:
        """``most``, cut so that costs can be taken off it within 64 bits: no cost is larger."""
        return max(-MAX_COST, min(self.limit, MAX_COST))

    def __str__(self) -> str:
        return f"{self.name} {'<=' if self.sign > 0 else '>='} {self.sign * self.limit:,}"


def as_cost_bounds(constraints: Iterable[Constraint]) -> list[CostBound] | None:
    """The constraints as bounds on costs that add up over a model's sections; None where one is no such bound."""
    bounds: list[CostBound] = []
    for part in (part for constraint in constraints for part in split_constraint(constraint)):
        sides = _parse_numeric_bound(part)
        if sides is None or sides[0] not in ADDITIVE_COSTS:
            return None
        name, op, number = sides
        sign = 1 if op in UPPER_BOUND_OPERATORS else -1
        bounds.append(CostBound(name, sign, _floor_limit(sign * number, op)))
    return bounds


def tightest_bounds(bounds: Iterable[CostBound]) -> list[CostBound]:
    """Of several bounds of a cost on one side, the one that decides."""
    deciding: dict[tuple[str, int], CostBound] = {}
    for bound in sorted(bounds, key=lambda bound: -bound.limit):
        deciding[bound.name, bound.sign] = bound
    return sorted(deciding.values(), key=lambda bound: (bound.name, bound.sign))


def _floor_limit(limit: float | int, op: str) -> int:
    """The largest whole number that is at most the limit, or less where ``op`` is strict."""
    floor = int(limit // 1)
    return floor - 1 if op in ("<", ">") and floor == limit else floor


def upper_bounds(constraints: Iterable[Constraint]) -> dict[str, float]:
    """Cost to the largest value allowed, for every limit of the form ``params.total <= 10M``."""
    highest: dict[str, float] = {}
    for name, op, number in filter(None, map(_parse_numeric_bound, constraints)):
        if op in UPPER_BOUND_OPERATORS:
            highest[name] = min(float(number), highest.get(name, float("inf")))
    return highest


def is_lower_bound(constraint: Constraint) -> bool:
    """Whether it is of the form ``params.total >= 1M``."""
    return (sides := _parse_numeric_bound(constraint)) is not None and sides[
        1] not in UPPER_BOUND_OPERATORS


def _check_contradictions(constraints: Sequence[Constraint]) -> None:
    """Complains of two limits that no number can meet together."""
    known = [(constraint, *sides)
             for constraint in constraints
             if (sides := _parse_numeric_bound(constraint)) is not None]
    for one, other in combinations(known, 2):
        (above, name, op, low), (below, same, opposite, high) = (
            (one, other) if one[2] not in UPPER_BOUND_OPERATORS else (other, one))
        empty = low > high or (low == high and (op, opposite) != (">=", "<="))
        if name == same and op not in UPPER_BOUND_OPERATORS and opposite in UPPER_BOUND_OPERATORS and empty:
            raise UserError(f"the budget contradicts itself: `{above.text}` and `{below.text}` "
                            "cannot both hold", code="budgets-contradict")


# -- at a candidate


@dataclass(frozen=True)
class LimitCheck:
    """One limit at one candidate.

    Attributes:
        text: the limit in canonical words.
        is_satisfied: whether it is met.
        name: the cost that it bounds; empty where it is no such bound.
        op, value, bound: ``value op bound`` of that cost.
    """

    text: str
    is_satisfied: bool
    name: str = ""
    op: str = "<="
    value: Any = None
    bound: Any = None

    @property
    def slack(self) -> Any:
        """The room that is left, in the cost's own unit; negative where the limit is missed; None where unknown."""
        if not self.name:
            return None
        room = self.bound - self.value
        return room if self.op in UPPER_BOUND_OPERATORS else -room

    def to_json(self) -> dict[str, Any]:
        """For ``--json`` and for frames."""
        return {"limit": self.text, "holds": self.is_satisfied, "value": self.value,
                "bound": self.bound, "slack": self.slack}


def check_limits(constraints: Iterable[Constraint], lookup: Lookup) -> tuple[LimitCheck, ...]:
    """Every limit at the candidate of which ``lookup`` knows answers and costs."""
    return tuple(_check(constraint, lookup) for constraint in constraints)


def _check(constraint: Constraint, lookup: Lookup) -> LimitCheck:
    holds = constraint.is_satisfied(lookup)
    sides = _parse_comparison(constraint)
    if sides is None:
        return LimitCheck(constraint.text, holds)
    name, op, other = sides
    text = f"{name} {op} {format_expr(other)}"
    try:
        value = lookup(name)
        bound = evaluate(other, lookup)
    except (EvaluationError, KeyError):
        return LimitCheck(text, holds)
    known = isinstance(bound, int | float)
    return LimitCheck(text, holds, name, op, value, bound) if known else LimitCheck(text, holds)
