"""Parallel paths of a part of a layer, with separate weights, and their merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
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
    """Merge of ``count`` paths, (batch, positions, d) each, to (batch, positions, d).

    Attributes:
        d: features.
        over: axes.
        count: number of paths.
        method: ``mean``; ``sum``; ``weighted``, a sum with learned weights, initially the mean;
            ``gated``, a sum with the weights softmax(W x + b) at each position of the input x.
        norm_type: type of the norm at the end of each path; empty for no norm.
    """

    d: Size
    over: Shape
    count: int
    method: str
    norm_type: str = ""

    @cached_property
    def path_norms(self) -> list[str]:
        """Names of the norms of the paths; if their weights are zero, so is the output."""
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
        """Return the correction of the stored activations of the paths.

        With learned weights the sum is stored in addition to the outputs of the paths; otherwise
        only the sum is stored.
        """
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
    """``count`` copies of a part with separate weights.

    With ``merge``, all read the same input and their outputs are merged. Without it, the layer
    calls each path with its own state.
    """

    path: Any
    count: int
    merge: PathMerge | None = None

    @property
    def over(self) -> Shape:
        """Axes of the input."""
        over: Shape = self.path.over
        return over

    @property
    def copies_input(self) -> Any:
        if self.merge is not None and self.merge.method == "gated":
            return False
        return self.path.copies_input

    @cached_property
    def branches(self) -> Mapping[str, Block]:
        """The paths by part name."""
        return {f"path_{n}": self.path for n in range(1, self.count + 1)}

    def residual_roles(self) -> Mapping[str, str]:
        norms = [] if self.merge is None else self.merge.path_norms
        roles = {f"merge.{name}": "residual_norm" for name in norms}
        for name, branch in self.branches.items():
            for path, role in branch.residual_roles().items():
                # A norm cancels the scale of the last map before it.
                before_norm = norms and role == "residual_out"
                roles[f"{name}.{path}"] = "residual_in" if before_norm else role
        return roles

    def parts(self) -> Mapping[str, Block | Use]:
        return {**self.branches, **({} if self.merge is None else {"merge": self.merge})}

    def loop_nests(self) -> Sequence[LoopNest]:
        """Return the correction for the input, which all paths read but is stored once."""
        if self.merge is None:
            return []
        unsaved = self.count - (self.merge.method != "gated")
        size = self.merge.d * unsaved * self.path.copies_input
        return [LoopNest((*self.over, size), "activation")]

    def forward(self, module: Any, x: Tensor, *context: Any) -> Tensor:
        return module.merge(
            x, [getattr(module, name)(x, *select_path(name, context)) for name in self.branches])


def select_path(name: str, context: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of one path.

    Each path has its own attention scores to carry.

    Args:
        name: name of the path; empty if there is only one.
        context: arguments of the part after its input.
    """
    return tuple(item.setdefault(name, {}) if name and isinstance(item, dict) else item
                 for item in context)


@block
class MultiPathConfig(Block):
    """Parallel paths of a layer.

    Attributes:
        target: the parts that have several paths, one of ``PATH_TARGETS``.
        count: number of paths.
        merge: one of ``MERGE_METHODS``.
        norm: whether each path ends with a norm.
    """

    target: str
    count: int
    merge: str
    norm: bool

    def without_ffn(self) -> MultiPathConfig | None:
        """Return the equivalent paths of a layer without feed-forward networks, or None."""
        if self.target == "ffn":
            return None
        return replace(self, target="attention") if self.target == "sublayer" else self

    def wrap(self, part: Any, slot: str, merge: PathMerge) -> Any:
        """Return the part for the word ``slot``, as several paths if it is a target."""
        if self.target == "layer":
            return MultiPath(part, self.count)
        target = "sublayer"
        if slot in ("ffn", "attention", "self", "cross"):
            target = "ffn" if slot == "ffn" else "attention"
        is_target = self.target in ("sublayer", target)
        return MultiPath(part, self.count, merge) if is_target else part
