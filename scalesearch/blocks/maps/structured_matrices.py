"""Structured matrices, by the word for each: what may stand where a layer has a matrix.

A kind is a :class:`LinearFactory` with its options, and makes a block whose ``misfit`` says which
sizes it does not go with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, dataclass_transform

from scalesearch.blocks.core import VOCAB, Axes, Block, Extent, LinearFactory, LoopNest, Shape, Size, block
from scalesearch.blocks.elementwise import add_promoted
from scalesearch.blocks.embedding import FactorizedEmbedding
from scalesearch.blocks.leaves import Embedding
from scalesearch.blocks.maps.chain_cores import ChainCores
from scalesearch.blocks.maps.linear_factories import Dense, LowRankLinear
from scalesearch.blocks.maps.tensor_chains import (
    CHAIN_LENGTHS,
    ChainEmbedding,
    ChainLinear,
    ChainLinearBase,
    ChainTableBase,
    TiedChainOutput,
)
from scalesearch.blocks.options import option_field, register
from scalesearch.blocks.sizes import decide, map_values, require_single_value

if TYPE_CHECKING:
    from torch import Tensor

MATRIX_STRUCTURES: dict[str, type[LinearFactory]] = {"dense": Dense}


@dataclass_transform(frozen_default=True, field_specifiers=(option_field,))
def register_structure(name: str) -> Callable[[type[Any]], type[Any]]:
    """Make a class of sites the structure ``name``, a frozen value."""
    return lambda kind: register(MATRIX_STRUCTURES, name)(dataclass(frozen=True)(kind))


class TableLinearFactory(LinearFactory):
    """A structure that tables of tokens may have as well."""

    def table(self, d: Size, over: Axes, vocab: Extent) -> Block:
        """A lookup of ``vocab`` rows of ``d`` features."""
        raise NotImplementedError

    def output(self, d: Size, vocab: Extent, over: Shape, bias: bool) -> Block:
        """A map from ``d`` features to a score of each token."""
        return self(d, vocab, over, bias)


@register_structure("low_rank")
class LowRankMatrix(TableLinearFactory):
    """A product of two matrices."""

    rank: Size = option_field("= max(1, width // 8)", doc="features between the two")

    def table(self, d: Size, over: Axes, vocab: Extent) -> Block:
        return FactorizedEmbedding(d, self.rank, over, Embedding(self.rank, over, vocab))

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return LowRankLinear(d_in, d_out, self.rank, over, bias)


@register_structure("chain")
class ChainMatrix(TableLinearFactory):
    """A tensor chain (Anthe)."""

    ratio: float = option_field("0.1", type="number", minimum=0, maximum=1,
                                doc="share of the weights that are kept")
    length: int = option_field("2", choices=CHAIN_LENGTHS, doc="cores")

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return ChainLinear(d_in, d_out, over, bias, self.ratio, require_single_value(self.length))

    def table(self, d: Size, over: Axes, vocab: Extent) -> Block:
        return ChainEmbedding(d, over, self.ratio, require_single_value(self.length), vocab=vocab)


@register_structure("kronecker")
class Kronecker(TableLinearFactory):
    """A sum of Kronecker products of matrices nearly as large as each other (Shapeshifter, Panahi et al. 2021)."""

    rank: Size = option_field("8", doc="products in the sum")

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return KroneckerLinear(d_in, d_out, over, bias, self.rank)

    def table(self, d: Size, over: Axes, vocab: Extent) -> Block:
        return KroneckerEmbedding(d, over, self.rank, vocab)

    def output(self, d: Size, vocab: Extent, over: Shape, bias: bool) -> Block:
        return TiedChainOutput(d, vocab, over, bias, KroneckerEmbedding(d, (), self.rank, vocab))


@register_structure("phm")
class Hypercomplex(LinearFactory):
    """A sum of n Kronecker products of n x n with smaller matrices (PHM, Zhang et al. 2021)."""

    n: Size = option_field("4",
                           doc="by how much sizes are divided: the first cores of a chain of two")
    products: Size = option_field("= n", doc="products in the sum: the chain's bond")

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return HypercomplexLinear(d_in, d_out, over, bias, self.n, self.products)


@register_structure("group")
class Grouped(LinearFactory):
    """A block-diagonal matrix: groups of features that do not meet."""

    groups: Size = option_field("4", doc="blocks on the diagonal")

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return GroupLinear(d_in, d_out, over, bias, self.groups)


@block
class KroneckerLinear(ChainLinearBase):
    """y = x Σ A ⊗ B + b over ``rank`` products, with factors of d_in from the smaller and of d_out from the larger."""

    rank: Size

    @cached_property
    def cores(self) -> ChainCores:
        """Two, with the number of products as their bond."""
        rows, columns = (map_values(size, _balanced_factors) for size in (self.d_in, self.d_out))
        return ChainCores(rows, columns[::-1], self.rank)


@block
class KroneckerEmbedding(ChainTableBase):
    """A table by ``rank`` Kronecker products: of the next larger vocabulary whose factors are at most 1 : 2."""

    rank: Size
    vocab: Extent = VOCAB

    @cached_property
    def cores(self) -> ChainCores:
        """Two, with the number of products as their bond."""
        assert not isinstance(self.vocab, str), "bind the vocabulary first"
        return ChainCores(map_values(self.vocab, _next_balanced_factors),
                          map_values(self.d, _balanced_factors)[::-1], self.rank)


@block
class HypercomplexLinear(ChainLinearBase):
    """y = x Σ A ⊗ S + b over ``products``, each A (n, n) and S (d_in / n, d_out / n)."""

    n: Size
    products: Size

    def validate(self) -> tuple[str, str] | None:
        return _validate_divisible("n", self.n, self.d_in, self.d_out)

    @cached_property
    def cores(self) -> ChainCores:
        """Two, with the number of products as their bond."""
        n = self.n
        d_out = self.d_out
        return ChainCores((n, self.d_in // n), (n, d_out // n), self.products)  # type: ignore[operator]


@block
class GroupLinear(Block):
    """y_g = x_g W_gᵀ, and b, of each of ``groups`` equal parts of the features."""

    d_in: Size
    d_out: Extent
    over: Shape
    bias: bool
    groups: Size

    def validate(self) -> tuple[str, str] | None:
        return _validate_divisible("groups", self.groups, self.d_in, self.d_out)

    @property
    def _sizes(self) -> tuple[Size, Size, Size]:
        return self.groups, self.d_out // self.groups, self.d_in // self.groups  # type: ignore[operator]

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": self._sizes} | ({"bias": (self.d_out,)} if self.bias else {})

    def initialization(self, name: str) -> str:
        return "scheme" if name == "bias" else "heads"

    def loop_nests(self) -> Sequence[LoopNest]:
        added = [LoopNest((*self.over, self.d_out), "bias")] if self.bias else []
        return [LoopNest((*self.over, *self._sizes)), *added,
                LoopNest((*self.over, self.d_out), "activation")]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        # (groups, positions, features)
        parts = x.reshape(-1, self.groups, x.shape[-1] // self.groups).transpose(0, 1)
        y = (parts @ module.cast_weight("weight").transpose(1, 2)).transpose(0, 1).reshape(
            *x.shape[:-1], -1)
        return add_promoted(y, module.cast_weight("bias")) if self.bias else y


def _balanced_factors(n: int) -> tuple[int, int]:
    """Two factors of ``n`` that are nearest to each other, the smaller first."""
    small = next(k for k in range(int(n**0.5), 0, -1) if n % k == 0)
    return small, n // small


def _next_balanced_factors(n: int) -> tuple[int, int]:
    """Two factors, of which one is at most twice the other, of the smallest such number from ``n`` on."""
    return next(pair for pair in map(_balanced_factors, count(n)) if pair[1] <= 2 * pair[0])


def _validate_divisible(option: str, by: Size, d_in: Size, d_out: Any) -> tuple[str, str] | None:
    if decide((d_in % by != 0) | (d_out % by != 0)):
        return option, f"{by} does not divide a matrix of {d_in} x {d_out}"
    return None
