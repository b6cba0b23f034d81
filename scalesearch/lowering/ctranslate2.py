"""Variables of a CTranslate2 model that computes the same function as an architecture.

If the runtime needs a sub-layer that the model does not have, a *neutral* sub-layer is added, which
adds zero. In a post-norm model, the norm before a neutral sub-layer then has neither gain nor bias,
and the norm of the neutral sub-layer has them. This is equal up to the epsilon of the norms.
Low-rank products, tensor chains, adapters and factorized tables are contracted to matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.blocks.core import Block, Size
from scalesearch.blocks.embedding import TokenEmbedding
from scalesearch.blocks.ffn.networks import (
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
from scalesearch.blocks.mixers.rotary import ROTARY_BASE
from scalesearch.blocks.seq2seq import EncoderDecoder
from scalesearch.blocks.sizes import decide, is_set, map_values, require_single_value
from scalesearch.blocks.stacks import Stack
from scalesearch.lowering import MAX_SOURCE_TOKENS, tensor_expressions
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
from scalesearch.lowering.variable_plan import VariablePlan

NEUTRAL_HIDDEN = 8  # hidden units of a neutral feed-forward network
NEUTRAL_HEAD_DIM = 1  # features of a neutral head
# values of the enumeration of the runtime
CT2_ACTIVATION_IDS = {ReLU: 0, SwiGLU: 2, Swish: 2, SelfGated: 2, GELU: 3, GEGLU: 3}
# target positions in addition to 3/2 of the source tokens: 10, BOS and rounding
EXTRA_TARGET_TOKENS = 12


def plan_variables(block: Block, vocab: Size | None,
                   length: Size = MAX_SOURCE_TOKENS) -> VariablePlan:
    """Return the variables of an architecture.

    All its parts must be supported
    (:func:`~scalesearch.lowering.unsupported.find_unsupported_parts`). Sizes may be those of a
    population.

    Args:
        block: block of an encoder-decoder model.
        vocab: size of the vocabulary; None if the blocks have it already.
        length: largest number of source tokens without EOS, for the table of absolute positions.

    Raises:
        PopulationSplitError: depths or parts differ between the candidates of a population.
    """
    assert isinstance(block, EncoderDecoder)
    plan = VariablePlan()
    rows = (length + 1) * 3 // 2 + EXTRA_TARGET_TOKENS
    for name, stack, embedding in (("encoder", block.encoder, block.embedding.source),
                                   ("decoder", block.decoder, block.embedding.target)):
        assert isinstance(stack, Stack) and isinstance(embedding, TokenEmbedding)
        side = "source" if name == "encoder" else "target"
        _embedding(plan, name, f"embedding.{side}", embedding, vocab, rows, stack.step_signals)
        _Lowering(plan, name, stack).run()
    weights, bias = tensor_expressions.output_expressions(block.output, vocab)
    words = _vocabulary_size(block.embedding.target, vocab)
    plan.add("decoder/projection/weight", (words, block.decoder.layer.mixer.d), weights, True)
    plan.add("decoder/projection/bias", (words,), bias)
    return plan


def _vocabulary_size(block: Any, vocab: Size | None) -> Size:
    """Tokens of an embedding's table."""
    while vocab is None:
        block = block.table
        vocab = getattr(block, "rows", None) or getattr(block, "vocab", None)
    return vocab


def _embedding(plan: VariablePlan, stack: str, path: str, block: TokenEmbedding, vocab: Size | None,
               rows: Size, steps: bool) -> None:
    name = f"{stack}/embeddings{'_0' if stack == 'encoder' else ''}/weight"
    values = tensor_expressions.table_expression(
        block.table, block.tied_table or f"{path}.table", vocab)
    plan.add(name, (_vocabulary_size(block, vocab), block.d), values, True)
    positions: TensorExpression
    if block.positions == "learned":
        rows = block.max_length
        positions = WeightRef(f"{path}.position.weight")
    else:
        positions = ConstantTensor("sinusoid" if block.positions == "sinusoidal" else "zeros",
                                   (rows, block.d))
    if steps:
        positions = TensorSum((positions, ConstantTensor("step", (block.d,), 0)))
    plan.add(f"{stack}/position_encodings/encodings", (rows, block.d), positions)


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


class _Lowering:
    """The conversion of one stack."""

    def __init__(self, plan: VariablePlan, name: str, stack: Stack) -> None:
        self.plan = plan
        self.name = name
        self.stack = stack
        self.layer = stack.layer
        self.d = self.layer.mixer.d
        self.heads = self.layer.mixer.score_heads
        self.owners = WeightOwners(f"{name}.layers", stack.layers)
        self.depth = require_single_value(stack.layers.depth)

    def run(self) -> None:
        """Add all variables of the stack."""
        post = self.layer.norm == "post"
        scalars = self.plan.scalars
        ffn = self.layer.ffn
        scalars |= {f"{self.name}/num_heads": self.heads, f"{self.name}/pre_norm": not post,
                    f"{self.name}/activation": CT2_ACTIVATION_IDS.get(type(ffn), 0)}
        order = list(self._order())
        for index, sub in enumerate(order):
            following = order[index + 1] if index + 1 < len(order) else None
            ends = following is None or following.layer != sub.layer
            signal = ConstantTensor("step", (self.d,), sub.layer + 1) if (
                self.stack.step_signals and ends and following is not None) else None
            self._add(sub, None if post else signal)
            # the norm of the neutral sub-layer has gain and bias
            is_plain = post and following is not None and following.part is None
            self._norm(sub, order[:index], is_plain, signal if post else None)
        if self.stack.has_final_norm:
            self._vectors(self.name, WeightRef(f"{self.name}.norm.weight"),
                          WeightRef(f"{self.name}.norm.bias"))

    def _layer(self, sub: _Sublayer) -> Any:
        """Return the layer of the model that a sub-layer belongs to."""
        return self.stack.layers.layer_at(sub.layer)

    def _order(self) -> Iterator[_Sublayer]:
        for index, (layer, parts) in enumerate(self._layers()):
            for type, part in zip(self._types().values(), parts):
                yield _Sublayer(f"{self.name}/layer_{index}/{type}", type, layer, part)

    def _types(self) -> Mapping[str, str]:
        """Return words of the sub-layers and their types in the runtime, in its order.

        Layers of a decoder must have cross-attention: otherwise the runtime reorders the cache if
        sentences end at different steps.
        """
        if self.name == "encoder":
            return {"attention": "self_attention", "ffn": "ffn"}
        return {"self": "self_attention", "cross": "attention", "ffn": "ffn"}

    def _layers(self) -> Iterator[tuple[int, list[str | None]]]:
        """Yield the layers of the runtime: index of the model's layer, and parts or None."""
        words = list(self._types())
        runtime_layers: list[list[str | None]] = []
        last = len(words)
        for ((word, part),) in self.layer.steps:
            index = words.index(word)
            if index <= last:
                runtime_layers.append([None] * len(words))
            runtime_layers[-1][index] = part
            last = index
        # If the first layer has relative or rotary positions, the runtime omits absolute positions.
        main = self.layer.mixer
        if is_set(main.clip) or main.rotary:
            yield 0, [None] * len(words)
        for layer in range(self.depth):
            for parts in runtime_layers:
                yield layer, parts

    def _norm(self, sub: _Sublayer, before: list[_Sublayer], plain: bool,
              signal: TensorExpression | None) -> None:
        part = sub.part
        layer = sub.layer
        if part is None and self.layer.norm == "post":
            previous = next(other for other in reversed(before) if other.part is not None)
            part = previous.part
            layer = previous.layer
        if part is None or plain:
            shape = (self.d,)
            self._vectors(sub.name, ConstantTensor("ones", shape), ConstantTensor("zeros", shape))
        else:
            gain, offset = (WeightRef(self.owners.owner_name(layer, f"{part}_norm", name))
                            for name in ("weight", "bias"))
            self._vectors(sub.name, gain, _plus(offset, signal))

    def _vectors(self, name: str, gain: TensorExpression, offset: TensorExpression) -> None:
        self.plan.add(f"{name}/layer_norm/gamma", (self.d,), gain)
        if self.layer.norm_kind == "layer":  # without beta, the runtime uses RMS norm
            self.plan.add(f"{name}/layer_norm/beta", (self.d,), offset)

    def _add(self, sub: _Sublayer, signal: TensorExpression | None) -> None:
        """Add the variables of a sub-layer; ``signal`` is added to its output."""
        if sub.type == "ffn":
            self._ffn(sub, signal) if sub.part else self._neutral_ffn(sub, signal)
        elif sub.part is None:
            self._neutral_attention(sub)
        else:
            self._attention(sub, signal)

    def _linear(self, name: str, rows: Size, columns: Size, weight: TensorExpression | None,
                bias: TensorExpression | None) -> None:
        self.plan.add(f"{name}/weight", (rows, columns), weight, True)
        self.plan.add(f"{name}/bias", (rows,), bias)

    def _ffn(self, sub: _Sublayer, signal: TensorExpression | None) -> None:
        ffn: Any = self._layer(sub).ffn
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

    def _neutral_ffn(self, sub: _Sublayer, signal: TensorExpression | None) -> None:
        for name, shape in (("linear_0", (NEUTRAL_HIDDEN, self.d)),
                            ("linear_1", (self.d, NEUTRAL_HIDDEN))):
            self._linear(f"{sub.name}/{name}", *shape, ConstantTensor("zeros", shape),
                         signal if name == "linear_1" else None)

    def _neutral_attention(self, sub: _Sublayer) -> None:
        width = self.heads * NEUTRAL_HEAD_DIM
        rows = (3 * width,) if sub.type == "self_attention" else (width, 2 * width)
        for index, count in enumerate((*rows, None)):
            shape = (self.d, width) if count is None else (count, self.d)
            self._linear(f"{sub.name}/linear_{index}", *shape, ConstantTensor("zeros", shape), None)
        self.plan.scalars |= {f"{sub.name}/head_dim": NEUTRAL_HEAD_DIM}

    def _attention(self, sub: _Sublayer, signal: TensorExpression | None) -> None:
        block = self._layer(sub).parts()[str(sub.part)].block
        maps = block.parts()
        widths = block.widths
        # features of a value head; queries and keys are padded to it
        size = block.heads * block.head_dim // block.score_heads
        scalars = {"head_dim": size, "queries_scale": map_values(block.head_dim, lambda n: n**-0.5)}
        keys = block.score_heads
        if is_set(block.kv_heads):
            keys = block.kv_heads
            scalars["num_heads_kv"] = keys
        pieces = {}
        for slot, heads in (("query", block.score_heads), ("key", keys), ("value", keys)):
            weight, bias = self._map(sub, maps[slot], slot, block)
            zeros = ConstantTensor("zeros", (widths[slot[0].upper()],))
            pieces[slot] = (heads * size,
                            *(_pad_heads(block, slot, tensor, heads, size)
                              for tensor in (weight, bias or zeros)))
        groups = [("query", "key", "value")] if sub.type == "self_attention" else [
            ("query",), ("key", "value")]
        for index, slots in enumerate(groups):
            rows, weights, biases = zip(*(pieces[slot] for slot in slots))
            self._linear(f"{sub.name}/linear_{index}", sum(rows), self.d, _joined(weights),
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


def _pad_heads(block: Attention, slot: str, source: TensorExpression, heads: Size,
               size: Size) -> TensorExpression:
    """Pad the rows of each head of ``source`` to the features of a value head."""
    same = slot == "value" or is_set(block.kv_heads) or decide(block.heads == block.score_heads)
    return source if same else HeadPadding(source, heads, size)


def _joined(parts: tuple[TensorExpression, ...]) -> TensorExpression:
    return parts[0] if len(parts) == 1 else Concatenation(parts)


def _plus(source: TensorExpression | None,
          signal: TensorExpression | None) -> TensorExpression | None:
    return signal if source is None else source if signal is None else TensorSum((source, signal))
