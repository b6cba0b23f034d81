"""Costs of several language models over the length of the context, and where they cross.

Attention in a window of w tokens costs min(n, w) per token. A cost is therefore a polynomial in the
length n between two neighboring windows of the architectures. These polynomials are interpolated
from exact costs and checked at another length, so crossings are exact integers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from scalesearch.blocks.core import Block, iterate_cost_lines
from scalesearch.blocks.seq2seq import EncoderOnly
from scalesearch.cost import CostBreakdown, Protocol, evaluate_cost
from scalesearch.errors import UserError
from scalesearch.whatif.crossings import Range, positive_ranges
from scalesearch.whatif.formulas import NotPolynomialError, lagrange_basis

if TYPE_CHECKING:
    import pandas as pd

CONTEXT_COLUMNS = ("macs.prefill", "macs.decode_step", "memory.cache")
N_POINTS = 4  # costs are at most cubic in the length


@dataclass(frozen=True)
class ContextCrossing:
    """Lengths for which one architecture has a lower cost than another.

    Attributes:
        cost: one of ``CONTEXT_COLUMNS``.
        lower, higher: names of the architectures.
        ranges: ranges of these lengths; without an end if the last one is None.
    """

    cost: str
    lower: str
    higher: str
    ranges: tuple[Range, ...]

    def __str__(self) -> str:
        spans = [f"from {low:,}" if high is None else f"from {low:,} to {high:,}"
                 for low, high in self.ranges]
        where = ("for every length" if self.ranges == ((1, None),)
                 else f"{' and '.join(spans)} tokens")
        return f"{self.cost}: {self.lower} < {self.higher} {where}"


@dataclass(frozen=True)
class ContextComparison:
    """Costs of architectures by the length of the context.

    Attributes:
        names: names of the architectures.
        rows: length, name and costs.
        crossings: for each cost and pair of architectures with a lower cost at some length.
        protocol: cost protocol, without the length.
    """

    names: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    crossings: tuple[ContextCrossing, ...]
    protocol: Protocol

    def frame(self) -> pd.DataFrame:
        """Data frame with a row per length and architecture."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=["length", "name", *CONTEXT_COLUMNS])


def compare_contexts(blocks: Mapping[str, tuple[Block, Protocol]],
                     lengths: Sequence[int]) -> ContextComparison:
    """Compare costs over the length of the context.

    Args:
        blocks: name to block and protocol with its vocabulary.
        lengths: lengths of the table.

    Raises:
        UserError: an architecture has no decoder.
        NotPolynomialError: a cost is not a polynomial of the length between two windows.
    """
    for name, (block, _) in blocks.items():
        if isinstance(block, EncoderOnly):
            raise UserError(f"{name}: an encoder-only model has no decoding steps to compare",
                            code="no-decoder")

    @cache
    def evaluate(name: str, length: int) -> CostBreakdown:
        block, protocol = blocks[name]
        return evaluate_cost(block, protocol.with_lengths(length, length, protocol.vocab, length))

    rows = [{"length": n, "name": name,
             **{cost: evaluate(name, n)[cost] for cost in CONTEXT_COLUMNS}}
            for n in lengths for name in blocks]
    axes = {axis for block, protocol in blocks.values()
            for line in iterate_cost_lines(block, vocab=protocol.shared_vocab)
            for work in line.loop_nests for axis in work.loops if isinstance(axis, str)}
    limits = [int(axis.partition("<=")[2]) for axis in axes if "<=" in axis]  # of windows
    starts = sorted({1, *(limit for limit in limits if limit)})  # a window of 1 has no cache
    segments = list(zip(starts, [*starts[1:], None]))
    crossings = []
    for cost in CONTEXT_COLUMNS:
        polynomials = {name: [_segment_polynomial(partial(evaluate, name), cost, *segment)
                              for segment in segments] for name in blocks}
        for lower, higher in itertools.permutations(blocks, 2):
            ranges: list[Range] = []
            for segment, first, second in zip(segments, polynomials[lower], polynomials[higher]):
                difference = [b - a for a, b in zip(first, second)]
                ranges += _clip(positive_ranges(difference), *segment)
            if ranges:
                crossings.append(ContextCrossing(cost, lower, higher, _merge(ranges)))
    protocol = next(iter(blocks.values()))[1]
    return ContextComparison(tuple(blocks), tuple(rows), tuple(crossings), protocol)


def _segment_polynomial(evaluate: Callable[[int], CostBreakdown], cost: str, low: int,
                        high: int | None) -> list[Fraction]:
    """Coefficients, from power 0, of a cost from length ``low`` to ``high``."""
    n_points = N_POINTS if high is None else min(N_POINTS, high - low + 1)
    points = range(low, low + n_points)
    values = np.array([Fraction(evaluate(n)[cost]) for n in points])
    coefficients = (lagrange_basis(points).T @ values).tolist()
    check = 2 * low + 9 if high is None else high
    expected = sum(factor * check**power for power, factor in enumerate(coefficients))
    if expected != evaluate(check)[cost]:
        raise NotPolynomialError(f"the cost is not a polynomial of the length from {low:,} tokens",
                                 help="sweep single architectures instead")
    return [*coefficients, *[Fraction(0)] * (N_POINTS - n_points)]


def _clip(ranges: Iterable[Range], low: int, high: int | None) -> Iterator[Range]:
    """Parts of the ranges from ``low`` to ``high``."""
    for start, end in ranges:
        ends = [bound for bound in (end, high) if bound is not None]
        first, last = max(start, low), min(ends, default=None)
        if last is None or first <= last:
            yield first, last


def _merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Join ranges that overlap or touch, in ascending order."""
    merged: list[Range] = []
    for low, high in ranges:
        if merged and merged[-1][1] is not None and low <= merged[-1][1] + 1:
            low = merged.pop()[0]
        merged.append((low, high))
    return tuple(merged)
