"""Parts of an architecture that CTranslate2 does not support, with reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from scalesearch.blocks.core import SRC, Block, Use
from scalesearch.blocks.embedding import TokenEmbedding
from scalesearch.blocks.ffn import SelfGated
from scalesearch.blocks.layers import DecoderLayer
from scalesearch.blocks.mixers import Mixer
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.seq2seq import Embeddings
from scalesearch.blocks.sizes import decide, is_set
from scalesearch.blocks.stacks import Stack
from scalesearch.lowering import tensor_expressions
from scalesearch.lowering.ctranslate2 import CT2_ACTIVATION_IDS


def find_unsupported_parts(block: Block) -> list[str]:
    """Return why an architecture has no exact lowering, with the path of each part.

    The reasons of a model are those of its sections
    (:class:`~scalesearch.blocks.seq2seq.ModelSection`).
    """
    reasons: list[str] = []
    for name, part in block.parts().items():
        inner: Any = part.block if isinstance(part, Use) else part
        if name == "output":
            if type(inner) not in tensor_expressions.SUPPORTED_OUTPUTS:
                reasons.append(f"output: {type(inner).__name__} is not a linear map to logits")
        elif name == "embedding":
            if getattr(inner, "over", ()) == (SRC,):  # the table of an encoder-only model
                reasons.append("embedding: the runtime's translator needs a decoder")
            both = inner.parts() if isinstance(inner, Embeddings) else {}
            tables = {f"{name}.{key}": table for key, table in both.items()} or {name: inner}
            for path, table in tables.items():
                if not isinstance(table, TokenEmbedding):
                    reasons.append(f"{path}: {type(table).__name__} reads other tokens too, and "
                                   "the runtime looks up one")
                elif type(table.table) not in tensor_expressions.SUPPORTED_TABLES:
                    reasons.append(f"{path}.table: {type(table.table).__name__} cannot be "
                                   "converted to one table")
        else:
            reasons += _of_stack(name, inner)
    return reasons


def _of_stack(path: str, stack: Any) -> Iterator[str]:
    if not isinstance(stack, Stack):
        yield f"{path}: its layers have two widths, and the runtime's one"
        return
    layer = stack.layer
    layers: Any = stack.layers.layers_by_size
    heads = [part.block.score_heads for other in layers for part in other.parts().values()
             if isinstance(getattr(part, "block", None), Attention)]
    if any(decide(count != heads[0]) for count in heads):
        yield f"{path}: its attention has several numbers of heads, and the runtime's has one"
    if stack.global_scores is not None:
        yield f"{path}.scores: the runtime cannot add scores of the input of the stack"
    if stack.position_bias is not None:
        yield f"{path}.position_bias: relative position biases, as in T5, are not exported"
    if stack.solver != "euler":
        yield f"{path}: the solver {stack.solver} calls a layer several times, and the runtime once"
    if stack.step_signals and layer.norm_kind == "rms":
        yield f"{path}: step signals can be biases of norms, and rms norms have none"
    if isinstance(layer, DecoderLayer):
        cross_attentions = [other.cross_attention for other in layers
                            if other.cross_attention and not other.cross_attention.is_absent]
        if not cross_attentions:
            yield f"{path}: the runtime's translator needs an encoder"
        yield from _of_mixers(f"{path}.cross_attention", cross_attentions)
    if layer.norm not in ("pre", "post"):
        yield f"{path}: norms at the end of residual branches (norm: {layer.norm})"
    if layer.residual_after_norm:
        yield f"{path}: residual connections start after the norms"
    if layer.norm == "post" and any(other.part_names.keys() != layer.part_names.keys()
                                    for other in layers):
        yield f"{path}: sub-layers that are absent in some layers, in a post-norm model"
    for word, part in layer.extra_sublayers:
        yield f"{path}.{word}: the runtime does not support {type(part).__name__}"
    if layer.multi_path is not None:
        yield f"{path}: {layer.multi_path.count} paths, and the runtime has one"
    if any(len(step) > 1 for step in layer.steps):
        yield f"{path}: sub-layers in parallel, and the runtime has one after the other"
    elif layer.norm == "post" and layer.steps[0][0][0] != layer.default_order[0][0]:
        yield (f"{path}: {layer.steps[0][0][0]} comes first, but in post-norm models the runtime "
               "needs attention first")
    if mixers := [other.mixer for other in layers if not other.mixer.is_absent]:
        mixer = mixers[0]
        where = f"{path}.{'self_' if isinstance(layer, DecoderLayer) else ''}{mixer.part_name}"
        yield from _of_mixers(where, mixers)
        if isinstance(mixer, Attention) and layer.norm == "post" and (
                is_set(mixer.clip) or mixer.rotary):
            yield (f"{where}: with relative or rotary positions in a post-norm model, the runtime "
                   "does not add absolute positions")
    if any(isinstance(other.mixer, Attention) and other.mixer.window for other in layers):
        yield f"{path}: attention in a window, and the runtime attends to all positions"
    ffn = next((other.ffn for other in layers if not other.ffn.is_absent), layer.ffn)
    if not ffn.is_absent and type(ffn) not in CT2_ACTIVATION_IDS:
        yield f"{path}.ffn: the runtime does not support {type(ffn).__name__}"
    elif ffn.norm_type and not ffn.is_absent:
        yield f"{path}.ffn: the runtime does not support a norm of hidden units"
    elif type(ffn) is not SelfGated:
        yield from _no_maps(f"{path}.ffn", ffn, ffn.parts())


def _of_mixers(path: str, mixers: Iterable[Mixer]) -> Iterable[str]:
    """Reasons of the mixers of all layers, whose sizes may differ; equal ones once."""
    return dict.fromkeys(reason for mixer in mixers for reason in _of_mixer(path, mixer))


def _of_mixer(path: str, mixer: Mixer) -> Iterator[str]:
    if not isinstance(mixer, Attention):
        yield f"{path}: {type(mixer).__name__} is not attention"
        return
    reasons = {
        f": the runtime does not support the gate {mixer.gate}": mixer.gate != "none",
        ": head_scaling mixes scores across heads before the softmax": mixer.expands_heads,
        ": a learned mask is added to its scores": is_set(mixer.mask_distance),
        ": scores are carried from layer to layer": mixer.residual_scores,
        ": queries and keys are normalized": mixer.qk_norm != "none",
        ": the runtime adds no bias by distance in a translator": mixer.alibi,
        ": scores are not divided by the root of head_dim": is_set(mixer.score_dim),
        ": scores are limited by tanh": mixer.soft_cap,
        ".partial: a network stands between the heads and the output map": mixer.head_ffn,
        ".prompt: the runtime does not support keys and values of a prompt":
            is_set(mixer.prompt_length)}
    yield from (f"{path}{reason}" for reason, applies in reasons.items() if applies)
    if mixer.gate == "none":
        yield from _no_maps(path, mixer, ("query", "key", "value", "out"))


def _no_maps(path: str, block: Block, names: Iterable[str]) -> Iterator[str]:
    """Yield a reason for each map that is not equivalent to a matrix."""
    parts = block.parts()
    for name in names:
        if tensor_expressions.matrix_expression(parts[name], name) is None:
            yield f"{path}.{name}: {type(parts[name]).__name__} is not equivalent to a matrix"
