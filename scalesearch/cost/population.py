"""Costs of populations, computed once for all candidates of one structure.

A population is a configuration in which some values are arrays with one number per candidate
(int64, or float64 for ratios); all candidates share the other values. Sizes become polynomials
over the columns of the population, see :mod:`scalesearch.blocks.polynomial`. They pass through
the same code as the costs of one candidate and result in arrays of exact integers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import Block
from scalesearch.blocks.polynomial import PopulationColumns
from scalesearch.blocks.sizes import map_structures
from scalesearch.cost.breakdown import evaluate_cost
from scalesearch.cost.protocol import Protocol
from scalesearch.spaces.assembly.architecture import build_blocks
from scalesearch.spaces.syntax.diagnostics import UnbuildableError

DEFAULT_COSTS = ("params.total", "params.non_embedding", "macs.total")
MAX_CANDIDATES_PER_BATCH = 1 << 18  # limits the memory of intermediate polynomials
UNBUILDABLE_COST = -1  # cost of a candidate that cannot be built
FRACTIONAL_COST_PREFIXES = ("load.", "latency.")  # costs that are not integers

CostArrays = dict[str, NDArray[Any]]
BlockBuilder = Callable[[Mapping[str, Any]], Block]
BlockInspector = Callable[[Block, NDArray[np.int64]], None]


def evaluate_population_costs(
    values: Mapping[str, Any],
    n_candidates: int,
    protocol: Protocol,
    names: Iterable[str] = DEFAULT_COSTS,
    build: BlockBuilder = lambda values: build_blocks(values)[1],
    inspect_block: BlockInspector | None = None,
) -> tuple[CostArrays, NDArray[np.bool_]]:
    """Evaluate the costs of ``n_candidates`` candidates.

    Args:
        values: value of each key: one value for all, or an array of ``n_candidates`` numbers.
        names: cost names such as ``params.non_embedding`` or ``load.balance``.
        build: builds the block to evaluate, by default the whole network.
        inspect_block: called with the block of each structure and the indices of its candidates;
            it may raise PopulationSplitError.

    Returns:
        (n_candidates,) an array per cost, with ``UNBUILDABLE_COST`` for candidates that cannot be
        built, and a mask of the candidates that can be built.

    Raises:
        CostOverflowError: a cost may not fit in 64 bits.
    """
    names = tuple(names)
    costs = {name: np.full(n_candidates, UNBUILDABLE_COST,
                           float if name.startswith(FRACTIONAL_COST_PREFIXES) else np.int64)
             for name in names}
    is_buildable = np.zeros(n_candidates, bool)
    indices = np.arange(n_candidates)

    def evaluate(group: Any) -> CostArrays | None:
        candidates = dict(select_candidates(values, group))
        index = indices[group]
        columns = PopulationColumns(len(index))
        try:
            sizes = {key: _size(value, key, columns) for key, value in candidates.items()}
            block = build(sizes)
            breakdown = evaluate_cost(block, protocol.for_candidates(sizes))
            computed = columns.evaluate({name: breakdown[name] for name in names})
            if inspect_block is not None:
                inspect_block(block, index)
        except UnbuildableError:
            return None
        return computed

    def evaluate_batch(start: int) -> None:
        end = min(start + MAX_CANDIDATES_PER_BATCH, n_candidates)
        for group, computed in map_structures(evaluate, start, end):
            if computed is not None:
                is_buildable[group] = True
                for name, cost in computed.items():
                    costs[name][group] = cost

    starts = range(0, n_candidates, MAX_CANDIDATES_PER_BATCH)
    if len(starts) > 1:  # NumPy releases the interpreter lock in long operations
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(evaluate_batch, starts))
    else:
        evaluate_batch(0)
    return costs, is_buildable


def select_candidates(values: Mapping[str, Any], index: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys with the values of the candidates at ``index``.

    If two keys have the same array, they have the same array in the result. It is one column.
    """
    selected: dict[int, Any] = {}  # by the identity of the array

    def select(value: Any) -> Any:
        if isinstance(value, list):  # one value per layer
            return [select(item) for item in value]
        if isinstance(value, np.ndarray) and id(value) not in selected:
            selected[id(value)] = value[index]
        return selected.get(id(value), value)

    yield from ((key, select(value)) for key, value in values.items())


def _size(value: object, key: str, columns: PopulationColumns) -> Any:
    """Convert a value to a size: a polynomial, or a number that all candidates have.

    A list with one value per layer becomes a list of sizes.
    """
    if isinstance(value, list):
        return [_size(item, f"{key} #{layer}", columns) for layer, item in enumerate(value, 1)]
    if not isinstance(value, np.ndarray) or not len(value):
        return value
    if (value == value[0]).all():
        return value[0].item()
    if not np.issubdtype(value.dtype, np.integer):
        return value
    if value.dtype != np.int64:
        value = value.astype(np.int64)
    return columns.variable(value, key)
