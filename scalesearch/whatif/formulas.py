"""Formulas: polynomials in named sizes and lengths, with exact fractions, and the protocol that yields them.

An extent is a sum over passes of a product of lengths, so it is a polynomial in S and T: it is
interpolated from exact values at small lengths and checked at others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polymul

from scalesearch.blocks.core import VOCAB, Axis, Block, iterate_cost_lines
from scalesearch.blocks.polynomial import Polynomial, PopulationColumns
from scalesearch.blocks.sizes import evaluate_size
from scalesearch.cost import find_protocol
from scalesearch.cost.protocol import Protocol

S = "S"
T = "T"
V = "V"
# lengths at which an interpolated extent is compared with the protocol's
CHECK_LENGTHS = ((7, 11), (12, 5))
Monomial = tuple[str, ...]  # names, sorted, each as often as its power


# -- formulas


@dataclass(frozen=True)
class Formula:
    """Polynomial with rational coefficients: monomial to its factor, none of which is 0."""

    terms: Mapping[Monomial, Fraction]

    @classmethod
    def of(cls, terms: Iterable[tuple[Iterable[str], Any]]) -> Formula:
        """The sum of (names, factor) pairs."""
        sums: dict[Monomial, Fraction] = defaultdict(Fraction)
        for names, factor in terms:
            sums[tuple(sorted(names))] += Fraction(factor)
        return cls({key: factor for key, factor in sums.items() if factor})

    @property
    def names(self) -> set[str]:
        """Every name in it."""
        return {name for key in self.terms for name in key}

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Its value, an exact whole number. Raises ValueError where it is none."""
        terms = (factor * math.prod(values[name] for name in key)
                 for key, factor in self.terms.items())
        total = sum(terms, Fraction(0))
        if total.denominator != 1:
            raise ValueError(f"{total} is no whole number")
        return int(total)

    def to_factored_text(
            self, outer: Callable[[str], bool] = lambda name: name.endswith(".depth")) -> str:
        """The text, with the names that ``outer`` picks (depths) in front of brackets."""
        groups: dict[Monomial, dict[Monomial, Fraction]] = {}
        for key, factor in self.terms.items():
            head = tuple(name for name in key if outer(name))
            groups.setdefault(head, {})[tuple(name for name in key if not outer(name))] = factor
        return _sum(_factored_term(head, groups[head]) for head in sorted(groups, key=_order))

    def __str__(self) -> str:
        return _sum(_term(self.terms[key], _powers(key)) for key in sorted(self.terms, key=_order))


def _sum(terms: Iterable[str]) -> str:
    return " + ".join(terms).replace("+ -", "- ") or "0"


def _order(key: Monomial) -> tuple[int, Monomial]:
    return -len(key), key


def _factored_term(head: Monomial, rest: dict[Monomial, Fraction]) -> str:
    """``head * (rest)``, with what divides every term of the rest in front."""
    if not head:
        return str(Formula(rest))
    shared = sorted(set.intersection(*map(set, rest)))
    common = tuple(name for name in shared for _ in range(min(key.count(name) for key in rest)))
    inner = {_remove_names(key, common): factor for key, factor in rest.items()}
    outside = [*_powers(head), *_powers(common)]
    if len(inner) == 1:
        return _term(next(iter(inner.values())), outside)
    factors = list(inner.values())
    share = Fraction(math.gcd(*(f.numerator for f in factors)),
                     math.lcm(*(f.denominator for f in factors)))
    return (f"{_term(share, outside)} * "
            f"({Formula({key: factor / share for key, factor in inner.items()})})")


def _remove_names(key: Monomial, names: Iterable[str]) -> Monomial:
    left = list(key)
    for name in names:
        left.remove(name)
    return tuple(left)


def _powers(key: Monomial) -> list[str]:
    return [name if key.count(name) == 1 else f"{name}^{key.count(name)}"
            for name in dict.fromkeys(key)]


def _term(factor: Fraction, names: list[str]) -> str:
    """``4 * width^2``; fractions as ``1/2 * T^2``."""
    if factor == -1 and names:
        return "-" + " * ".join(names)
    number = f"{factor.numerator:,}" + (f"/{factor.denominator}" if factor.denominator != 1 else "")
    return " * ".join(([] if factor == 1 and names else [number]) + names)


# -- symbolic costs


@lru_cache(maxsize=4096)
def extent_formula(protocol: str, axes: tuple[Axis, ...]) -> Formula:
    """The extent of ``axes`` (sorted) under the protocol of this name, for lengths of at least 1."""
    inner = tuple(axis for axis in axes if axis != VOCAB)
    # the degree is one more than a pass's own, for the sum over passes
    points = range(1, len(inner) + 3)

    def at(source: int, target: int) -> int:
        return find_protocol(protocol, source, target, 1).extent(inner)

    table = np.array([[at(s, t) for t in points] for s in points], dtype=object)
    # of each point its polynomial that is 1 there and 0 at the others, from power 0 upwards
    lagrange = np.array([reduce(polymul,
                                [np.array([Fraction(-m, k - m), Fraction(1, k - m)])
                                 for m in points if m != k]) for k in points])
    factors = lagrange.T @ table @ lagrange
    polynomial = Formula.of(((S,) * s + (T,) * t, factor)
                            for (s, t), factor in np.ndenumerate(factors))
    if any(polynomial.evaluate({S: s, T: t}) != at(s, t) for s, t in CHECK_LENGTHS):
        raise ArithmeticError(f"protocol {protocol}: {axes} is no polynomial in the lengths")
    return Formula.of(((*key, *(V,) * (len(axes) - len(inner))), factor)
                      for key, factor in polynomial.terms.items())


class SymbolTable:
    """Columns of one candidate of which some have names, and its polynomials as formulas of these."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.columns = PopulationColumns(1)
        self.values = dict(values)
        self.sizes = {name: self.columns.variable(np.array([value], np.int64), name)
                      for name, value in values.items()}
        self.numbers: set[int] = set()  # what stands in formulas for columns without a name

    def to_poly(self, formula: Formula) -> Polynomial:
        """The formula as a size."""
        at = {name: index for index, name in enumerate(self.sizes)}
        return Polynomial(self.columns, {tuple(sorted(at[n] for n in key)): f for key, f in formula.terms.items()})  # type: ignore[misc]

    def to_formula(self, size: Any) -> Formula:
        """A size as a formula; a column without a name is the number that it holds."""
        if isinstance(size, np.ndarray):
            size = self.columns.variable(size)
        if not isinstance(size, Polynomial):
            return Formula.of([((), int(evaluate_size(size)))])
        return Formula.of(self._monomial(key, factor) for key, factor in size.terms.items())

    def _monomial(self, key: tuple[int, ...], factor: int) -> tuple[list[str], int]:
        numbers = [int(self.columns.arrays[column][0])
                   for column in key if column >= len(self.sizes)]
        self.numbers.update(numbers)
        factor *= math.prod(numbers)
        return [self.columns.names[column] for column in key if column < len(self.sizes)], factor


@dataclass(frozen=True)
class SymbolicProtocol(Protocol):
    """Protocol whose extents are polynomials in S, T and V, of :class:`SymbolTable` that have these names."""

    symbols: SymbolTable = field(default_factory=lambda: SymbolTable({}), repr=False)

    @classmethod
    def from_protocol(cls, protocol: Protocol, symbols: SymbolTable) -> SymbolicProtocol:
        """``protocol`` with symbols for its lengths."""
        sizes = protocol.name, protocol.source, protocol.target, protocol.vocab
        return cls(*sizes, protocol.passes, protocol.work_weights, symbols=symbols)

    def extent(self, axes: tuple[Axis, ...]) -> Any:
        return self.symbols.to_poly(extent_formula(self.name, axes))

    @property
    def vocab_size(self) -> Any:
        return self.symbols.sizes[V]


def length_values(protocol: Protocol) -> dict[str, int]:
    """The protocol's lengths by the names that formulas have for them."""
    return {S: protocol.source, T: protocol.target, V: protocol.vocab}


def depends_on_vocab(block: Block, protocol: Protocol,
                     part: Callable[[Block], Any] = lambda leaf: leaf) -> bool:
    """Whether ``part`` of any leaf, besides axes over the vocabulary, changes with the vocabulary's size."""
    one, two = ([part(line.block)
                 for line in iterate_cost_lines(block, vocab=factor * protocol.vocab)]
                for factor in (1, 2))
    return one != two
