"""When two candidates are one network: what ``Architecture.id`` hashes, for a whole population."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import Block, LinearFactory, Repeat, Tie, Use
from scalesearch.blocks.sizes import decide, evaluate_size, is_array, map_values

_TIE_OWNERS: dict[tuple[Any, ...], int] = {}  # owners of layers, numbered as they are met


def network_signature(block: Block | Use) -> tuple[str, list[Any]]:
    """What the networks have in common, and the numbers in which they may differ: one for all, or an array.

    Two candidates are one network exactly when both are equal. Raises Split where ties come and go
    with the depth.
    """
    words: list[str] = []
    numbers = [_as_int64(x) for x in _walk(block, None, words)]
    return " ".join(words), numbers


def _as_int64(x: Any) -> Any:
    """A number as an int64 or an array of them: floats by their bits."""
    x = evaluate_size(x)
    if is_array(x):
        return np.ascontiguousarray(x).view(np.int64) if x.dtype == np.float64 else x
    return np.float64(x).view(np.int64).item() if isinstance(x, float) else x


class NetworkNumbering:
    """Numbers networks: equal ones get equal numbers, whatever table they stand in."""

    def __init__(self) -> None:
        self._kinds: dict[str, list[tuple[list[Any], NDArray[np.int64]]]] = {}
        self.size = 0

    def add(self, structure: str, numbers: list[Any], rows: NDArray[np.int64]) -> None:
        """Notes the networks ``structure`` with ``numbers`` at the places ``rows``."""
        self._kinds.setdefault(structure, []).append((numbers, rows))

    def numbers_of(self, rows: int) -> NDArray[np.int64]:
        """(rows,) the number of the network at each place; -1 where there is none."""
        networks = np.full(rows, -1, np.int64)
        first = 0
        for tables in self._kinds.values():
            places = np.concatenate([at for _, at in tables])
            sizes = [len(at) for _, at in tables]
            columns = (_column(pieces, sizes)
                       for pieces in zip(*(numbers for numbers, _ in tables)))
            numbers = number_rows((column for column in columns if column is not None), len(places))
            networks[places] = first + numbers
            first += int(numbers.max(initial=-1)) + 1
        return networks


def _column(pieces: tuple[Any, ...], sizes: list[int]) -> NDArray[np.int64] | None:
    """One number of all networks of a kind; None where it is the same for all."""
    if not any(map(is_array, pieces)) and len(set(pieces)) == 1:
        return None
    return np.concatenate([np.broadcast_to(x, n) for x, n in zip(pieces, sizes)]).astype(np.int64)


def number_rows(columns: Iterable[NDArray[np.int64]], rows: int) -> NDArray[np.int64]:
    """Equal rows get equal numbers."""
    code = np.zeros(rows, np.int64)
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


def _walk(value: Any, depth: Any, words: list[str]) -> Iterator[Any]:
    """The numbers beneath ``value``; everything else goes to ``words``."""
    if isinstance(value, Repeat):
        words.append("Repeat(")
        yield value.depth
        yield from _walk(value.distinct_layers or value.layer, None, words)
        for tie in value.ties:
            yield from _walk(tie, value.depth, words)
        words.append(")")
    elif isinstance(value, Tie):
        yield from _tie(value, depth, words)
    elif isinstance(value, Block | Use | LinearFactory):
        words.append(f"{type(value).__name__}(")
        for field in fields(value):  # type: ignore[arg-type]
            yield from _walk(getattr(value, field.name), None, words)
        words.append(")")
    elif isinstance(value, tuple | list):
        words.append(f"[{len(value)}")
        for item in value:
            yield from _walk(item, None, words)
    elif is_array(value) or (isinstance(value, int) and not isinstance(value, bool)):
        words.append("#")
        yield value
    else:
        words.append(repr(value))


def _tie(tie: Tie, depth: Any, words: list[str]) -> Iterator[Any]:
    """A tie by who owns what; one that shares nothing is none."""
    canonical = tie.schedule.canonical_groups
    if decide(map_values(depth, lambda layers: canonical(layers) == list(range(layers)))):
        return
    words.append(f"Tie {tie.part} {tie.excluded} #")
    yield map_values(
        depth, lambda layers: _TIE_OWNERS.setdefault(tuple(canonical(layers)), len(_TIE_OWNERS)))
