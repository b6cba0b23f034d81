"""Checks of a space before sampling: cycles, schedules that never fit, unsatisfiable constraints."""

import itertools
import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

from scalesearch.space.questionnaire.answers import AskFunction, Endless, Questionnaire, Sheet, explore, misfit
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.schema.bound_tree import Leaf
from scalesearch.space.syntax.choices import Computed, expressions, options
from scalesearch.space.syntax.diagnostics import Place, Problem
from scalesearch.space.syntax.domains import Broken, Indexed, Literal, Spec
from scalesearch.space.syntax.expressions import keys_of
from scalesearch.space.syntax.lexer import Span
from scalesearch.space.syntax.nodes import Node

MOST_DEPTHS = 5_000  # depths times arguments of a schedule that are tried
MOST_TRIED = 20_000  # combinations of answers that are tried one by one
TRIED_FIRST = 50  # at random, which mostly settles it


# -- keys that depend on themselves


def cycles(leaves: list[Leaf]) -> list[Problem]:
    """Problems of keys that depend on themselves: each cycle once, at its first key."""
    needs = _needs(leaves)
    first = {leaf.key: leaf for leaf in reversed(leaves) if any(True for _ in expressions(leaf.spec))}
    problems, seen = [], set[frozenset[str]]()
    for leaf in leaves:
        cycle = _cycle(leaf.key, needs)
        if cycle and leaf.key in first and frozenset(cycle) not in seen:
            seen.add(frozenset(cycle))
            own = first[leaf.key]
            message = f"`{own.key}` depends on itself: {' -> '.join([*cycle, cycle[0]])}"
            problems.append(Problem(own.place(next(expressions(own.spec)).span), message,
                                    "give one of these keys a value of its own", code="depends-on-itself"))
    return problems


def _needs(leaves: list[Leaf]) -> dict[str, set[str]]:
    """For each key, those that its answer depends on."""
    needs: dict[str, set[str]] = {}
    for leaf in leaves:
        mine = needs.setdefault(leaf.key, set())
        mine |= {key for expr in expressions(leaf.spec) for key in keys_of(expr)}
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


def mend(leaves: list[Leaf], problems: list[Problem]) -> tuple[list[Leaf], set[str]]:
    """Replaces each key that is wrong or depends on one by a constant; also returns the sound keys."""
    needs = _needs(leaves)
    if not problems:
        return leaves, set(needs)
    bad = {leaf.key for leaf in leaves if _is_broken(leaf, problems)}
    bad |= {key for key in needs if _cycle(key, needs)}
    while spread := {key for key, others in needs.items() if key not in bad and others & bad}:
        bad |= spread
    return [replace(leaf, spec=Literal(1)) if leaf.key in bad else leaf for leaf in leaves], set(needs) - bad


def _is_broken(leaf: Leaf, problems: list[Problem]) -> bool:
    if any(isinstance(option, Broken) for option in options(leaf.spec)):
        return True
    place = leaf.origin.here if isinstance(leaf.origin, Node) else None
    return leaf.given and place is not None and any(_inside(problem.place, place) for problem in problems)


def _inside(inner: Place, outer: Place) -> bool:
    return (inner.source, inner.line) == (outer.source, outer.line) and outer.column <= inner.column <= outer.end


# -- schedules that fit no depth


def misfits(form: Questionnaire, sound: Set[str]) -> list[Problem]:
    """Problems of schedules that fit no possible depth, where schedule and depth are ``sound``."""
    judged = [leaf for leaf in form.leaves if leaf.field.fits and {leaf.key, leaf.field.fits} <= sound]
    return [Problem(leaf.place(span), f"`{text}` fits no possible depth", reason, code="no-depth-fits")
            for leaf in judged for span, text, reason in _never_fits(form, leaf, sound)]


def _never_fits(form: Questionnaire, leaf: Leaf, sound: Set[str]) -> Iterator[tuple[Span, str, str]]:
    """Yields (span, text, reason) of each alternative of ``leaf`` that fits no depth."""
    depths = _depths(form, leaf.field.fits or "")
    if not depths:
        return
    for option in options(leaf.spec):
        schedules = [schedule for schedule in _values(form, option) if not isinstance(schedule, str)]
        others = _lenders(form, leaf, option, sound)
        if not schedules or len(schedules) * len(depths) * len(others) > MOST_DEPTHS:
            continue
        reasons = [misfit(one, leaf.field, depth, other) for one, depth, other in
                   itertools.product(schedules, depths, others)]
        if all(reasons):
            shown = " or ".join(map(str, depths)) if len(depths) <= 3 else f"{min(depths)} to {max(depths)}"
            reason = f"{leaf.field.fits} is {shown}" + f"; with {depths[0]}" * (len(depths) > 1)
            yield option.span, str(option), f"{reason}: {reasons[0]}"


def _lenders(form: Questionnaire, leaf: Leaf, option: Spec, sound: Set[str]) -> Sequence[int | None]:
    """Depths of the stack whose layers are borrowed, the deepest first; [None] if unknown."""
    target = form.target(leaf, option.path) if isinstance(option, Indexed) else None
    known = target.field.fits if target and target.field.fits in sound else None
    return (sorted(_depths(form, known), reverse=True) if known else None) or [None]


def _depths(form: Questionnaire, key: str) -> list[int]:
    """Every depth that is possible; empty where that cannot be listed."""
    each = [_values(form, option) for leaf in form.by_key.get(key, ()) for option in options(leaf.spec)]
    return sorted({depth for values in each for depth in values if isinstance(depth, int)}) if all(each) else []


def _values(form: Questionnaire, option: Spec) -> list[Any]:
    """Every value of an alternative; none where they are computed, or too many."""
    if isinstance(option, Computed | Broken):
        return []
    values = explore(lambda ask: option.named(option.key).decide(Sheet(form, ask)))
    listed = list(itertools.islice(values, MOST_DEPTHS + 1))
    return listed if len(listed) <= MOST_DEPTHS else []


# -- constraints that never hold


def unsatisfiable(form: Questionnaire, where: tuple[Constraint, ...]) -> list[Problem]:
    """Constraints over answers that no candidate satisfies, alone or all together, shown by enumeration.

    Only the keys that a constraint names are enumerated. Where these have too many combinations, or endless ones,
    nothing is claimed; ``scalesearch check`` samples such spaces.
    """
    mine = [constraint for constraint in where if not constraint.costs]
    alone = [constraint for constraint in mine if _never_hold(form, [constraint])]
    problems = []
    for constraint in alone:
        keys = ", ".join(f"`{key}`" for key in sorted(constraint.names()))
        help = f"no legal answer to {keys} makes it true" if keys else "it is never true"
        problems.append(Problem(constraint.place, "no candidate can satisfy this constraint", help, code="never-true"))
    if not alone and len(mine) > 1 and _never_hold(form, mine):
        others = ", ".join(f"`{constraint.text}`" for constraint in mine[:-1])
        message = "no candidate can satisfy this constraint together with the others"
        problems.append(Problem(mine[-1].place, message, f"the others are {others}", code="never-true"))
    return problems


def _never_hold(form: Questionnaire, constraints: list[Constraint]) -> bool:
    """True if every combination of the keys named was tried and none satisfies all constraints."""
    rng = random.Random(0)
    if any(_all_hold(form, constraints, lambda name, parameter: parameter.draw(rng)) for _ in range(TRIED_FIRST)):
        return False
    tried = explore(lambda ask: _all_hold(form, constraints, ask))
    try:
        for _ in range(MOST_TRIED):
            if next(tried):
                return False
    except StopIteration:
        return True
    except Endless:
        pass
    return False


def _all_hold(form: Questionnaire, constraints: list[Constraint], ask: AskFunction) -> bool:
    sheet = Sheet(form, ask)
    return all(constraint.holds(sheet.lookup) for constraint in constraints)
