"""Polynomials over columns: sizes of all candidates of a population at once.

Blocks compute costs from sizes by sums and products. The cost of a population is therefore a
polynomial in the columns of the population. It has few monomials, independent of the number of
layers, and NumPy evaluates it chunk by chunk. The result of any other operation, for example a
minimum, becomes a new column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.sizes import decide
from scalesearch.errors import UserError

Monomial = tuple[int, ...]  # sorted columns of a monomial; a column is repeated by its power
CHUNK_ROWS = 8192  # rows per chunk: products of a chunk stay in the processor's cache
INT64_MAX = 2**63 - 1


class CostOverflowError(UserError):
    """Raised if a cost of a population may exceed 64 bits."""

    code = "too-large"


class PopulationColumns:
    """Columns of a population: one array of values per size, one row per candidate."""

    def __init__(self, num_candidates: int) -> None:
        self.num_candidates = num_candidates
        self.arrays: list[NDArray[np.int64]] = []
        self.names: list[str] = []
        self.memo: dict[Any, Any] = {}  # results of sizes.memoize
        self._index: dict[int, int] = {}
        self._max_abs: dict[int, int] = {}

    def variable(self, array: NDArray[np.int64], name: str = "") -> Polynomial:
        """Return the column of ``array`` as a polynomial; equal objects are one column."""
        if id(array) not in self._index:
            self._index[id(array)] = len(self.arrays)
            self.arrays.append(array)
            self.names.append(name or f"x{len(self.names)}")
        return Polynomial(self, {(self._index[id(array)],): 1})

    def evaluate(self, polys: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Evaluate polynomials exactly, to one array each.

        Args:
            polys: polynomials, numbers or arrays by name.

        Raises:
            CostOverflowError: a number, or the sum of the absolute terms, may exceed 64 bits.
        """
        for name, number in polys.items():
            if isinstance(number, int):
                self._check(name, Polynomial(self, {(): number}))
        arrays = {name: np.empty(self.num_candidates, np.int64)
                  for name, p in polys.items() if isinstance(p, Polynomial)}
        for name in arrays:
            self._check(name, polys[name])
        for start in range(0, self.num_candidates, CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            products: dict[Monomial, NDArray[np.int64]] = {}
            for name, array in arrays.items():
                array[part] = self._sum(polys[name], part, products)
        return {name: arrays[name] if name in arrays else np.broadcast_to(p, self.num_candidates)
                for name, p in polys.items()}

    def _sum(self, poly: Polynomial, part: slice,
             products: dict[Monomial, NDArray[np.int64]]) -> Any:
        total: Any = poly.terms.get((), 0)
        for key, factor in poly.terms.items():
            if key:
                total = total + factor * self._product(key, part, products)
        return total

    def _product(self, key: Monomial, part: slice,
                 products: dict[Monomial, NDArray[np.int64]]) -> NDArray[np.int64]:
        if key not in products:
            last = self.arrays[key[-1]][part]
            products[key] = last if len(key) == 1 else self._product(
                key[:-1], part, products) * last
        return products[key]

    def _check(self, name: str, poly: Polynomial) -> None:
        """Check that the sum of the absolute terms fits into 64 bits."""
        bound = 0
        for key, factor in poly.terms.items():
            product = abs(factor)
            for column in key:
                product *= self.max_abs(column)
            bound += product
        if bound > INT64_MAX:
            raise CostOverflowError(f"{name} may be up to {bound:.3g}, which exceeds 64 bits; "
                                    "use smaller sizes, lengths or vocabularies")

    def max_abs(self, column: int) -> int:
        """Return the largest absolute value of a column."""
        if column not in self._max_abs:
            array = self.arrays[column]
            self._max_abs[column] = max(abs(int(array.max())),
                                        abs(int(array.min()))) if len(array) else 0
        return self._max_abs[column]


class ElementwiseCondition(np.ndarray[Any, Any]):
    """A condition per candidate; its truth value must be equal for all candidates."""

    def __bool__(self) -> bool:
        return bool(self.item()) if self.ndim == 0 else decide(self != 0)


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda poly, other: compare(poly.values(), to_array(other)).view(ElementwiseCondition)


class Polynomial:
    """A polynomial with integer coefficients over the columns of one population."""

    __slots__ = ("columns", "terms")
    __array_ufunc__ = None  # arithmetic between an array and a polynomial is defined here
    dtype = np.dtype(np.int64)

    def __init__(self, columns: PopulationColumns, terms: dict[Monomial, int]) -> None:
        self.columns = columns
        self.terms = terms

    def values(self) -> NDArray[np.int64]:
        """Return one value per candidate."""
        return self.columns.evaluate({"a size": self})["a size"]

    def _as_polynomial(self, x: Any) -> Polynomial | None:
        """Return ``x`` as a polynomial over the same columns; None if it is not integer."""
        if isinstance(x, Polynomial):
            return x
        if isinstance(x, int | np.integer):
            return Polynomial(self.columns, {(): int(x)} if x else {})
        if isinstance(x, np.ndarray) and np.issubdtype(x.dtype, np.integer):
            return self.columns.variable(x)
        return None

    def __add__(self, other: Any) -> Any:
        if isinstance(other, int):
            return Polynomial(self.columns,
                              {**self.terms, (): self.terms.get((), 0) + other}) if other else self
        right = self._as_polynomial(other)
        if right is None:
            return self.values() + other
        terms = dict(self.terms)
        for key, factor in right.terms.items():
            terms[key] = terms.get(key, 0) + factor
        return Polynomial(self.columns, terms)

    __radd__ = __add__

    def __neg__(self) -> Polynomial:
        return Polynomial(self.columns, {key: -factor for key, factor in self.terms.items()})

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int):
            return Polynomial(self.columns,
                              {key: factor * other for key, factor in self.terms.items()} if other
                              else {})
        right = self._as_polynomial(other)
        if right is None:
            return self.values() * other
        terms: dict[Monomial, int] = {}
        for left_key, left_factor in self.terms.items():
            for right_key, right_factor in right.terms.items():
                key = tuple(sorted(left_key + right_key))
                terms[key] = terms.get(key, 0) + left_factor * right_factor
        return Polynomial(self.columns, terms)

    __rmul__ = __mul__

    def __pow__(self, power: int) -> Any:
        result: Any = 1
        for _ in range(power):
            result = self * result
        return result

    def __floordiv__(self, other: Any) -> Any:
        right = self._as_polynomial(other)
        if right is None:
            return self.values() // other
        exact = _divide_exactly(self, right)
        return exact if exact is not None else self.columns.variable(
            self.values() // right.values())

    def __rfloordiv__(self, other: Any) -> Any:
        return self.columns.variable(other // self.values())

    def __mod__(self, other: Any) -> Any:
        right = self._as_polynomial(other)
        assert right is not None
        if _divide_exactly(self, right) is not None:
            return 0
        return (self.values() % right.values()).view(ElementwiseCondition)

    def __rmod__(self, other: Any) -> Any:
        return (other % self.values()).view(ElementwiseCondition)

    def __truediv__(self, other: Any) -> Any:
        return self.values() / to_array(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.values()

    __lt__ = _comparison(np.less)
    __le__ = _comparison(np.less_equal)
    __gt__ = _comparison(np.greater)
    __ge__ = _comparison(np.greater_equal)
    __eq__ = _comparison(np.equal)
    __ne__ = _comparison(np.not_equal)
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return decide(self.values() != 0)

    def __str__(self) -> str:
        ordered = sorted(self.terms.items(), key=lambda item: (-len(item[0]), item[0]))
        terms = [_term(self.columns.names, key, factor) for key, factor in ordered if factor]
        return " + ".join(terms).replace("+ -", "- ") or "0"


def to_array(x: Any) -> Any:
    """Return the values of a polynomial; return other values unchanged."""
    return x.values() if isinstance(x, Polynomial) else x


def _divide_exactly(left: Polynomial, right: Polynomial) -> Polynomial | None:
    """Return ``left / right`` if ``right`` is one term that divides ``left``.

    It must divide all terms of ``left``.
    """
    if len(right.terms) != 1:
        return None
    ((divisor, factor),) = right.terms.items()
    divisor_powers = Counter(divisor)
    terms = {}
    for key, coefficient in left.terms.items():
        powers = Counter(key)
        if coefficient % factor or not divisor_powers <= powers:
            return None
        terms[tuple(sorted((powers - divisor_powers).elements()))] = coefficient // factor
    return Polynomial(left.columns, terms)


def _term(names: list[str], key: Monomial, factor: int) -> str:
    powers: Iterable[tuple[str, int]] = {names[column]: key.count(column) for column in key}.items()
    factors = [name if power == 1 else f"{name}^{power}" for name, power in powers]
    return " * ".join(([] if factor == 1 and factors else [f"{factor:,}"]) + factors)
