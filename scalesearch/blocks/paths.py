"""Several paths in place of one part of a layer, each with weights of its own, and how they meet again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from scalesearch.blocks.core import Block, Shape, Size, Use, Work, block
from scalesearch.blocks.elementwise import plus, times
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.norms import NORM_KINDS

PATHS_OF = ("attention", "ffn", "sublayer", "layer")
MERGES = ("mean", "sum", "weighted", "gated")


@block
class Merge(Block):
    """Paths of (batch, positions, d) to one: their mean, sum, or a sum with weights.

    ``weighted``: free weights, a mean's at first. ``gated``: softmax(W x + b) at each position of the paths' input.
    ``norms``: the kind of a norm at the end of each path, or none.
    """

    d: Size
    over: Shape
    count: int
    kind: str
    norms: str = ""

    @property
    def ends(self) -> list[str]:
        """The norms of the paths, if there are any: with zeros there the paths give zero."""
        return [f"norm_{n}" for n in range(1, self.count + 1)] if self.norms else []

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.count,)} if self.kind == "weighted" else {}

    def start(self, name: str) -> str:
        return "zero"

    def parts(self) -> Mapping[str, Block | Use]:
        gate = {"gate": Linear(self.d, self.count, self.over)} if self.kind == "gated" else {}
        return {**{name: NORM_KINDS[self.norms](self.d, self.over) for name in self.ends}, **gate}

    def work(self) -> Sequence[Work]:
        """Kept besides the paths' outputs: their sum, in whose place they are where no weight meets them."""
        sums = 1 if self.kind in ("weighted", "gated") else 1 - self.count
        return [Work((*self.over, self.d * sums), "activation")]

    def forward(self, m: Any, x: Any, paths: Sequence[Any]) -> Any:
        if self.norms:
            paths = [getattr(m, name)(path) for name, path in zip(self.ends, paths)]
        if self.kind == "weighted":
            paths = [times(path, weight + 1 / self.count) for path, weight in zip(paths, m.weight)]
        elif self.kind == "gated":
            paths = [times(path, share) for path, share in zip(paths, m.gate(x).softmax(-1).split(1, -1))]
        total = reduce(plus, paths)
        return total / self.count if self.kind == "mean" else total


@block
class Several(Block):
    """``count`` parts of one shape: on one input and merged, or each with a state of its own."""

    path: Any
    count: int
    merge: Merge | None = None

    @property
    def over(self) -> Shape:
        """The axes that it is applied over."""
        over: Shape = self.path.over
        return over

    @property
    def copies(self) -> Any:
        return self.path.copies if self.merge is None or self.merge.kind != "gated" else False

    @property
    def added(self) -> Mapping[str, Block]:
        """The paths."""
        return {f"path_{n}": self.path for n in range(1, self.count + 1)}

    def parts(self) -> Mapping[str, Block | Use]:
        return {**self.added, **({} if self.merge is None else {"merge": self.merge})}

    def work(self) -> Sequence[Work]:
        """What paths with one input say each, put right: it is not kept once."""
        if self.merge is None:
            return []
        spared = self.count - (self.merge.kind != "gated")
        return [Work((*self.over, self.merge.d * spared * self.path.copies), "activation")]

    def forward(self, m: Any, x: Any, *context: Any) -> Any:
        return m.merge(x, [getattr(m, name)(x, *of_path(name, context)) for name in self.added])


def of_path(name: str, context: tuple[Any, ...]) -> tuple[Any, ...]:
    """``context`` of one path: scores are carried from layer to layer by path."""
    return tuple(one.setdefault(name, {}) if name and isinstance(one, dict) else one for one in context)


@block
class Paths(Block):
    """What a layer has several of, how many, and how they meet: one of ``PATHS_OF``, and of ``MERGES``."""

    of: str
    count: int
    merge: str
    norm: bool

    def without_ffn(self) -> Paths | None:
        """The same of a layer without feed-forward networks."""
        return None if self.of == "ffn" else replace(self, of="attention") if self.of == "sublayer" else self

    def wrapped(self, part: Any, slot: str, merge: Merge) -> Any:
        """The part of a layer under the word ``slot``, several times if it is to be."""
        if self.of == "layer":
            return Several(part, self.count)
        kind = "ffn" if slot == "ffn" else "attention" if slot in ("attention", "self", "cross") else "sublayer"
        meant = self.of in ("sublayer", kind)
        return Several(part, self.count, merge) if meant else part
