"""Count the configurations of a space exactly, without enumerating them.

Counts of independent keys multiply. A condition or a variant ties keys to those that it depends on.
For each group of tied keys, only combinations of the deciding keys are enumerated.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from statistics import fmean, stdev
from typing import Any

from scalesearch.errors import UserError
from scalesearch.spaces.parameters.param_values import (
    ParamAssignment,
    ParameterSpace,
    SuggestFunction,
    enumerate_runs,
)
from scalesearch.spaces.schema.bound_tree import ParameterNode
from scalesearch.spaces.syntax.domains import (
    ConditionalDomain,
    PerLayerDomain,
    iter_expressions,
    iter_options,
)
from scalesearch.spaces.syntax.expressions import keys_of
from scalesearch.spaces.syntax.parameters import FloatRange, Parameter
from scalesearch.terminal import make_table

# combinations of deciding keys; this many are enumerated in about ten seconds
MAX_ENUMERATED = 60_000
N_SIZE_PROBES = 100  # random combinations that estimate their number
# Estimates above this multiple of the limit are rejected without enumeration. By Markov's
# inequality this affects at most one in five spaces that could be enumerated.
HOPELESS_FACTOR = 5


class UncountableSpaceError(UserError):
    """Counting the space would need the enumeration of too many combinations."""

    code = "too-many-dependencies"


def count_configurations(parameter_space: ParameterSpace,
                         max_enumerated: int | None = None) -> int | None:
    """The number of configurations; ``None`` if a continuous range makes it infinite.

    Raises:
        UncountableSpaceError: conditions depend on more than ``max_enumerated`` (by default
            ``MAX_ENUMERATED``) combinations of values.
    """
    if any(isinstance(parameter, FloatRange) and parameter.step is None
           for _, parameter in parameter_space.parameters()):
        return None
    runs = [partial(_count_component, parameter_space, *component)
            for component in _tied_components(parameter_space)]
    max_enumerated = max_enumerated or MAX_ENUMERATED
    if any(estimate_combinations(run)[0] > HOPELESS_FACTOR * max_enumerated for run in runs):
        raise _uncountable_error(max_enumerated)
    product = 1
    for run in runs:
        total = 0
        for n_enumerated, count in enumerate(enumerate_runs(run)):
            if n_enumerated >= max_enumerated:
                raise _uncountable_error(max_enumerated)
            total += count
        product *= total
    return product


def estimate_combinations(run: Callable[[SuggestFunction], object]) -> tuple[float, float]:
    """Estimate the number of combinations that ``run`` requests, without bias.

    Source: Knuth (1975).

    Returns:
        the estimate and its standard error.
    """
    rng = Random(0)
    sizes: list[int] = []

    def suggest(name: str, parameter: Parameter) -> Any:
        sizes[-1] *= parameter.count() or 1
        return parameter.sample(rng) if (parameter.count() or 0) > sys.maxsize else rng.choice(
            parameter.values() or ())

    for _ in range(N_SIZE_PROBES):
        sizes.append(1)
        run(suggest)
    return fmean(sizes), stdev(sizes) / math.sqrt(N_SIZE_PROBES)


def _uncountable_error(max_enumerated: int) -> UncountableSpaceError:
    return UncountableSpaceError(f"conditions depend on more than {max_enumerated:,} "
                                 "combinations of values")


def _count_component(parameter_space: ParameterSpace, nodes: list[ParameterNode],
                     drivers: list[str], suggest: SuggestFunction) -> int:
    """The number of configurations of ``nodes`` for given deciding keys."""
    assignment = ParamAssignment(parameter_space, suggest)
    for key in drivers:
        assignment.value_of(key)
    active = [node for node in nodes if node.key not in assignment.values
              and all(assignment.value_of(key) == variant for key, variant in node.guards)]
    return math.prod(parameter_space.domains[node.path].count_values(assignment) for node in active)


def _tied_components(
        parameter_space: ParameterSpace) -> Iterator[tuple[list[ParameterNode], list[str]]]:
    """Yield groups of dependent nodes, with their deciding keys.

    Conditions and variants make nodes dependent.
    """
    nodes_by_key = parameter_space.nodes_by_key
    drivers: list[list[str]] = []  # keys that decide whether a node exists and its active branch
    for node in parameter_space.nodes:
        keys = {key: None for key, _ in node.guards
                if len(nodes_by_key[key][0].domain.constants or (1, 2)) > 1}
        if isinstance(node.domain, ConditionalDomain) or any(
                isinstance(option, PerLayerDomain) for option in iter_options(node.domain)):
            keys |= dict.fromkeys(key for expr in iter_expressions(node.domain)
                                  for key in sorted(keys_of(expr)))
        queue = list(keys)
        while queue:  # and the keys that these keys depend on
            for other in nodes_by_key.get(queue.pop(), ()):
                needed = [key for expr in iter_expressions(other.domain)
                          for key in sorted(keys_of(expr))]
                fresh = [key for key in (*needed, *(group for group, _ in other.guards))
                         if key not in keys]
                keys |= dict.fromkeys(fresh)
                queue += fresh
        drivers.append(list(keys))
    index_of_key = {node.key: index for index, node in enumerate(parameter_space.nodes)}
    labels = list(range(len(parameter_space.nodes)))  # nodes with equal labels are one group
    for index, deciding_keys in enumerate(drivers):
        for key in deciding_keys:
            if key in index_of_key:
                old_label = labels[index_of_key[key]]
                new_label = labels[index]
                labels = [new_label if label == old_label else label for label in labels]
    for group in dict.fromkeys(labels):
        members = [index for index, label in enumerate(labels) if label == group]
        group_drivers = list(dict.fromkeys(key for index in members for key in drivers[index]))
        yield [parameter_space.nodes[index] for index in members], group_drivers


# -- output


def space_size_or_reason(space: Any) -> int | str:
    """Return the number of configurations, or why it is unknown."""
    try:
        size = space.n_configurations()
    except UncountableSpaceError as error:
        return f"not counted: {error}"
    return "infinite: a range is continuous" if size is None else size


def format_space_size(n_parameters: int, size: int | str) -> str:
    """Format a size, as ``7 parameters, 392 configurations``."""
    count = f"{size:,} configuration{'s' * (size != 1)}" if isinstance(size, int) else size
    return f"{n_parameters} parameter{'s' * (n_parameters != 1)}, {count}"


def make_parameters_table(rows: Iterable[tuple[str, object, int | None]]) -> Any:
    """Make a table of parameters: name, values and number of values."""
    cells = [(name, str(values), "∞" if count is None else f"{count:,}")
             for name, values, count in rows]
    return make_table(("parameter", "values", "count"), cells, (0, 1))
