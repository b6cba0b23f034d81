"""Structured matrices that can replace the matrices of a layer.

Each structure is a :class:`~scalesearch.blocks.core.LinearFactory` with options. The method
``validate`` of its blocks checks which sizes are possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, dataclass_transform

from scalesearch.blocks.core import (
    VOCAB,
    Axes,
    Block,
    Extent,
    LinearFactory,
    LoopNest,
    Shape,
    Size,
    block,
)
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
    """Return a decorator that registers a linear factory as the structure ``name``."""
    return lambda cls: register(MATRIX_STRUCTURES, name)(dataclass(frozen=True)(cls))


class TableLinearFactory(LinearFactory):
    """Base class of structures that tables of tokens can also have."""

    def table(self, d: Size, over: Axes, vocab: Extent) -> Block:
        """Return a block that looks up ``vocab`` rows of ``d`` features."""
        raise NotImplementedError

    def output(self, d: Size, vocab: Extent, over: Shape, bias: bool) -> Block:
        """Return a map from ``d`` features to logits of ``vocab`` tokens."""
        return self(d, vocab, over, bias)


@register_structure("low_rank")
class LowRankMatrix(TableLinearFactory):
    """A product of two matrices."""

    rank: Size = option_field("= max(1, width // 8)", doc="features between the matrices")

    def table(self, d: Size, over: Axes, vocab: Extent) -> Block:
        return FactorizedEmbedding(d, self.rank, over, Embedding(self.rank, over, vocab))

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return LowRankLinear(d_in, d_out, self.rank, over, bias)


@register_structure("chain")
class ChainMatrix(TableLinearFactory):
    """A tensor chain (Anthe)."""

    ratio: float = option_field("0.1", type="number", minimum=0, maximum=1,
                                doc="weights relative to those of the matrix")
    length: int = option_field("2", choices=CHAIN_LENGTHS, doc="number of cores")

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return ChainLinear(d_in, d_out, over, bias, self.ratio, require_single_value(self.length))

    def table(self, d: Size, over: Axes, vocab: Extent) -> Block:
        return ChainEmbedding(d, over, self.ratio, require_single_value(self.length), vocab=vocab)


@register_structure("kronecker")
class Kronecker(TableLinearFactory):
    """A sum of Kronecker products of similarly large matrices (Panahi et al. 2021)."""

    rank: Size = option_field("8", doc="number of products")

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return KroneckerLinear(d_in, d_out, over, bias, self.rank)

    def table(self, d: Size, over: Axes, vocab: Extent) -> Block:
        return KroneckerEmbedding(d, over, self.rank, vocab)

    def output(self, d: Size, vocab: Extent, over: Shape, bias: bool) -> Block:
        return TiedChainOutput(d, vocab, over, bias, KroneckerEmbedding(d, (), self.rank, vocab))


@register_structure("phm")
class Hypercomplex(LinearFactory):
    """A sum of Kronecker products of smaller matrices (PHM, Zhang et al. 2021).

    One matrix of each product is n x n.
    """

    n: Size = option_field("4", doc="divisor of the sizes: the first matrices are n x n")
    products: Size = option_field("= n", doc="number of products")

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return HypercomplexLinear(d_in, d_out, over, bias, self.n, self.products)


@register_structure("group")
class Grouped(LinearFactory):
    """A block-diagonal matrix: separate groups of features."""

    groups: Size = option_field("4", doc="number of blocks")

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return GroupLinear(d_in, d_out, over, bias, self.groups)


@block
class KroneckerLinear(ChainLinearBase):
    """y = x Σ A ⊗ B + b with ``rank`` products.

    A has the smaller factor of d_in and the larger factor of d_out.
    """

    rank: Size

    @cached_property
    def cores(self) -> ChainCores:
        """Two cores, with the number of products as bond."""
        rows, columns = (map_values(size, _balanced_factors) for size in (self.d_in, self.d_out))
        return ChainCores(rows, columns[::-1], self.rank)


@block
class KroneckerEmbedding(ChainTableBase):
    """A table as a sum of ``rank`` Kronecker products.

    The number of rows is the next number that has two factors with a ratio of at most 2.
    """

    rank: Size
    vocab: Extent = VOCAB

    @cached_property
    def cores(self) -> ChainCores:
        """Two cores, with the number of products as bond."""
        assert not isinstance(self.vocab, str), "bind the vocabulary first"
        rows = map_values(self.vocab, lambda n: next(
            pair for pair in map(_balanced_factors, count(n)) if pair[1] <= 2 * pair[0]))
        return ChainCores(rows, map_values(self.d, _balanced_factors)[::-1], self.rank)


@block
class HypercomplexLinear(ChainLinearBase):
    """y = x Σ A ⊗ S + b, with A (n, n) and S (d_in / n, d_out / n).

    The sum has ``products`` terms.
    """

    n: Size
    products: Size

    def validate(self) -> tuple[str, str] | None:
        return _validate_divisible("n", self.n, self.d_in, self.d_out)

    @cached_property
    def cores(self) -> ChainCores:
        """Two cores, with the number of products as bond."""
        n = self.n
        d_out = self.d_out
        d_in_per_factor = self.d_in // n
        d_out_per_factor = d_out // n  # type: ignore[operator]
        return ChainCores((n, d_in_per_factor), (n, d_out_per_factor), self.products)


@block
class GroupLinear(Block):
    """y_g = x_g W_gᵀ + b_g for each of ``groups`` equal groups of features."""

    d_in: Size
    d_out: Extent
    over: Shape
    bias: bool
    groups: Size

    def validate(self) -> tuple[str, str] | None:
        return _validate_divisible("groups", self.groups, self.d_in, self.d_out)

    @property
    def _sizes(self) -> tuple[Size, Size, Size]:
        groups = self.groups
        return groups, self.d_out // groups, self.d_in // groups  # type: ignore[operator]

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
            *x.shape[:-1], self.d_out)
        return add_promoted(y, module.cast_weight("bias")) if self.bias else y


def _balanced_factors(n: int) -> tuple[int, int]:
    """Return the two closest factors of ``n``, the smaller first."""
    small = next(k for k in range(int(n**0.5), 0, -1) if n % k == 0)
    return small, n // small


def _validate_divisible(option: str, by: Size, d_in: Size, d_out: Any) -> tuple[str, str] | None:
    if decide((d_in % by != 0) | (d_out % by != 0)):
        return option, f"the sizes {d_in} x {d_out} of a matrix are not multiples of {by}"
    return None
