"""Shapes, costs and contractions of tensor chains.

W[(i₁ … iₙ), (o₁ … oₙ)], both indices row-major, is the product over i of core i, of shape (aᵢ, b,
b, cᵢ) with the outer bonds missing at the two ends. aᵢ are factors of the input's size, cᵢ of the
output's; b is the bond (Anthe, section 3 and appendix; matrix product operators).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
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
    """Factors of ``n``, ``length`` of them, as in Anthe's released code.

    That has no rule for primes: theirs are n, 1 …

    >>> split(512, 2), split(1365, 3), split(32000, 4)
    ((32, 16), (3, 35, 13), (20, 20, 20, 4))
    """
    primes = prime_factors(n)
    if length == 3:
        return _three_factors(n, primes)
    if len(primes) <= 1:
        return (n, *[1] * (length - 1))
    if len(primes) <= 3:
        few = {(2, 2): (0, 1), (3, 2): (0, 0, 1), (2, 4): (0, 3), (3, 4): (0, 2, 3)}
        return _distribute_primes(primes, few[len(primes), length], length)
    order = [*range(length), *reversed(range(length))]
    return _distribute_primes(primes, [order[i % (2 * length)] for i in range(len(primes))], length)


def prime_factors(n: int) -> list[int]:
    """The prime factors of ``n``, from the smallest, with multiplicity."""
    primes = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            primes.append(p)
            n //= p
        p += 1
    return [*primes, n] if n > 1 else primes


def _distribute_primes(primes: Sequence[int], slots: Sequence[int], length: int) -> tuple[int, ...]:
    dealt = [1] * length
    for prime, slot in zip(primes, slots):
        dealt[slot] *= prime
    return tuple(dealt)


def _three_factors(n: int, primes: list[int]) -> tuple[int, ...]:
    twos = primes.count(2)
    odd = n >> twos
    if twos == 0:
        return (1, n, 1) if len(primes) <= 1 else (primes[0], math.prod(primes[1:-1]), primes[-1])
    if odd == 1:
        first = 1 << (twos - 1) // 2
        return first, 2, n // (2 * first)
    if twos == 1:
        rest = primes[1:]
        return (2, odd, 1) if len(rest) == 1 else (math.prod(rest[:-1]), 2, rest[-1])
    return 1 << twos // 2, odd, 1 << twos - twos // 2


@block
class ChainCores(Block):
    """The shapes of a chain for an (A, C) matrix, and what its contractions cost: no operation of its own."""

    input_factors: tuple[Size, ...]
    output_factors: tuple[Size, ...]
    bond: Size

    @staticmethod
    def fit_ratio(rows: Size, columns: Size, ratio: float, length: int, bond: str) -> ChainCores:
        """The largest chain of at most ``ratio`` of the matrix's weights, bond 2 or more."""
        if is_array(rows) or is_array(columns) or is_array(ratio):
            # The three maps of an attention have one shape, and so have a gate and what it gates.
            what = ("cores", size_key(columns), id(ratio), length, bond)
            chain: ChainCores = memoize(rows, what,
                                        lambda: _cores(rows, columns, ratio, length, bond))
            return chain
        return _cached_cores(rows, columns, ratio, length, bond)

    @cached_property
    def bonds(self) -> tuple[Size, ...]:
        """b₀ … bₙ."""
        return (1, *[self.bond] * (len(self.input_factors) - 1), 1)

    def shapes(self) -> dict[str, Shape]:
        """Core i has the shape (bᵢ₋₁, aᵢ, cᵢ, bᵢ)."""
        bonds = self.bonds
        return {f"core{i}": (bonds[i], self.input_factors[i], self.output_factors[i], bonds[i + 1])
                for i in range(len(self.input_factors))}

    @cached_property
    def _apply_costs(self) -> list[tuple[Size, Size]]:
        """Multiply-adds of applying the cores from the first and from the last, and the numbers that they then read."""
        b = self.bonds
        ways = []
        for a, c in ((self.input_factors, self.output_factors),
                     (self.input_factors[::-1], self.output_factors[::-1])):
            read = [b[i] * math.prod(c[:i]) * math.prod(a[i:]) for i in range(len(a))]
            ways.append((sum(n * b[i + 1] * c[i] for i, n in enumerate(read)), sum(read)))
        return ways

    @cached_property
    def applies_from_last(self) -> Any:
        """True where applying the cores from the last is cheaper; an array for a population."""
        return self._apply_costs[1][0] < self._apply_costs[0][0]

    @cached_property
    def apply_macs(self) -> Size:
        """Multiply-adds of applying core after core to one vector, the cheaper way round."""
        cheaper: Size = minimum(self._apply_costs[0][0], self._apply_costs[1][0])
        return cheaper

    @property
    def copies_input(self) -> Any:
        """True where the first core that is applied reads a copy of the vector: all but the last do."""
        return select_where(self.applies_from_last, False, True)

    @cached_property
    def apply_activations(self) -> tuple[Size, Size]:
        """Numbers that the cores, applied one by one, keep for the backward pass: of a vector, of weights alone.

        They are what each core reads; from the end, copies of the cores as well, but not of the
        vector.
        """
        (_, ahead), (_, back) = self._apply_costs
        copied = sum(math.prod(shape) for shape in self.shapes().values())  # type: ignore[arg-type, misc]
        return select_where(self.applies_from_last, back - math.prod(self.input_factors),
                            ahead), select_where(self.applies_from_last, copied, 0)

    @cached_property
    def contraction_cost(self) -> tuple[Size, Size]:
        """Multiply-adds of contracting all cores to the matrix, in the cheapest order; numbers of it and its pieces."""
        return self._contraction_cost(0, len(self.input_factors))

    def _contraction_cost(self, start: int, end: int) -> tuple[Size, Size]:
        """Multiply-adds of contracting cores ``start`` to ``end`` in the cheapest order, and numbers of all pieces."""
        if end - start == 1:
            return 0, 0
        (cost, pieces), *others = (self._split_cost(start, k, end) for k in range(start + 1, end))
        for other in others:
            cost, pieces = minimum(cost, other[0]), select_where(other[0] < cost, other[1], pieces)
        return cost, pieces

    def _split_cost(self, start: int, k: int, end: int) -> tuple[Size, Size]:
        """:meth:`_merged`, if the last two pieces meet at ``k``."""
        size = math.prod(self.input_factors[start:end]) * math.prod(
            self.output_factors[start:end]) * self.bonds[start] * self.bonds[end]
        (left, some), (right, more) = self._contraction_cost(start, k), self._contraction_cost(
            k, end)
        return left + right + size * self.bonds[k], some + more + size

    @cached_property
    def lookup_macs(self) -> Size:
        """Multiply-adds of one row of the matrix: cores are sliced at its digits and multiplied from the left."""
        b = self.bonds
        return sum(math.prod(self.output_factors[: i + 1]) * b[i] * b[i + 1]
                   for i in range(1, len(self.input_factors)))

    @cached_property
    def lookup_activations(self) -> Size:
        """Numbers that one row keeps for the backward pass: both factors of each product."""
        b = self.bonds
        c = self.output_factors
        return sum(math.prod(c[:i]) * b[i] + b[i] * c[i] * b[i + 1] for i in range(1, len(c)))

    # The operations. ``cores`` are the weights, (bᵢ₋₁, aᵢ, cᵢ, bᵢ) each.

    def matrix(self, cores: Sequence[Any], start: int = 0, end: int | None = None) -> Any:
        """(bond, A, C, bond) of the cores ``start`` to ``end``; all of them: the matrix between two bonds of 1."""
        end = len(cores) if end is None else end
        if end - start == 1:
            return cores[start]
        middle = min(range(start + 1, end), key=lambda k: self._split_cost(start, k, end)[0])
        left = self.matrix(cores, start, middle)
        right = self.matrix(cores, middle, end)
        both = left.flatten(0, 2) @ right.flatten(1, 3)
        both = both.reshape(*left.shape[:3], *right.shape[1:])
        return both.transpose(2, 3).flatten(1, 2).flatten(2, 3)

    def apply(self, cores: Sequence[Any], x: Tensor) -> Tensor:
        """x W for vectors (N, A), core after core: (N, C)."""
        from_the_end = self.applies_from_last
        order = range(len(cores) - 1, -1, -1) if from_the_end else range(len(cores))
        # (N, done, bond, left): what is done and what is left lie outermost first
        state = x[:, None, None]
        for i in order:
            core = cores[i]
            a = self.input_factors[i]
            # the last factor of what is left is contracted, and stands before all that is done
            if from_the_end:
                # (N, left, done, a, bond)
                state = state.unflatten(3, (-1, a)).permute(0, 3, 1, 4, 2)
                flat = core.permute(1, 3, 0, 2).flatten(2, 3).flatten(0, 1)  # (a · b', b · c)
                y = state.flatten(3, 4) @ flat  # (N, left, done, b · c)
                # (N, c, done, b, left)
                y = y.unflatten(3, (core.shape[0], core.shape[2])).permute(0, 4, 2, 3, 1)
                state = y.flatten(1, 2)
            else:
                # (N, done, left, bond, a)
                state = state.unflatten(3, (a, -1)).permute(0, 1, 4, 2, 3)
                flat = core.flatten(2, 3).flatten(0, 1)  # (b · a, c · b')
                y = state.flatten(3, 4) @ flat
                # (N, done, c, b', left)
                y = y.unflatten(3, (core.shape[2], core.shape[3])).permute(0, 1, 3, 4, 2)
                state = y.flatten(1, 2)
        return state.flatten(1, 3)

    def rows(self, cores: Sequence[Any], index: Tensor) -> Tensor:
        """Rows ``index`` (N,) of the matrix: (N, C)."""
        digits = []
        rest = index
        for a in reversed(self.input_factors):
            digits.append(rest % a)
            rest = rest // a
        digits.reverse()
        # (N, c, bond): b₀ is 1
        product = cores[0].index_select(1, digits[0]).movedim(1, 0).flatten(1, 2)
        for core, digit in zip(cores[1:], digits[1:]):
            chosen = core.index_select(1, digit).movedim(1, 0).flatten(2, 3)  # (N, bond, c · bond')
            product = (product @ chosen).unflatten(2, (core.shape[2], core.shape[3])).flatten(1, 2)
        return product.flatten(1, 2)


def _cores(rows: Size, columns: Size, ratio: float, length: int, bond: str) -> ChainCores:
    a, c = (_factors(size, length) for size in (rows, columns))
    ends = a[0] * c[0] + a[-1] * c[-1]
    middle = sum(x * y for x, y in zip(a[1:-1], c[1:-1]))
    target = ratio * rows * columns
    exact: Any
    if length == 2:
        exact = target / ends
    elif length == 4 and bond == "published":  # the released code divides the root alone, so most bonds are 2
        exact = square_root(ends**2 + 4 * middle * target) / (2 * middle) - ends
    else:
        exact = (square_root(ends**2 + 4 * middle * target) - ends) / (2 * middle)
    return ChainCores(a, c, maximum(2, exact.astype("int64") if is_array(exact) else int(exact)))


def _factors(size: Size, length: int) -> tuple[Size, ...]:
    """:func:`split_factors` of one size, or of a population's, memoised."""
    if not is_array(size):
        return split_factors(size, length)
    factors: tuple[Size, ...] = memoize(
        size, ("split", length), lambda: map_values(size, lambda n: split_factors(n, length)))
    return factors


_cached_cores = lru_cache(maxsize=4096)(_cores)
