"""Linear factories: types of linear maps; each returns the block for given sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Block, Extent, LinearFactory, LoopNest, Shape, Size, Use, block
from scalesearch.blocks.leaves import Linear, UnsavedLinear
from scalesearch.blocks.maps.tensor_chains import ChainLinear

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Dense(LinearFactory):
    """A matrix."""

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return Linear(d_in, d_out, over, bias)


@dataclass(frozen=True)
class Identity(LinearFactory):
    """No map: the output is the input ("no patt", Anthe, Table 5).

    Sizes must be equal.
    """

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return Passthrough(d_in)


@dataclass(frozen=True)
class LowRank(LinearFactory):
    """A product of two matrices with ``rank`` features between them."""

    rank: Size

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return LowRankLinear(d_in, d_out, self.rank, over, bias)


@dataclass(frozen=True)
class Chain(LinearFactory):
    """A tensor chain with at most ``ratio`` of the weights (Anthe).

    It has ``length`` cores.
    """

    ratio: float
    length: int = 2
    apply: str = "auto"
    bond: str = "solved"

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return ChainLinear(d_in, d_out, over, bias, self.ratio, self.length, self.apply, self.bond)


@dataclass(frozen=True)
class PerHead(LinearFactory):
    """One matrix per head; the last extent of ``over`` is the number of heads."""

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        return HeadLinear(d_in, d_out, over, bias)


DENSE = Dense()
IDENTITY = Identity()
PER_HEAD = PerHead()


@block
class Passthrough(Block):
    """Return the input."""

    d: Size

    @property
    def copies_input(self) -> Any:
        return True  # the products of attention copy it

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return x


@block
class LowRankLinear(Block):
    """Low-rank map, (…, d_in) to (…, rank) to (…, d_out); the last matrix has a bias."""

    d_in: Size
    d_out: Extent
    rank: Size
    over: Shape
    bias: bool = True

    def parts(self) -> Mapping[str, Block | Use]:
        down = Linear(self.d_in, self.rank, self.over, bias=False)
        return {"down": down, "up": Linear(self.rank, self.d_out, self.over, self.bias)}

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return module.up(module.down(x))

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Return the softmax terms; see :meth:`.Linear.softmax_terms`."""
        terms: list[tuple[Any, ...]] = m.up.block.softmax_terms(m.up, m.down(hidden), target)
        return terms


@block
class LowRankAdapter(LowRankLinear):
    """Low-rank adapter B A x of a linear map, not scaled (Hu et al. 2022; EdgeFormer)."""

    def parts(self) -> Mapping[str, Block | Use]:
        return {**super().parts(), "up": UnsavedLinear(self.rank, self.d_out, self.over, self.bias)}

    def part_roles(self) -> Mapping[str, str]:
        return {"up": "adapter_out"}


@block
class HeadLinear(Block):
    """One linear map per head: (batch, positions, heads, d_in) to (…, heads, d_out)."""

    d_in: Size
    d_out: Extent
    over: Shape
    bias: bool = True

    @property
    def heads(self) -> Extent:
        """Number of matrices."""
        return self.over[-1]

    def weights(self) -> Mapping[str, Shape]:
        bias = {"bias": (self.heads, self.d_out)} if self.bias else {}
        return {"weight": (self.heads, self.d_out, self.d_in)} | bias

    def initialization(self, name: str) -> str:
        return "scheme" if name == "bias" else "heads"

    def loop_nests(self) -> Sequence[LoopNest]:
        added = [LoopNest((*self.over, self.d_out), "bias")] if self.bias else []
        return [LoopNest((*self.over, self.d_in, self.d_out)), *added,
                LoopNest((*self.over, self.d_out), "activation")]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        by_head = x.flatten(0, 1).transpose(0, 1)  # (heads, batch · positions, d_in)
        y = by_head @ module.cast_weight("weight").transpose(1, 2)
        y = y + module.cast_weight("bias")[:, None] if self.bias else y
        return y.transpose(0, 1).unflatten(0, x.shape[:2])
