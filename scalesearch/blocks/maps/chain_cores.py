"""Shapes, costs and contractions of tensor chains (Anthe, section 3 and appendix).

A tensor chain (matrix product operator) represents a matrix W with A rows and C columns.

Notation:

- a₁ … aₙ: factors of A; c₁ … cₙ: factors of C;
- b: the bond, the extent between neighboring cores; b₀ = bₙ = 1 at the ends, all others are b;
- core k: tensor (bₖ₋₁, aₖ, cₖ, bₖ).

W[(i₁ … iₙ), (o₁ … oₙ)], with row-major indices, is the product over k of the matrices
core k[:, iₖ, oₖ, :].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Block, Shape, Size, block
from scalesearch.blocks.sizes import (
    is_array,
    map_values,
    maximum,
    memoize,
    minimum,
    select_where,
    size_key,
    square_root,
)

if TYPE_CHECKING:
    from torch import Tensor


@lru_cache(maxsize=4096)
def split_factors(n: int, length: int) -> tuple[int, ...]:
    """Return ``length`` factors of ``n`` as in the released code of Anthe.

    The released code has no rule for primes; here their factors are n, 1, ….

    >>> split_factors(512, 2), split_factors(1365, 3), split_factors(32000, 4)
    ((32, 16), (3, 35, 13), (20, 20, 20, 4))
    """
    primes = prime_factors(n)
    if length == 3:
        twos = primes.count(2)
        odd = primes[twos:]
        if twos == 0:
            return (1, n, 1) if len(odd) <= 1 else (odd[0], math.prod(odd[1:-1]), odd[-1])
        if not odd:
            first = 1 << (twos - 1) // 2
            return first, 2, n // (2 * first)
        if twos == 1:
            return (2, n // 2, 1) if len(odd) == 1 else (math.prod(odd[:-1]), 2, odd[-1])
        return 1 << twos // 2, n >> twos, 1 << twos - twos // 2
    if len(primes) <= 1:
        return (n, *[1] * (length - 1))
    if len(primes) <= 3:
        few = {(2, 2): (0, 1), (3, 2): (0, 0, 1), (2, 4): (0, 3), (3, 4): (0, 2, 3)}
        return _distribute_primes(primes, few[len(primes), length], length)
    order = [*range(length), *reversed(range(length))]
    return _distribute_primes(primes, [order[i % (2 * length)] for i in range(len(primes))], length)


def prime_factors(n: int) -> list[int]:
    """Return the sorted prime factors of ``n`` with multiplicity."""
    primes = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            primes.append(p)
            n //= p
        p += 1
    return [*primes, n] if n > 1 else primes


def _distribute_primes(primes: Sequence[int], slots: Sequence[int], length: int) -> tuple[int, ...]:
    factors = [1] * length
    for prime, slot in zip(primes, slots):
        factors[slot] *= prime
    return tuple(factors)


@block
class ChainCores(Block):
    """Shapes of the cores of a chain, and costs of contractions.

    Attributes:
        input_factors: a₁ … aₙ.
        output_factors: c₁ … cₙ.
        bond: b.
    """

    input_factors: tuple[Size, ...]
    output_factors: tuple[Size, ...]
    bond: Size

    @staticmethod
    def fit_ratio(rows: Size, columns: Size, ratio: float, length: int, bond: str) -> ChainCores:
        """Return the largest chain with at most ``ratio`` of the weights of a matrix.

        Args:
            rows: A.
            columns: C.
            ratio: weights of the chain relative to A · C. The bond is at least 2.
            length: number of cores.
            bond: one of ``BOND_RULES`` of :mod:`~scalesearch.blocks.maps.tensor_chains`.
        """
        if is_array(rows) or is_array(columns) or is_array(ratio):
            # Many maps have equal shapes, for example the three input maps of attention.
            key_parts = ("cores", size_key(columns), id(ratio), length, bond)
            chain: ChainCores = memoize(rows, key_parts,
                                        lambda: _cores(rows, columns, ratio, length, bond))
            return chain
        return _cached_cores(rows, columns, ratio, length, bond)

    @cached_property
    def bonds(self) -> tuple[Size, ...]:
        """The bonds b₀ … bₙ."""
        return (1, *[self.bond] * (len(self.input_factors) - 1), 1)

    def shapes(self) -> dict[str, Shape]:
        """Return the shapes (bₖ₋₁, aₖ, cₖ, bₖ) of the cores by name."""
        bonds = self.bonds
        return {f"core{i}": (bonds[i], self.input_factors[i], self.output_factors[i], bonds[i + 1])
                for i in range(len(self.input_factors))}

    @cached_property
    def _apply_costs(self) -> list[tuple[Size, Size]]:
        """Return multiply-adds and numbers read of applying the cores.

        The cores are applied from the first or from the last.
        """
        b = self.bonds
        costs = []
        for a, c in ((self.input_factors, self.output_factors),
                     (self.input_factors[::-1], self.output_factors[::-1])):
            inputs = [b[i] * math.prod(c[:i]) * math.prod(a[i:]) for i in range(len(a))]
            costs.append((sum(n * b[i + 1] * c[i] for i, n in enumerate(inputs)), sum(inputs)))
        return costs

    @cached_property
    def applies_from_last(self) -> Any:
        """Whether applying the cores from the last is cheaper; an array for a population."""
        return self._apply_costs[1][0] < self._apply_costs[0][0]

    @cached_property
    def apply_macs(self) -> Size:
        """Multiply-adds of applying the cores to one vector in the cheaper order."""
        cheaper: Size = minimum(self._apply_costs[0][0], self._apply_costs[1][0])
        return cheaper

    @property
    def copies_input(self) -> Any:
        """Whether the core that is applied first reads a copy of the vector.

        It reads the vector itself if its factor of A, or all others, are 1.
        """
        first, *others = self.input_factors
        is_reordered = (first != 1) & (math.prod(others) != 1)
        return select_where(self.applies_from_last, False, is_reordered)

    @cached_property
    def apply_activations(self) -> tuple[Size, Size]:
        """Return the numbers stored for the backward pass: per vector, and once.

        The input of each core is stored, and a copy of the vector if ``copies_input``. From the
        last core, copies of the cores are also stored.
        """
        (_, from_first), (_, from_last) = self._apply_costs
        shapes = self.shapes().values()
        weights = sum(math.prod(shape) for shape in shapes)  # type: ignore[arg-type, misc]
        inputs = math.prod(self.input_factors)
        from_last = from_last - inputs
        from_first = from_first - select_where(self.copies_input, 0, inputs)
        return (select_where(self.applies_from_last, from_last, from_first),
                select_where(self.applies_from_last, weights, 0))

    @cached_property
    def contraction_cost(self) -> tuple[Size, Size]:
        """Return multiply-adds and numbers stored of contracting all cores.

        The order of the contraction is the cheapest.
        """
        return self._contraction_cost(0, len(self.input_factors))

    def _contraction_cost(self, start: int, end: int) -> tuple[Size, Size]:
        """Return multiply-adds and numbers stored of the cores ``start`` to ``end`` - 1."""
        if end - start == 1:
            return 0, 0
        (macs, numbers), *others = (self._split_cost(start, k, end) for k in range(start + 1, end))
        for other_macs, other_numbers in others:
            numbers = select_where(other_macs < macs, other_numbers, numbers)
            macs = minimum(macs, other_macs)
        return macs, numbers

    def _split_cost(self, start: int, k: int, end: int) -> tuple[Size, Size]:
        """Return :meth:`_contraction_cost` if the last contraction is at bond ``k``."""
        size = math.prod(self.input_factors[start:end]) * math.prod(
            self.output_factors[start:end]) * self.bonds[start] * self.bonds[end]
        left_macs, left_numbers = self._contraction_cost(start, k)
        right_macs, right_numbers = self._contraction_cost(k, end)
        macs = left_macs + right_macs + size * self.bonds[k]
        return macs, left_numbers + right_numbers + size

    @cached_property
    def lookup_macs(self) -> Size:
        """Multiply-adds of one row of the matrix, a product of slices of the cores."""
        b = self.bonds
        return sum(math.prod(self.output_factors[: i + 1]) * b[i] * b[i + 1]
                   for i in range(1, len(self.input_factors)))

    @cached_property
    def lookup_activations(self) -> Size:
        """Numbers that one row stores for the backward pass: both factors of each product."""
        b = self.bonds
        c = self.output_factors
        return sum(math.prod(c[:i]) * b[i] + b[i] * c[i] * b[i + 1] for i in range(1, len(c)))

    # Operations. ``cores`` are the weights, (bₖ₋₁, aₖ, cₖ, bₖ) each.

    def matrix(self, cores: Sequence[Any], start: int = 0, end: int | None = None) -> Any:
        """Contract the cores ``start`` to ``end`` (exclusive) in the cheapest order.

        Returns:
            (bond, rows, columns, bond); for all cores (1, A, C, 1).
        """
        end = len(cores) if end is None else end
        if end - start == 1:
            return cores[start]
        macs = [self._split_cost(start, k, end)[0] for k in range(start + 1, end)]
        middle = start + 1 + macs.index(min(macs))
        left = self.matrix(cores, start, middle)
        right = self.matrix(cores, middle, end)
        product = left.flatten(0, 2) @ right.flatten(1, 3)
        # (bond, a, c, a', c', bond)
        product = product.reshape(*left.shape[:3], *right.shape[1:])
        return product.transpose(2, 3).flatten(1, 2).flatten(2, 3)

    def apply(self, cores: Sequence[Any], x: Tensor) -> Tensor:
        """Return x W, (N, A) to (N, C), by applying one core after the other.

        The state is (N, out, bond, in): ``out`` are the columns of the cores that were applied,
        ``in`` the rows of the other cores, both row-major.
        """
        from_last = self.applies_from_last
        state = x[:, None, None]
        for i in reversed(range(len(cores))) if from_last else range(len(cores)):
            core = cores[i]
            a = self.input_factors[i]
            if from_last:
                # (N, in, out, a, bond)
                state = state.unflatten(3, (-1, a)).permute(0, 3, 1, 4, 2)
                matrix = core.permute(1, 3, 0, 2).flatten(2, 3).flatten(0, 1)  # (a · b', b · c)
                y = state.flatten(3, 4) @ matrix  # (N, in, out, b · c)
                # (N, c, out, b, in): the new columns come before the others
                y = y.unflatten(3, (core.shape[0], core.shape[2])).permute(0, 4, 2, 3, 1)
            else:
                # (N, out, in, bond, a)
                state = state.unflatten(3, (a, -1)).permute(0, 1, 4, 2, 3)
                matrix = core.flatten(2, 3).flatten(0, 1)  # (b · a, c · b')
                y = state.flatten(3, 4) @ matrix  # (N, out, in, c · b')
                # (N, out, c, b', in)
                y = y.unflatten(3, (core.shape[2], core.shape[3])).permute(0, 1, 3, 4, 2)
            state = y.flatten(1, 2)
        return state.flatten(1, 3)

    def rows(self, cores: Sequence[Any], index: Tensor) -> Tensor:
        """Return the rows ``index`` (N,) of the matrix, (N, C)."""
        digits = []
        quotient = index
        for a in reversed(self.input_factors):
            digits.append(quotient % a)
            quotient = quotient // a
        digits.reverse()
        # (N, c, bond), because b₀ is 1
        product = cores[0].index_select(1, digits[0]).movedim(1, 0).flatten(1, 2)
        for core, digit in zip(cores[1:], digits[1:]):
            slices = core.index_select(1, digit).movedim(1, 0).flatten(2, 3)  # (N, bond, c · bond')
            product = (product @ slices).unflatten(2, (core.shape[2], core.shape[3])).flatten(1, 2)
        return product.flatten(1, 2)


def _cores(rows: Size, columns: Size, ratio: float, length: int, bond: str) -> ChainCores:
    split = partial(split_factors, length=length)
    a, c = (memoize(size, ("split", length), partial(map_values, size, split))
            for size in (rows, columns))
    ends = a[0] * c[0] + a[-1] * c[-1]
    middle = sum(x * y for x, y in zip(a[1:-1], c[1:-1]))
    target = ratio * rows * columns
    exact: Any
    if length == 2:
        exact = target / ends
    elif length == 4 and bond == "published":
        # The released code divides the square root only, so most bonds are 2.
        exact = square_root(ends**2 + 4 * middle * target) / (2 * middle) - ends
    else:
        exact = (square_root(ends**2 + 4 * middle * target) - ends) / (2 * middle)
    return ChainCores(a, c, maximum(2, exact.astype("int64") if is_array(exact) else int(exact)))


_cached_cores = lru_cache(maxsize=4096)(_cores)
