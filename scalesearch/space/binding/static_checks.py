"""Checks of a space before sampling: cycles, schedules that never fit, unsatisfiable constraints."""

import itertools
import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.parameters.param_values import (
    InfiniteSpaceError,
    ParamAssignment,
    ParameterSpace,
    SuggestFunction,
    enumerate_runs,
    validate_schedule,
)
from scalesearch.space.schema.bound_tree import ParameterNode
from scalesearch.space.syntax.composite_domains import ComputedDomain, iter_expressions, iter_options
from scalesearch.space.syntax.diagnostics import Problem, SourcePosition
from scalesearch.space.syntax.domains import ConstantDomain, Domain, InvalidDomain, LayerReferenceDomain
from scalesearch.space.syntax.expressions import keys_of
from scalesearch.space.syntax.lexer import Span
from scalesearch.space.syntax.nodes import Node

MAX_SCHEDULE_CHECKS = 5_000  # depths times arguments of a schedule that are tried
MAX_COMBINATIONS_TRIED = 20_000  # combinations of answers that are tried one by one
N_RANDOM_TRIES = 50  # at random, which mostly settles it


# -- keys that depend on themselves


def find_cycles(leaves: list[ParameterNode]) -> list[Problem]:
    """Problems of keys that depend on themselves: each cycle once, at its first key."""
    needs = _dependencies(leaves)
    first = {leaf.key: leaf
             for leaf in reversed(leaves) if any(True for _ in iter_expressions(leaf.domain))}
    problems = []
    seen = set[frozenset[str]]()
    for leaf in leaves:
        cycle = _cycle(leaf.key, needs)
        if cycle and leaf.key in first and frozenset(cycle) not in seen:
            seen.add(frozenset(cycle))
            own = first[leaf.key]
            message = f"`{own.key}` depends on itself: {' -> '.join([*cycle, cycle[0]])}"
            problems.append(Problem(own.position_of(next(iter_expressions(own.domain)).span),
                                    message, "give one of these keys a value of its own",
                                    code="depends-on-itself"))
    return problems


def _dependencies(leaves: list[ParameterNode]) -> dict[str, set[str]]:
    """For each key, those that its answer depends on."""
    needs: dict[str, set[str]] = {}
    for leaf in leaves:
        mine = needs.setdefault(leaf.key, set())
        mine |= {key for expr in iter_expressions(leaf.domain) for key in keys_of(expr)}
        mine |= {group for group, _ in leaf.guards if group != leaf.key}
    return needs


def _cycle(start: str, needs: dict[str, set[str]]) -> list[str]:
    """The shortest path from ``start`` back to itself, without its end; empty if none."""
    paths = [[start]]
    seen: set[str] = set()
    while paths:
        path = paths.pop(0)
        for key in sorted(needs.get(path[-1], ())):
            if key == start:
                return path
            if key not in seen:
                seen.add(key)
                paths.append([*path, key])
    return []


# -- keys that are wrong


def replace_invalid(leaves: list[ParameterNode],
                    problems: list[Problem]) -> tuple[list[ParameterNode], set[str]]:
    """Replaces each key that is wrong or depends on one by a constant; also returns the sound keys."""
    needs = _dependencies(leaves)
    if not problems:
        return leaves, set(needs)
    bad = {leaf.key for leaf in leaves if _is_broken(leaf, problems)}
    bad |= {key for key in needs if _cycle(key, needs)}
    while spread := {key for key, others in needs.items() if key not in bad and others & bad}:
        bad |= spread
    return [replace(leaf, domain=ConstantDomain(1)) if leaf.key in bad else leaf
            for leaf in leaves], set(needs) - bad


def _is_broken(leaf: ParameterNode, problems: list[Problem]) -> bool:
    if any(isinstance(option, InvalidDomain) for option in iter_options(leaf.domain)):
        return True
    place = leaf.origin.display_position if isinstance(leaf.origin, Node) else None
    return leaf.is_given and place is not None and any(
        _inside(problem.position, place) for problem in problems)


def _inside(inner: SourcePosition, outer: SourcePosition) -> bool:
    return (inner.source, inner.line) == (outer.source,
                                          outer.line) and outer.column <= inner.column <= outer.end


# -- schedules that fit no depth


def find_misfits(parameter_space: ParameterSpace, valid_keys: Set[str]) -> list[Problem]:
    """Problems of schedules that fit no possible depth, where schedule and depth are ``valid_keys``."""
    judged = [leaf
              for leaf in parameter_space.nodes
              if leaf.field.depth_key and {leaf.key, leaf.field.depth_key} <= valid_keys]
    return [Problem(leaf.position_of(span), f"`{text}` fits no possible depth", reason,
                    code="no-depth-fits") for leaf in judged
            for span, text, reason in _never_fits(parameter_space, leaf, valid_keys)]


def _never_fits(form: ParameterSpace, leaf: ParameterNode,
                sound: Set[str]) -> Iterator[tuple[Span, str, str]]:
    """Yields (span, text, reason) of each alternative of ``leaf`` that fits no depth."""
    depths = _depths(form, leaf.field.depth_key or "")
    if not depths:
        return
    for option in iter_options(leaf.domain):
        schedules = [schedule
                     for schedule in _values(form, option) if not isinstance(schedule, str)]
        others = _referenced_depths(form, leaf, option, sound)
        if not schedules or len(schedules) * len(depths) * len(others) > MAX_SCHEDULE_CHECKS:
            continue
        reasons = [validate_schedule(one, leaf.field, depth, other) for one, depth, other in
                   itertools.product(schedules, depths, others)]
        if all(reasons):
            shown = " or ".join(
                map(str, depths)) if len(depths) <= 3 else f"{min(depths)} to {max(depths)}"
            reason = f"{leaf.field.depth_key} is {shown}" + f"; with {depths[0]}" * (
                len(depths) > 1)
            yield option.span, str(option), f"{reason}: {reasons[0]}"


def _referenced_depths(form: ParameterSpace, leaf: ParameterNode, option: Domain,
                       sound: Set[str]) -> Sequence[int | None]:
    """Depths of the stack whose layers are borrowed, the deepest first; [None] if unknown."""
    target = form.referenced_schedule(
        leaf, option.path) if isinstance(option, LayerReferenceDomain) else None
    known = target.field.depth_key if target and target.field.depth_key in sound else None
    return (sorted(_depths(form, known), reverse=True) if known else None) or [None]


def _depths(form: ParameterSpace, key: str) -> list[int]:
    """Every depth that is possible; empty where that cannot be listed."""
    each = [_values(form, option) for leaf in form.nodes_by_key.get(key, ())
            for option in iter_options(leaf.domain)]
    return sorted({depth for values in each
                   for depth in values if isinstance(depth, int)}) if all(each) else []


def _values(form: ParameterSpace, option: Domain) -> list[Any]:
    """Every value of an alternative; none where they are computed, or too many."""
    if isinstance(option, ComputedDomain | InvalidDomain):
        return []
    values = enumerate_runs(
        lambda ask: option.with_parameter_name(option.parameter_name).resolve(ParamAssignment(form,
                                                                                              ask)))
    listed = list(itertools.islice(values, MAX_SCHEDULE_CHECKS + 1))
    return listed if len(listed) <= MAX_SCHEDULE_CHECKS else []


# -- constraints that never hold


def find_unsatisfiable(parameter_space: ParameterSpace,
                       where: tuple[Constraint, ...]) -> list[Problem]:
    """Constraints over answers that no candidate satisfies, alone or all together, shown by enumeration.

    Only the keys that a constraint names are enumerated. Where these have too many combinations, or
    endless ones, nothing is claimed; ``scalesearch check`` samples such spaces.
    """
    mine = [constraint for constraint in where if not constraint.costs]
    alone = [constraint for constraint in mine if _never_hold(parameter_space, [constraint])]
    problems = []
    for constraint in alone:
        keys = ", ".join(f"`{key}`" for key in sorted(constraint.referenced_names()))
        help = f"no legal answer to {keys} makes it true" if keys else "it is never true"
        problems.append(Problem(constraint.position, "no candidate can satisfy this constraint",
                                help, code="never-true"))
    if not alone and len(mine) > 1 and _never_hold(parameter_space, mine):
        others = ", ".join(f"`{constraint.text}`" for constraint in mine[:-1])
        message = "no candidate can satisfy this constraint together with the others"
        problems.append(Problem(mine[-1].position, message, f"the others are {others}",
                                code="never-true"))
    return problems


def _never_hold(form: ParameterSpace, constraints: list[Constraint]) -> bool:
    """True if every combination of the keys named was tried and none satisfies all constraints."""
    rng = random.Random(0)
    if any(_all_hold(form, constraints, lambda name, parameter: parameter.sample(rng))
           for _ in range(N_RANDOM_TRIES)):
        return False
    tried = enumerate_runs(lambda ask: _all_hold(form, constraints, ask))
    try:
        for _ in range(MAX_COMBINATIONS_TRIED):
            if next(tried):
                return False
    except StopIteration:
        return True
    except InfiniteSpaceError:
        pass
    return False


def _all_hold(form: ParameterSpace, constraints: list[Constraint], ask: SuggestFunction) -> bool:
    sheet = ParamAssignment(form, ask)
    return all(constraint.is_satisfied(sheet.value_of) for constraint in constraints)
