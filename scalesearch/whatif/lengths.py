"""A protocol's extents as polynomials in its lengths: S source tokens, T target tokens, V words.

An extent is a sum over passes of a product of lengths, so it is a polynomial in S and T of small degree: it is read
off exact values at small lengths (Newton's divided differences) and checked at others.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import lru_cache

from scalesearch.blocks.core import VOCAB, Axis
from scalesearch.cost import find_protocol
from scalesearch.whatif.formula import Formula

S, T, V = "S", "T", "V"
CHECKED = ((7, 11), (12, 5))  # lengths at which a polynomial is compared with the protocol


@lru_cache(maxsize=4096)
def extent_of(protocol: str, axes: tuple[Axis, ...]) -> Formula:
    """The extent of ``axes`` (sorted) under the protocol of this name, for lengths of at least 1."""
    inner = tuple(axis for axis in axes if axis != VOCAB)
    degree = len(inner) + 1  # one more than the passes' own, for the sum over passes

    def at(source: int, target: int) -> int:
        return find_protocol(protocol, source, target, 1).extent(inner)

    rows = [newton([at(s, t) for t in range(1, degree + 2)], T) for s in range(1, degree + 2)]
    keys = {key for row in rows for key in row.terms}
    total = Formula({})
    for key in sorted(keys):
        column = newton([row.terms.get(key, Fraction(0)) for row in rows], S)
        total = total + column * Formula({key: Fraction(1)})
    for s, t in CHECKED:
        if total.at({S: s, T: t}) != at(s, t):
            raise ArithmeticError(f"protocol {protocol}: {axes} is no polynomial in the lengths")
    return total * Formula.of([((V,) * (len(axes) - len(inner)), 1)])


def newton(values: list[int] | list[Fraction], name: str) -> Formula:
    """The polynomial in ``name`` that has these values at 1, 2, 3, …"""
    differences, total, basis = [Fraction(value) for value in values], Formula({}), Formula({(): Fraction(1)})
    for order in range(len(values)):
        total = total + basis * differences[0]
        differences = [b - a for a, b in itertools.pairwise(differences)]
        basis = basis * (Formula.name(name) - (order + 1)) * Fraction(1, order + 1)
    return total
