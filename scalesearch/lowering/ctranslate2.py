"""CTranslate2's variables for an architecture: exact, or the reasons why there are none.

What the runtime lacks becomes what it has. A sub-layer that it demands and the model has not is
*neutral*: it adds zero. Under norms after, the norm before a neutral sub-layer only normalizes, and
the neutral one's has the gain and the bias, which is equal up to the norms' epsilon. Low rank,
chains, adapters and factorized tables are contracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.blocks.core import Block, Size
from scalesearch.blocks.embedding import TokenEmbedding
from scalesearch.blocks.ffn.networks import GEGLU, GELU, GatedFFN, ReLU, SelfGated, SwiGLU, Swish, TwoLayerFFN
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
# numbers of the runtime's enumeration
CT2_ACTIVATION_IDS = {ReLU: 0, SwiGLU: 2, Swish: 2, SelfGated: 2, GELU: 3, GEGLU: 3}
# tokens that a translation may have beyond 3/2 of its source: 10, BOS, and what rounding takes
EXTRA_TARGET_TOKENS = 12


def plan_variables(block: Block, vocab: Size | None,
                   length: Size = MAX_SOURCE_TOKENS) -> VariablePlan:
    """The variables of an architecture that has no :func:`refusals`; sizes may be a population's, depths are not.

    Args:
        vocab: tokens; None where the blocks hold their own.
        length: source tokens that it must take (EOS not counted): absolute positions are a table
            here.

    Raises:
        Split: candidates of a population differ in a depth, or in what decides about parts.
    """
    assert isinstance(block, EncoderDecoder)
    made = VariablePlan()
    rows = (length + 1) * 3 // 2 + EXTRA_TARGET_TOKENS
    for name, stack, embedding in (("encoder", block.encoder, block.embedding.source),
                                   ("decoder", block.decoder, block.embedding.target)):
        assert isinstance(stack, Stack) and isinstance(embedding, TokenEmbedding)
        side = "source" if name == "encoder" else "target"
        _embedding(made, name, f"embedding.{side}", embedding, vocab, rows, stack.step_signals)
        _Lowering(made, name, stack).run()
    weights, bias = tensor_expressions.output_expressions(block.output, vocab)
    words = _vocabulary_size(block.embedding.target, vocab)
    made.add("decoder/projection/weight", (words, block.decoder.layer.mixer.d), weights, True)
    made.add("decoder/projection/bias", (words,), bias)
    return made


def _vocabulary_size(block: Any, vocab: Size | None) -> Size:
    """Tokens of an embedding's table."""
    while vocab is None:
        block = block.table
        vocab = getattr(block, "rows", None) or getattr(block, "vocab", None)
    return vocab


def _embedding(made: VariablePlan, stack: str, path: str, block: TokenEmbedding, vocab: Size | None,
               rows: Size, steps: bool) -> None:
    name = f"{stack}/embeddings{'_0' if stack == 'encoder' else ''}/weight"
    values = tensor_expressions.table_expression(
        block.table, block.tied_table or f"{path}.table", vocab)
    made.add(name, (_vocabulary_size(block, vocab), block.d), values, True)
    positions: TensorExpression
    if block.positions == "learned":
        rows = block.max_length
        positions = WeightRef(f"{path}.position.weight")
    else:
        positions = ConstantTensor("sinusoid" if block.positions == "sinusoidal" else "zeros",
                                   (rows, block.d))
    if steps:
        positions = TensorSum((positions, ConstantTensor("step", (block.d,), 0)))
    made.add(f"{stack}/position_encodings/encodings", (rows, block.d), positions)


@dataclass(frozen=True)
class _Sublayer:
    """A sub-layer of the runtime: ``type`` in its words; the layer and part of ours that it is, None if neutral."""

    name: str
    type: str
    layer: int
    part: str | None


class _Lowering:
    """One stack, layer by layer."""

    def __init__(self, made: VariablePlan, name: str, stack: Stack) -> None:
        self.plan = made
        self.name = name
        self.stack = stack
        self.layer = stack.layer
        self.d = self.layer.mixer.d
        self.heads = self.layer.mixer.score_heads
        self.owners = WeightOwners(f"{name}.layers", stack.layers)
        self.depth = require_single_value(stack.layers.depth)

    def run(self) -> None:
        """Adds all variables of the stack."""
        post = self.layer.norm == "post"
        scalars = self.plan.scalars
        ffn = self.layer.ffn
        scalars |= {f"{self.name}/num_heads": self.heads, f"{self.name}/pre_norm": not post,
                    f"{self.name}/activation": CT2_ACTIVATION_IDS.get(type(ffn), 0)}
        order = list(self._order())
        for at, sub in enumerate(order):
            following = order[at + 1] if at + 1 < len(order) else None
            ends = following is None or following.layer != sub.layer
            signal = ConstantTensor("step", (self.d,), sub.layer + 1) if (
                self.stack.step_signals and ends and following is not None) else None
            self._add(sub, None if post else signal)
            # the next one's norm has gain and bias
            kept = post and following is not None and following.part is None
            self._norm(sub, order[:at], kept, signal if post else None)
        if self.stack.has_final_norm:
            self._vectors(self.name, WeightRef(f"{self.name}.norm.weight"),
                          WeightRef(f"{self.name}.norm.bias"))

    def _at(self, sub: _Sublayer) -> Any:
        """The layer of ours that a sub-layer belongs to."""
        return self.stack.layers.layer_at(sub.layer)

    def _order(self) -> Iterator[_Sublayer]:
        for at, (layer, parts) in enumerate(self._layers()):
            for kind, part in zip(self._kinds().values(), parts):
                yield _Sublayer(f"{self.name}/layer_{at}/{kind}", kind, layer, part)

    def _kinds(self) -> Mapping[str, str]:
        """Our words to the runtime's sub-layers, in its order.

        A decoder's layer without cross-attention cannot be: where sentences end at different steps,
        its cache is reordered.
        """
        if self.name == "encoder":
            return {"attention": "self_attention", "ffn": "ffn"}
        return {"self": "self_attention", "cross": "attention", "ffn": "ffn"}

    def _layers(self) -> Iterator[tuple[int, list[str | None]]]:
        """The runtime's layers: which of ours each belongs to, and its parts, None where they are neutral."""
        words = list(self._kinds())
        each: list[list[str | None]] = []
        last = len(words)
        for ((word, part),) in self.layer.steps:
            if (at := words.index(word)) <= last:
                each.append([None] * len(words))
            each[-1][at], last = part, at
        # whose relative or rotary positions in the first layer would put absolute ones out
        main = self.layer.mixer
        if is_set(main.clip) or main.rotary:
            yield 0, [None] * len(words)
        for layer in range(self.depth):
            for parts in each:
                yield layer, parts

    def _norm(self, sub: _Sublayer, before: list[_Sublayer], plain: bool,
              signal: TensorExpression | None) -> None:
        part = sub.part
        layer = sub.layer
        if part is None and self.layer.norm == "post":
            real = next(one for one in reversed(before) if one.part is not None)
            part = real.part
            layer = real.layer
        if part is None or plain:
            shape = (self.d,)
            self._vectors(sub.name, ConstantTensor("ones", shape), ConstantTensor("zeros", shape))
        else:
            gain, offset = (WeightRef(self.owners.owner_name(layer, f"{part}_norm", name))
                            for name in ("weight", "bias"))
            self._vectors(sub.name, gain, _plus(offset, signal))

    def _vectors(self, name: str, gain: TensorExpression, offset: TensorExpression) -> None:
        self.plan.add(f"{name}/layer_norm/gamma", (self.d,), gain)
        if self.layer.norm_kind == "layer":  # one without is the runtime's other kind
            self.plan.add(f"{name}/layer_norm/beta", (self.d,), offset)

    def _add(self, sub: _Sublayer, signal: TensorExpression | None) -> None:
        """Matrices and biases of a sub-layer; ``signal`` is added to its output."""
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
        ffn: Any = self._at(sub).ffn
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
        for at, count in enumerate((*rows, None)):
            shape = (self.d, width) if count is None else (count, self.d)
            self._linear(f"{sub.name}/linear_{at}", *shape, ConstantTensor("zeros", shape), None)
        self.plan.scalars |= {f"{sub.name}/head_dim": NEUTRAL_HEAD_DIM}

    def _attention(self, sub: _Sublayer, signal: TensorExpression | None) -> None:
        block = self._at(sub).parts()[str(sub.part)].block
        maps = block.parts()
        widths = block.widths
        # of a value; queries and keys are filled up to it
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
                            *(_pad_heads(block, slot, one, heads, size)
                              for one in (weight, bias or zeros)))
        groups = [("query", "key", "value")] if sub.type == "self_attention" else [
            ("query",), ("key", "value")]
        for at, slots in enumerate(groups):
            rows, weights, biases = zip(*(pieces[slot] for slot in slots))
            self._linear(f"{sub.name}/linear_{at}", sum(rows), self.d, _joined(weights),
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
        """Matrix and bias of a part's linear map, with its adapter."""
        weight = tensor_expressions.matrix_expression(part, slot)
        bias = tensor_expressions.bias_expression(part, slot)
        assert weight is not None, "maps are checked by refusals"
        if attention is not None and slot in attention.adapters:
            weight = TensorSum((weight,
                                MatrixProduct(WeightRef(f"{slot}_adapter.up.weight"),
                                              WeightRef(f"{slot}_adapter.down.weight"))))
        return self._owned(sub, weight), bias and self._owned(sub, bias)

    def _owned(self, sub: _Sublayer, source: Any) -> Any:
        """An expression over names within a part as one over owners' names."""
        if isinstance(source, WeightRef):
            return WeightRef(self.owners.owner_name(sub.layer, str(sub.part), source.name))
        if isinstance(source, tuple):
            return tuple(self._owned(sub, one) for one in source)
        if isinstance(source, ConstantTensor):
            return source
        inner = {name: self._owned(sub, value) for name, value in vars(source).items()
                 if name not in ("cores", "rows")}
        return type(source)(**(vars(source) | inner))


def _pad_heads(block: Attention, slot: str, source: TensorExpression, heads: Size,
               size: Size) -> TensorExpression:
    """Rows of ``source`` by head, each head as wide as a value."""
    same = slot == "value" or is_set(block.kv_heads) or decide(block.heads == block.score_heads)
    return source if same else HeadPadding(source, heads, size)


def _joined(parts: tuple[TensorExpression, ...]) -> TensorExpression:
    return parts[0] if len(parts) == 1 else Concatenation(parts)


def _plus(source: TensorExpression | None,
          signal: TensorExpression | None) -> TensorExpression | None:
    return signal if source is None else source if signal is None else TensorSum((source, signal))
