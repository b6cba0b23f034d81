"""Costs of populations: the ledger, run once for all candidates of one structure.

Candidates are answers of which some are arrays, one number for each candidate (ints as int64, ratios as float64); the
other answers they share. Their sizes go through the very blocks and the very ledger that cost one candidate, as
polynomials over the population's columns (see :mod:`scalesearch.blocks.polynomial`), and come out as arrays of exact ints.
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
from scalesearch.cost.ledger import cost
from scalesearch.cost.protocol import Protocol
from scalesearch.space.assembly.architecture import build_blocks
from scalesearch.space.syntax.diagnostics import UnbuildableError

USUAL = ("params.total", "params.non_embedding", "macs.total")
ROWS = 1 << 18  # candidates in memory at once, beyond their answers and costs
UNBUILDABLE = -1  # stands where a candidate cannot be built

FRACTIONS = ("load.", "latency.")  # costs that are no whole numbers

Values = dict[str, NDArray[Any]]
Build = Callable[[Mapping[str, Any]], Block]
Look = Callable[[Block, NDArray[np.int64]], None]


def price(
    answers: Mapping[str, Any],
    rows: int,
    protocol: Protocol,
    names: Iterable[str] = USUAL,
    build: Build = lambda answers: build_blocks(answers)[1],
    look: Look | None = None,
) -> tuple[Values, NDArray[np.bool_]]:
    """Costs of ``rows`` candidates, and which of them can be built; costs of the others are ``UNBUILDABLE``.

    Args:
        answers: of every key: one value for all, or an array of ``rows`` numbers.
        names: selectors such as ``params.non_embedding`` or ``load.balance``.
        build: what is costed, by default the whole network.
        look: called with the block of every structure, and its candidates' places; it may raise Split.

    Raises:
        Overflow: a cost may not fit 64 bits.
    """
    wanted = tuple(names)
    costs = {name: np.full(rows, UNBUILDABLE, float if name.startswith(FRACTIONS) else np.int64) for name in wanted}
    built = np.zeros(rows, bool)
    job = _Job(protocol, wanted, costs, built, build, look)
    parts = [slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS)]
    if len(parts) == 1:
        job.run(dict(taken(answers, parts[0])), np.arange(rows))
        return costs, built
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NumPy lets go of the interpreter in long operations
        runs = [pool.submit(job.run, dict(taken(answers, part)), np.arange(part.start, part.stop)) for part in parts]
        for run in runs:
            run.result()
    return costs, built


@dataclass(frozen=True)
class _Job:
    """State of one :func:`price`: inputs, and arrays that results are written to."""

    protocol: Protocol
    names: tuple[str, ...]
    costs: Values
    built: NDArray[np.bool_]
    build: Build
    look: Look | None

    def run(self, answers: Mapping[str, Any], index: NDArray[np.int64]) -> None:
        """Cost the candidates at ``index``, split where they differ in structure."""
        columns = PopulationColumns(len(index))
        try:
            block = self.build({key: _size(value, key, columns) for key, value in answers.items()})
            bill = cost(block, self.protocol.of(answers))
            values = columns.evaluate({name: bill[name] for name in self.names})
            if self.look is not None:
                self.look(block, index)
        except UnbuildableError:
            return
        except PopulationSplitError as split:
            for label in np.unique(split.labels):
                chosen = split.labels == label
                self.run(dict(taken(answers, chosen)), index[chosen])
            return
        for name in self.names:
            self.costs[name][index] = values[name]
        self.built[index] = True


def taken(answers: Mapping[str, Any], part: Any) -> Iterator[tuple[str, Any]]:
    """Yield some candidates' answers; an array of two keys stays one array, one column."""
    taken: dict[int, Any] = {}

    def chosen(value: Any) -> Any:
        if isinstance(value, list):  # by layer
            return [chosen(one) for one in value]
        if isinstance(value, np.ndarray) and id(value) not in taken:
            taken[id(value)] = value[part]
        return taken.get(id(value), value)

    yield from ((key, chosen(value)) for key, value in answers.items())


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
