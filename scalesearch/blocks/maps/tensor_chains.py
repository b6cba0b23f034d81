"""A matrix or an embedding table as a chain of small cores (Anthe, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import VOCAB, Block, Extent, LoopNest, Shape, Size, block
from scalesearch.blocks.elementwise import add_promoted
from scalesearch.blocks.maps.chain_cores import ChainCores
from scalesearch.blocks.sizes import select_where

if TYPE_CHECKING:
    from torch import Tensor

CHAIN_LENGTHS = (2, 3, 4)
APPLY_MODES = ("auto", "cores", "matrix")
BOND_RULES = ("solved", "published")


@block
class ChainLinearBase(Block):
    """y = x W + b with W a chain of ``cores``; (…, d_in) to (…, d_out).

    ``apply``: ``cores`` one after the other, or the ``matrix`` that they make, which is built once
    for all positions (for inference once and for all); ``auto`` is what takes fewer multiply-adds a
    position. All give the same numbers.
    """

    d_in: Size
    d_out: Extent
    over: Shape
    bias: bool

    def bind_vocabulary(self, vocab: Size) -> Block:
        return replace(self, d_out=vocab) if isinstance(self.d_out, str) else self

    @property
    def cores(self) -> ChainCores:
        """Shapes and costs."""
        raise NotImplementedError

    @cached_property
    def applies_cores(self) -> Any:
        """True where cores are applied one by one; an array for a population."""
        if (way := getattr(self, "apply", "auto")) != "auto":
            return way == "cores"
        return self.cores.apply_macs < self.d_in * self.d_out  # type: ignore[operator]

    def weights(self) -> Mapping[str, Shape]:
        return self.cores.shapes() | ({"bias": (self.d_out,)} if self.bias else {})

    def initialization(self, name: str) -> str:
        return "scheme" if name == "bias" else "cores"

    def loop_nests(self) -> Sequence[LoopNest]:
        added = [LoopNest((*self.over, self.d_out), "bias")] if self.bias else []
        each = select_where(self.applies_cores, self.cores.apply_macs, self.d_in * self.d_out)
        (states, copied), (built,
                           pieces) = self.cores.apply_activations, self.cores.contraction_cost
        kept = (LoopNest((*self.over, self.d_out + select_where(self.applies_cores, states, 0)),
                         "activation"),
                LoopNest((select_where(self.applies_cores, copied, pieces),), "activation"))
        return [LoopNest((*self.over, each)),
                LoopNest((select_where(self.applies_cores, 0, built),), "once"), *added, *kept]

    @property
    def copies_input(self) -> Any:
        return select_where(self.applies_cores, self.cores.copies_input, False)

    def ordered_cores(self, core: Callable[[str], Any]) -> list[Any]:
        """The cores of W by their names, as ``core`` gives them."""
        return [core(f"core{i}") for i in range(len(self.cores.input_factors))]

    def matrix(self, m: Any) -> Tensor:
        """W, (d_in, d_out)."""
        cores = self.ordered_cores(partial(getattr, m))
        return m.cached_constant("matrix", lambda: self.cores.matrix(cores)[0, :, : self.d_out, 0])

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Softmax terms; see :meth:`Linear.softmax_terms`."""
        return [(hidden, self.matrix(m).t(), m.bias if self.bias else None, target)]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        if self.applies_cores:
            y = self.cores.apply(self.ordered_cores(module.cast_weight), x.reshape(-1, self.d_in))
            y = y.view(*x.shape[:-1], -1)[..., : self.d_out]
        else:
            y = module.linear(x, "product", lambda: (self.matrix(module).t(), None))
        return add_promoted(y, module.cast_weight("bias")) if self.bias else y


@block
class ChainLinear(ChainLinearBase):
    """A map by a tensor chain of ``length`` cores with ``ratio`` of the matrix's weights."""

    ratio: float
    length: int
    apply: str = "auto"
    bond: str = "solved"

    @cached_property
    def cores(self) -> ChainCores:
        """Shapes and costs."""
        assert not isinstance(self.d_out, str), "bind the vocabulary first"
        return ChainCores.fit_ratio(self.d_in, self.d_out, self.ratio, self.length, self.bond)


@block
class ChainTableBase(Block):
    """An embedding table as a chain: a token's row is a product of slices, and the table is never built."""

    d: Size
    over: Shape

    def bind_vocabulary(self, vocab: Size) -> Block:
        at: Any = self
        return replace(at, vocab=vocab) if isinstance(at.vocab, str) else self

    @property
    def cores(self) -> ChainCores:
        """Shapes and costs of a matrix with a row for each token; it may have more."""
        raise NotImplementedError

    def weights(self) -> Mapping[str, Shape]:
        return self.cores.shapes()

    def initialization(self, name: str) -> str:
        return "table cores"

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.cores.lookup_macs)),
                LoopNest((*self.over, self.d + self.cores.lookup_activations), "activation")]

    def forward(self, module: Any, tokens: Tensor) -> Tensor:
        cores = [getattr(module, f"core{i}") for i in range(len(self.cores.input_factors))]
        return self.cores.rows(cores, tokens.reshape(-1)).view(*tokens.shape, self.d)


@block
class ChainEmbedding(ChainTableBase):
    """A table by a tensor chain of ``length`` cores with ``ratio`` of its weights."""

    ratio: float
    length: int
    bond: str = "solved"
    vocab: Extent = VOCAB

    @cached_property
    def cores(self) -> ChainCores:
        """Shapes and costs."""
        assert not isinstance(self.vocab, str), "bind the vocabulary first"
        return ChainCores.fit_ratio(self.vocab, self.d, self.ratio, self.length, self.bond)


@block
class TiedChainOutput(ChainLinearBase):
    """Scores of all tokens: a linear map by the cores of a ``table``, the other way round."""

    table: Any

    def bind_vocabulary(self, vocab: Size) -> Block:
        return replace(self, d_out=vocab if isinstance(self.d_out, str) else self.d_out,
                       table=self.table.bind_vocabulary(vocab))

    @cached_property
    def cores(self) -> ChainCores:
        """Of the transposed table."""
        cores = self.table.cores
        return ChainCores(cores.output_factors, cores.input_factors, cores.bond)

    def weights(self) -> Mapping[str, Shape]:
        return {**self.table.weights(), **({"bias": (self.d_out,)} if self.bias else {})}

    def ordered_cores(self, core: Callable[[str], Any]) -> list[Any]:
        return [one.transpose(1, 2) for one in super().ordered_cores(core)]
