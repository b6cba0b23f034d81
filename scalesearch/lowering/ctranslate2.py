"""Variables of a CTranslate2 model with the same function as an architecture.

The runtime has a fixed sequence of sub-layers::

    encoder                               decoder
      embeddings_0, position_encodings      embeddings, position_encodings
      layer_0                               layer_0
        self_attention                        self_attention
                                              attention         (cross-attention)
        ffn                                   ffn
      layer_1 …                             layer_1 …
      layer_norm                            layer_norm
                                            projection

Every sub-layer has a ``layer_norm`` and linear maps. Those of self-attention are ``linear_0``
(query, key and value in one matrix) and ``linear_1`` (output). Cross-attention has ``linear_0``
(query), ``linear_1`` (key and value) and ``linear_2`` (output). A feed-forward network has
``linear_0``, ``linear_1`` and, with a gate, ``linear_0_noact``.

If the runtime needs a sub-layer that the model does not have, a *neutral* sub-layer is added, which
adds zero. In a post-norm model, the norm before a neutral sub-layer then has neither gain nor bias,
and the norm of the neutral sub-layer has them. This is equal up to the epsilon of the norms.
Low-rank products, tensor chains, adapters and factorized tables are contracted to matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any

from scalesearch.blocks.core import Block, Size
from scalesearch.blocks.embedding import TokenEmbedding
from scalesearch.blocks.ffn import (
    GEGLU,
    GELU,
    GatedFFN,
    ReLU,
    SelfGated,
    SwiGLU,
    Swish,
    TwoLayerFFN,
)
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.attention_extras import ROTARY_BASE
from scalesearch.blocks.norms import NORM_CLASSES
from scalesearch.blocks.seq2seq import EncoderDecoder
from scalesearch.blocks.sizes import decide, is_set, map_values, require_single_value
from scalesearch.blocks.stacks import Stack
from scalesearch.lowering import EXTRA_LENGTH, MAX_SOURCE_TOKENS, tensor_expressions
from scalesearch.lowering.tensor_expressions import (
    Concatenation,
    ConstantTensor,
    HeadPadding,
    MatrixProduct,
    TensorExpression,
    TensorSum,
    TransposedMatrix,
    WeightOwners,
    WeightRef,
)


@dataclass(frozen=True)
class RuntimeVariable:
    """A variable of the exported model.

    Attributes:
        name: name in the runtime, for example ``encoder/layer_0/ffn/linear_0/weight``.
        shape: (rows, columns) or (features,).
        expression: its values as an expression of the weights.
        is_quantized: whether quantization changes its type: matrices of linear maps and tables.
    """

    name: str
    shape: tuple[Size, ...]
    expression: TensorExpression
    is_quantized: bool = False

    @property
    def sharing_key(self) -> Hashable:
        """Sharing key: variables with equal keys and shapes have equal values."""
        return tensor_expressions.sharing_key(self.expression)


@dataclass
class VariablePlan:
    """All variables and scalars of an exported model; they determine its size.

    If several variables have the same sharing key and shape, the first one by name is stored and
    the others are aliases. Bytes of a stored variable with N numbers in R rows:

    ====================  ==================================================  ==================
    quantization          quantized variables                                 other variables
    ====================  ==================================================  ==================
    int8                  N, and a variable NAME_scale with R float32         4 N
    int16                 2 N, and a scalar NAME_scale (float32)              4 N
    bf16                  2 N                                                 2 N
    none                  4 N                                                 4 N
    ====================  ==================================================  ==================

    ``model.bin`` has further bytes: per stored variable the length of its name, 8 bytes and 4 bytes
    per dimension; per alias the length of both names and 6 bytes; about 40 bytes per scalar.

    Attributes:
        variables: the variables.
        scalars: numbers by name. A bool or an activation is int8, a count is int16 or int32, a
            scale is float32.
    """

    variables: list[RuntimeVariable] = field(default_factory=list)
    scalars: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[Size, ...], source: TensorExpression | None,
            is_quantized: bool = False) -> None:
        """Add a variable, unless ``source`` is None."""
        if source is not None:
            self.variables.append(RuntimeVariable(name, shape, source, is_quantized))


NEUTRAL_HIDDEN = 8  # hidden units of a neutral feed-forward network
NEUTRAL_HEAD_DIM = 1  # features of a neutral head
# values of the enumeration of the runtime
CT2_ACTIVATION_IDS = {ReLU: 0, SwiGLU: 2, Swish: 2, SelfGated: 2, GELU: 3, GEGLU: 3}
# target positions in addition to 3/2 of the source tokens: 10, BOS and rounding
EXTRA_TARGET_TOKENS = EXTRA_LENGTH + 2
# Type in the runtime of each sub-layer, by its word. Layers of a decoder must have cross-attention:
# otherwise the runtime reorders the cache if sentences end at different steps.
RUNTIME_SUBLAYERS = {
    "encoder": {"attention": "self_attention", "ffn": "ffn"},
    "decoder": {"self": "self_attention", "cross": "attention", "ffn": "ffn"},
}


def plan_variables(block: Block, vocab: Size | None,
                   length: Size = MAX_SOURCE_TOKENS, max_target: int = 0) -> VariablePlan:
    """Return the variables of an architecture.

    All its parts must be supported
    (:func:`~scalesearch.lowering.unsupported.find_unsupported_parts`). Sizes may be those of a
    population.

    Args:
        block: block of an encoder-decoder model.
        vocab: size of the vocabulary; None if the blocks have it already.
        length: largest number of source tokens without EOS, for the table of absolute positions.
        max_target: largest number of target tokens without EOS, if it is above the default limit.

    Raises:
        PopulationSplitError: depths or parts differ between the candidates of a population.
    """
    assert isinstance(block, EncoderDecoder)
    plan = VariablePlan()
    rows = (length + 1) * 3 // 2 + EXTRA_TARGET_TOKENS
    if max_target:
        rows = max(rows, max_target + EXTRA_TARGET_TOKENS - EXTRA_LENGTH)
    for name, stack, embedding in (("encoder", block.encoder, block.embedding.source),
                                   ("decoder", block.decoder, block.embedding.target)):
        assert isinstance(stack, Stack) and isinstance(embedding, TokenEmbedding)
        side = "source" if name == "encoder" else "target"
        _embedding(plan, name, f"embedding.{side}", embedding, vocab, rows, stack.step_signals)
        _StackLowering(plan, name, stack, block.encoder.layer.mixer.d).run()
    weights, bias = tensor_expressions.output_expressions(block.output, vocab)
    words = vocabulary_size(block.embedding.target, vocab)
    plan.add("decoder/projection/weight", (words, block.decoder.layer.mixer.d), weights, True)
    plan.add("decoder/projection/bias", (words,), bias)
    return plan


def vocabulary_size(block: Any, vocab: Size | None) -> Size:
    """Tokens of an embedding's table; ``vocab`` if the table has no size of its own."""
    extent: Any = None
    while extent is None:
        block = block.table
        extent = getattr(block, "rows", getattr(block, "vocab", None))
    size: Size = vocab if isinstance(extent, str) else extent
    return size


def _embedding(plan: VariablePlan, stack: str, path: str, block: TokenEmbedding, vocab: Size | None,
               rows: Size, steps: bool) -> None:
    name = f"{stack}/embeddings{'_0' if stack == 'encoder' else ''}/weight"
    values = tensor_expressions.table_expression(
        block.table, block.tied_table or f"{path}.table", vocab)
    plan.add(name, (vocabulary_size(block, vocab), block.d), values, True)
    positions: TensorExpression
    if block.positions == "learned":
        rows = block.max_length
        positions = WeightRef(f"{path}.position.weight")
    else:
        positions = ConstantTensor("zeros" if block.positions == "none" else block.positions,
                                   (rows, block.d))
    if not block.scaled:
        plan.scalars[f"{stack}/scale_embeddings"] = False
    signal = ConstantTensor("step", (block.d,), 0) if steps else None
    if block.norm_type:  # of the sum with positions; the signal is added to the result
        gain, offset = _norm_weights(block.norm_type, block.d, f"{path}.norm.{{}}".format)
        plan.add(f"{stack}/layernorm_embedding/gamma", (block.d,), gain)
        if block.norm_type != "rms":
            plan.add(f"{stack}/layernorm_embedding/beta", (block.d,), _plus(offset, signal))
    elif signal:
        positions = TensorSum((positions, signal))
    plan.add(f"{stack}/position_encodings/encodings", (rows, block.d), positions)


def _norm_weights(norm_type: str, d: Size, weight_name: Callable[[str], str]
                  ) -> tuple[TensorExpression, TensorExpression]:
    """Return gain and bias of a norm; ``weight_name`` returns the name of a weight's owner."""
    own = NORM_CLASSES[norm_type](d, ()).weights()
    gain, offset = (WeightRef(weight_name(name)) if name in own else ConstantTensor(constant, (d,))
                    for name, constant in (("weight", "ones"), ("bias", "zeros")))
    return gain, offset


@dataclass(frozen=True)
class _Sublayer:
    """A sub-layer of the runtime.

    Attributes:
        name: name in the runtime.
        type: type in the runtime.
        layer: index of the layer of the model.
        part: name of the part of the layer; None if the sub-layer is neutral.
    """

    name: str
    type: str
    layer: int
    part: str | None


class _StackLowering:
    """The conversion of one stack.

    Attributes:
        plan: receives the variables.
        name: ``encoder`` or ``decoder``.
        stack: the stack.
        layer: its first layer.
        mixer, ffn: those of the first layer that has them.
        d: features of the stack.
        memory_d: features of the states that cross-attention reads.
        heads: heads of neutral attention.
        owners: owners of tied weights.
    """

    def __init__(self, plan: VariablePlan, name: str, stack: Stack, memory_d: Size) -> None:
        self.plan = plan
        self.name = name
        self.stack = stack
        self.layer = stack.layer
        layers: tuple[Any, ...] = stack.layers.layers_by_size
        self.d = self.layer.mixer.d
        self.memory_d = memory_d
        self.mixer = next((layer.mixer for layer in layers if not layer.mixer.is_absent), None)
        self.ffn = next((layer.ffn for layer in layers if not layer.ffn.is_absent), None)
        cross_attention = (getattr(layer, "cross_attention", None) for layer in layers)
        attention = [self.mixer, *cross_attention]
        self.heads = next((block.score_heads for block in attention
                           if block is not None and not block.is_absent), 1)
        self.owners = WeightOwners(f"{name}.layers", stack.layers)

    def run(self) -> None:
        """Add all variables of the stack."""
        post = self.layer.norm == "post"
        self.plan.scalars |= {
            f"{self.name}/num_heads": self.heads, f"{self.name}/pre_norm": not post,
            f"{self.name}/activation": CT2_ACTIVATION_IDS.get(type(self.ffn), 0)}
        sublayers = self._runtime_sublayers()
        last_part = sublayers[0]  # the last sub-layer that is not neutral
        for sub, following in zip_longest(sublayers, sublayers[1:]):
            is_last_of_layer = following is not None and following.layer != sub.layer
            signal = (ConstantTensor("step", (self.d,), sub.layer + 1)
                      if self.stack.step_signals and is_last_of_layer else None)
            output_signal = None if post else signal
            if sub.part is None:  # all zeros, except that a network adds the signal
                width = self.heads * NEUTRAL_HEAD_DIM
                if sub.type == "ffn":
                    shapes = [(NEUTRAL_HIDDEN, self.d), (self.d, NEUTRAL_HIDDEN)]
                elif sub.type == "self_attention":
                    shapes = [(3 * width, self.d), (self.d, width)]
                else:
                    shapes = [(width, self.d), (2 * width, self.memory_d), (self.d, width)]
                for index, shape in enumerate(shapes):
                    bias = output_signal if sub.type == "ffn" and index == 1 else None
                    self._linear(f"{sub.name}/linear_{index}", *shape,
                                 ConstantTensor("zeros", shape), bias)
                if sub.type != "ffn":
                    self.plan.scalars |= {f"{sub.name}/head_dim": NEUTRAL_HEAD_DIM}
            elif sub.type == "ffn":
                self._ffn(sub, output_signal)
            else:
                self._attention(sub, output_signal)
            if sub.part is not None:
                last_part = sub
            norm = last_part if post else sub  # the sub-layer of the model with this norm
            is_before_neutral = following is not None and following.part is None
            if norm.part is None or (post and is_before_neutral):
                self._vectors(sub.name, ConstantTensor("ones", (self.d,)),
                              ConstantTensor("zeros", (self.d,)))
            else:
                gain, offset = _norm_weights(
                    self.layer.norm_kind, self.d,
                    partial(self.owners.owner_name, norm.layer, f"{norm.part}_norm"))
                self._vectors(sub.name, gain, _plus(offset, signal if post else None))
        if self.stack.has_final_norm:
            self._vectors(self.name, *_norm_weights(self.layer.norm_kind, self.d,
                                                    f"{self.name}.norm.{{}}".format))

    def _runtime_sublayers(self) -> list[_Sublayer]:
        """Return all sub-layers of the runtime.

        A layer of the model is divided into several layers of the runtime if its sub-layers have
        another order.
        """
        types = RUNTIME_SUBLAYERS[self.name]
        words = list(types)
        layers: list[tuple[int, dict[str, str]]] = []  # layer of the model, and parts by word
        for number in range(require_single_value(self.stack.layers.depth)):
            layer: Any = self.stack.layers.layer_at(number)
            previous = len(words)
            for step in layer.steps:
                word, part = step[0]  # parallel sub-layers are not supported
                index = words.index(word)
                if index <= previous:
                    layers.append((number, {}))
                layers[-1][1][word] = part
                previous = index
        # If the first layer has relative or rotary positions, the runtime omits absolute positions.
        if self.mixer is not None and (is_set(self.mixer.clip) or self.mixer.rotary):
            layers.insert(0, (0, {}))
        return [_Sublayer(f"{self.name}/layer_{index}/{type}", type, layer, parts.get(word))
                for index, (layer, parts) in enumerate(layers) for word, type in types.items()]

    def _vectors(self, name: str, gain: TensorExpression, offset: TensorExpression) -> None:
        self.plan.add(f"{name}/layer_norm/gamma", (self.d,), gain)
        if self.layer.norm_kind != "rms":  # without beta, the runtime uses RMS norm
            self.plan.add(f"{name}/layer_norm/beta", (self.d,), offset)

    def _linear(self, name: str, rows: Size, columns: Size, weight: TensorExpression | None,
                bias: TensorExpression | None) -> None:
        self.plan.add(f"{name}/weight", (rows, columns), weight, True)
        self.plan.add(f"{name}/bias", (rows,), bias)

    def _ffn(self, sub: _Sublayer, signal: TensorExpression | None) -> None:
        layer: Any = self.stack.layers.layer_at(sub.layer)
        ffn = layer.ffn
        maps = ffn.parts()
        if type(ffn) is SelfGated:
            same = ConstantTensor("identity", (self.d,))
            for name in ("linear_0", "linear_0_noact", "linear_1"):
                self._linear(f"{sub.name}/{name}", self.d, self.d, same,
                             signal if name == "linear_1" else None)
            return
        assert isinstance(ffn, TwoLayerFFN | GatedFFN)
        names = {"linear_0": "up", "linear_1": "down"} if isinstance(ffn, TwoLayerFFN) else {
            "linear_0": "gate", "linear_0_noact": "up", "linear_1": "down"}
        for name, part in names.items():
            weight, bias = self._map(sub, maps[part], part)
            shape = (self.d, ffn.hidden) if part == "down" else (ffn.hidden, self.d)
            self._linear(f"{sub.name}/{name}", *shape, weight,
                         _plus(bias, signal if part == "down" else None))

    def _attention(self, sub: _Sublayer, signal: TensorExpression | None) -> None:
        layer: Any = self.stack.layers.layer_at(sub.layer)
        block = layer.parts()[str(sub.part)].block
        maps = block.parts()
        # features of a value head; queries and keys are padded to it
        size = block.heads * block.head_dim // block.score_heads
        is_padded = not is_set(block.kv_heads) and not decide(block.heads == block.score_heads)
        scalars = {"head_dim": size, "queries_scale": map_values(block.head_dim, lambda n: n**-0.5)}
        keys = block.score_heads
        if is_set(block.kv_heads):
            keys = block.kv_heads
            scalars["num_heads_kv"] = keys
        pieces = {}
        for slot, heads in (("query", block.score_heads), ("key", keys), ("value", keys)):
            weight, bias = self._map(sub, maps[slot], slot, block)
            bias = bias or ConstantTensor("zeros", (block.widths[slot[0].upper()],))
            if slot != "value" and is_padded:
                weight = HeadPadding(weight, heads, size)
                bias = HeadPadding(bias, heads, size)
            pieces[slot] = (heads * size, weight, bias)
        groups = [("query", "key", "value")] if sub.type == "self_attention" else [
            ("query",), ("key", "value")]
        for index, slots in enumerate(groups):
            rows, weights, biases = zip(*(pieces[slot] for slot in slots))
            d_in = self.d if "query" in slots else self.memory_d
            self._linear(f"{sub.name}/linear_{index}", sum(rows), d_in, _joined(weights),
                         _joined(biases))
        weight, bias = self._map(sub, maps["out"], "out", block)
        self._linear(f"{sub.name}/linear_{len(groups)}", self.d, block.heads * block.head_dim,
                     weight, _plus(bias, signal))
        if block.rotary:
            scalars |= {"rotary_dim": block.head_dim, "rotary_interleave": False,
                        "rotary_base": ROTARY_BASE}
        if is_set(block.clip):
            shape = (2 * block.clip + 1, size)
            weights = WeightRef(
                self.owners.owner_name(sub.layer, str(sub.part), "core.relative.weight"))
            wide = TransposedMatrix(HeadPadding(TransposedMatrix(weights), 1, size))
            self.plan.add(f"{sub.name}/relative_position_keys", shape, wide)
            self.plan.add(f"{sub.name}/relative_position_values", shape,
                          ConstantTensor("zeros", shape))
        self.plan.scalars |= {f"{sub.name}/{name}": value for name, value in scalars.items()}

    def _map(self, sub: _Sublayer, part: Any, slot: str, attention: Attention | None = None
             ) -> tuple[TensorExpression, TensorExpression | None]:
        """Return matrix and bias of a linear map of a part, with its adapter."""
        weight = tensor_expressions.matrix_expression(part, slot)
        bias = tensor_expressions.bias_expression(part, slot)
        assert weight is not None, "maps are checked by refusals"
        if attention is not None and slot in attention.adapters:
            weight = TensorSum((weight,
                                MatrixProduct(WeightRef(f"{slot}_adapter.up.weight"),
                                              WeightRef(f"{slot}_adapter.down.weight"))))
        return self._owned(sub, weight), bias and self._owned(sub, bias)

    def _owned(self, sub: _Sublayer, source: Any) -> Any:
        """Replace names of weights in a part with the names of their owners."""
        if isinstance(source, WeightRef):
            return WeightRef(self.owners.owner_name(sub.layer, str(sub.part), source.name))
        if isinstance(source, tuple):
            return tuple(self._owned(sub, part) for part in source)
        if isinstance(source, ConstantTensor):
            return source
        inner = {name: self._owned(sub, value) for name, value in vars(source).items()
                 if name not in ("cores", "rows")}
        return type(source)(**(vars(source) | inner))


def _joined(parts: tuple[TensorExpression, ...]) -> TensorExpression:
    return parts[0] if len(parts) == 1 else Concatenation(parts)


def _plus(source: TensorExpression | None,
          signal: TensorExpression | None) -> TensorExpression | None:
    return signal if source is None else source if signal is None else TensorSum((source, signal))
