"""Read the ``config.json`` of a Hugging Face model as a file of the space language.

Only the configuration is read: neither weights nor the transformers package are needed. Each model
type has one function in ``MODEL_TYPES``. It sets keys of the space language, and lists every
difference between the model and the architecture that these keys describe.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from scalesearch.errors import UserError
from scalesearch.spaces.syntax.diagnostics import closest_match

CONFIG_FILE = "config.json"
EXPECTED_FILE = ("the configuration of a Hugging Face model, a JSON file with model_type, or a "
                 f"folder with such a {CONFIG_FILE}")
WIDTH_ENTRIES = {"hidden_size", "d_model", "n_embd"}  # not keys of a space
# FFNs by the names of activations in transformers: of two matrices, and with a gate.
FFN_TYPES = {"relu": ("relu", "geglu"), "silu": ("swish", "swiglu"), "swish": ("swish", "swiglu"),
             **dict.fromkeys(("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"),
                             ("gelu", "geglu"))}
ROTARY_BASE = 10_000  # of this package
# Ratio of difflib of an entry and a name that it may stand for. The entries of transformers that
# are not read have smaller ones, except with names that are always present.
MIN_SIMILARITY = 0.76


@dataclass(frozen=True)
class Difference:
    """A difference between a Hugging Face model and the architecture that was read.

    Attributes:
        text: what the model has and the space language cannot express.
        params: params of the model minus params of the architecture, because of it.
    """

    text: str
    params: int = 0

    def __str__(self) -> str:
        return f"{self.text} ({self.params:+,} params)" if self.params else self.text


@dataclass
class HuggingFaceArchitecture:
    """The keys of a space that a configuration sets, in the order of the file.

    Attributes:
        config: the configuration.
        keys: value and name in the configuration (empty if it is another one) of each key.
        differences: everything that the keys do not express.
        defaults: values of some entries that the configuration does not have.
        read: names of entries that were read; True if the entry, or one with another of the names
            for it, is present.
        missing: names of each required entry that is missing.
    """

    config: Mapping[str, Any]
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    read: dict[str, bool] = field(default_factory=dict)
    missing: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def model_type(self) -> str:
        """Model type in transformers, such as ``llama``."""
        return str(self.config.get("model_type"))

    def get(self, *names: str, default: object = None) -> Any:
        """Return the first of these entries that is not null, or else a default."""
        values = [self.config[name] for name in names if self.config.get(name) is not None]
        self.read.update(dict.fromkeys(names, bool(values)))
        values += [self.defaults[name] for name in names if name in self.defaults]
        return values[0] if values else default

    def size(self, *names: str, default: int | None = None) -> int:
        """Return a size of the configuration; 1 if it is missing, which is listed.

        Raises:
            UserError: it is not a positive whole number.
        """
        value = self.get(*names, default=default)
        if value is None:
            self.missing.append(names)
            return 1
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{names[0]}: expected a whole number of at least 1 in the "
                            f"configuration of a {self.model_type} model, found {value!r}",
                            code="bad-value")
        return value

    def set(self, key: str, value: object, source: str = "") -> None:
        """Set a key of the space; ``source`` is the entry of the configuration."""
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        self.keys[key] = (text, source)

    def copy(self, key: str, *names: str, default: int | None = None) -> int:
        """Set a size of the space to that of the configuration, and return it."""
        size = self.size(*names, default=default)
        self.set(key, size, next((name for name in names if self.get(name) is not None), ""))
        return size

    def set_key_value_heads(self, kv_heads: int, heads: int, source: str) -> None:
        """Set the number of heads of keys and values, if it is not that of queries.

        Raises:
            UserError: it does not divide the number of heads of queries.
        """
        if heads % kv_heads:
            raise UserError(f"{source}: {kv_heads} does not divide num_attention_heads {heads}",
                            code="bad-value")
        if kv_heads != heads:
            self.set("decoder.key_value_heads", kv_heads, source)

    def add_difference(self, text: str, params: int = 0) -> None:
        """List something that the keys do not express."""
        self.differences.append(Difference(text, params))

    def set_ffn(self, stack: str, activation: str, source: str, hidden: int,
                is_gated: bool = False, has_biases: bool = True) -> None:
        """Set the feed-forward networks of a stack.

        ``source`` names the entries of the configuration with activation and hidden units.

        Raises:
            UserError: the activation is not known.
        """
        if activation not in FFN_TYPES:
            raise UserError(f"{source}: the space language has no feed-forward network with the "
                            f"activation {activation!r}; it has {', '.join(FFN_TYPES)}",
                            code="activation-unsupported")
        ffn = FFN_TYPES[activation][is_gated]
        self.set(f"{stack}.ffn", f"{{ {ffn}: {{ hidden: {hidden} }} }}", source)
        if is_gated and activation == "relu":
            self.add_difference(f"{stack}: the gate is a ReLU, not a GELU")
        elif activation.startswith("gelu_"):
            self.add_difference(f"{stack}: GELU is approximated ({activation})")
        if not has_biases:
            self.set(f"{stack}.ffn_bias", False)

    def to_yaml(self, name: str) -> str:
        """Return the text of a space file with the name ``name``."""
        lines = [f"# Read from the {CONFIG_FILE} of a Hugging Face model of type "
                 f"{self.model_type}."]
        if self.differences:
            lines.append("# Not expressed by this file:")
            lines += [f"# - {difference}" for difference in self.differences]
        lines.append(f"space: {json.dumps(name)}")
        groups = dict.fromkeys(key.rpartition(".")[0] for key in self.keys)
        for group in groups:
            lines += [f"{group}:"] * bool(group)
            for key, (value, source) in self.keys.items():
                if key.rpartition(".")[0] == group:
                    text = f"{'  ' * bool(group)}{key.rpartition('.')[2]}: {value}"
                    lines.append(f"{text:<39} # {source}" if source else text)
        return "\n".join(lines) + "\n"


ReadFunction = Callable[[HuggingFaceArchitecture], None]
MODEL_TYPES: dict[str, ReadFunction] = {}


def _register(*model_types: str) -> Callable[[ReadFunction], ReadFunction]:
    def register(function: ReadFunction) -> ReadFunction:
        MODEL_TYPES.update(dict.fromkeys(model_types, function))
        return function

    return register


def load_config(path: Path) -> dict[str, Any] | None:
    """Return the Hugging Face configuration in a file, or in ``config.json`` of a folder.

    None if the path is another file, such as a space, or does not exist.

    Raises:
        UserError: a .json file is invalid, or ``model_type`` is missing.
    """
    file = path / CONFIG_FILE if os.path.isdir(path) else path
    if file.suffix != ".json" or not os.path.isfile(file):
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}",
                        code="not-huggingface-config") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: not JSON: {error}", code="not-huggingface-config") from None
    if not isinstance(config, dict):
        raise UserError(f"{file}: expected {EXPECTED_FILE}, found {config!r:.40}",
                        code="not-huggingface-config")
    if "model_type" in config:
        return config
    if WIDTH_ENTRIES & config.keys():
        raise UserError(f"{file}: `model_type` is missing", code="not-huggingface-config")
    return None


def require_config(path: Path) -> dict[str, Any]:
    """Return the Hugging Face configuration in a file or folder.

    Raises:
        UserError: the path is not a configuration.
    """
    config = load_config(path)
    if config is None:
        file = path / CONFIG_FILE if path.is_dir() else path
        problem = "" if file.exists() else "no such file; "
        raise UserError(f"{file}: {problem}expected {EXPECTED_FILE}", code="not-huggingface-config")
    return config


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Context in which errors name the configuration ``path``."""
    try:
        yield
    except UserError as error:
        if type(error) is UserError and str(path) not in error.message:
            error.message = f"{path}: {error.message}"
        raise


def config_name(path: Path) -> str:
    """Return the name of the space that is read from the configuration ``path``."""
    path = path.resolve()
    is_file_in_model_folder = path.name == CONFIG_FILE
    return path.parent.name if is_file_in_model_folder else path.stem


def read_config(config: Mapping[str, Any]) -> HuggingFaceArchitecture:
    """Read the configuration of a Hugging Face model.

    Raises:
        UserError: the model type or an activation is not known, or sizes are missing.
    """
    model_type = config.get("model_type")
    if model_type == "gemma3" and isinstance(config.get("text_config"), Mapping):
        architecture = read_config({"model_type": "gemma3_text", **config["text_config"]})
        architecture.add_difference("the vision encoder and its projection; only the language "
                                    "model was read")
        return architecture
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        raise UserError(f"model_type: {model_type!r} is not a known type of Hugging Face models; "
                        f"the known types are {', '.join(sorted([*MODEL_TYPES, 'gemma3']))}",
                        code="unknown-model-type")
    architecture = HuggingFaceArchitecture(config)
    problem = None
    try:
        MODEL_TYPES[model_type](architecture)
    except UserError as error:
        problem = error
    except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
        problem = UserError(f"the configuration of a {model_type} model has an entry of another "
                            f"type than in transformers: {error}", code="bad-value")
    absent = [name for name, is_present in architecture.read.items() if not is_present]
    not_read = [key for key in config if key not in architecture.read]
    misspelled = {name: key for name in absent
                  if (key := closest_match(name, not_read, MIN_SIMILARITY))
                  and closest_match(key, absent) == name}
    missing = []
    for names in dict.fromkeys(architecture.missing):
        actual = "".join(f" (misspelled as `{misspelled[name]}`?)"
                         for name in names if name in misspelled)
        missing.append(" or ".join(f"`{name}`" for name in names) + actual)
    if missing:
        raise UserError(f"missing in the configuration of a {model_type} model: "
                        f"{', '.join(missing)}", code="missing-key")
    hints = [f"`{key}`, which is not read; did you mean `{name}`?"
             for name, key in misspelled.items()]
    if problem is not None:
        problem.help = " ".join(hints) or None
        raise problem
    for hint in hints:
        architecture.add_difference(hint)
    return architecture


# -- encoder-decoder models


def _read_bart_family(a: HuggingFaceArchitecture, norm: str, positions: str = "sinusoidal-marian",
                      has_embedding_norm: bool = False) -> None:
    """Read a configuration with the names of BART."""
    width = a.copy("width", "d_model")
    vocab = a.copy("vocab", "vocab_size", "src_vocab_size")
    a.set("norm", norm)
    is_tied = a.get("tie_word_embeddings", default=True)
    shares_sides = a.get("share_encoder_decoder_embeddings", default=True)
    tie = "none" if not is_tied else "all" if shares_sides else "decoder"
    a.set("embedding.tie", tie, "tie_word_embeddings")
    a.set("embedding.output_bias", False)
    if has_embedding_norm:
        a.set("embedding.norm", True)
    a.set("embedding.positions", positions)
    if positions == "learned":  # the first two rows are not used
        max_length = a.size("max_position_embeddings")
        a.set("embedding.max_length", max_length + 2, "max_position_embeddings + 2")
    for stack in ("encoder", "decoder"):
        a.copy(f"{stack}.depth", f"{stack}_layers")
        a.copy(f"{stack}.heads", f"{stack}_attention_heads")
        a.set_ffn(stack, a.get("activation_function", default="gelu"),
                  f"activation_function, {stack}_ffn_dim", a.size(f"{stack}_ffn_dim"))
    if not is_tied and shares_sides:
        a.add_difference("a fourth table, which is not used", vocab * width)
    a.set("embedding.scaled", a.get("scale_embedding", default=False), "scale_embedding")
    target_vocab = a.size("decoder_vocab_size", "tgt_vocab_size", default=vocab)
    if target_vocab != vocab and tie != "all":
        a.copy("target_vocab", "decoder_vocab_size", "tgt_vocab_size")


MODEL_TYPES |= {
    "marian": partial(_read_bart_family, norm="post"),
    "pegasus": partial(_read_bart_family, norm="pre"),
    "bart": partial(_read_bart_family, norm="post", positions="learned", has_embedding_norm=True),
    "mbart": partial(_read_bart_family, norm="pre", positions="learned", has_embedding_norm=True)}


@_register("m2m_100")
def _read_m2m_100(a: HuggingFaceArchitecture) -> None:
    _read_bart_family(a, "pre", "sinusoidal")
    a.add_difference("sinusoidal positions start at 2, not at 0")


@_register("fsmt")
def _read_fsmt(a: HuggingFaceArchitecture) -> None:
    is_tied = a.get("tie_word_embeddings", default=False)
    a.defaults = {"scale_embedding": True, "activation_function": "relu",
                  "tie_word_embeddings": is_tied, "share_encoder_decoder_embeddings": is_tied}
    _read_bart_family(a, "post", "sinusoidal")
    rows = (a.size("max_position_embeddings", default=1024) + 1
            + int(a.get("pad_token_id", default=1)))
    a.add_difference("two tables of positions, which are constant", 2 * rows * a.size("d_model"))
    a.add_difference("sinusoidal positions start at 2, not at 0")


@_register("t5", "mt5")
def _read_t5(a: HuggingFaceArchitecture) -> None:
    a.copy("width", "d_model")
    a.copy("vocab", "vocab_size")
    a.set("norm", "pre")
    a.set("norm_kind", "rms")
    # Without tying, one table serves both inputs and the output has its own.
    is_tied = a.get("tie_word_embeddings", default=True)
    a.set("embedding.tie", "all" if is_tied else "inputs", "tie_word_embeddings")
    a.set("embedding.output_bias", False)
    a.set("embedding.scaled", False)
    a.set("embedding.positions", "none")
    activation = a.get("feed_forward_proj", default="relu")
    for stack, depth in (("encoder", "num_layers"), ("decoder", "num_decoder_layers")):
        a.copy(f"{stack}.depth", depth, default=a.get("num_layers"))
        a.copy(f"{stack}.heads", "num_heads")
        a.copy(f"{stack}.head_dim", "d_kv")
        a.set(f"{stack}.projection_bias", False)
        a.set_ffn(stack, activation.removeprefix("gated-"), "feed_forward_proj, d_ff",
                  a.size("d_ff"), activation.startswith("gated-"), has_biases=False)
        a.copy(f"{stack}.position_buckets", "relative_attention_num_buckets", default=32)
        a.copy(f"{stack}.bucket_distance", "relative_attention_max_distance", default=128)
        a.set(f"{stack}.score_dim", 1)  # scores are not divided


# -- encoder-only models


@_register("bert", "roberta", "xlm-roberta", "camembert")
def _read_bert(a: HuggingFaceArchitecture) -> None:
    width = _start_encoder(a, "hidden_size")
    a.copy("encoder.depth", "num_hidden_layers")
    a.copy("encoder.heads", "num_attention_heads")
    a.set_ffn("encoder", a.get("hidden_act", default="gelu"), "hidden_act, intermediate_size",
              a.size("intermediate_size"))
    segments = a.size("type_vocab_size", default=2)
    a.add_difference(f"vectors of {segments} types of segments are added to embeddings",
                     segments * width)
    if "classes" not in a.keys and not a.get("tie_word_embeddings", default=True):
        a.add_difference("a second bias of the output, which is not used", a.size("vocab_size"))
    if a.get("is_decoder"):
        a.add_difference("positions attend to earlier positions only")


@_register("distilbert")
def _read_distilbert(a: HuggingFaceArchitecture) -> None:
    _start_encoder(a, "dim")
    a.copy("encoder.depth", "n_layers")
    a.copy("encoder.heads", "n_heads")
    a.set_ffn("encoder", a.get("activation", default="gelu"), "activation, hidden_dim",
              a.size("hidden_dim"))
    if "classes" in a.keys:
        a.add_difference("the output for classes has a ReLU, not a tanh")


def _start_encoder(a: HuggingFaceArchitecture, width_name: str) -> int:
    """Set the keys of an encoder-only model that are not in its stack, and return the width."""
    a.set("model", "encoder-only")
    width = a.copy("width", width_name)
    a.copy("vocab", "vocab_size")
    a.set("norm", "post")
    head = next(iter(a.get("architectures", default=())), "ForMaskedLM")
    if head.endswith("ForSequenceClassification"):
        names = a.get("id2label", default=())
        a.set("classes", len(names) or a.size("num_labels", default=2), "architectures, id2label")
    else:
        is_tied = a.get("tie_word_embeddings", default=True)
        a.set("embedding.tie", "all" if is_tied else "none", "tie_word_embeddings")
        a.set("embedding.tied_bias", True)
        a.set("embedding.output_transform", True)
        if not head.endswith("ForMaskedLM"):
            a.add_difference(f"the output of {head}; that of masked tokens was read")
    a.set("embedding.norm", True)
    _set_learned_positions(a, a.size("max_position_embeddings", default=512),
                           "max_position_embeddings")
    return width


# -- decoder-only models with layer norms


def _start_decoder(a: HuggingFaceArchitecture, tie_default: bool, norm_kind: str = "layer",
                   norm: str = "pre") -> int:
    """Set the keys of a decoder-only model that are not in its stack, and return the width."""
    a.set("model", "decoder-only")
    width = a.copy("width", "hidden_size", "n_embd", "n_embed")
    a.copy("vocab", "vocab_size")
    a.set("norm", norm)
    if norm_kind != "layer":
        a.set("norm_kind", norm_kind)
    is_tied = a.get("tie_word_embeddings", default=tie_default)
    a.set("embedding.tie", "all" if is_tied else "none", "tie_word_embeddings")
    a.set("embedding.output_bias", False)
    return width


def _set_learned_positions(a: HuggingFaceArchitecture, length: int, source: str) -> None:
    a.set("embedding.positions", "learned")
    a.set("embedding.max_length", length, source)
    a.set("embedding.scaled", False)


def _set_rotary(a: HuggingFaceArchitecture) -> None:
    """Set rotary positions, and list their differences."""
    a.set("decoder.rotary", True)
    rope = a.get("rope_parameters", "rope_scaling", default={})
    if not any(isinstance(value, Mapping) for value in rope.values()):
        rope = {"": rope}
    for layers, values in rope.items():
        where = f" in layers of type {layers}" if layers else ""
        base = values.get("rope_theta", a.get("rope_theta", "rotary_emb_base", default=ROTARY_BASE))
        kind = values.get("rope_type", values.get("type", "default"))
        if base != ROTARY_BASE:
            a.add_difference(f"rotary positions with base {base:,.0f}{where}, not {ROTARY_BASE:,}")
        if kind != "default":
            a.add_difference(f"rotary positions with scaling of type {kind}{where}")
        share = values.get("partial_rotary_factor", a.get("partial_rotary_factor", "rotary_pct",
                                                          default=1))
        if share != 1:
            a.add_difference(f"rotary positions for {share:.0%} of the features of a head{where}")


@_register("gpt2")
def _read_gpt2(a: HuggingFaceArchitecture) -> None:
    width = _start_decoder(a, True)
    _set_learned_positions(a, a.size("n_positions"), "n_positions")
    depth = a.copy("decoder.depth", "n_layer")
    a.copy("decoder.heads", "n_head")
    a.set_ffn("decoder", a.get("activation_function", default="gelu_new"),
              "activation_function, n_inner", a.size("n_inner", default=4 * width))
    if a.get("add_cross_attention"):
        a.add_difference("cross-attention", depth * (4 * width + 6) * width)


@_register("opt")
def _read_opt(a: HuggingFaceArchitecture) -> None:
    is_pre_norm = a.get("do_layer_norm_before", default=True)
    width = _start_decoder(a, True, norm="pre" if is_pre_norm else "post")
    if is_pre_norm and a.get("_remove_final_layer_norm"):
        a.set("last_norm", False, "_remove_final_layer_norm")
    rank = a.size("word_embed_proj_dim", default=width)
    if rank != width:
        a.set("embedding.factorised", f"{{ rank: {rank}, own_map: yes }}", "word_embed_proj_dim")
    _set_learned_positions(a, a.size("max_position_embeddings") + 2, "max_position_embeddings + 2")
    a.copy("decoder.depth", "num_hidden_layers")
    a.copy("decoder.heads", "num_attention_heads")
    has_biases = a.get("enable_bias", default=True)
    a.set("decoder.projection_bias", has_biases, "enable_bias")
    a.set_ffn("decoder", a.get("activation_function", default="relu"),
              "activation_function, ffn_dim", a.size("ffn_dim"), has_biases=has_biases)
    if not a.get("layer_norm_elementwise_affine", default=True):
        a.set("norm_kind", "layer-no-weights", "layer_norm_elementwise_affine")


@_register("gpt_neox")
def _read_gpt_neox(a: HuggingFaceArchitecture) -> None:
    _start_decoder(a, False)
    a.set("embedding.positions", "none")
    a.copy("decoder.depth", "num_hidden_layers")
    a.copy("decoder.heads", "num_attention_heads")
    a.set("decoder.projection_bias", a.get("attention_bias", default=True), "attention_bias")
    _set_rotary(a)
    if a.get("use_parallel_residual", default=True):
        a.set("decoder.sublayers", "[[self, ffn]]", "use_parallel_residual")
        a.set("decoder.parallel_norms", True)
    a.set_ffn("decoder", a.get("hidden_act", default="gelu"), "hidden_act, intermediate_size",
              a.size("intermediate_size"))
    a.set("embedding.scaled", False)


@_register("falcon")
def _read_falcon(a: HuggingFaceArchitecture) -> None:
    width = _start_decoder(a, True)
    a.set("embedding.positions", "none")
    a.copy("decoder.depth", "num_hidden_layers", "n_layer")
    heads = a.copy("decoder.heads", "num_attention_heads", "n_head")
    is_new = a.get("new_decoder_architecture", default=False)
    if is_new:
        a.set_key_value_heads(a.size("num_kv_heads", default=heads), heads, "num_kv_heads")
    elif a.get("multi_query", default=True):
        a.set("decoder.key_value_heads", 1, "multi_query")
    has_biases = a.get("bias", default=False)
    a.set("decoder.projection_bias", has_biases, "bias")
    if a.get("alibi", default=False):
        a.set("decoder.alibi", True, "alibi")
        a.set("decoder.alibi_scaled", True)
    else:
        _set_rotary(a)
    if is_new or a.get("parallel_attn", default=True):
        a.set("decoder.sublayers", "[[self, ffn]]", "parallel_attn")
        if is_new and a.get("num_ln_in_parallel_attn", default=2) == 2:
            a.set("decoder.parallel_norms", True, "num_ln_in_parallel_attn")
    a.set_ffn("decoder", a.get("activation", default="gelu"), "activation, ffn_hidden_size",
              a.size("ffn_hidden_size", default=4 * width), has_biases=has_biases)
    a.set("embedding.scaled", False)


@_register("bloom")
def _read_bloom(a: HuggingFaceArchitecture) -> None:
    width = _start_decoder(a, True)
    a.set("embedding.positions", "none")
    a.copy("decoder.depth", "n_layer", "num_hidden_layers")
    a.copy("decoder.heads", "n_head", "num_attention_heads")
    a.set_ffn("decoder", "gelu_new", "4 * hidden_size", 4 * width)
    a.set("embedding.norm", True)
    a.set("decoder.alibi", True)
    a.set("embedding.scaled", False)
    if a.get("apply_residual_connection_post_layernorm"):
        a.set("residual_after_norm", True, "apply_residual_connection_post_layernorm")


# -- decoder-only models with RMS norms, rotary positions and gated feed-forward networks


def _read_llama_family(a: HuggingFaceArchitecture, tie_default: bool = False,
                       activation: str = "silu", qkv_bias: bool = False,
                       mlp_bias: bool = False, is_scaled: bool = False,
                       default_heads: int | None = None, default_kv_heads: int | None = None,
                       default_head_dim: int | None = None) -> tuple[int, int, int, int, int]:
    """Read a configuration with the names of Llama.

    ``activation`` and the arguments that begin with ``default`` replace missing entries.

    Returns:
        Width, depth, heads, heads of keys and values, and features of a head.
    """
    width = _start_decoder(a, tie_default, "rms")
    a.set("embedding.positions", "none")
    if not is_scaled:
        a.set("embedding.scaled", False)
    depth = a.copy("decoder.depth", "num_hidden_layers")
    heads = a.copy("decoder.heads", "num_attention_heads", default=default_heads)
    head_dim = a.copy("decoder.head_dim", "head_dim", default=default_head_dim or width // heads)
    kv_heads = a.size("num_key_value_heads", default=default_kv_heads or heads)
    a.set_key_value_heads(kv_heads, heads, "num_key_value_heads")
    has_biases = qkv_bias or a.get("attention_bias", default=False)
    a.set("decoder.projection_bias", has_biases, "attention_bias")
    if qkv_bias:
        a.set("decoder.out_bias", False)
    _set_rotary(a)
    a.set_ffn("decoder", a.get("hidden_activation", "hidden_act", default=activation),
              "hidden_act, intermediate_size", a.size("intermediate_size"),
              is_gated=True, has_biases=mlp_bias)
    return width, depth, heads, kv_heads, head_dim


def _set_windows(a: HuggingFaceArchitecture, is_local: list[bool],
                 default: int | None = 4096) -> None:
    """Set the sliding window, in the layers of the configuration or else those in ``is_local``.

    ``default`` is the window if the configuration has no entry for it.
    """
    if (types := a.get("layer_types")) is not None:
        is_local = [layer == "sliding_attention" for layer in types]
    if not any(is_local) or a.config.get("sliding_window", default) is None:
        return
    window = a.size("sliding_window", default=default)
    depth = len(is_local)
    period = (is_local.index(False) if False in is_local else depth) + 1
    if is_local == [layer % period != 0 for layer in range(1, depth + 1)]:
        a.set("decoder.window", window, "sliding_window")
        if period <= depth:
            a.set("decoder.global_every", period, "layer_types")
    else:
        a.set("decoder.window", [window * local for local in is_local],
              "sliding_window, layer_types")


@_register("llama", "mistral", "phi3")
def _read_llama(a: HuggingFaceArchitecture) -> None:
    kv_heads = 8 if a.model_type == "mistral" else None
    _, depth, *_ = _read_llama_family(a, mlp_bias=a.get("mlp_bias", default=False),
                                      default_kv_heads=kv_heads)
    _set_windows(a, [True] * depth, 4096 if a.model_type == "mistral" else None)


@_register("qwen2")
def _read_qwen2(a: HuggingFaceArchitecture) -> None:
    _, depth, *_ = _read_llama_family(a, qkv_bias=True)
    _set_qwen_windows(a, depth)


@_register("qwen3")
def _read_qwen3(a: HuggingFaceArchitecture) -> None:
    _, depth, *_ = _read_llama_family(a, default_head_dim=128)
    a.set("decoder.qk_norm", "head")
    _set_qwen_windows(a, depth)


def _set_qwen_windows(a: HuggingFaceArchitecture, depth: int) -> None:
    """Set the sliding windows, which only the last layers have."""
    if a.get("use_sliding_window"):
        first = a.get("max_window_layers", default=28)
        _set_windows(a, [layer >= first for layer in range(depth)])


@_register("olmo2")
def _read_olmo2(a: HuggingFaceArchitecture) -> None:
    _read_llama_family(a)
    a.set("decoder.qk_norm", "width")
    a.set("norm", "branch")


@_register("mixtral")
def _read_mixtral(a: HuggingFaceArchitecture) -> None:
    _, depth, *_ = _read_llama_family(a, default_kv_heads=8)
    a.set("decoder.ffn", "{ mixture: { "
          f"experts: {a.size('num_local_experts', default=8)}, "
          f"active: {a.size('num_experts_per_tok', default=2)}, "
          f"expert_hidden: {a.size('intermediate_size')} }} }}",
          "num_local_experts, num_experts_per_tok, intermediate_size")
    _set_windows(a, [True] * depth, None)


@_register("gemma")
def _read_gemma(a: HuggingFaceArchitecture) -> None:
    _read_llama_family(a, True, "gelu_pytorch_tanh", is_scaled=True, default_head_dim=256)


@_register("gemma2", "gemma3_text")
def _read_gemma2(a: HuggingFaceArchitecture) -> None:
    is_gemma3 = a.model_type == "gemma3_text"
    if is_gemma3:
        a.defaults = {"vocab_size": 262_208}  # left out in released configurations
    _, depth, *_, head_dim = _read_llama_family(
        a, True, "gelu_pytorch_tanh", is_scaled=True, default_heads=8, default_kv_heads=4,
        default_head_dim=256)
    a.set("norm", "sandwich")
    if is_gemma3:
        a.set("decoder.qk_norm", "head")
    period = a.size("sliding_window_pattern", "_sliding_window_pattern",
                    default=6 if is_gemma3 else 2)
    _set_windows(a, [layer % period != 0 for layer in range(1, depth + 1)])
    if cap := a.get("attn_logit_softcapping"):
        a.set("decoder.soft_cap", cap, "attn_logit_softcapping")
    if cap := a.get("final_logit_softcapping"):
        a.set("embedding.output_soft_cap", cap, "final_logit_softcapping")
    if a.get("query_pre_attn_scalar", default=head_dim) != head_dim:
        a.copy("decoder.score_dim", "query_pre_attn_scalar")
