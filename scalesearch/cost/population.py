"""Costs of populations: the ledger, run once for all candidates of one structure.

Candidates are answers of which some are arrays, one number for each candidate (ints as int64,
ratios as float64); the other answers they share. Their sizes go through the very blocks and the
very ledger that cost one candidate, as polynomials over the population's columns (see
:mod:`scalesearch.blocks.polynomial`), and come out as arrays of exact ints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import Block
from scalesearch.blocks.polynomial import PopulationColumns
from scalesearch.blocks.sizes import PopulationSplitError
from scalesearch.cost.breakdown import evaluate_cost
from scalesearch.cost.protocol import Protocol
from scalesearch.space.assembly.architecture import build_blocks
from scalesearch.space.syntax.diagnostics import UnbuildableError

DEFAULT_COSTS = ("params.total", "params.non_embedding", "macs.total")
MAX_CANDIDATES_PER_BATCH = 1 << 18  # candidates in memory at once, beyond their answers and costs
UNBUILDABLE_COST = -1  # stands where a candidate cannot be built

FRACTIONAL_COST_PREFIXES = ("load.", "latency.")  # costs that are no whole numbers

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
    """Costs of ``n_candidates`` candidates, and which of them can be built; costs of the others are ``UNBUILDABLE``.

    Args:
        values: of every key: one value for all, or an array of ``n_candidates`` numbers.
        names: selectors such as ``params.non_embedding`` or ``load.balance``.
        build: what is costed, by default the whole network.
        inspect_block: called with the block of every structure, and its candidates' places; it may
            raise Split.

    Raises:
        Overflow: a cost may not fit 64 bits.
    """
    wanted = tuple(names)
    costs = {name: np.full(n_candidates, UNBUILDABLE_COST,
                           float if name.startswith(FRACTIONAL_COST_PREFIXES) else np.int64)
             for name in wanted}
    built = np.zeros(n_candidates, bool)
    job = _CostEvaluation(protocol, wanted, costs, built, build, inspect_block)
    parts = [slice(start, min(start + MAX_CANDIDATES_PER_BATCH, n_candidates))
             for start in range(0, n_candidates, MAX_CANDIDATES_PER_BATCH)]
    if len(parts) == 1:
        job.run(dict(select_candidates(values, parts[0])), np.arange(n_candidates))
        return costs, built
    # NumPy lets go of the interpreter in long operations
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(job.run, dict(select_candidates(values, part)),
                            np.arange(part.start, part.stop)) for part in parts]
        for run in runs:
            run.result()
    return costs, built


@dataclass(frozen=True)
class _CostEvaluation:
    """State of one :func:`evaluate_population_costs`: inputs, and arrays that results are written to."""

    protocol: Protocol
    names: tuple[str, ...]
    costs: CostArrays
    is_buildable: NDArray[np.bool_]
    build: BlockBuilder
    inspect_block: BlockInspector | None

    def run(self, values: Mapping[str, Any], index: NDArray[np.int64]) -> None:
        """Cost the candidates at ``index``, split where they differ in structure."""
        columns = PopulationColumns(len(index))
        try:
            block = self.build({key: _size(value, key, columns) for key, value in values.items()})
            breakdown = evaluate_cost(block, self.protocol.for_candidates(values))
            computed = columns.evaluate({name: breakdown[name] for name in self.names})
            if self.inspect_block is not None:
                self.inspect_block(block, index)
        except UnbuildableError:
            return
        except PopulationSplitError as split:
            for label in np.unique(split.labels):
                chosen = split.labels == label
                self.run(dict(select_candidates(values, chosen)), index[chosen])
            return
        for name in self.names:
            self.costs[name][index] = computed[name]
        self.is_buildable[index] = True


def select_candidates(values: Mapping[str, Any], index: Any) -> Iterator[tuple[str, Any]]:
    """Yield some candidates' answers; an array of two keys stays one array, one column."""
    taken: dict[int, Any] = {}

    def chosen(value: Any) -> Any:
        if isinstance(value, list):  # by layer
            return [chosen(one) for one in value]
        if isinstance(value, np.ndarray) and id(value) not in taken:
            taken[id(value)] = value[index]
        return taken.get(id(value), value)

    yield from ((key, chosen(value)) for key, value in values.items())


def _size(value: Any, key: str, columns: PopulationColumns) -> Any:
    """An answer as a size: a polynomial, or one number where all are the same; a list of these by layer."""
    if isinstance(value, list):
        return [_size(one, f"{key} #{at}", columns) for at, one in enumerate(value, 1)]
    if not isinstance(value, np.ndarray) or not len(value):
        return value
    if (value == value[0]).all():
        return value[0].item()
    if not np.issubdtype(value.dtype, np.integer):
        return value
    if value.dtype != np.int64:
        value = value.astype(np.int64)
    return columns.variable(value, key)
