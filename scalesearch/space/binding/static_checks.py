"""Checks a space before sampling: cycles, schedules that never fit, unsatisfiable constraints."""

import random
from collections.abc import Iterator, Set

from scalesearch.space.binding.schedule_checks import never_fits
from scalesearch.space.questionnaire.answers import Questionnaire, Sheet
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.questionnaire.enumerate import AskFunction, Endless, explore
from scalesearch.space.schema.bound_tree import Branch, Leaf
from scalesearch.space.syntax.choices import expressions
from scalesearch.space.syntax.diagnostics import Problem
from scalesearch.space.syntax.expressions import keys_of

MOST_TRIED = 20_000  # combinations of answers that are tried one by one
TRIED_FIRST = 50  # at random, which mostly settles it


def cycles(root: Branch) -> list[Problem]:
    """Problems of keys that depend on themselves: each cycle once, at its first key."""
    leaves, needs = list(root.leaves()), needs_of(root)
    first = {leaf.key: leaf for leaf in reversed(leaves) if any(True for _ in expressions(leaf.spec))}
    problems, seen = [], set[frozenset[str]]()
    for leaf in leaves:
        cycle = _cycle(leaf.key, needs)
        if cycle and leaf.key in first and frozenset(cycle) not in seen:
            seen.add(frozenset(cycle))
            problems.append(_circular(first[leaf.key], cycle))
    return problems


def needs_of(root: Branch) -> dict[str, set[str]]:
    """For each key, those that its answer depends on."""
    needs: dict[str, set[str]] = {}
    for leaf in root.leaves():
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


def _circular(leaf: Leaf, cycle: list[str]) -> Problem:
    at = next((expr.span for expr in expressions(leaf.spec) if set(cycle) & keys_of(expr) or leaf.key in cycle), (0, 1))
    way = " -> ".join([*cycle, cycle[0]])
    help = "give one of these keys a value of its own"
    return Problem(leaf.place(at), f"`{leaf.key}` depends on itself: {way}", help, code="depends-on-itself")


def misfits(root: Branch, sound: Set[str]) -> list[Problem]:
    """Problems of schedules that fit no possible depth, where schedule and depth are ``sound``."""
    form = Questionnaire(root)
    judged = [leaf for leaf in form.leaves if leaf.field.fits and {leaf.key, leaf.field.fits} <= sound]
    return [problem for leaf in judged for problem in _misfit(form, leaf, sound)]


def _misfit(form: Questionnaire, leaf: Leaf, sound: Set[str]) -> Iterator[Problem]:
    for span, text, reason in never_fits(form, leaf, sound):
        yield Problem(leaf.place(span), f"`{text}` fits no possible depth", reason, code="no-depth-fits")


def unsatisfiable(root: Branch, where: tuple[Constraint, ...]) -> list[Problem]:
    """Constraints over answers that no candidate satisfies, alone or all together, shown by enumeration.

    Only the keys that a constraint names are enumerated. Where these have too many combinations, or endless ones,
    nothing is claimed; ``scalesearch check`` samples such spaces.
    """
    form = Questionnaire(root)
    mine = [constraint for constraint in where if not constraint.costs]
    alone = [constraint for constraint in mine if _never_hold(form, [constraint])]
    problems = [_impossible(constraint) for constraint in alone]
    if not alone and len(mine) > 1 and _never_hold(form, mine):
        others = ", ".join(f"`{constraint.text}`" for constraint in mine[:-1])
        message = "no candidate can satisfy this constraint together with the others"
        problems.append(Problem(mine[-1].place, message, f"the others are {others}", code="never-true"))
    return problems


def _impossible(constraint: Constraint) -> Problem:
    keys = sorted(constraint.names())
    help = f"no legal answer to {', '.join(f'`{key}`' for key in keys)} makes it true" if keys else "it is never true"
    return Problem(constraint.place, "no candidate can satisfy this constraint", help, code="never-true")


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
