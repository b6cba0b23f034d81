"""Checks of a space: cycles, schedules that never fit, and constraints."""

import itertools
import random
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

from scalesearch.spaces.parameters.constraints import (
    UPPER_BOUND_OPERATORS,
    Constraint,
    parse_numeric_bound,
    split_constraint,
)
from scalesearch.spaces.parameters.param_values import (
    InfiniteSpaceError,
    ParamAssignment,
    ParameterSpace,
    SuggestFunction,
    enumerate_runs,
    validate_schedule,
)
from scalesearch.spaces.schema.bound_tree import GroupNode, ParameterNode
from scalesearch.spaces.schema.cost_names import COST_NAMES
from scalesearch.spaces.syntax.diagnostics import Problem, SourcePosition, SourceText, print_note
from scalesearch.spaces.syntax.domains import (
    AlternativesDomain,
    ComputedDomain,
    ConditionalDomain,
    ConstantDomain,
    Domain,
    InvalidDomain,
    LayerReferenceDomain,
    iter_expressions,
    iter_options,
)
from scalesearch.spaces.syntax.expressions import (
    Expr,
    KeyRef,
    format_expr,
    iter_subexpressions,
    keys_of,
)
from scalesearch.spaces.syntax.nodes import Node

MAX_SCHEDULE_CHECKS = 5_000  # pairs of depth and schedule that are tried, at most
MAX_COMBINATIONS_TRIED = 20_000  # combinations of values that are enumerated, at most
N_RANDOM_TRIES = 50  # random combinations tried first; these usually suffice


# -- cycles


def find_cycles(nodes: list[ParameterNode]) -> list[Problem]:
    """Problems of keys that depend on themselves.

    Each cycle is reported once, at its first key.
    """
    dependencies = _dependencies(nodes)
    computed_nodes = {node.key: node
                      for node in reversed(nodes)
                      if any(True for _ in iter_expressions(node.domain))}
    problems = []
    reported = set[frozenset[str]]()
    for node in nodes:
        cycle = _cycle(node.key, dependencies)
        if cycle and node.key in computed_nodes and frozenset(cycle) not in reported:
            reported.add(frozenset(cycle))
            first = computed_nodes[node.key]
            message = f"`{first.key}` depends on itself: {' -> '.join([*cycle, cycle[0]])}"
            position = first.position_of(next(iter_expressions(first.domain)).span)
            problems.append(Problem(position, message,
                                    "set one of these keys to a value that is not computed",
                                    code="depends-on-itself"))
    return problems


def _dependencies(nodes: list[ParameterNode]) -> dict[str, set[str]]:
    """For each key, the keys that its value depends on."""
    dependencies: dict[str, set[str]] = {}
    for node in nodes:
        keys = dependencies.setdefault(node.key, set())
        keys |= {key for expr in iter_expressions(node.domain) for key in keys_of(expr)}
        keys |= {group for group, _ in node.guards if group != node.key}
    return dependencies


def _cycle(start: str, dependencies: dict[str, set[str]]) -> list[str]:
    """The shortest path from ``start`` back to itself, without its end; empty if none."""
    paths = [[start]]
    visited: set[str] = set()
    while paths:
        path = paths.pop(0)
        for key in sorted(dependencies.get(path[-1], ())):
            if key == start:
                return path
            if key not in visited:
                visited.add(key)
                paths.append([*path, key])
    return []


# -- invalid keys


def replace_invalid(nodes: list[ParameterNode],
                    problems: list[Problem]) -> tuple[list[ParameterNode], set[str]]:
    """Replace invalid keys and their dependents by a constant.

    The valid keys are also returned.
    """
    dependencies = _dependencies(nodes)
    if not problems:
        return nodes, set(dependencies)
    invalid = {key for key in dependencies if _cycle(key, dependencies)}
    for node in nodes:
        place = node.origin.display_position if isinstance(node.origin, Node) else None
        if any(isinstance(option, InvalidDomain) for option in iter_options(node.domain)) or (
                node.is_given and place is not None and any(
                    (problem.position.source, problem.position.line) == (place.source, place.line)
                    and place.column <= problem.position.column <= place.end
                    for problem in problems)):
            invalid.add(node.key)
    dependent = invalid
    while dependent:
        dependent = {key for key, others in dependencies.items()
                     if key not in invalid and others & invalid}
        invalid |= dependent
    replaced = [replace(node, domain=ConstantDomain(1)) if node.key in invalid else node
                for node in nodes]
    return replaced, set(dependencies) - invalid


# -- schedules that fit no depth


def find_unfitting_schedules(parameter_space: ParameterSpace,
                             valid_keys: Set[str]) -> list[Problem]:
    """Problems of schedules among ``valid_keys`` that fit no possible depth."""
    return [Problem(node.position_of(option.span), f"`{option}` fits no possible depth", reason,
                    code="no-depth-fits")
            for node, option, reason in _unfitting_options(parameter_space, valid_keys)]


def drop_unfitting_schedules(root: GroupNode, paths: Container[str]) -> GroupNode:
    """``root`` without alternatives that fit no possible depth, with a note for each.

    Args:
        paths: the paths of the keys of which alternatives are dropped.
    """
    nodes = list(root.parameter_nodes())
    parameter_space = ParameterSpace(nodes)
    domains: dict[str, Domain] = {}
    for node, option, reason in _unfitting_options(parameter_space, {node.key for node in nodes}):
        if node.path in paths:
            domain = domains.get(node.path, node.domain)
            domains[node.path] = _without_option(domain, option, parameter_space) or domain
            if domains[node.path] != domain:
                print_note(node.position_of(option.span),
                           f"`{option}` is left out of `{node.path}`: {reason}")
    return root.map_parameters(lambda node: replace(
        node, domain=domains.get(node.path, node.domain)))


def _without_option(domain: Domain, option: Domain,
                    parameter_space: ParameterSpace) -> Domain | None:
    """``domain`` without an alternative; None if nothing is left.

    A condition is dropped if it always selects the same branch.
    """
    match domain:
        case AlternativesDomain(options):
            kept = [other for other in options if other is not option]
            return kept[0] if len(kept) == 1 else replace(domain, options=tuple(kept))
        case ConditionalDomain(then, condition, other):
            constraint = Constraint(condition, SourcePosition(SourceText("", ""), 0, 0, 0))
            if _never_hold(parameter_space, [constraint]):
                return _without_option(other, option, parameter_space)
            branches = [_without_option(branch, option, parameter_space) or branch
                        for branch in (then, other)]
            return replace(domain, if_true=branches[0], if_false=branches[1])
    return None if domain is option else domain


def _unfitting_options(parameter_space: ParameterSpace, valid_keys: Set[str],
                       ) -> Iterator[tuple[ParameterNode, Domain, str]]:
    """Yield schedules among ``valid_keys`` that fit no possible depth, with the reason."""
    for node in parameter_space.nodes:
        depth_key = node.field.depth_key
        if depth_key is None or not {node.key, depth_key} <= valid_keys:
            continue
        depths = _depths(parameter_space, depth_key)
        for option in iter_options(node.domain):
            other_depths: Sequence[int | None] = []  # of the stack of a layer reference
            if isinstance(option, LayerReferenceDomain):
                target = parameter_space.referenced_schedule(node, option.reference.path)
                if target and target.field.depth_key in valid_keys:
                    other_depths = _depths(parameter_space, target.field.depth_key or "")[::-1]
            combinations = list(itertools.islice(itertools.product(
                _values(parameter_space, option), depths, other_depths or [None]),
                MAX_SCHEDULE_CHECKS + 1))
            if not combinations or len(combinations) > MAX_SCHEDULE_CHECKS:
                continue
            reasons = [validate_schedule(schedule, node.field, depth, other_depth)
                       for schedule, depth, other_depth in combinations]
            if all(reasons):
                shown = (" or ".join(map(str, depths)) if len(depths) <= 3
                         else f"{min(depths)} to {max(depths)}")
                example = f"; with {depths[0]}" * (len(depths) > 1)
                yield node, option, f"{depth_key} is {shown}{example}: {reasons[0]}"


def _depths(parameter_space: ParameterSpace, key: str) -> list[int]:
    """Every possible depth; empty if they cannot be listed."""
    nodes = parameter_space.nodes_by_key.get(key, ())
    values_of_options = [_values(parameter_space, option) for node in nodes
                         for option in iter_options(node.domain)]
    if not all(values_of_options):
        return []
    return sorted({depth for values in values_of_options
                   for depth in values if isinstance(depth, int)})


def _values(parameter_space: ParameterSpace, option: Domain) -> list[Any]:
    """Every value of an alternative; empty if they are computed or too many."""
    if isinstance(option, ComputedDomain | InvalidDomain):
        return []
    named_option = option.with_parameter_name(option.parameter_name)
    values = enumerate_runs(
        lambda suggest: named_option.resolve(ParamAssignment(parameter_space, suggest)))
    listed = list(itertools.islice(values, MAX_SCHEDULE_CHECKS + 1))
    return listed if len(listed) <= MAX_SCHEDULE_CHECKS else []


# -- names of keys that never exist


def warn_of_absent_keys(parameter_space: ParameterSpace,
                        expressions: Iterable[tuple[Expr, SourcePosition]]) -> None:
    """Print a warning for each key in an expression that no candidate has."""
    for expression, position in expressions:
        for reference in iter_subexpressions(expression):
            if isinstance(reference, KeyRef) and reference.key not in COST_NAMES and not any(
                    set(reference.guards) <= set(node.guards)
                    for node in parameter_space.nodes_by_key.get(reference.key, ())):
                print_note(position, f"no candidate of this space has `{reference.text}`, which "
                           f"`{format_expr(expression)}` names", "warning")


# -- constraints that never hold


def find_unsatisfiable(parameter_space: ParameterSpace,
                       where: tuple[Constraint, ...]) -> list[Problem]:
    """Problems of constraints that no candidate satisfies, by enumeration.

    Constraints are checked one by one and together.

    Constraints over costs are not checked. Only the keys that a constraint names are enumerated. If
    these have too many combinations, no problem is reported; ``scalesearch check`` samples such
    spaces.
    """
    checked = [constraint for constraint in where if not constraint.costs]
    unsatisfiable = [constraint for constraint in checked
                     if _never_hold(parameter_space, [constraint])]
    problems = []
    for constraint in unsatisfiable:
        keys = ", ".join(f"`{key}`" for key in sorted(constraint.referenced_names()))
        help = f"no legal value of {keys} makes it true" if keys else "it is never true"
        problems.append(Problem(constraint.position, "no candidate can satisfy this constraint",
                                help, code="never-true"))
    if not unsatisfiable and len(checked) > 1 and _never_hold(parameter_space, checked):
        others = ", ".join(f"`{constraint.text}`" for constraint in checked[:-1])
        message = "no candidate can satisfy this constraint together with the others"
        problems.append(Problem(checked[-1].position, message, f"the others are {others}",
                                code="never-true"))
    return problems


def _never_hold(parameter_space: ParameterSpace, constraints: list[Constraint]) -> bool:
    """Whether no combination of the named keys satisfies all constraints.

    False if not all combinations were tried.
    """
    rng = random.Random(0)
    if any(_all_hold(parameter_space, constraints, lambda name, parameter: parameter.sample(rng))
           for _ in range(N_RANDOM_TRIES)):
        return False
    results = enumerate_runs(lambda suggest: _all_hold(parameter_space, constraints, suggest))
    try:
        for _ in range(MAX_COMBINATIONS_TRIED):
            if next(results):
                return False
    except StopIteration:
        return True
    except InfiniteSpaceError:
        pass
    return False


def _all_hold(parameter_space: ParameterSpace, constraints: list[Constraint],
              suggest: SuggestFunction) -> bool:
    assignment = ParamAssignment(parameter_space, suggest)
    return all(constraint.is_satisfied(assignment.value_of) for constraint in constraints)


def find_contradictions(constraints: Iterable[Constraint],
                        *budgets: Iterable[Constraint]) -> list[Problem]:
    """Problems of numeric limits of a cost that cannot both hold.

    Each budget must agree with itself and the constraints, not with the other budgets.
    """
    required = [limit for constraint in constraints for limit in split_constraint(constraint)]
    problems: dict[SourcePosition, Problem] = {}
    for budget in budgets or ((),):
        limits = [limit for constraint in budget for limit in split_constraint(constraint)]
        bounds = [(constraint, *sides) for constraint in (*required, *limits)
                  if (sides := parse_numeric_bound(constraint)) is not None]
        for first, second in itertools.combinations(bounds, 2):
            lower, upper = (second, first) if first[2] in UPPER_BOUND_OPERATORS else (first, second)
            lower_limit, name, lower_op, low = lower
            upper_limit, other_name, upper_op, high = upper
            if lower_op in UPPER_BOUND_OPERATORS or upper_op not in UPPER_BOUND_OPERATORS:
                continue
            is_empty = low > high or (low == high and (lower_op, upper_op) != (">=", "<="))
            if name == other_name and is_empty:
                message = "the budget contradicts itself"
                if second[0] in required:
                    message = "constraints contradict each other"
                elif first[0] in required:
                    message = (f"the budget contradicts the constraint `{first[0].text}` of the "
                               "space")
                position = second[0].position
                problems.setdefault(position, Problem(
                    position, f"{message}: `{lower_limit.text}` and `{upper_limit.text}` cannot "
                    "both hold", code="budgets-contradict"))
    return list(problems.values())
