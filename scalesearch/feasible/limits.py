"""Limits of candidates: budgets and constraints as bounds on costs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scalesearch.errors import UserError, option, option_prefix
from scalesearch.spaces import Constraint, Space
from scalesearch.spaces.binding.binder import Binder
from scalesearch.spaces.binding.static_checks import find_contradictions, warn_of_absent_keys
from scalesearch.spaces.parameters.constraints import (
    UPPER_BOUND_OPERATORS,
    byte_limit,
    parse_comparison,
    parse_numeric_bound,
    split_constraint,
)
from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.spaces.schema.cost_names import BYTE_COSTS, COST_NAMES
from scalesearch.spaces.syntax.diagnostics import ConfigError, Problem, suggest_match
from scalesearch.spaces.syntax.expressions import (
    EvaluationError,
    Lookup,
    evaluate,
    format_byte_limit,
    format_expr,
)
from scalesearch.spaces.syntax.lexer import NUMBER, PATH
from scalesearch.spaces.syntax.nodes import ScalarNode, scalar_from_text

EXAMPLE_BUDGET = "'params.non_embedding <= 10M and macs.total <= 2G'"
ADDITIVE_COSTS = tuple(
    name for name in COST_NAMES if not name.startswith(("load.", "artifact.", "latency.")))
MAX_COST = 1 << 62


# -- reading


def parse_budget(space: Space, node: ScalarNode) -> Constraint:
    """Parse a budget: an expression, which may use the names of budgets of the space.

    Raises:
        ConfigError: unknown budget, or the expression is invalid.
    """
    if node.text in space.budgets:
        return space.budgets[node.text]
    if PATH.fullmatch(node.text) and "." not in node.text:
        hint = (suggest_match(node.text, space.budgets) if space.budgets
                else "the space has no named budgets; write an expression")
        raise ConfigError([Problem(node.display_position, f"the space has no budget `{node.text}`",
                                   hint, code="unknown-budget")])
    if node.text.strip() and NUMBER.fullmatch(node.text.strip()):
        raise ConfigError([Problem(node.display_position, f"`{node.text}` is not a condition",
                                   f"for example `params.total <= {node.text}`",
                                   code="bad-value")])
    binder = Binder(build_index(space.schema))
    constraint = binder.bind_constraint(node, space.budgets)
    if constraint is None:
        raise ConfigError(binder.problems)
    warn_of_absent_keys(space.parameter_space, [(constraint.expression, constraint.position)])
    return constraint


def read_budgets(space: Space, texts: Sequence[str]) -> tuple[Constraint, ...]:
    """Parse budgets (names or expressions), and split them into single limits.

    Raises:
        ConfigError: unknown budget or cost, or an invalid number.
        UserError: the budgets contradict each other, or the constraints of the space.
    """
    budgets = [parse_budget(space, scalar_from_text(option("budget").removesuffix("="),
                                                    option_prefix("budget"), text))
               for text in texts]
    limits = tuple(limit for budget in budgets for limit in split_constraint(budget))
    check_contradictions(space, limits)
    return limits


def check_contradictions(space: Space, limits: Iterable[Constraint]) -> None:
    """Check that numeric limits do not contradict each other, or the constraints of the space.

    Raises:
        ConfigError: two of them do.
    """
    if problems := find_contradictions(collect_limits(space), limits):
        raise ConfigError(problems)


def select_budgets(space: Space, texts: Sequence[str]) -> tuple[Constraint, ...]:
    """Parse the budgets ``texts``, or by default all budgets of the space."""
    if not (texts or space.budgets):
        raise UserError("no budget",
                        help=f"set one, for example {option('budget', EXAMPLE_BUDGET)}, or add one "
                        "to the space under cost: budgets:",
                        code="no-budget")
    return read_budgets(space, texts or tuple(space.budgets))


def collect_limits(space: Space, budget: Constraint | None = None) -> tuple[Constraint, ...]:
    """All limits of a candidate: the constraints of the space, then the budget."""
    constraints = (*space.constraints, *((budget,) if budget else ()))
    return tuple(limit for constraint in constraints for limit in split_constraint(constraint))


# -- comparisons of a cost


def cost_names(constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """Costs in the constraints, in the order of ``COST_NAMES``."""
    named = {name for constraint in constraints for name in constraint.costs}
    return tuple(name for name in COST_NAMES if name in named)


def join_limits(labels: Iterable[str]) -> str:
    """Join limits that are violated together; alternatives are in parentheses."""
    return " and ".join(f"({label})" if " or " in label else label for label in labels)


def split_limits(text: str) -> list[str]:
    """Split what :func:`join_limits` has joined."""
    return re.split(r" and (?![^(]*\))", text)


@dataclass(frozen=True)
class CostBound:
    """Bound on a cost: ``sign`` · ``name`` <= ``limit``."""

    name: str
    sign: int
    limit: int

    @property
    def clipped_limit(self) -> int:
        """``limit``, clipped so that costs can be subtracted within 64 bits."""
        return max(-MAX_COST, min(self.limit, MAX_COST))

    def __str__(self) -> str:
        limit = self.sign * self.limit
        text = format_byte_limit(limit) if self.name in BYTE_COSTS else f"{limit:,}"
        return f"{self.name} {'<=' if self.sign > 0 else '>='} {text}"


def as_cost_bounds(constraints: Iterable[Constraint],
                   names: Collection[str] = ADDITIVE_COSTS) -> list[CostBound] | None:
    """Convert constraints to bounds on the costs ``names``, or None if this fails.

    The default is additive costs, which are sums over the sections of a model.
    """
    bounds: list[CostBound] = []
    limits = [limit for constraint in constraints for limit in split_constraint(constraint)]
    for limit in limits:
        sides = parse_numeric_bound(limit)
        if sides is None or sides[0] not in names:
            return None
        name, op, number = sides
        sign = 1 if op in UPPER_BOUND_OPERATORS else -1
        limit = sign * number
        largest = int(limit // 1)  # the largest integer that meets the limit
        if op in ("<", ">") and largest == limit:
            largest -= 1
        bounds.append(CostBound(name, sign, largest))
    return bounds


def tightest_bounds(bounds: Iterable[CostBound]) -> list[CostBound]:
    """Keep the tightest bound of each cost and sign, sorted by these."""
    tightest: dict[tuple[str, int], CostBound] = {}
    for bound in sorted(bounds, key=lambda bound: -bound.limit):
        tightest[bound.name, bound.sign] = bound
    return sorted(tightest.values(), key=lambda bound: (bound.name, bound.sign))


def upper_bounds(constraints: Iterable[Constraint]) -> dict[str, float]:
    """Largest allowed value per cost, from limits such as ``params.total <= 10M``."""
    highest: dict[str, float] = {}
    for name, op, number in filter(None, map(parse_numeric_bound, constraints)):
        if op in UPPER_BOUND_OPERATORS:
            highest[name] = min(float(number), highest.get(name, float("inf")))
    return highest


def is_lower_bound(constraint: Constraint) -> bool:
    """Whether a constraint has the form ``params.total >= 1M``."""
    sides = parse_numeric_bound(constraint)
    return sides is not None and sides[1] not in UPPER_BOUND_OPERATORS


# -- limits of one candidate


@dataclass(frozen=True)
class LimitCheck:
    """Result of a check of one limit for one candidate.

    Attributes:
        limit: its canonical text.
        holds: whether it is met.
        value, bound, slack: of the bounded cost; None if the limit is not a bound on a cost. The
            slack is the distance to the bound, negative if the limit is violated.
    """

    limit: str
    holds: bool
    value: Any = None
    bound: Any = None
    slack: Any = None


def check_limit(constraint: Constraint, lookup: Lookup) -> LimitCheck:
    """Check a limit of the candidate whose values and costs ``lookup`` returns."""
    holds = constraint.is_satisfied(lookup)
    sides = parse_comparison(constraint)
    if sides is None:
        return LimitCheck(constraint.text, holds)
    name, op, other = sides
    text = f"{name} {op} {format_expr(byte_limit(other) if name in BYTE_COSTS else other)}"
    try:
        value = lookup(name)
        bound = evaluate(other, lookup)
    except (EvaluationError, KeyError):
        return LimitCheck(text, holds)
    if not isinstance(bound, int | float):
        return LimitCheck(text, holds)
    slack = bound - value if op in UPPER_BOUND_OPERATORS else value - bound
    return LimitCheck(text, holds, value, bound, slack)
