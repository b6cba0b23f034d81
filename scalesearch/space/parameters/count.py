"""Counts the answer sheets of a space exactly, without listing them.

Keys that do not depend on each other multiply. A condition, or a variant, ties what it decides to
what it depends on: only what decides is listed, one group of tied keys at a time.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from scalesearch.errors import UserError
from scalesearch.space.parameters.param_values import ParamAssignment, ParameterSpace, SuggestFunction, enumerate_runs
from scalesearch.space.schema.bound_tree import ParameterNode
from scalesearch.space.syntax.composite_domains import ConditionalDomain, PerLayerDomain, iter_expressions, iter_options
from scalesearch.space.syntax.expressions import keys_of
from scalesearch.space.syntax.parameters import FloatRange, Parameter

# combinations of answers that conditions depend on, listed in some ten seconds
MAX_ENUMERATED = 60_000
N_SIZE_PROBES = 100  # random combinations that say about how many there are
# times as many as are listed: by Markov's inequality at most one listable space in five looks like
# that
HOPELESS_FACTOR = 5


class UncountableSpaceError(UserError):
    """A space that could be counted only by listing more than is sensible."""

    code = "too-many-dependencies"


def count_configurations(parameter_space: ParameterSpace,
                         max_enumerated: int | None = None) -> int | None:
    """The number of answer sheets; ``None`` where a continuous range makes it endless.

    Raises:
        TooTangled: conditions depend on more than ``max_enumerated`` (MOST_LISTED unless given)
            combinations of answers.
    """
    if any(isinstance(parameter, FloatRange) and parameter.step is None
           for _, parameter in parameter_space.parameters()):
        return None
    runs = [partial(_count_component, parameter_space, *component)
            for component in _tied_components(parameter_space)]
    max_enumerated = max_enumerated or MAX_ENUMERATED
    if any(_estimate_combinations(run) > HOPELESS_FACTOR * max_enumerated for run in runs):
        raise _uncountable_error(max_enumerated)
    return math.prod(_total(enumerate_runs(run), max_enumerated) for run in runs)


def _estimate_combinations(run: Callable[[SuggestFunction], int]) -> float:
    """How many combinations of answers ``run`` asks for, about: the mean over random ones is unbiased (Knuth 1975)."""
    rng = Random(0)
    sizes: list[int] = []

    def ask(name: str, parameter: Parameter) -> Any:
        sizes[-1] *= parameter.count() or 1
        return rng.choice(parameter.values() or ())

    for _ in range(N_SIZE_PROBES):
        sizes.append(1)
        run(ask)
    return sum(sizes) / N_SIZE_PROBES


def _uncountable_error(most: int) -> UncountableSpaceError:
    return UncountableSpaceError(f"conditions tie together more than {most:,} combinations of "
                                 "answers")


def _total(counts: Iterator[int], most: int) -> int:
    total = 0
    for at, sheets in enumerate(counts):
        if at >= most:
            raise _uncountable_error(most)
        total += sheets
    return total


def _count_component(form: ParameterSpace, leaves: list[ParameterNode], drivers: list[str],
                     ask: SuggestFunction) -> int:
    """The sheets of ``leaves`` for one combination of answers to ``drivers``."""
    sheet = ParamAssignment(form, ask)
    for key in drivers:
        sheet.value_of(key)
    there = [leaf for leaf in leaves if leaf.key not in sheet.typed_values
             and all(sheet.value_of(key) == variant for key, variant in leaf.guards)]
    return math.prod(form.domains[leaf.path].count_values(sheet) for leaf in there)


def _tied_components(form: ParameterSpace) -> Iterator[tuple[list[ParameterNode], list[str]]]:
    """Leaves that conditions and variants tie together, with the keys that decide about them."""
    drivers = [_deciding_keys(form, leaf) for leaf in form.nodes]
    home = {leaf.key: at for at, leaf in enumerate(form.nodes)}
    group = list(range(len(form.nodes)))
    for at, keys in enumerate(drivers):
        for key in keys:
            if key in home:
                old = group[home[key]]
                new = group[at]
                group = [new if member == old else member for member in group]
    for name in dict.fromkeys(group):
        members = [at for at, member in enumerate(group) if member == name]
        yield [form.nodes[at]
               for at in members], list(dict.fromkeys(key for at in members for key in drivers[at]))


def _deciding_keys(form: ParameterSpace, leaf: ParameterNode) -> list[str]:
    """The keys that decide whether ``leaf`` exists, which side of its condition counts, and how many layers it lists.

    With all that they need.
    """
    drivers = {key: None
               for key, _ in leaf.guards
               if len(form.nodes_by_key[key][0].domain.constants or (1, 2)) > 1}
    if isinstance(leaf.domain, ConditionalDomain) or any(
            isinstance(option, PerLayerDomain) for option in iter_options(leaf.domain)):
        drivers |= dict.fromkeys(key for expr in iter_expressions(leaf.domain)
                                 for key in sorted(keys_of(expr)))
    queue = list(drivers)
    while queue:
        for other in form.nodes_by_key.get(queue.pop(), ()):
            needed = [key for expr in iter_expressions(other.domain)
                      for key in sorted(keys_of(expr))]
            fresh = [key
                     for key in (*needed, *(group for group, _ in other.guards))
                     if key not in drivers]
            drivers |= dict.fromkeys(fresh)
            queue += fresh
    return list(drivers)
