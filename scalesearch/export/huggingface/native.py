"""Architectures that are exactly a class of transformers, which then needs no code of its own.

For each class, a configuration is made from the keys of the architecture and read as ``import``
reads it. The architecture is the class if both have the same blocks and nothing else differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.mixers.attention_extras import ROTARY_BASE
from scalesearch.blocks.norms import RMSNorm
from scalesearch.errors import UserError
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.spaces.huggingface import read_config
from scalesearch.spaces.space import Space
from scalesearch.spaces.syntax.diagnostics import UnbuildableError
from scalesearch.spaces.syntax.parameters import format_constant

LAYER_PART = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.+)")


class Keys:
    """Values of the keys of an architecture, for a configuration."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        return self.values.get(key, default)

    def size(self, key: str, default: int = 1) -> int:
        """Return a size: of the first layer if layers differ, 1 if a class cannot have it."""
        value = self.values.get(key, default)
        value = value[0] if isinstance(value, list) else value
        return value if isinstance(value, int) and value > 0 else default


@dataclass(frozen=True)
class NativeClass:
    """A class of models in transformers.

    Attributes:
        name: the class.
        model_type: its configurations, a key of ``MODEL_TYPES``.
        auto_class: class of transformers that loads it.
        entries: makes the entries of a configuration from the keys of an architecture.
        parts: names of parts outside of layers, by names in this package.
        layer_parts: names of the parts of a layer.
        layers: name of the layers of a stack, with ``{stack}``.
        tokenizer_class: class of transformers that loads the tokenizer.
        unused_positions: rows of tables of learned positions that are not used.
    """

    name: str
    model_type: str
    auto_class: str
    entries: Callable[[Keys], dict[str, Any]]
    parts: Mapping[str, str]
    layer_parts: Mapping[str, str]
    layers: str
    tokenizer_class: str = "AutoTokenizer"
    unused_positions: int = 0

    def weight_name(self, name: str) -> str:
        """Return the name of a weight in transformers."""
        module, _, weight = name.rpartition(".")
        if in_layer := LAYER_PART.fullmatch(module):
            stack, number, part = in_layer.groups()
            layers = self.layers.format(stack=stack)
            return f"{layers}.{number}.{self.layer_parts[part]}.{weight}"
        return f"{self.parts[module]}.{weight}"


@dataclass(frozen=True)
class NativeModel:
    """The class of an architecture, and the entries of its configuration."""

    native_class: NativeClass
    config: dict[str, Any]

    def convert(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights by their names in transformers."""
        converted = {}
        for name, weight in weights.items():
            if name.endswith(".position.weight") and (unused := self.native_class.unused_positions):
                weight = torch.cat([weight.new_zeros(unused, weight.shape[1]), weight[:-unused]])
            converted[self.native_class.weight_name(name)] = weight
        # transformers 5.0 does not tie an output to the table of the decoder alone
        if not self.config.get("share_encoder_decoder_embeddings", True):
            table = converted["model.decoder.embed_tokens.weight"]
            converted.setdefault("lm_head.weight", table.clone())
        return converted


@dataclass
class ClassSearch:
    """Result of :func:`find_native_class`.

    Attributes:
        model: the class that the architecture is; None without such a class.
        nearest: name of the class with the fewest reasons.
        reasons: why the architecture is not this class.
    """

    model: NativeModel | None = None
    nearest: str = ""
    reasons: list[str] = field(default_factory=list)


def find_native_class(architecture: Any, max_positions: int = 1) -> ClassSearch:
    """Find the class of transformers that an architecture (``ModelSpec``) is exactly.

    ``max_positions`` is the largest number of positions of a training sentence.
    """
    nearest = ClassSearch()
    for native_class in NATIVE_CLASSES.get(architecture.config["model"], ()):
        entries = native_class.entries(Keys(architecture.config))
        config = {"model_type": native_class.model_type, **entries}
        reasons = _find_differences(architecture, config)
        if (unused := native_class.unused_positions) and max_positions > config[
                "max_position_embeddings"]:
            reasons.append(f"embedding.max_length: at least {max_positions + unused}, because "
                           f"{unused} positions are not used")
        if not reasons:
            return ClassSearch(NativeModel(native_class, config))
        if not nearest.nearest or len(reasons) < len(nearest.reasons):
            nearest = ClassSearch(None, native_class.name, reasons)
    return nearest


def _find_differences(architecture: Any, config: Mapping[str, Any]) -> list[str]:
    """List the differences between an architecture and a configuration of transformers."""
    read = read_config({"vocab_size": architecture.vocab or 1, **config})
    if architecture.vocab is None:
        del read.keys["vocab"]
    try:
        counterpart = Space.parse(read.to_yaml("counterpart")).single_architecture()
    except UserError as error:  # sizes that the class cannot have
        return [error.message]
    reasons = [str(difference) for difference in read.differences]
    if counterpart.id != architecture.id:
        own = architecture.config
        different = {key: value for key, value in counterpart.config.items()
                     if key in own and own[key] != value}
        sufficient = {key: value for key, value in different.items()
                      if _matters(architecture, key, value)}
        # Of two keys such as window and global_every, each may have an effect only with the other.
        reasons += [f"{key}: {format_constant(value)}, not {format_constant(own[key])}"
                    for key, value in (sufficient or different).items()] or [
                        f"architecture {counterpart.id}, not {architecture.id}"]
    width, heads = config.get("hidden_size", 0), config.get("num_attention_heads", 1)
    if config["model_type"] == "llama" and width % heads:
        reasons.append(f"width: a multiple of decoder.heads ({heads}), not {width}")
    return reasons


def _matters(architecture: Any, key: str, value: Any) -> bool:
    """Whether the architecture changes if a key has another value."""
    try:
        return assemble({**architecture.config, key: value}).id != architecture.id
    except (UnbuildableError, KeyError):  # a KeyError if the value needs other keys
        return True


# -- decoder-only models


def _llama_entries(keys: Keys) -> dict[str, Any]:
    heads = keys.size("decoder.heads")
    width = keys.size("width")
    return {"hidden_size": width,
            "intermediate_size": keys.size("decoder.ffn.hidden"),
            "num_hidden_layers": keys.size("decoder.depth"),
            "num_attention_heads": heads,
            "num_key_value_heads": keys.size("decoder.key_value_heads", heads),
            "head_dim": keys.size("decoder.head_dim", max(1, width // heads)),
            "hidden_act": "silu", "rms_norm_eps": RMSNorm.eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": ROTARY_BASE},
            "tie_word_embeddings": keys.get("embedding.tie") == "all"}


def _llama_with_biases_entries(keys: Keys) -> dict[str, Any]:
    return {**_llama_entries(keys),
            "attention_bias": bool(keys.get("decoder.projection_bias", True)),
            "mlp_bias": bool(keys.get("decoder.ffn_bias", True))}


def _mistral_entries(keys: Keys) -> dict[str, Any]:
    return {**_llama_entries(keys), "sliding_window": keys.size("decoder.window")}


def _qwen2_entries(keys: Keys) -> dict[str, Any]:
    depth = keys.size("decoder.depth")
    period = keys.get("decoder.global_every", 0) or depth + 1
    windows = keys.get("decoder.window", 0)
    windows = windows if isinstance(windows, list) else [windows] * depth
    is_local = [bool(window) and layer % period != 0 for layer, window in enumerate(windows, 1)]
    entries = _llama_entries(keys)
    if not any(is_local):
        return entries
    return {**entries, "use_sliding_window": True, "sliding_window": max(windows),
            "max_window_layers": 0,
            "layer_types": ["sliding_attention" if local else "full_attention"
                            for local in is_local]}


def _qwen3_entries(keys: Keys) -> dict[str, Any]:
    return {**_qwen2_entries(keys),
            "attention_bias": bool(keys.get("decoder.projection_bias", True))}


LLAMA_PARTS = {"embedding.table": "model.embed_tokens", "decoder.norm": "model.norm",
               "output": "lm_head"}
LLAMA_LAYER_PARTS = {
    "self_attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "self_attention.query": "self_attn.q_proj", "self_attention.key": "self_attn.k_proj",
    "self_attention.value": "self_attn.v_proj", "self_attention.out": "self_attn.o_proj",
    "self_attention.query_norm": "self_attn.q_norm", "self_attention.key_norm": "self_attn.k_norm",
    "ffn.gate": "mlp.gate_proj", "ffn.up": "mlp.up_proj", "ffn.down": "mlp.down_proj"}


def _llama_class(name: str, entries: Callable[[Keys], dict[str, Any]],
                 **settings: Any) -> NativeClass:
    return NativeClass(f"{name}ForCausalLM", name.lower(), "AutoModelForCausalLM", entries,
                       LLAMA_PARTS, LLAMA_LAYER_PARTS, "model.layers", **settings)


# -- encoder-decoder models


def _bart_entries(keys: Keys) -> dict[str, Any]:
    activations = {"relu": "relu", "swish": "silu"}
    entries = {"d_model": keys.size("width"),
               "activation_function": activations.get(keys.get("encoder.ffn"), "gelu"),
               "scale_embedding": bool(keys.get("embedding.scaled", True)),
               "tie_word_embeddings": keys.get("embedding.tie") != "none",
               "max_position_embeddings": max(1, keys.size("embedding.max_length")
                                              - BART_UNUSED_POSITIONS)}
    for stack in ("encoder", "decoder"):
        entries |= {f"{stack}_layers": keys.size(f"{stack}.depth"),
                    f"{stack}_attention_heads": keys.size(f"{stack}.heads"),
                    f"{stack}_ffn_dim": keys.size(f"{stack}.ffn.hidden")}
    return entries


def _marian_entries(is_shared: bool, keys: Keys) -> dict[str, Any]:
    return {**_bart_entries(keys), "max_position_embeddings": MARIAN_POSITIONS,
            "share_encoder_decoder_embeddings": is_shared}


BART_UNUSED_POSITIONS = 2  # BART counts positions from 2
MARIAN_POSITIONS = 1024  # rows of a table that is computed
BART_PARTS = {"embedding.source.table": "model.shared"} | {
    f"embedding.{side}.{part}": f"model.{stack}.{name}"
    for side, stack in (("source", "encoder"), ("target", "decoder"))
    for part, name in (("position", "embed_positions"), ("norm", "layernorm_embedding"))}
BART_LAYER_PARTS = {
    f"{attention}.{part}": f"{name}.{part_name}"
    for attention, name in (("attention", "self_attn"), ("self_attention", "self_attn"),
                            ("cross_attention", "encoder_attn"))
    for part, part_name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"),
                            ("out", "out_proj"))} | {
    "attention_norm": "self_attn_layer_norm", "self_attention_norm": "self_attn_layer_norm",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "ffn.up": "fc1", "ffn.down": "fc2", "ffn_norm": "final_layer_norm"}


def _bart_class(name: str, model_type: str, entries: Callable[[Keys], dict[str, Any]],
                parts: Mapping[str, str], **settings: Any) -> NativeClass:
    return NativeClass(name, model_type, "AutoModelForSeq2SeqLM", entries, parts, BART_LAYER_PARTS,
                       "model.{stack}.layers", **settings)


NATIVE_CLASSES = {
    "decoder-only": [_llama_class("Llama", _llama_with_biases_entries),
                     _llama_class("Mistral", _mistral_entries),
                     # AutoTokenizer ignores the class of a tokenizer of Qwen2, and uses its own.
                     _llama_class("Qwen2", _qwen2_entries,
                                  tokenizer_class="PreTrainedTokenizerFast"),
                     _llama_class("Qwen3", _qwen3_entries)],
    "encoder-decoder": [
        _bart_class("MarianMTModel", "marian", partial(_marian_entries, True),
                    {"embedding.source.table": "model.shared"}),
        _bart_class("MarianMTModel", "marian", partial(_marian_entries, False),
                    {"embedding.source.table": "model.encoder.embed_tokens",
                     "embedding.target.table": "model.decoder.embed_tokens", "output": "lm_head"}),
        _bart_class("BartForConditionalGeneration", "bart", _bart_entries, BART_PARTS,
                    unused_positions=BART_UNUSED_POSITIONS)]}
