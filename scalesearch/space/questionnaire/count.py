"""Counts the answer sheets of a space exactly, without listing them.

Keys that do not depend on each other multiply. A condition, or a variant, ties what it decides to what it depends on:
only what decides is listed, one group of tied keys at a time.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from scalesearch.errors import UserError
from scalesearch.space.questionnaire.answers import AskFunction, Questionnaire, Sheet, explore
from scalesearch.space.schema.bound_tree import Leaf
from scalesearch.space.syntax.choices import Conditional, PerLayer, expressions, options
from scalesearch.space.syntax.expressions import keys_of
from scalesearch.space.syntax.parameters import FloatRange, Parameter

MOST_LISTED = 60_000  # combinations of answers that conditions depend on, listed in some ten seconds
PROBES = 100  # random combinations that say about how many there are
HOPELESS = 5  # times as many as are listed: by Markov's inequality at most one listable space in five looks like that


class TooTangled(UserError):
    """A space that could be counted only by listing more than is sensible."""

    code = "too-tangled"


def count(form: Questionnaire, most: int | None = None) -> int | None:
    """The number of answer sheets; ``None`` where a continuous range makes it endless.

    Raises:
        TooTangled: conditions depend on more than ``most`` (MOST_LISTED unless given) combinations of answers.
    """
    if any(isinstance(parameter, FloatRange) and parameter.step is None for _, parameter in form.dimensions()):
        return None
    runs, most = [partial(_count, form, *component) for component in _components(form)], most or MOST_LISTED
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


def _count(form: Questionnaire, leaves: list[Leaf], drivers: list[str], ask: AskFunction) -> int:
    """The sheets of ``leaves`` for one combination of answers to ``drivers``."""
    sheet = Sheet(form, ask)
    for key in drivers:
        sheet.lookup(key)
    there = [leaf for leaf in leaves if leaf.key not in sheet.parsed
             and all(sheet.lookup(key) == variant for key, variant in leaf.guards)]
    return math.prod(form.domains[leaf.path].count(sheet) for leaf in there)


def _components(form: Questionnaire) -> Iterator[tuple[list[Leaf], list[str]]]:
    """Leaves that conditions and variants tie together, with the keys that decide about them."""
    drivers = [_drivers(form, leaf) for leaf in form.leaves]
    home = {leaf.key: at for at, leaf in enumerate(form.leaves)}
    group = list(range(len(form.leaves)))
    for at, keys in enumerate(drivers):
        for key in keys:
            if key in home:
                old, new = group[home[key]], group[at]
                group = [new if member == old else member for member in group]
    for name in dict.fromkeys(group):
        members = [at for at, member in enumerate(group) if member == name]
        yield [form.leaves[at] for at in members], list(dict.fromkeys(key for at in members for key in drivers[at]))


def _drivers(form: Questionnaire, leaf: Leaf) -> list[str]:
    """The keys that decide whether ``leaf`` exists, which side of its condition counts, and how many layers it lists.

    With all that they need.
    """
    drivers = {key: None for key, _ in leaf.guards if len(form.by_key[key][0].spec.constants or (1, 2)) > 1}
    if isinstance(leaf.spec, Conditional) or any(isinstance(option, PerLayer) for option in options(leaf.spec)):
        drivers |= dict.fromkeys(key for expr in expressions(leaf.spec) for key in sorted(keys_of(expr)))
    queue = list(drivers)
    while queue:
        for other in form.by_key.get(queue.pop(), ()):
            needed = [key for expr in expressions(other.spec) for key in sorted(keys_of(expr))]
            fresh = [key for key in (*needed, *(group for group, _ in other.guards)) if key not in drivers]
            drivers |= dict.fromkeys(fresh)
            queue += fresh
    return list(drivers)
