"""Matrices and embedding tables as tensor chains (Anthe, section 3)."""

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
    """Base class of y = x W + b with a tensor chain W: (…, d_in) to (…, d_out).

    An attribute ``apply`` of a subclass selects the computation. ``cores`` applies one core after
    the other. ``matrix`` first computes W, once per pass and only once in inference. ``auto`` needs
    fewer multiply-adds per position.
    """

    d_in: Size
    d_out: Extent
    over: Shape
    bias: bool

    def bind_vocabulary(self, vocab: Size) -> Block:
        return replace(self, d_out=vocab) if isinstance(self.d_out, str) else self

    @property
    def cores(self) -> ChainCores:
        """Shapes and costs of the cores."""
        raise NotImplementedError

    @cached_property
    def applies_cores(self) -> Any:
        """Whether cores are applied one by one; an array for a population."""
        mode = getattr(self, "apply", "auto")
        if mode != "auto":
            return mode == "cores"
        return self.cores.apply_macs < self.d_in * self.d_out  # type: ignore[operator]

    def weights(self) -> Mapping[str, Shape]:
        return self.cores.shapes() | ({"bias": (self.d_out,)} if self.bias else {})

    def initialization(self, name: str) -> str:
        return "scheme" if name == "bias" else "cores"

    def loop_nests(self) -> Sequence[LoopNest]:
        added = [LoopNest((*self.over, self.d_out), "bias")] if self.bias else []
        by_cores = self.applies_cores
        macs = select_where(by_cores, self.cores.apply_macs, self.d_in * self.d_out)
        states, weight_copies = self.cores.apply_activations
        contraction_macs, contraction_activations = self.cores.contraction_cost
        activations = self.d_out + select_where(by_cores, states, 0)
        once = select_where(by_cores, weight_copies, contraction_activations)
        return [LoopNest((*self.over, macs)),
                LoopNest((select_where(by_cores, 0, contraction_macs),), "once"), *added,
                LoopNest((*self.over, activations), "activation"),
                LoopNest((once,), "activation_once")]

    @property
    def copies_input(self) -> Any:
        return select_where(self.applies_cores, self.cores.copies_input, False)

    def ordered_cores(self, core: Callable[[str], Any]) -> list[Any]:
        """Return the cores of W; ``core`` returns a core by name."""
        return [core(f"core{i}") for i in range(len(self.cores.input_factors))]

    def matrix(self, m: Any) -> Tensor:
        """Return W (d_in, d_out)."""
        cores = self.ordered_cores(partial(getattr, m))
        return m.cached_constant("matrix", lambda: self.cores.matrix(cores)[0, :, : self.d_out, 0])

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Return the softmax terms; see :meth:`.Linear.softmax_terms`."""
        return [(hidden, self.matrix(m).t(), m.bias if self.bias else None, target)]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        if self.applies_cores:
            y = self.cores.apply(self.ordered_cores(module.cast_weight), x.reshape(-1, self.d_in))
            y = y.view(*x.shape[:-1], y.shape[-1])[..., : self.d_out]
        else:
            y = module.linear(x, "product", lambda: (self.matrix(module).t(), None))
        return add_promoted(y, module.cast_weight("bias")) if self.bias else y


@block
class ChainLinear(ChainLinearBase):
    """A tensor chain of ``length`` cores instead of a matrix.

    It has at most ``ratio`` of the weights of the matrix.
    """

    ratio: float
    length: int
    apply: str = "auto"
    bond: str = "solved"

    @cached_property
    def cores(self) -> ChainCores:
        """Shapes and costs of the cores."""
        assert not isinstance(self.d_out, str), "bind the vocabulary first"
        return ChainCores.fit_ratio(self.d_in, self.d_out, self.ratio, self.length, self.bond)


@block
class ChainTableBase(Block):
    """Base class of embedding tables as tensor chains: token ids (…) to (…, d).

    The row of a token is a product of slices of the cores; the table itself is not computed.
    """

    d: Size
    over: Shape

    def bind_vocabulary(self, vocab: Size) -> Block:
        block: Any = self
        return replace(block, vocab=vocab) if isinstance(block.vocab, str) else self

    @property
    def cores(self) -> ChainCores:
        """Shapes and costs of the cores; the matrix has at least one row per token."""
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
    """A tensor chain of ``length`` cores instead of a table.

    It has at most ``ratio`` of the weights of the table.
    """

    ratio: float
    length: int
    bond: str = "solved"
    vocab: Extent = VOCAB

    @cached_property
    def cores(self) -> ChainCores:
        """Shapes and costs of the cores."""
        assert not isinstance(self.vocab, str), "bind the vocabulary first"
        return ChainCores.fit_ratio(self.vocab, self.d, self.ratio, self.length, self.bond)


@block
class TiedChainOutput(ChainLinearBase):
    """Output layer with the transposed cores of a ``table``: (…, d) to (…, V)."""

    table: Any

    def bind_vocabulary(self, vocab: Size) -> Block:
        return replace(self, d_out=vocab if isinstance(self.d_out, str) else self.d_out,
                       table=self.table.bind_vocabulary(vocab))

    @cached_property
    def cores(self) -> ChainCores:
        """Shapes and costs of the cores of the transposed table."""
        cores = self.table.cores
        return ChainCores(cores.output_factors, cores.input_factors, cores.bond)

    def weights(self) -> Mapping[str, Shape]:
        return {**self.table.weights(), **({"bias": (self.d_out,)} if self.bias else {})}

    def ordered_cores(self, core: Callable[[str], Any]) -> list[Any]:
        return [tensor.transpose(1, 2) for tensor in super().ordered_cores(core)]
