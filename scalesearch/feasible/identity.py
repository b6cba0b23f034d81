"""Network identity for populations: numbers are equal exactly if ids are equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import Block, LinearFactory, LoopNest, Repeat, Tie, Use
from scalesearch.blocks.sizes import decide, evaluate_size, is_array, map_values

if TYPE_CHECKING:
    from scalesearch.cost import Protocol
    from scalesearch.feasible.enumeration import CandidateTable

_TIE_OWNERS: dict[tuple[Any, ...], int] = {}  # owners of layers, numbered in order of occurrence


def network_signature(block: Block | Use) -> tuple[str, list[Any]]:
    """Structure of the networks of a population, and their numbers.

    Two candidates are the same network if and only if structure and numbers are equal.

    Returns:
        a text, and numbers: an int for all candidates, or an array with one per candidate.

    Raises:
        PopulationSplitError: whether layers are tied depends on the depth.
    """
    structure: list[str] = []
    numbers = [_as_int64(number) for number in _walk(block, None, structure)]
    return " ".join(structure), numbers


def _as_int64(x: Any) -> Any:
    """A number as an int64 or an array of them: floats by their bits."""
    x = evaluate_size(x)
    if is_array(x):
        return np.ascontiguousarray(x).view(np.int64) if x.dtype == np.float64 else x
    return np.float64(x).view(np.int64).item() if isinstance(x, float) else x


class NetworkNumbering:
    """Numbers for networks of several tables; equal networks get equal numbers.

    If the protocol has sentence lengths by vocabulary, networks are only equal if the vocabularies
    are, too, because their costs differ otherwise.
    """

    def __init__(self, protocol: Protocol) -> None:
        self._separates_vocabs = bool(protocol.lengths_by_vocab)
        self._tables: dict[str, list[tuple[list[Any], NDArray[np.int64]]]] = {}

    def add(self, block: Block | Use | None, table: CandidateTable, index: NDArray[np.int64],
            first_row: int, model_nests: Sequence[LoopNest] = ()) -> None:
        """Add the networks of ``block``: those at ``index`` in a table that starts at a row.

        Equal blocks with other ``model_nests`` have other costs, and therefore other numbers: the
        encoders of an encoder-only and an encoder-decoder model.
        """
        structure, numbers = ("", []) if block is None else network_signature(block)
        structure += repr([[extent for extent in nest.loops if isinstance(extent, str)]
                           for nest in model_nests])
        if self._separates_vocabs:
            numbers.append(np.broadcast_to(table.values["vocab"], table.n_candidates)[index])
        self._tables.setdefault(structure, []).append((numbers, first_row + index))

    def numbers_of(self, rows: int) -> NDArray[np.int64]:
        """(rows,) number of each network; -1 if no network was added at this index."""
        networks = np.full(rows, -1, np.int64)
        first = 0
        for tables in self._tables.values():
            indices = np.concatenate([table_rows for _, table_rows in tables])
            sizes = [len(table_rows) for _, table_rows in tables]
            columns = zip(*(numbers for numbers, _ in tables))
            differing = (np.concatenate([np.broadcast_to(x, n) for x, n in zip(pieces, sizes)])
                         .astype(np.int64) for pieces in columns
                         if any(map(is_array, pieces)) or len(set(pieces)) > 1)
            numbers = number_rows(differing, len(indices))
            networks[indices] = first + numbers
            first += int(numbers.max(initial=-1)) + 1
        return networks


def number_rows(columns: Iterable[NDArray[np.int64]], rows: int) -> NDArray[np.int64]:
    """Number the rows of a table so that equal rows get equal numbers."""
    code = np.zeros(rows, np.int64)
    if rows == 0:
        return code
    spread = 1
    for column in columns:
        low = int(column.min())
        high = int(column.max())
        if low == high:
            continue
        if spread * (high - low + 1) >= 2**62:
            code = np.unique(code, return_inverse=True)[1]
            spread = int(code.max()) + 1
            if spread * (high - low + 1) >= 2**62:
                column = np.unique(column, return_inverse=True)[1]
                low = 0
                high = int(column.max())
        code = code * (high - low + 1) + (column - low)
        spread = spread * (high - low + 1)
    numbers: NDArray[np.int64] = np.unique(code, return_inverse=True)[1]
    return numbers


def _walk(value: Any, depth: Any, structure: list[str]) -> Iterator[Any]:
    """Yield the numbers inside ``value``; append everything else to ``structure``."""
    if isinstance(value, Repeat):
        structure.append("Repeat(")
        yield value.depth
        yield from _walk(value.distinct_layers or value.layer, None, structure)
        for tie in value.ties:
            yield from _walk(tie, value.depth, structure)
        structure.append(")")
    elif isinstance(value, Tie):
        yield from _tie(value, depth, structure)
    elif isinstance(value, Block | Use | LinearFactory):
        structure.append(f"{type(value).__name__}(")
        for field in fields(value):  # type: ignore[arg-type]
            yield from _walk(getattr(value, field.name), None, structure)
        structure.append(")")
    elif isinstance(value, tuple | list):
        structure.append(f"[{len(value)}")
        for item in value:
            yield from _walk(item, None, structure)
    elif is_array(value) or (isinstance(value, int) and not isinstance(value, bool)):
        structure.append("#")
        yield value
    else:
        structure.append(repr(value))


def _tie(tie: Tie, depth: Any, structure: list[str]) -> Iterator[Any]:
    """Yield the numbered owners of tied layers; nothing if all layers are separate."""
    canonical = tie.schedule.canonical_groups
    if decide(map_values(depth, lambda layers: canonical(layers) == list(range(layers)))):
        return
    structure.append(f"Tie {tie.part} {tie.excluded} #")
    yield map_values(
        depth, lambda layers: _TIE_OWNERS.setdefault(tuple(canonical(layers)), len(_TIE_OWNERS)))
