"""The bill of materials: blocks, their statements about themselves, and the walk over them.

A *leaf* states its weight shapes, its loop nests and its operation. A *composite* states its parts
and how they meet. Costs are folds over :func:`iterate_cost_lines`; modules are built from the same
statements by :mod:`scalesearch.nn`. Sizes are ints; where only costs are asked for, int64 arrays of
one shape may stand in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, dataclass_transform

from scalesearch.blocks.options import identity_name, option_field

if TYPE_CHECKING:
    from torch import Tensor

PAD = 0

Size: TypeAlias = int
Axis: TypeAlias = str
Extent: TypeAlias = Size | Axis

# Axes: lengths that a protocol binds, pass by pass. A teacher-forced pass binds SRC = MEMORY =
# SRC_KEYS = S and
# TGT = KEYS = T; a cached decoding step binds TGT = 1, KEYS = t and MEMORY = 0 (cross keys are
# already there).
SRC = "src"  # source positions that go through the encoder
CROSS_MEMORY = "memory"  # source positions projected to cross-attention keys and values
SRC_KEYS = "src_keys"  # source positions that a target position attends to
TGT = "tgt"  # target positions that go through the decoder and the output projection
TGT_KEYS = "keys"  # target positions that a target position attends to
# decoder-only models: source and target positions, one after the other, through the stack
SEQ = "seq"
SEQ_KEYS = "seq_keys"  # decoder-only models: positions that a position attends to
VOCAB = "vocab"

AXES = (SRC, CROSS_MEMORY, SRC_KEYS, TGT, TGT_KEYS, SEQ, SEQ_KEYS, VOCAB)

Shape: TypeAlias = tuple[Extent, ...]
Axes: TypeAlias = tuple[Axis, ...]


@dataclass(frozen=True)
class LoopNest:
    """A loop nest run once a call; ``operation`` is its innermost step.

    ``mac``: a multiply-add of a matrix product. ``bias``: one bias addition. ``norm``: one element
    normalized. ``mix``: a multiply-add across heads, of attention scores (a convention may leave it
    out). ``once``: a multiply-add on weights alone, the same for every batch: folded away before
    inference. ``cache``: one number kept for the next decoding step. ``activation``: one number
    kept for the backward pass.
    """

    loops: Shape
    operation: str = "mac"


@dataclass_transform(frozen_default=True, field_specifiers=(field, option_field))
def block(cls: type[Any]) -> type[Any]:
    """Make a class a block: a frozen, comparable, hashable value."""
    return dataclass(frozen=True)(cls)


class Block:
    """Base class of all parts of a model; subclasses are frozen values."""

    def bind_vocabulary(self, vocab: Size) -> Block:
        """This block for a vocabulary of ``vocab`` tokens, where its shapes depend on that."""
        return self

    def validate(self) -> tuple[str, str] | None:
        """An option whose value contradicts other sizes, and the reason; None if sizes agree.

        Sizes may be arrays here as everywhere; a condition on them reads as one on ints.
        """
        return None

    def weights(self) -> Mapping[str, Shape]:
        """Weight name to shape (leaves)."""
        return {}

    def initialization(self, name: str) -> str:
        """The kind of initial value of the weight ``name``.

        ``scheme``: as the initialization scheme draws matrices and biases. ``heads``: so for each
        of the first extent. ``table``: N(0, 1/d). ``tokens``: the same, with zeros for padding.
        ``cores``, ``table cores``: of a chain that stands for a matrix or a table. ``one``,
        ``zero``.
        """
        return "scheme"

    def loop_nests(self) -> Sequence[LoopNest]:
        """The loop nests of one call: of leaves, and of what a composite does itself between its parts."""
        return ()

    @property
    def copies_input(self) -> Any:
        """True where the backward pass keeps a copy of the input in its place; an array for a population."""
        return False

    def parts(self) -> Mapping[str, Block | Use]:
        """Name to part (composites)."""
        return {}

    def forward(self, module: Any, *args: Any) -> Tensor:
        """Run on ``module``, the module built from this block, using its parts and weights only."""
        raise TypeError(f"{type(self).__name__} is not called as a whole")


def discarded_activations(d: Size, axes: Shape, reader: Any) -> list[LoopNest]:
    """What the backward pass does not keep of ``d`` features that only ``reader`` reads: all, if it keeps a copy."""
    return [] if reader.copies_input is False else [LoopNest((*axes, -d * reader.copies_input), "activation")]


@dataclass(frozen=True)
class LinearFactory:
    """A way to make a linear map: a matrix, a tensor chain, low rank.

    A block calls ``self.site(d_in, d_out, over)`` and never knows which.
    """

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        """A block from (…, d_in) to (…, d_out), applied at every position of ``over``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Use:
    """A part, its ``calls`` a pass, and ``tied``: the path of the part whose weights it uses."""

    block: Block
    calls: Size = 1
    tied: str | None = None


@dataclass(frozen=True)
class Tie:
    """A part shared between layers by ``schedule``; names in ``excluded`` are not shared."""

    part: str
    schedule: Any  # blocks.share.Schedule or Borrow
    excluded: tuple[str, ...] = ()

    def excludes(self, path: str, name: str) -> bool:
        """True if the weight ``name`` of the leaf at ``path`` is not shared."""
        return not set(self.excluded).isdisjoint((*path.split("."), name))


@block
class Repeat(Block):
    """A stack of ``depth`` calls of one layer; ``ties`` share weights, and do not overlap.

    ``distinct_layers``: all layers, where their sizes differ; ``layer`` is then the first of them,
    and ``depth`` an int.
    """

    layer: Block
    depth: Size
    ties: tuple[Tie, ...] = ()
    distinct_layers: tuple[Block, ...] = ()

    def layer_at(self, number: int) -> Block:
        """The layer ``number``, from 0 on."""
        return self.distinct_layers[number] if self.distinct_layers else self.layer


@dataclass(frozen=True)
class CostLine:
    """A leaf on the bill, or a composite with work of its own: its calls a pass, and the copies of each weight."""

    path: str
    block: Block
    calls: Size
    weight_copies: Mapping[str, Size]
    weights: Mapping[str, Shape]
    loop_nests: Sequence[LoopNest]


def iterate_cost_lines(node: Block, path: str = "", vocab: Size | None = None, calls: Size = 1,
                       copies: Size = 1, tie: tuple[Size, Tie] | None = None) -> Iterator[CostLine]:
    """Yield the lines of the bill beneath ``node``, repeated layers as counts.

    Args:
        vocab: tokens, where shapes need it.
        calls, copies: of the node in a pass.
        tie: the tie of the part that the node is in, and its groups.
    """
    if isinstance(node, Repeat):
        if node.distinct_layers:
            yield from _walk_each(node, path, vocab, calls, copies)
            return
        layer = node.layer
        depth = node.depth
        ties = {one.part: one for one in node.ties}
        if work := layer.loop_nests():
            yield CostLine(path, layer, calls * depth, {}, {}, work)
    else:
        layer = node if vocab is None else node.bind_vocabulary(vocab)
        depth = 1
        ties = {}
        weights = layer.weights()
        work = layer.loop_nests()
        if weights or work:
            counts = {name: copies if tie is None or tie[1].excludes(path, name) else tie[0]
                      for name in weights}
            yield CostLine(path, layer, calls, counts, weights, work)
    for name, part in layer.parts().items():
        use = part if isinstance(part, Use) else Use(part)
        if isinstance(node, Repeat):
            tie = (copies * ties[name].schedule.num_groups(depth), ties[name]) if name in ties else None
        count = copies * depth if use.tied is None else 0
        yield from iterate_cost_lines(use.block, join_path(path, name), vocab,
                                      calls * depth * use.calls, count, tie)


def _walk_each(node: Repeat, path: str, vocab: Size | None, calls: Size,
               copies: Size) -> Iterator[CostLine]:
    """Yield the lines of layers whose sizes differ, one layer after the other; shared weights at their owner's."""
    ties = {one.part: one for one in node.ties}
    for number, layer in enumerate(node.distinct_layers):
        if work := layer.loop_nests():
            yield CostLine(join_path(path, str(number)), layer, calls, {}, {}, work)
        for name, part in layer.parts().items():
            use = part if isinstance(part, Use) else Use(part)
            tie = ties.get(name)
            owned = tie is None or tie.schedule.canonical_groups(
                len(node.distinct_layers))[number] == number
            yield from iterate_cost_lines(use.block, join_path(path, f"{number}.{name}"), vocab,
                                          calls * use.calls, copies if use.tied is None else 0,
                                          None if tie is None else (copies * owned, tie))


def join_path(path: str, name: str) -> str:
    """``path.name``, or ``name`` at the root."""
    return f"{path}.{name}" if path else name


def canonical_config(value: Any, depth: Size | None = None) -> Any:
    """A JSON value that is equal for equal networks: kinds, sizes, ties as owner lists.

    Schedules become the layers' groups, so ``cycle(4)`` over four layers is the same as sharing
    nothing.
    """
    if isinstance(value, Repeat):
        ties = [canonical_config(tie, value.depth) for tie in value.ties]
        return ["Repeat", canonical_config(value.distinct_layers or value.layer), value.depth,
                [tie for tie in ties if tie is not None]]
    if isinstance(value, Tie):
        assert depth is not None
        groups = value.schedule.canonical_groups(depth)
        return None if groups == list(range(depth)) else [value.part, groups, list(value.excluded)]
    if isinstance(value, Block | Use | LinearFactory):
        cls = type(value)
        values = {identity_name(cls, f.name): getattr(value, f.name) for f in fields(value)  # type: ignore[arg-type]
                  if getattr(value, f.name) != f.metadata.get("plain", MISSING)}
        return [identity_name(cls), {name: canonical_config(item) for name, item in values.items()}]
    if isinstance(value, tuple | list):
        return [canonical_config(item) for item in value]
    return value
