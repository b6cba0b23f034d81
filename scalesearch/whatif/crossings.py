"""Lengths at which one part of the work overtakes another: exact whole numbers, of any size."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import VOCAB, Block, Size, iterate_cost_lines
from scalesearch.cost import evaluate_cost
from scalesearch.cost.breakdown import split_loops
from scalesearch.cost.protocol import Protocol
from scalesearch.whatif.formulas import Formula, S, SymbolicProtocol, SymbolTable, T, V, depends_on_vocab, length_values

if TYPE_CHECKING:
    import pandas as pd

Range = tuple[int, int | None]  # first and last length; None: without end
LENGTH_SYMBOLS = {"source": (S,), "target": (T,), "length": (S, T), "vocab": (V,)}
OUTPUT = "output projection"
LAYERS = "encoder and decoder"
ATTENTION = "attention's products"
REST = "all the rest"
PART_PHRASES = {OUTPUT: "the output projection costs",
                ATTENTION: "attention's products of scores and mixes cost"}
PAIRS_BY_LENGTH = {"vocab": ((OUTPUT, LAYERS),)}
DEFAULT_PAIRS = ((ATTENTION, REST), (OUTPUT, LAYERS))


@dataclass(frozen=True)
class CostCrossing:
    """Where ``part`` costs more than ``other``.

    Attributes:
        length: what varies: source, target, both at once (``length``) or vocab.
        ranges: of lengths at which it does.
        held_lengths: the other lengths.
    """

    length: str
    part: str
    other: str
    ranges: tuple[Range, ...]
    held_lengths: Mapping[str, int]

    def __str__(self) -> str:
        name = " = ".join(LENGTH_SYMBOLS[self.length])
        spans = " and ".join(_format_range(name, one) for one in self.ranges) or f"at no {name}"
        held = ", ".join(f"{key} = {size:,}" for key, size in self.held_lengths.items())
        return f"{PART_PHRASES[self.part]} more than {self.other} {spans} ({held})"

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return dict(vars(self))


class CostCrossings(tuple[CostCrossing, ...]):
    """Several of them."""

    def frame(self) -> pd.DataFrame:
        """One row for each crossing and range; a range without end has no ``to``, a part that never leads no row."""
        import pandas as pd

        rows = [(c.length, c.part, c.other, *span) for c in self for span in c.ranges]
        frame = pd.DataFrame(rows, columns=["length", "part", "other", "from", "to"])
        return frame.astype({"from": "Int64", "to": "Int64"})


def _format_range(name: str, span: Range) -> str:
    low, high = span
    if high is None:
        return f"from {name} = {low:,}" if low > 1 else f"at every {name}"
    return f"up to {name} = {high:,}" if low == 1 else f"from {name} = {low:,} to {high:,}"


def attention_product_macs(block: Block, protocol: Protocol) -> Size:
    """MACs of loops over two positions, scores and mixes: the term that is quadratic in the lengths."""
    total = 0
    for line in iterate_cost_lines(block, vocab=protocol.shared_vocab):
        for work in line.loop_nests:
            axes, size = split_loops(work.loops)
            if sum(axis != VOCAB for axis in axes) > 1:
                total = total + size * line.calls * protocol.work_weights.get(
                    work.operation, 0) * protocol.extent(axes)
    return total


def find_crossings(block: Block, protocol: Protocol,
                   lengths: Sequence[str] = ("vocab", "length")) -> CostCrossings:
    """Where the output projection takes over from the layers, and attention's products from all the rest.

    Args:
        lengths: what varies, one at a time; the other lengths stay as in ``protocol``. ``vocab`` is
            left out where the
            shapes of what works follow from it (an adaptive output, a chain): no formula holds for
            every V then.
    """
    sizes = length_values(protocol)
    symbols = SymbolTable(sizes)
    symbolic = SymbolicProtocol.from_protocol(protocol, symbols)
    bill = evaluate_cost(block, symbolic)
    attention = attention_product_macs(block, symbolic)
    parts = {OUTPUT: bill["macs.output"], LAYERS: bill["macs.encoder"] + bill["macs.decoder"],
             ATTENTION: attention, REST: bill["macs.total"] - attention}  # fmt: skip
    bound = depends_on_vocab(block, protocol, lambda leaf: leaf.loop_nests())
    result = CostCrossings()
    for length in (name for name in lengths if name != "vocab" or not bound):
        held = {name: size for name, size in sizes.items() if name not in LENGTH_SYMBOLS[length]}
        for part, other in PAIRS_BY_LENGTH.get(length, DEFAULT_PAIRS):
            line = _as_univariate(symbols.to_formula(parts[part] - parts[other]), held)
            result = CostCrossings(
                (*result, CostCrossing(length, part, other, tuple(positive_ranges(line)), held)))
    return result


def _as_univariate(formula: Formula, held_lengths: Mapping[str, int]) -> list[Fraction]:
    """Coefficients, of the power 0 upwards, of a formula in which the lengths that are not
    ``held_lengths`` are one number."""
    powers: dict[int, Fraction] = defaultdict(Fraction)
    for names, factor in formula.terms.items():
        powers[sum(name not in held_lengths for name in names)] += factor * math.prod(
            held_lengths.get(name, 1) for name in names)
    return [powers[power] for power in range(max(powers, default=0) + 1)]


def positive_ranges(coefficients: Sequence[Fraction]) -> Iterator[Range]:
    """The ranges of whole numbers from 1 on where a polynomial is above 0; its coefficients from power 0 upwards."""
    from sympy import QQ, Poly, Symbol, ceiling, floor

    poly = Poly([QQ(factor.numerator, factor.denominator) for factor in reversed(coefficients)]
                or [0], Symbol("n"), domain=QQ)
    roots = poly.intervals(eps=QQ(1, 2)) if poly.degree() > 0 else []
    near = {n for (low, high), _ in roots
            for n in range(int(floor(low)), int(ceiling(high)) + 2) if n > 1}
    turns = [1, *(n for n in sorted(near) if (poly.eval(n) > 0) != (poly.eval(n - 1) > 0))]
    for low, after in itertools.zip_longest(turns, turns[1:]):
        if poly.eval(low) > 0:
            yield low, None if after is None else after - 1
