"""Crossings: lengths at which one part of the work becomes larger than another."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from scalesearch.blocks.core import VOCAB, Block, Size, iterate_cost_lines
from scalesearch.cost import evaluate_cost
from scalesearch.cost.breakdown import split_loops
from scalesearch.cost.protocol import Protocol
from scalesearch.whatif.formulas import (
    NotPolynomialError,
    S,
    SymbolicProtocol,
    SymbolTable,
    T,
    V,
    depends_on_vocab,
    length_values,
)

if TYPE_CHECKING:
    import pandas as pd

Range = tuple[int, int | None]  # first and last length; None: the range has no end
LENGTH_SYMBOLS = {"source": (S,), "target": (T,), "length": (S, T), "vocab": (V,)}
OUTPUT = "output projection"
LAYERS = "encoder and decoder"
ATTENTION = "attention's products"
REST = "all the rest"
PART_PHRASES = {OUTPUT: "the output projection costs",
                ATTENTION: "attention's score and value products cost"}
PAIRS_BY_LENGTH = {"vocab": ((OUTPUT, LAYERS),)}
DEFAULT_PAIRS = ((ATTENTION, REST), (OUTPUT, LAYERS))


@dataclass(frozen=True)
class CostCrossing:
    """Lengths for which ``part`` is more expensive than ``other``.

    Attributes:
        length: the length that varies: source, target, both (``length``) or vocab.
        ranges: ranges of these lengths.
        held_lengths: the other lengths, which are constant.
    """

    length: str
    part: str
    other: str
    ranges: tuple[Range, ...]
    held_lengths: Mapping[str, int]

    def __str__(self) -> str:
        name = " = ".join(LENGTH_SYMBOLS[self.length])
        ranges = []
        for low, high in self.ranges:
            if high is None:
                ranges.append(f"from {name} = {low:,}" if low > 1 else f"for every {name}")
            else:
                ranges.append(f"up to {name} = {high:,}" if low == 1
                              else f"from {name} = {low:,} to {high:,}")
        held = ", ".join(f"{key} = {size:,}" for key, size in self.held_lengths.items())
        where = " and ".join(ranges) or f"for no {name}"
        return f"{PART_PHRASES[self.part]} more than {self.other} {where} ({held})"


class CostCrossings(tuple[CostCrossing, ...]):
    """Crossings of one architecture."""

    def frame(self) -> pd.DataFrame:
        """Data frame with a row per crossing and range; ``to`` is missing without an end."""
        import pandas as pd

        rows = [(crossing.length, crossing.part, crossing.other, *span)
                for crossing in self for span in crossing.ranges]
        frame = pd.DataFrame(rows, columns=["length", "part", "other", "from", "to"])
        return frame.astype({"from": "Int64", "to": "Int64"})


def attention_product_macs(block: Block, protocol: Protocol) -> Size:
    """MACs of loops over two lengths (scores and mixes), quadratic in the lengths."""
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
    """Find the lengths at which the output projection or attention dominates.

    The output projection is compared with encoder and decoder, attention products with all other
    work. Crossings are exact integers. None are found if attention has a window.

    Args:
        lengths: lengths to vary, one at a time; the others are those of ``protocol``. ``vocab`` is
            skipped if shapes depend on it (adaptive output, tensor chain): one formula for all V
            does not exist then.
    """
    sizes = length_values(protocol)
    symbols = SymbolTable(sizes)
    is_vocab_bound = depends_on_vocab(block, protocol, lambda leaf: leaf.loop_nests())
    crossings = []
    for length in (name for name in lengths if name != "vocab" or not is_vocab_bound):
        held = {name: size for name, size in sizes.items() if name not in LENGTH_SYMBOLS[length]}
        # The context of a decoder-only model has no separate source if both vary.
        varied = replace(protocol, has_prompt=protocol.has_prompt and length != "length")
        symbolic = SymbolicProtocol.from_protocol(varied, symbols)
        try:
            breakdown = evaluate_cost(block, symbolic)
        except NotPolynomialError:
            return CostCrossings()
        attention = attention_product_macs(block, symbolic)
        macs = {OUTPUT: breakdown["macs.output"],
                LAYERS: breakdown["macs.encoder"] + breakdown["macs.decoder"],
                ATTENTION: attention, REST: breakdown["macs.total"] - attention}
        for part, other in PAIRS_BY_LENGTH.get(length, DEFAULT_PAIRS):
            difference = symbols.to_formula(macs[part] - macs[other])
            # Coefficient by power, if all lengths that vary are equal.
            powers: dict[int, Fraction] = defaultdict(Fraction)
            for names, factor in difference.terms.items():
                powers[sum(name not in held for name in names)] += factor * math.prod(
                    held.get(name, 1) for name in names)
            coefficients = [powers[power] for power in range(max(powers, default=0) + 1)]
            ranges = tuple(positive_ranges(coefficients))
            crossings.append(CostCrossing(length, part, other, ranges, held))
    return CostCrossings(crossings)


def positive_ranges(coefficients: Sequence[Fraction]) -> Iterator[Range]:
    """Ranges of integers from 1 for which a polynomial is positive.

    Args:
        coefficients: coefficients of the polynomial, from power 0.
    """
    from sympy import QQ, Poly, Symbol, ceiling, floor

    poly = Poly([QQ(factor.numerator, factor.denominator) for factor in reversed(coefficients)]
                or [0], Symbol("n"), domain=QQ)
    roots = poly.intervals(eps=QQ(1, 2)) if poly.degree() > 0 else []
    near_roots = {n for (low, high), _ in roots
                  for n in range(int(floor(low)), int(ceiling(high)) + 2) if n > 1}
    sign_changes = [n for n in sorted(near_roots) if (poly.eval(n) > 0) != (poly.eval(n - 1) > 0)]
    starts = [1, *sign_changes]
    for low, next_start in itertools.zip_longest(starts, sign_changes):
        if poly.eval(low) > 0:
            yield low, None if next_start is None else next_start - 1
