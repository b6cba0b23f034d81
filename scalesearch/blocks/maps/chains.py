"""A matrix or an embedding table as a chain of small cores (Anthe, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from scalesearch.blocks.core import VOCAB, Block, Extent, Shape, Size, Work, block
from scalesearch.blocks.elementwise import plus
from scalesearch.blocks.maps.cores import Cores
from scalesearch.blocks.sizes import either

LENGTHS = (2, 3, 4)
APPLY = ("auto", "cores", "matrix")
BONDS = ("solved", "published")


@block
class CoreLinear(Block):
    """y = x W + b with W a chain of ``cores``; (…, d_in) to (…, d_out).

    ``apply``: ``cores`` one after the other, or the ``matrix`` that they make, which is built once for all positions
    (for inference once and for all); ``auto`` is what takes fewer multiply-adds a position. All give the same numbers.
    """

    d_in: Size
    d_out: Extent
    over: Shape
    bias: bool

    def at(self, vocab: Size) -> Block:
        return replace(self, d_out=vocab) if isinstance(self.d_out, str) else self

    @property
    def cores(self) -> Cores:
        """Shapes and costs."""
        raise NotImplementedError

    @cached_property
    def by_cores(self) -> Any:
        """True where cores are applied one by one; an array for a population."""
        if (way := getattr(self, "apply", "auto")) != "auto":
            return way == "cores"
        return self.cores.steps < self.d_in * self.d_out  # type: ignore[operator]

    def weights(self) -> Mapping[str, Shape]:
        return self.cores.shapes() | ({"bias": (self.d_out,)} if self.bias else {})

    def start(self, name: str) -> str:
        return "scheme" if name == "bias" else "cores"

    def work(self) -> Sequence[Work]:
        added = [Work((*self.over, self.d_out), "bias")] if self.bias else []
        each = either(self.by_cores, self.cores.steps, self.d_in * self.d_out)
        (states, copied), (built, pieces) = self.cores.states, self.cores.building
        kept = (Work((*self.over, self.d_out + either(self.by_cores, states, 0)), "activation"),
                Work((either(self.by_cores, copied, pieces),), "activation"))
        return [Work((*self.over, each)), Work((either(self.by_cores, 0, built),), "once"), *added, *kept]

    @property
    def copies(self) -> Any:
        return either(self.by_cores, self.cores.copies, False)

    def ordered(self, core: Callable[[str], Any]) -> list[Any]:
        """The cores of W by their names, as ``core`` gives them."""
        return [core(f"core{i}") for i in range(len(self.cores.a))]

    def matrix(self, m: Any) -> Any:
        """W, (d_in, d_out)."""
        cores = self.ordered(partial(getattr, m))
        return m.constant("matrix", lambda: self.cores.matrix(cores)[0, :, : self.d_out, 0])

    def terms(self, m: Any, hidden: Any, target: Any) -> list[tuple[Any, ...]]:
        """Softmax terms; see :meth:`Linear.terms`."""
        return [(hidden, self.matrix(m).t(), m.bias if self.bias else None, target)]

    def forward(self, m: Any, x: Any) -> Any:
        if self.by_cores:
            y = self.cores.apply(self.ordered(m.ready), x.reshape(-1, self.d_in))
            y = y.view(*x.shape[:-1], -1)[..., : self.d_out]
        else:
            y = m.linear(x, "product", lambda: (self.matrix(m).t(), None))
        return plus(y, m.ready("bias")) if self.bias else y


@block
class ChainLinear(CoreLinear):
    """A map by a tensor chain of ``length`` cores with ``ratio`` of the matrix's weights."""

    ratio: float
    length: int
    apply: str = "auto"
    bond: str = "solved"

    @cached_property
    def cores(self) -> Cores:
        """Shapes and costs."""
        assert not isinstance(self.d_out, str), "bind the vocabulary first"
        return Cores.of(self.d_in, self.d_out, self.ratio, self.length, self.bond)


@block
class CoreTable(Block):
    """An embedding table as a chain: a token's row is a product of slices, and the table is never built."""

    d: Size
    over: Shape

    def at(self, vocab: Size) -> Block:
        at: Any = self
        return replace(at, vocab=vocab) if isinstance(at.vocab, str) else self

    @property
    def cores(self) -> Cores:
        """Shapes and costs of a matrix with a row for each token; it may have more."""
        raise NotImplementedError

    def weights(self) -> Mapping[str, Shape]:
        return self.cores.shapes()

    def start(self, name: str) -> str:
        return "table cores"

    def work(self) -> Sequence[Work]:
        return [Work((*self.over, self.cores.lookup)), Work((*self.over, self.d + self.cores.slices), "activation")]

    def forward(self, m: Any, tokens: Any) -> Any:
        cores = [getattr(m, f"core{i}") for i in range(len(self.cores.a))]
        return self.cores.rows(cores, tokens.reshape(-1)).view(*tokens.shape, self.d)


@block
class ChainEmbedding(CoreTable):
    """A table by a tensor chain of ``length`` cores with ``ratio`` of its weights."""

    ratio: float
    length: int
    bond: str = "solved"
    vocab: Extent = VOCAB

    @cached_property
    def cores(self) -> Cores:
        """Shapes and costs."""
        assert not isinstance(self.vocab, str), "bind the vocabulary first"
        return Cores.of(self.vocab, self.d, self.ratio, self.length, self.bond)


@block
class TableOutput(CoreLinear):
    """Scores of all tokens: a linear map by the cores of a ``table``, the other way round."""

    table: Any

    def at(self, vocab: Size) -> Block:
        return replace(self, d_out=vocab if isinstance(self.d_out, str) else self.d_out, table=self.table.at(vocab))

    @cached_property
    def cores(self) -> Cores:
        """Of the transposed table."""
        cores = self.table.cores
        return Cores(cores.c, cores.a, cores.bond)

    def weights(self) -> Mapping[str, Shape]:
        return {**self.table.weights(), **({"bias": (self.d_out,)} if self.bias else {})}

    def ordered(self, core: Callable[[str], Any]) -> list[Any]:
        return [one.transpose(1, 2) for one in super().ordered(core)]
