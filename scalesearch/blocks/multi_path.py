"""Several paths in place of one part of a layer, each with weights of its own, and how they meet again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Block, LoopNest, Shape, Size, Use, block
from scalesearch.blocks.elementwise import add_promoted, multiply_promoted
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.norms import NORM_CLASSES

if TYPE_CHECKING:
    from torch import Tensor

PATH_TARGETS = ("attention", "ffn", "sublayer", "layer")
MERGE_METHODS = ("mean", "sum", "weighted", "gated")


@block
class PathMerge(Block):
    """Paths of (batch, positions, d) to one: their mean, sum, or a sum with weights.

    ``weighted``: free weights, a mean's at first. ``gated``: softmax(W x + b) at each position of
    the paths' input. ``norm_type``: the kind of a norm at the end of each path, or none.
    """

    d: Size
    over: Shape
    count: int
    method: str
    norm_type: str = ""

    @property
    def path_norms(self) -> list[str]:
        """The norms of the paths, if there are any: with zeros there the paths give zero."""
        return [f"norm_{n}" for n in range(1, self.count + 1)] if self.norm_type else []

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.count,)} if self.method == "weighted" else {}

    def initialization(self, name: str) -> str:
        return "zero"

    def parts(self) -> Mapping[str, Block | Use]:
        gate = {"gate": Linear(self.d, self.count, self.over)} if self.method == "gated" else {}
        return {**{name: NORM_CLASSES[self.norm_type](self.d, self.over)
                   for name in self.path_norms}, **gate}

    def loop_nests(self) -> Sequence[LoopNest]:
        """Kept besides the paths' outputs: their sum, in whose place they are where no weight meets them."""
        sums = 1 if self.method in ("weighted", "gated") else 1 - self.count
        return [LoopNest((*self.over, self.d * sums), "activation")]

    def forward(self, module: Any, x: Tensor, paths: Sequence[Any]) -> Tensor:
        if self.norm_type:
            paths = [getattr(module, name)(path) for name, path in zip(self.path_norms, paths)]
        if self.method == "weighted":
            paths = [multiply_promoted(path, weight + 1 / self.count)
                     for path, weight in zip(paths, module.weight)]
        elif self.method == "gated":
            paths = [multiply_promoted(path, share)
                     for path, share in zip(paths, module.gate(x).softmax(-1).split(1, -1))]
        total = reduce(add_promoted, paths)
        return total / self.count if self.method == "mean" else total


@block
class MultiPath(Block):
    """``count`` parts of one shape: on one input and merged, or each with a state of its own."""

    path: Any
    count: int
    merge: PathMerge | None = None

    @property
    def over(self) -> Shape:
        """The axes that it is applied over."""
        over: Shape = self.path.over
        return over

    @property
    def copies_input(self) -> Any:
        return self.path.copies_input if self.merge is None or self.merge.method != "gated" else False

    @property
    def branches(self) -> Mapping[str, Block]:
        """The paths."""
        return {f"path_{n}": self.path for n in range(1, self.count + 1)}

    def parts(self) -> Mapping[str, Block | Use]:
        return {**self.branches, **({} if self.merge is None else {"merge": self.merge})}

    def loop_nests(self) -> Sequence[LoopNest]:
        """What paths with one input say each, put right: it is not kept once."""
        if self.merge is None:
            return []
        spared = self.count - (self.merge.method != "gated")
        return [LoopNest((*self.over, self.merge.d * spared * self.path.copies_input), "activation")]

    def forward(self, module: Any, x: Tensor, *context: Any) -> Tensor:
        return module.merge(
            x, [getattr(module, name)(x, *select_path(name, context)) for name in self.branches])


def select_path(name: str, context: tuple[Any, ...]) -> tuple[Any, ...]:
    """``context`` of one path: scores are carried from layer to layer by path."""
    return tuple(one.setdefault(name, {}) if name and isinstance(one, dict) else one
                 for one in context)


@block
class MultiPathConfig(Block):
    """What a layer has several of, how many, and how they meet: one of ``PATHS_OF``, and of ``MERGES``."""

    target: str
    count: int
    merge: str
    norm: bool

    def without_ffn(self) -> MultiPathConfig | None:
        """The same of a layer without feed-forward networks."""
        return None if self.target == "ffn" else replace(
            self, target="attention") if self.target == "sublayer" else self

    def wrap(self, part: Any, slot: str, merge: PathMerge) -> Any:
        """The part of a layer under the word ``slot``, several times if it is to be."""
        if self.target == "layer":
            return MultiPath(part, self.count)
        kind = "ffn" if slot == "ffn" else "attention" if slot in (
            "attention", "self", "cross") else "sublayer"
        meant = self.target in ("sublayer", kind)
        return MultiPath(part, self.count, merge) if meant else part
