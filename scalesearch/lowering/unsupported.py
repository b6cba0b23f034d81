"""What CTranslate2 cannot hold: the reasons why an architecture has no exact lowering, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from scalesearch.blocks.core import Block, Use
from scalesearch.blocks.embedding import TokenEmbedding
from scalesearch.blocks.ffn.networks import SelfGated
from scalesearch.blocks.layers import DecoderLayer, Layer
from scalesearch.blocks.mixers import Mixer
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.seq2seq import Embeddings
from scalesearch.blocks.sizes import decide, is_set
from scalesearch.blocks.stacks import Stack
from scalesearch.lowering import tensor_expressions
from scalesearch.lowering.ctranslate2 import CT2_ACTIVATION_IDS


def find_unsupported_parts(block: Block) -> list[str]:
    """The reasons why an architecture has no exact lowering, each with the part's path; none if it has one.

    They are the sections' own: those of a :class:`Section` alone are found as well, and their
    numbers add up.
    """
    found: list[str] = []
    for name, part in block.parts().items():
        inner: Any = part.block if isinstance(part, Use) else part
        if name == "output":
            found += [] if type(inner) in tensor_expressions.SUPPORTED_OUTPUTS else [
                f"output: {type(inner).__name__} is no linear map to scores of all tokens"]
        elif name == "embedding":
            both = inner.parts() if isinstance(inner, Embeddings) else {}
            tables = {f"{name}.{key}": one for key, one in both.items()} or {name: inner}
            found += [reason for path, one in tables.items() for reason in _of_embedding(path, one)]
        else:
            found += _of_stack(name, inner)
    return found


def _of_embedding(path: str, block: Any) -> Iterator[str]:
    if not isinstance(block, TokenEmbedding):
        yield f"{path}: {type(block).__name__} reads other tokens too, and the runtime looks up one"
    elif type(block.table) not in tensor_expressions.SUPPORTED_TABLES:
        yield f"{path}.table: {type(block.table).__name__} is no table"


def _of_stack(path: str, stack: Any) -> Iterator[str]:
    if not isinstance(stack, Stack):
        yield f"{path}: its layers have two widths, and the runtime's one"
        return
    layer = stack.layer
    heads = [part.block.score_heads for one in stack.layers.distinct_layers
             for part in one.parts().values()
             if isinstance(getattr(part, "block", None), Attention)]
    if any(decide(one != heads[0]) for one in heads):
        yield f"{path}: numbers of heads differ by layer, and the runtime has one for the stack"
    if stack.global_scores is not None:
        yield f"{path}.scores: scores of the stack's input are added in all layers, and the runtime has none to add"
    if stack.solver != "euler":
        yield f"{path}: the solver {stack.solver} calls a layer several times, and the runtime once"
    if stack.step_signals and layer.norm == "post" and layer.norm_kind == "rms":
        yield f"{path}: step signals would be biases of norms after, and rms norms have none"
    if isinstance(layer, DecoderLayer):
        if layer.cross_attention is None:
            yield f"{path}: it reads source and target as one text, and the runtime's translator has an encoder"
        else:
            yield from _of_mixer(f"{path}.cross_attention", layer.cross_attention)
    yield from _of_order(path, layer)
    where = f"{path}.{layer.sublayers[layer.default_order[0][0]][0]}"
    yield from _of_mixer(where, layer.mixer)
    if isinstance(layer.mixer, Attention) and layer.norm == "post" and (
            is_set(layer.mixer.clip) or layer.mixer.rotary):
        yield f"{where}: relative or rotary positions under norms after: the runtime then adds no absolute ones"
    if not layer.ffn.is_absent and type(layer.ffn) not in CT2_ACTIVATION_IDS:
        yield f"{path}.ffn: {type(layer.ffn).__name__} is no feed-forward network of the runtime"
    elif layer.ffn.norm_type and not layer.ffn.is_absent:
        yield f"{path}.ffn: a norm of its hidden units, and the runtime's network has none"
    elif type(layer.ffn) is not SelfGated:
        yield from _no_maps(f"{path}.ffn", layer.ffn, layer.ffn.parts())


def _of_order(path: str, layer: Layer) -> Iterator[str]:
    for word, part in layer.extra_sublayers:
        yield f"{path}.{word}: {type(part).__name__} is no sub-layer of the runtime"
    if layer.multi_path is not None:
        yield f"{path}: {layer.multi_path.count} paths, and the runtime has one"
    if any(len(step) > 1 for step in layer.steps):
        yield f"{path}: sub-layers in parallel, and the runtime has one after the other"
    elif layer.norm == "post" and layer.steps[0][0][0] != layer.default_order[0][0]:
        yield f"{path}: {layer.steps[0][0][0]} comes first under norms after, and the runtime's attention has one"


def _of_mixer(path: str, mixer: Mixer) -> Iterator[str]:
    if not isinstance(mixer, Attention):
        yield f"{path}: {type(mixer).__name__} is no attention"
        return
    if mixer.gate != "none":
        yield f"{path}: the gate {mixer.gate} multiplies features, and the runtime's attention has no gate"
    if mixer.expands_heads:
        yield f"{path}: head_scaling mixes scores across heads before the softmax"
    if is_set(mixer.mask_distance):
        yield f"{path}: a learned mask is added to its scores"
    if mixer.residual_scores:
        yield f"{path}: scores are carried from layer to layer"
    if mixer.head_ffn is not None:
        yield f"{path}.partial: a network stands between the heads and the output map"
    if is_set(mixer.prompt_length):
        yield f"{path}.prompt: keys and values of no token, and the runtime makes them of tokens' states alone"
    if mixer.gate == "none":
        yield from _no_maps(path, mixer, ("query", "key", "value", "out"))


def _no_maps(path: str, block: Block, names: Iterable[str]) -> Iterator[str]:
    """Of linear maps those that are no matrix."""
    parts = block.parts()
    for name in names:
        if tensor_expressions.matrix_expression(parts[name], name) is None:
            yield f"{path}.{name}: {type(parts[name]).__name__} stands for no one matrix"
