"""Blocks: descriptions of the parts of a model, and the list of their costs.

A *leaf* block defines the shapes of its weights, its loop nests and its operation. A *composite*
block defines its parts and how they are combined. Costs are sums over :func:`iterate_cost_lines`.
:mod:`scalesearch.nn` builds modules from the same definitions.

Sizes are ints. To compute the costs of a whole population at once, a size can also be an int64
array, or a polynomial over such arrays, with one value per candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, dataclass_transform

from scalesearch.blocks.options import identity_name, option_field

if TYPE_CHECKING:
    from torch import Tensor

# The first token ids of every vocabulary.
PAD = 0
UNK = 1
BOS = 2
EOS = 3
FIRST_WORD = 4

Size: TypeAlias = int
Axis: TypeAlias = str
Extent: TypeAlias = Size | Axis

# Axes: lengths to which a protocol assigns values in each pass. In a teacher-forced pass, SRC,
# CROSS_MEMORY and SRC_KEYS are S, and TGT and TGT_KEYS are T. In step t of cached decoding, TGT is
# 1, TGT_KEYS is t and CROSS_MEMORY is 0, because the keys of the source are in the cache.
SRC = "src"  # source positions that the encoder processes
CROSS_MEMORY = "memory"  # source positions projected to cross-attention keys and values
SRC_KEYS = "src_keys"  # source positions that a target position attends to
TGT = "tgt"  # target positions that the decoder and the output projection process
TGT_KEYS = "keys"  # target positions that a target position attends to
SEQ = "seq"  # decoder-only models: positions of the source followed by the target
SEQ_KEYS = "seq_keys"  # decoder-only models: positions that a position attends to
TGT_STEP = "tgt_step"  # TGT in a pass of cached decoding, and 0 in other passes
SEQ_STEP = "seq_step"  # SEQ in a pass of cached decoding, and 0 in other passes
TEXT = "text"  # 1 in the pass that encodes the source, and 0 in other passes
VOCAB = "vocab"

KEY_AXES = {TGT: TGT_KEYS, SEQ: SEQ_KEYS}  # positions that the positions of an axis attend to
QUERY_AXES = {keys: queries for queries, keys in KEY_AXES.items()}
STEP_AXES = {TGT: TGT_STEP, SEQ: SEQ_STEP}

Shape: TypeAlias = tuple[Extent, ...]
Axes: TypeAlias = tuple[Axis, ...]


def bounded_axis(axis: Axis, limit: int) -> Axis:
    """Return an axis with the length of ``axis``, but at most ``limit``: ``keys<=512``."""
    return f"{axis}<={limit}"


@dataclass(frozen=True)
class LoopNest:
    """A loop nest that runs once per call.

    Attributes:
        loops: extents of the loops; axes get their lengths from a protocol.
        operation: type of the innermost step:

            - ``mac``: a multiply-add of a matrix product;
            - ``bias``: an addition of a bias;
            - ``norm``: an element of a normalization;
            - ``mix``: a multiply-add across heads of attention scores, which some counting
              conventions omit;
            - ``once``: a multiply-add on weights only, computed once before inference;
            - ``cache``: a number that is stored for the next decoding step;
            - ``activation``: a number that is stored for the backward pass;
            - ``activation_once``: the same for a number that all sentences of a batch share.
    """

    loops: Shape
    operation: str = "mac"


@dataclass_transform(frozen_default=True, field_specifiers=(field, option_field))
def block(cls: type[Any]) -> type[Any]:
    """Decorate a class as a block: a frozen, comparable and hashable dataclass."""
    return dataclass(frozen=True)(cls)


class Block:
    """Base class of all parts of a model; subclasses are decorated with :func:`block`."""

    def bind_vocabulary(self, vocab: Size) -> Block:
        """Return this block with ``vocab`` tokens, if its shapes depend on them."""
        return self

    def validate(self) -> tuple[str, str] | None:
        """Check that the sizes of the block are consistent.

        Sizes may be arrays: use :func:`scalesearch.blocks.sizes.decide` for conditions.

        Returns:
            The name of an invalid option and the reason, or None if all sizes are valid.
        """
        return None

    def weights(self) -> Mapping[str, Shape]:
        """Return the shapes of the weights by name (leaves)."""
        return {}

    def initialization(self, name: str) -> str:
        """Return the initialization of the weight ``name``.

        - ``scheme``: as the initialization scheme draws matrices and biases;
        - ``heads``: the same, separately for each index of the first axis;
        - ``table``: N(0, 1/d);
        - ``tokens``: N(0, 1/d), with zeros in the row of the padding token;
        - ``cores``, ``table cores``: cores of a tensor chain that represents a matrix or a table;
        - ``one``, ``zero``: the constant.
        """
        return "scheme"

    def loop_nests(self) -> Sequence[LoopNest]:
        """Return the loop nests of one call, without those of the parts of a composite."""
        return ()

    @property
    def copies_input(self) -> Any:
        """Whether the backward pass stores a copy of the input, not the input itself.

        A bool, or an array with one value per candidate of a population.
        """
        return False

    def parts(self) -> Mapping[str, Block | Use]:
        """Return the parts by name (composites)."""
        return {}

    def part_roles(self) -> Mapping[str, str]:
        """Return the roles of parts whose initial values depend on them, by name of the part.

        Initialization schemes are tables by role.

        - ``attention_in``: queries, keys or values;
        - ``attention_out``: the output map of a mixer;
        - ``head_gate``: the gate of networks inside heads;
        - ``soft_role``: the roles of H-SoftPOS;
        - ``adapter_out``: the last matrix of an adapter;
        - ``readout``: the map to scores of tokens.
        """
        return {}

    def residual_roles(self) -> Mapping[str, str]:
        """Return the roles of maps and norms in a residual branch, by path of the part.

        Scaling rules give each role its factors on initial values and learning rate.

        - ``residual_out``: a last map; if the weights of all are zero, so is the output;
        - ``residual_norm``: a norm after the last maps;
        - ``residual_in``: a map before these, such as the values of attention;
        - ``query``: the queries of attention.
        """
        return {}

    def forward(self, module: Any, *args: Any) -> Tensor:
        """Run the block.

        Args:
            module: the :class:`scalesearch.nn.module.Module` that was built from this block. Its
                attributes are the modules of the parts and the weights.
            args: inputs, (batch, positions, features) unless documented otherwise.
        """
        raise TypeError(f"{type(self).__name__} has no forward function")


def has_matrices(block: Block, path: str, name: str) -> bool:
    """Return whether a weight is a matrix, or a matrix per head.

    Optimizers of matrices update these weights, and not tables, cores, vectors and the output
    projection.
    """
    return (name != "bias" and block.initialization(name) in ("scheme", "heads")
            and path.partition(".")[0] != "output")


def discarded_activations(d: Size, axes: Shape, reader: Any) -> list[LoopNest]:
    """Return the correction for ``d`` features that only the block ``reader`` reads.

    If the reader stores a copy of its input, the features themselves are not stored: they are
    subtracted from the activations.
    """
    if reader.copies_input is False:
        return []
    return [LoopNest((*axes, -d * reader.copies_input), "activation")]


@dataclass(frozen=True)
class LinearFactory:
    """Function from sizes to a linear map.

    The map is for example a matrix, a tensor chain or a low-rank product. A block calls
    ``self.linear_factory(d_in, d_out, over)`` and works with every type of map.
    """

    def __call__(self, d_in: Size, d_out: Extent, over: Shape, bias: bool = True) -> Block:
        """Return a block from (…, d_in) to (…, d_out) at every position of ``over``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Use:
    """A part of a composite block.

    Attributes:
        block: the part.
        calls: calls per call of the composite.
        tied: path of the part whose weights it uses; None if it has its own.
        untied: names of weights that are its own if it is tied.
    """

    block: Block
    calls: Size = 1
    tied: str | None = None
    untied: tuple[str, ...] = field(default=(), metadata={"plain": ()})


@dataclass(frozen=True)
class Tie:
    """Weight tying of one part of the layers of a stack.

    Attributes:
        part: name of the part.
        schedule: the layers that share weights.
        excluded: names of weights and inner parts that are not shared.
    """

    part: str
    schedule: Any  # SharingSchedule or CrossStackTie of blocks.weight_sharing
    excluded: tuple[str, ...] = ()

    def excludes(self, path: str, name: str) -> bool:
        """Return whether the weight ``name`` of the leaf at ``path`` is not shared."""
        return not set(self.excluded).isdisjoint((*path.split("."), name))


@block
class Repeat(Block):
    """A stack of ``depth`` layers.

    Attributes:
        layer: the layer; the first one if the sizes of the layers differ.
        depth: number of layers.
        ties: weight tying between the layers, at most one entry per part.
        distinct_layers: all layers if their sizes differ; ``depth`` is then an int.
    """

    layer: Block
    depth: Size
    ties: tuple[Tie, ...] = ()
    distinct_layers: tuple[Block, ...] = ()

    def layer_at(self, index: int) -> Block:
        """Return the layer at ``index``, from 0."""
        return self.distinct_layers[index] if self.distinct_layers else self.layer

    @property
    def layers_by_size(self) -> tuple[Block, ...]:
        """All layers if their sizes differ, otherwise the layer that is repeated."""
        return self.distinct_layers or (self.layer,)


@dataclass(frozen=True)
class CostLine:
    """Costs of a leaf, or of the operations of a composite itself.

    Attributes:
        path: path of the block.
        calls: calls per pass.
        weight_copies: number of independent copies of each weight.
        weights: shapes of the weights.
        loop_nests: loop nests of one call.
    """

    path: str
    block: Block
    calls: Size
    weight_copies: Mapping[str, Size]
    weights: Mapping[str, Shape]
    loop_nests: Sequence[LoopNest]


def iterate_cost_lines(
    node: Block, path: str = "", vocab: Size | None = None, calls: Size = 1, copies: Size = 1,
    tie: tuple[Size, Tie] | None = None,
) -> Iterator[CostLine]:
    """Yield the cost lines of a block and its parts.

    Equal layers of a stack are one line. If layers differ, the first layer of a group owns the
    weights that the group shares.

    Args:
        node: the block.
        path: its path.
        vocab: size of the vocabulary; None if the blocks have it already.
        calls: calls of the node per pass.
        copies: independent copies of its weights.
        tie: number of copies and weight tying of the part of a stack that contains the node.
    """
    if isinstance(node, Repeat):
        layer = node.layer
        depth = node.depth
        ties = {layer_tie.part: layer_tie for layer_tie in node.ties}
        for index, distinct in enumerate(node.distinct_layers):
            if nests := distinct.loop_nests():
                yield CostLine(join_path(path, str(index)), distinct, calls, {}, {}, nests)
            for name, part in distinct.parts().items():
                use = part if isinstance(part, Use) else Use(part)
                tie = None
                if name in ties:
                    owned = ties[name].schedule.canonical_groups(depth)[index] == index
                    tie = (copies * owned, ties[name])
                yield from iterate_cost_lines(use.block, join_path(path, f"{index}.{name}"), vocab,
                                              calls * use.calls,
                                              copies if use.tied is None else 0, tie)
        if node.distinct_layers:
            return
        if nests := layer.loop_nests():
            yield CostLine(path, layer, calls * depth, {}, {}, nests)
    else:
        layer = node if vocab is None else node.bind_vocabulary(vocab)
        depth = 1
        ties = {}
        weights = layer.weights()
        nests = layer.loop_nests()
        if weights or nests:
            counts = {name: copies if tie is None or tie[1].excludes(path, name) else tie[0]
                      for name in weights}
            yield CostLine(path, layer, calls, counts, weights, nests)
    for name, part in layer.parts().items():
        use = part if isinstance(part, Use) else Use(part)
        if isinstance(node, Repeat):
            tie = None
            if name in ties:
                tie = (copies * ties[name].schedule.num_groups(depth), ties[name])
        count = copies * depth if use.tied is None or use.untied else 0
        if use.tied is not None and use.untied:
            tie = (0, Tie(name, None, use.untied))
        yield from iterate_cost_lines(use.block, join_path(path, name), vocab,
                                      calls * depth * use.calls, count, tie)


def join_path(path: str, name: str) -> str:
    """Return ``path.name``, or ``name`` at the root."""
    return f"{path}.{name}" if path else name


def canonical_config(value: Any, depth: Size | None = None) -> Any:
    """Return a JSON value that is equal for equal networks.

    It contains names of classes and fields
    (see :data:`~scalesearch.blocks.options.IDENTITY_NAMES`), sizes, and weight tying as lists of
    owners: ``cycle(4)`` over four layers is the same as no sharing. The ids of architectures are
    hashes of this value.

    Args:
        value: a block or a field of a block.
        depth: number of layers that a :class:`Tie` applies to.
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
        values = {identity_name(cls, f.name): getattr(value, f.name)
                  for f in fields(value)  # type: ignore[arg-type]
                  if getattr(value, f.name) != f.metadata.get("plain", MISSING)}
        return [identity_name(cls), {name: canonical_config(item) for name, item in values.items()}]
    if isinstance(value, tuple | list):
        return [canonical_config(item) for item in value]
    return value
