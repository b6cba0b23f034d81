"""Counts the answer sheets of a space exactly, without listing them.

Where no condition is involved, the count is a sum over variants and a product over the rest. A condition ties what it
decides to what it depends on: only those are listed, one group of tied keys at a time.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from scalesearch.errors import UserError
from scalesearch.space.questionnaire.answers import Questionnaire, Sheet
from scalesearch.space.questionnaire.enumerate import AskFunction, explore
from scalesearch.space.schema.bound_tree import Branch, Guards, Leaf
from scalesearch.space.syntax.choices import Conditional, expressions
from scalesearch.space.syntax.expressions import keys_of
from scalesearch.space.syntax.parameters import FloatRange, Parameter

MOST_LISTED = 60_000  # combinations of answers that conditions depend on, listed in some ten seconds
PROBES = 100  # random combinations that say about how many there are
HOPELESS = 5  # times as many as are listed: by Markov's inequality at most one listable space in five looks like that


class TooTangled(UserError):
    """A space that could be counted only by listing more than is sensible."""

    code = "too-tangled"


Unit = Branch | Leaf  # what is counted at once: a leaf, or a group with variants and all that is under it


def count(form: Questionnaire, most: int | None = None) -> int | None:
    """The number of answer sheets; ``None`` where a continuous range makes it endless.

    Raises:
        TooTangled: conditions depend on more than ``most`` (MOST_LISTED unless given) combinations of answers.
    """
    if any(isinstance(parameter, FloatRange) and parameter.step is None for _, parameter in form.dimensions()):
        return None
    runs, most = [partial(_count_units, form, *component) for component in _components(form)], most or MOST_LISTED
    if any(_combinations(run) > HOPELESS * most for run in runs):
        raise _too_tangled(most)
    return math.prod(_total(explore(run), most) for run in runs)


def _combinations(run: Callable[[AskFunction], int]) -> float:
    """How many combinations of answers ``run`` asks for, about: the mean over random ones is unbiased (Knuth 1975)."""
    rng = Random(0)
    sizes: list[int] = []

    def ask(name: str, parameter: Parameter) -> Any:
        sizes[-1] *= parameter.count() or 1
        return rng.choice(parameter.values() or ())

    for _ in range(PROBES):
        sizes.append(1)
        run(ask)
    return sum(sizes) / PROBES


def _too_tangled(most: int) -> TooTangled:
    return TooTangled(f"conditions tie together more than {most:,} combinations of answers")


def _total(counts: Iterator[int], most: int) -> int:
    total = 0
    for at, sheets in enumerate(counts):
        if at >= most:
            raise _too_tangled(most)
        total += sheets
    return total


def _count_units(form: Questionnaire, units: list[Unit], drivers: list[str], ask: AskFunction) -> int:
    """The sheets of ``units`` for one combination of answers to ``drivers``."""
    sheet = Sheet(form, ask)
    for key in drivers:
        sheet.lookup(key)
    product = 1
    for unit in units:
        if all(sheet.lookup(key) == variant for key, variant in _guards(unit)):
            product *= _count(form, unit, sheet)
    return product


def _guards(unit: Unit) -> Guards:
    """Under which variants elsewhere a unit exists."""
    leaf = unit.chooser if isinstance(unit, Branch) else unit
    return leaf.guards if leaf else ()


def _count(form: Questionnaire, unit: Unit, sheet: Sheet) -> int:
    if isinstance(unit, Leaf):
        return 1 if unit.key in sheet.parsed else form.domains[unit.path].count(sheet)
    names = _variants(form, unit, sheet)
    product = 1
    for _, child in unit.fields:
        product *= _count(form, child, sheet)
    if names is None:
        return product
    inside = dict(unit.variants)
    return product * sum(_count(form, inside[name], sheet) for name in names if name in inside)


def _variants(form: Questionnaire, branch: Branch, sheet: Sheet) -> list[str] | None:
    """The variants that are still possible; ``None`` for a group without variants."""
    if branch.chooser is None:
        return None
    if branch.chooser.key in sheet.parsed:
        return [sheet.parsed[branch.chooser.key]]
    constants = branch.chooser.spec.constants
    return [str(value) for value in constants] if constants else [sheet.decide(branch.chooser)]


def _components(form: Questionnaire) -> Iterator[tuple[list[Unit], list[str]]]:
    """Units that conditions tie together, with the keys that the conditions depend on."""
    units = list(_units(form.root))
    home = {leaf.key: at for at, unit in enumerate(units) for leaf in _leaves(unit)}
    group = list(range(len(units)))
    drivers = {at: _drivers(form, unit) for at, unit in enumerate(units)}
    for at, keys in drivers.items():
        for key in keys:
            if key in home:
                old, new = group[home[key]], group[at]
                group = [new if member == old else member for member in group]
    for name in dict.fromkeys(group):
        members = [at for at, member in enumerate(group) if member == name]
        wanted = dict.fromkeys(key for at in members for key in drivers[at])
        yield [units[at] for at in members], list(wanted)


def _units(branch: Branch) -> Iterator[Unit]:
    for _, child in branch.fields:
        if isinstance(child, Branch) and child.chooser is None:
            yield from _units(child)
        else:
            yield child


def _leaves(unit: Unit) -> list[Leaf]:
    return [unit] if isinstance(unit, Leaf) else list(unit.leaves())


def _drivers(form: Questionnaire, unit: Unit) -> list[str]:
    """The keys whose values decide conditions inside ``unit``, and everything those need in turn."""
    elsewhere = [key for key, _ in _guards(unit) if len(form.by_key[key][0].spec.constants or (1, 2)) > 1]
    drivers: dict[str, None] = dict.fromkeys(elsewhere)
    for leaf in _leaves(unit):
        if isinstance(leaf.spec, Conditional):
            for expr in expressions(leaf.spec):
                drivers |= dict.fromkeys(sorted(keys_of(expr)))
        chooses = any(branch.chooser is leaf for branch in _branches(unit))
        if chooses and leaf.spec.constants is None:
            drivers[leaf.key] = None
    queue = list(drivers)
    while queue:
        for leaf in form.by_key.get(queue.pop(), ()):
            needed = [key for expr in expressions(leaf.spec) for key in sorted(keys_of(expr))]
            fresh = [key for key in (*needed, *(group for group, _ in leaf.guards)) if key not in drivers]
            drivers |= dict.fromkeys(fresh)
            queue += fresh
    return list(drivers)


def _branches(unit: Unit) -> Iterator[Branch]:
    if isinstance(unit, Branch):
        yield unit
        for _, child in (*unit.fields, *unit.variants):
            if isinstance(child, Branch):
                yield from _branches(child)
