"""Formulas: polynomials in named sizes and lengths with exact coefficients.

Notation: S and T are the source and target length, V is the size of the vocabulary. An extent of a
protocol is a sum over passes of a product of lengths, and so a polynomial in S and T. It is
interpolated from exact values at small lengths, and checked at other lengths.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polymul
from numpy.typing import NDArray

from scalesearch.blocks.core import VOCAB, Axis, Block, iterate_cost_lines
from scalesearch.blocks.polynomial import Polynomial, PopulationColumns
from scalesearch.blocks.sizes import evaluate_size
from scalesearch.cost import find_protocol
from scalesearch.cost.protocol import PROTOCOLS, Protocol
from scalesearch.errors import UserError

S = "S"
T = "T"
V = "V"
CHECK_LENGTHS = ((7, 11), (12, 5))  # (S, T) at which an interpolated extent is checked
Monomial = tuple[str, ...]  # sorted names, repeated according to their power


# -- formulas


@dataclass(frozen=True)
class Formula:
    """Polynomial with rational coefficients, as monomial to non-zero coefficient."""

    terms: Mapping[Monomial, Fraction]

    @classmethod
    def of(cls, terms: Iterable[tuple[Iterable[str], Any]]) -> Formula:
        """Add (names, coefficient) pairs."""
        sums: dict[Monomial, Fraction] = defaultdict(Fraction)
        for names, factor in terms:
            sums[tuple(sorted(names))] += Fraction(factor)
        return cls({key: factor for key, factor in sums.items() if factor})

    @property
    def names(self) -> set[str]:
        """All names in the formula."""
        return {name for key in self.terms for name in key}

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Evaluate the formula, which must have an integer value.

        Raises:
            ValueError: the value is not an integer.
        """
        terms = (factor * math.prod(values[name] for name in key)
                 for key, factor in self.terms.items())
        total = sum(terms, Fraction(0))
        if total.denominator != 1:
            raise ValueError(f"{total} is not an integer")
        return int(total)

    def to_factored_text(
            self, outer: Callable[[str], bool] = lambda name: name.endswith(".depth")) -> str:
        """Format with names that ``outer`` selects (depths) in front of brackets."""
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


def _factored_term(head: Monomial, terms: dict[Monomial, Fraction]) -> str:
    """Format ``head * (terms)``, with common factors of the terms in front."""
    if not head:
        return str(Formula(terms))
    shared = sorted(set.intersection(*map(set, terms)))
    common = tuple(name for name in shared for _ in range(min(key.count(name) for key in terms)))
    inner = {tuple((Counter(key) - Counter(common)).elements()): factor
             for key, factor in terms.items()}
    outer = [*_powers(head), *_powers(common)]
    if len(inner) == 1:
        return _term(next(iter(inner.values())), outer)
    divisor = Fraction(math.gcd(*(factor.numerator for factor in inner.values())),
                       math.lcm(*(factor.denominator for factor in inner.values())))
    divided = Formula({key: factor / divisor for key, factor in inner.items()})
    return f"{_term(divisor, outer)} * ({divided})"


def _powers(key: Monomial) -> list[str]:
    return [name if key.count(name) == 1 else f"{name}^{key.count(name)}"
            for name in dict.fromkeys(key)]


def _term(factor: Fraction, names: list[str]) -> str:
    """Format a term, for example ``4 * width^2`` or ``1/2 * T^2``."""
    if factor == -1 and names:
        return "-" + " * ".join(names)
    number = f"{factor.numerator:,}" + (f"/{factor.denominator}" if factor.denominator != 1 else "")
    return " * ".join(([] if factor == 1 and names else [number]) + names)


# -- symbolic costs


class NotPolynomialError(UserError):
    """Raised if a cost is not a polynomial in the lengths."""

    code = "not-a-polynomial"


def lagrange_basis(points: Sequence[int]) -> NDArray[Any]:
    """Coefficients, from power 0, of the polynomials that are 1 at one of the points, 0 at others.

    Row k of the matrix belongs to point k.
    """
    return np.array([reduce(polymul,
                            [np.array([Fraction(-m, k - m), Fraction(1, k - m)])
                             for m in points if m != k], np.array([Fraction(1)]))
                     for k in points])


@lru_cache(maxsize=4096)
def extent_formula(protocol: str, axes: tuple[Axis, ...], has_prompt: bool = True) -> Formula:
    """Formula of the extent of sorted ``axes`` for lengths of at least 1.

    It is interpolated by Lagrange polynomials at the points 1, 2, … for S and T.

    Raises:
        NotPolynomialError: an axis is bounded, by the window of an attention.
    """
    if any("<=" in axis for axis in axes):
        raise NotPolynomialError("costs of attention with a window have no formula in the lengths",
                                 help="set window to 0 for texts that are shorter than the window")
    inner = tuple(axis for axis in axes if axis != VOCAB)
    # The sum over passes increases the degree of each pass by one.
    points = range(1, len(inner) + 3)

    def extent(source: int, target: int) -> int:
        passes = PROTOCOLS[protocol].passes(source, target, source if has_prompt else 0)
        return replace(find_protocol(protocol, source, target, 1), passes=passes).extent(inner)

    table = np.array([[extent(s, t) for t in points] for s in points], dtype=object)
    lagrange = lagrange_basis(points)
    factors = lagrange.T @ table @ lagrange
    polynomial = Formula.of(((S,) * s + (T,) * t, factor)
                            for (s, t), factor in np.ndenumerate(factors))
    if any(polynomial.evaluate({S: s, T: t}) != extent(s, t) for s, t in CHECK_LENGTHS):
        raise ArithmeticError(f"protocol {protocol}: {axes} is not a polynomial in the lengths")
    return Formula.of(((*key, *(V,) * (len(axes) - len(inner))), factor)
                      for key, factor in polynomial.terms.items())


class SymbolTable:
    """Named sizes of one candidate, and conversion of its polynomials to formulas.

    Attributes:
        sizes: name to polynomial.
        numbers: numbers in formulas that replace columns without a name.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        self.columns = PopulationColumns(1)
        self.values = dict(values)
        self.sizes = {name: self.columns.variable(np.array([value], np.int64), name)
                      for name, value in values.items()}
        self.numbers: set[int] = set()

    def to_poly(self, formula: Formula) -> Polynomial:
        """Convert a formula to a size."""
        columns = {name: index for index, name in enumerate(self.sizes)}
        terms = {tuple(sorted(columns[name] for name in key)): factor
                 for key, factor in formula.terms.items()}
        return Polynomial(self.columns, terms)  # type: ignore[arg-type]  # rational coefficients

    def to_formula(self, size: Any) -> Formula:
        """Convert a size to a formula; columns without a name become numbers."""
        if isinstance(size, np.ndarray):
            size = self.columns.variable(size)
        if not isinstance(size, Polynomial):
            return Formula.of([((), int(evaluate_size(size)))])
        terms = []
        for key, factor in size.terms.items():
            numbers = [int(self.columns.arrays[column][0])
                       for column in key if column >= len(self.sizes)]
            self.numbers.update(numbers)
            names = [self.columns.names[column] for column in key if column < len(self.sizes)]
            terms.append((names, factor * math.prod(numbers)))
        return Formula.of(terms)


@dataclass(frozen=True)
class SymbolicProtocol(Protocol):
    """Protocol with polynomials in S, T and V as extents; ``symbols`` has these names."""

    symbols: SymbolTable = field(default_factory=lambda: SymbolTable({}), repr=False)

    @classmethod
    def from_protocol(cls, protocol: Protocol, symbols: SymbolTable) -> SymbolicProtocol:
        """Make a protocol with symbols for the lengths of ``protocol``."""
        sizes = protocol.name, protocol.source, protocol.target, protocol.vocab
        return cls(*sizes, protocol.passes, protocol.work_weights, protocol.has_prompt,
                   shortlist=protocol.shortlist, symbols=symbols)

    @property
    def length(self) -> None:
        """None: prefill and decoding step have passes of their own, which have no formula."""

    def extent(self, axes: tuple[Axis, ...]) -> Any:
        return self.symbols.to_poly(extent_formula(self.name, axes, self.has_prompt))

    @property
    def vocab_size(self) -> Any:
        return self.symbols.sizes[V]


def length_values(protocol: Protocol) -> dict[str, int]:
    """Lengths of a protocol by their names in formulas."""
    return {S: protocol.source, T: protocol.target, V: protocol.vocab}


def depends_on_vocab(block: Block, protocol: Protocol,
                     part: Callable[[Block], Any] = lambda leaf: leaf) -> bool:
    """Whether ``part`` of a leaf block depends on V other than by vocabulary axes."""
    single, double = ([part(line.block)
                       for line in iterate_cost_lines(block, vocab=factor * protocol.vocab)]
                      for factor in (1, 2))
    return single != double
