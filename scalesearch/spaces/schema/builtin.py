"""The keys of a space file.

Keys of registered blocks are read from the block catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any, TypeVar

from scalesearch.blocks.embedding import POSITION_TYPES
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.layers import NORM_POSITIONS
from scalesearch.blocks.maps.linear_factories import Dense
from scalesearch.blocks.maps.structured_matrices import MATRIX_STRUCTURES, TableLinearFactory
from scalesearch.blocks.maps.tensor_chains import APPLY_MODES, BOND_RULES
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.mixers.attention_extras import ADAPTABLE_PARTS
from scalesearch.blocks.mixers.gates import GATES
from scalesearch.blocks.norms import NORM_CLASSES
from scalesearch.blocks.seq2seq import TYING_MODES
from scalesearch.blocks.stacks import SOLVERS
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.blocks.weight_sharing import SCHEDULES, make_schedule
from scalesearch.library import load_entry_point
from scalesearch.spaces.schema.bound_tree import SchemaIndex, build_index
from scalesearch.spaces.schema.stack import (
    OFF_VALUES,
    Fields,
    cross_attention_schema,
    dextra_schema,
    flag_field,
    optional_size_field,
    schema_of_block,
    size_field,
    stack_schema,
    sublayer_order_field,
    word_field,
)
from scalesearch.spaces.schema.types import ScheduleSignature, SchemaField, SchemaGroup

ENTRY_POINT_GROUP = "scalesearch.blocks"  # modules of installed packages that register blocks
MODELS = ("encoder-decoder", "decoder-only", "encoder-only")
FieldT = TypeVar("FieldT", bound=SchemaField | SchemaGroup)
# Names in other tools and papers by the last name of a key. Errors suggest the key instead.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "width": ("d_model", "hidden_size", "model_dim", "embed_dim", "n_embd", "embedding_dim", "dim",
              "emb_dim"), "vocab": ("vocab_size", "vocabulary", "vocabulary_size", "n_vocab"),
    "mixer": ("token_mixer", "attention_type", "attn_type", "sequence_mixer"),
    "depth": ("layers", "num_layers", "n_layers", "n_layer", "num_hidden_layers", "encoder_layers",
              "decoder_layers", "num_encoder_layers", "num_decoder_layers", "blocks"),
    "heads": ("num_heads", "n_head", "n_heads", "nhead", "attention_heads", "num_attention_heads",
              "encoder_attention_heads", "decoder_attention_heads"),
    "head_dim": ("d_head", "d_k", "d_kv", "head_size", "dim_head"),
    "key_value_heads": ("num_key_value_heads", "n_kv_heads", "kv_heads", "num_kv_heads",
                        "multi_query"),
    "hidden": ("d_ff", "ffn_dim", "d_inner", "intermediate_size", "dim_feedforward", "hidden_dim",
               "ff_size", "encoder_ffn_embed_dim", "decoder_ffn_embed_dim", "mlp_dim", "n_inner"),
    "norm": ("normalize_before", "pre_norm", "prenorm", "layer_norm", "norm_first",
             "normalisation"),
    "ffn": ("feed_forward", "feedforward", "mlp", "activation", "activation_fn", "ff"),
    "experts": ("num_local_experts", "num_experts", "n_experts"),
    "active": ("num_experts_per_tok", "top_k", "n_active_experts"),
    "expert_hidden": ("moe_intermediate_size", "d_expert", "hidden", "d_ff", "ffn_dim",
                      "intermediate_size"),
    "mixture": ("moe", "mixture_of_experts", "sparse_moe", "switch"),
    "pg": ("partial", "partial_ffn", "partial_gated_ffn", "partialformer", "head_ffn"),
    "model": ("architecture", "arch", "model_type", "type"),
    "tie": ("tie_weights", "tie_embeddings", "share_all_embeddings", "tied", "tie_word_embeddings",
            "tied_embeddings", "share_decoder_input_output_embed", "tied_softmax"),
    "positions": ("positional_encoding", "position_embedding", "pos_encoding", "learned_pos",
                  "position_embeddings"),
    "max_length": ("max_position_embeddings", "max_positions", "max_len", "n_positions",
                   "block_size"),
    "relative_positions": ("relative_position", "rpr", "relative_attention"),
    "rotary": ("rope", "rotary_positions", "rotary_embeddings", "rotary_embedding", "use_rope"),
    "position_buckets": ("relative_attention_num_buckets", "num_buckets", "relative_buckets"),
    "bucket_distance": ("relative_attention_max_distance",),
    "qk_norm": ("use_qk_norm", "qk_layernorm", "qk_normalization", "query_key_norm"),
    "alibi": ("use_alibi", "linear_biases", "alibi_bias"),
    "score_dim": ("query_pre_attn_scalar", "attention_scale"),
    "residual_after_norm": ("apply_residual_connection_post_layernorm",),
    "soft_cap": ("attn_logit_softcapping", "logit_soft_cap", "attention_softcap", "softcap"),
    "output_soft_cap": ("final_logit_softcapping", "final_softcap"),
    "window": ("sliding_window", "attention_window", "window_size", "local_attention"),
    "global_every": ("sliding_window_pattern", "global_attn_every_n_layers"),
    "norm_kind": ("norm_type", "rms_norm", "rmsnorm", "use_rmsnorm", "normalization_type"),
    "relative_clip": ("max_relative_position", "max_relative_positions", "clip_distance"),
    "share": ("sharing", "weight_sharing", "share_layers", "parameter_sharing", "tie_layers"),
    "adapt": ("adapter", "adapters", "lora", "layer_adaptation"),
    "low_rank": ("lowrank", "factorized", "factorised_matrices"),
    "tensor_chain": ("tensor_train", "mpo", "tensor_network")}
# Values in other tools by key, with the help line of the error.
FOREIGN_WORDS: dict[str, dict[str, str]] = {
    "ffn": {**dict.fromkeys(SYNONYMS["mixture"], "the name is `mixture` here"),
            **dict.fromkeys(("mlp", "ffn", "dense", "glu", "gated"), "the name is that of the "
                            "activation: `relu`, `gelu`, `swish`; with a gate `geglu`, `swiglu`"),
            "silu": "the name is `swish` here, with a gate `swiglu`",
            "gated-gelu": "the name is `geglu` here", "gated-silu": "the name is `swiglu` here"},
    "mixer": {**dict.fromkeys(("mha", "multi_head_attention", "self_attention", "self-attention",
                               "softmax"), "the name is `attention` here"),
              **dict.fromkeys(("gqa", "mqa", "grouped_query_attention", "multi_query_attention"),
                              "write `attention`, and set `key_value_heads` next to `heads`"),
              "mla": "the name is `latent` here", "linear": "the name is `linear_attention` here"},
    "positions": {**dict.fromkeys(("rope", "rotary"), "write `none`, and set `rotary: yes` in the "
                                  "encoder or decoder"),
                  "alibi": "write `none`, and set `alibi: yes` in the encoder or decoder",
                  "absolute": "the name is `learned` or `sinusoidal` here"},
    "norm_kind": {**dict.fromkeys(("rms_norm", "rmsnorm"), "the name is `rms` here"),
                  **dict.fromkeys(("layer_norm", "layernorm", "ln"), "the name is `layer` here")}}


def _share() -> SchemaGroup:
    slots = {"encoder": {"attention": "mixer; also called `mixing`", "ffn": "feed-forward"},
             "decoder": {"self": "mixer", "cross": "cross-attention", "ffn": "feed-forward"}}
    calls = {name: ScheduleSignature(*schedule.argument_counts, partial(_schedule_problem, name))
             for name, schedule in SCHEDULES.items()}
    stacks: Fields = {}
    for stack, parts in slots.items():
        parts |= {word: f"sub-layers {word}" for word in SUBLAYERS}
        stacks[stack] = SchemaGroup(
            {slot: SchemaField("schedule", default="own", calls=calls, depth_key=f"{stack}.depth",
                               doc=f"which layers share their {what}")
             for slot, what in parts.items()},
            none_means_defaults=True, doc=f"of the {stack}'s layers",
            spellings={"mixing": "attention"} if stack == "encoder" else {})
    return SchemaGroup(
        {**stacks, "norms": word_field(("own", "follow"), "own", "norms of layers that share the "
                                       "rest"),
         "biases": word_field(("follow", "own"), "follow", "biases of matrices that are shared")},
        none_means_defaults=True, doc="parameter sharing: which layers use the same weights")


def _schedule_problem(name: str, arguments: tuple[int, ...], depth: int) -> str | None:
    return make_schedule(name, arguments).validate(depth)


def _embedding() -> SchemaGroup:
    rank = {"rank": size_field("= width // 4", "width of the table")}
    soft: Fields = {
        "levels": size_field("2", "scales"),
        "level_width": size_field("= width // (2 * embedding.levels)",
                                  "features of a role or of a convolution"),
        "roles": size_field("= embedding.level_width", "soft roles")}
    adaptive: Fields = {
        "cutoffs": SchemaField("list", low=1, default="[20000, 60000]",
                               doc="tokens at which bands end"),
        "factor": size_field("4", "by how much each band is narrower", low=2)}
    variants = {
        "plain": SchemaGroup(doc="a table as wide as the model"),
        "factorised": SchemaGroup(
            {**rank, "own_map": flag_field("no", "the map before a tied output is its own, not the "
                                           "table's (OPT)")}, doc="a narrower table, and a map to "
                                                                  "the model's width"),
        "dextra": SchemaGroup({**rank, **dextra_schema("rank").fields},
                              doc="a narrower table, and DeLighT's unit for each side"),
        "attentive": SchemaGroup(
            {**rank, "heads": size_field("1", "attention heads; they divide rank")},
            doc="a narrower table, and an attention layer over its rows (Subformer)"),
        "h-softpos": SchemaGroup(soft, doc="Anthe's embedding with soft roles"),
        "adaptive": SchemaGroup(adaptive, doc="bands of rarer tokens are narrower")}
    return SchemaGroup(
        {"tie": word_field(TYING_MODES, "all", "which of source table, target table and output "
                           "share weights"),
         "output_bias": flag_field("yes", "a bias on an output matrix that is not tied"),
         "tied_bias": flag_field("no", "a bias on an output that is tied (BERT, Marian)"),
         "output_transform": flag_field("no", "a map, GELU and a norm before the output (BERT)"),
         "output_soft_cap": SchemaField("number", default="0", low=0, doc="logits are limited to "
                                        "±output_soft_cap by tanh (Gemma 2); 0: no limit"),
         "scaled": flag_field("yes", "tables are multiplied by √width"),
         "norm": flag_field("no", "a norm of the sum with positions (BART, Bloom)"),
         "positions": word_field(POSITION_TYPES, "sinusoidal", "how positions are encoded"),
         "max_length": size_field("1024", "number of learned positions")},
        variants, default_variant="plain", doc="embeddings and output")


def _adapt() -> SchemaGroup:
    lora: Fields = {"rank": size_field("32", "of the low-rank paths"),
                    "on": SchemaField("list", ADAPTABLE_PARTS, default="[query, value]",
                                      doc="matrices that have one")}
    variants = {"nothing": SchemaGroup(doc="layers that share weights are equal"),
                "bias": SchemaGroup(doc="biases are each layer's own"),
                "lora": SchemaGroup(lora, doc="low-rank paths next to shared matrices"),
                "prompt": SchemaGroup({"length": size_field("8", "vectors per layer")},
                                      doc="learned vectors before each layer's input")}
    return SchemaGroup({}, variants, default_variant="nothing",
                       doc="weights that encoder layers with shared weights do not share")


def _ratio(default: str, doc: str) -> SchemaField:
    return SchemaField("number", default=default, low=0, high=1, special_values=OFF_VALUES, doc=doc)


def _matrices() -> SchemaGroup:
    unsupported = {"phm": "it divides the rows, and a vocabulary is rarely divisible; "
                          "kronecker adds rows instead",
                   "group": "equal groups would keep most features from most tokens"}
    structures = {name: schema_of_block(block) for name, block in MATRIX_STRUCTURES.items()}
    of_tables = {name: structures[name] for name, block in MATRIX_STRUCTURES.items()
                 if issubclass(block, TableLinearFactory | Dense)}
    targets = {"attention": "the maps of query, key and value", "out": "attention's output map",
               "ffn": "the maps of feed-forward networks"}
    fields = {name: SchemaGroup({}, structures, default_variant="dense", doc=f"structure of {what}")
              for name, what in targets.items()}
    tables = {"embedding": "tables, and outputs that are one of them",
              "output": "an output that is not tied"}
    fields |= {name: SchemaGroup({}, of_tables, default_variant="dense", unsupported=unsupported,
                                 doc=f"structure of {what}") for name, what in tables.items()}
    return SchemaGroup(fields, none_means_defaults=True, doc="structures of matrices")


def with_synonyms(child: FieldT, name: str = "") -> FieldT:
    """A field or group with the synonyms of ``name`` and of each key and word beneath it."""
    synonyms = (*child.synonyms, *SYNONYMS.get(name, ()))
    foreign_words = FOREIGN_WORDS.get(name, {})
    if isinstance(child, SchemaField):
        return replace(child, synonyms=synonyms,
                       foreign_words=foreign_words if child.type == "word" else {})
    if child.variants:  # a block of another package may have one of these names
        child = replace(child, unsupported={
            **{word: help for word, help in foreign_words.items() if word not in child.variants},
            **child.unsupported})
    fields = {key: with_synonyms(inner, key) for key, inner in child.fields.items()}
    variants = {key: with_synonyms(inner, key) for key, inner in child.variants.items()}
    return replace(child, fields=fields, variants=variants, synonyms=synonyms)


def architecture_schema() -> SchemaGroup:
    """The keys of a space file, with those of installed packages."""
    return _cached_schema(*_registered_blocks())


def _registered_blocks() -> tuple[object, ...]:
    _load_installed()
    return tuple(FFNS.items()), tuple(MIXERS.items()), tuple(SUBLAYERS.items())


@cache
def _load_installed() -> None:
    for point in entry_points(group=ENTRY_POINT_GROUP):
        load_entry_point(point)


def foreign_blocks() -> dict[str, str]:
    """Return the blocks that do not come with this package.

    Returns:
        Name of the block to name and version of the installed package that registers it. They are
        empty if only this process has registered it, so that other processes lack it.
    """
    packages = {point.module.partition(".")[0]:
                f"{point.dist.name} {point.dist.version}" if point.dist else point.module
                for point in entry_points(group=ENTRY_POINT_GROUP)}
    roots = {name: cls.__module__.partition(".")[0] for registry in (FFNS, MIXERS, SUBLAYERS)
             for name, cls in registry.items()}
    return {name: packages.get(root, "") for name, root in roots.items() if root != "scalesearch"}


@cache
def _cached_schema(*registered: object) -> SchemaGroup:
    solver = word_field(tuple(SOLVERS), "euler", "order of a layer's step (ODE Transformer)")
    encoder: Fields = {"solver": solver, "sublayers": sublayer_order_field("attention", "ffn")}
    decoder: Fields = {
        "width": size_field("= width", "features between the decoder's layers, and of target "
                            "embeddings and output; by default those of the encoder"),
        "sublayers": sublayer_order_field("self", "cross", "ffn"),
        "interleaved": flag_field("no", "short for sublayers: [self, ffn, cross, ffn_again] "
                                  "(EdgeFormer)"),
        "cross": cross_attention_schema(),
        "cross_heads": size_field("= decoder.heads", "value heads in cross-attention; 0: no "
                                  "cross-attention", low=0),
        "cross_key_value_heads": SchemaField(
            "size", default="= decoder.key_value_heads", low=1, special_values=OFF_VALUES,
            doc="key-value heads of cross-attention"),
        "cross_rank": size_field("= decoder.attention_rank", "attention_rank of cross-attention",
                                 low=0),
        "cross_gate": word_field(GATES, "none", "Anthe's gate in cross-attention")}
    tensor_chain: Fields = {
        "length": size_field("2", "cores in a chain", low=2, high=4),
        "layer": _ratio("off", "ratio of weights kept in all matrices of layers"),
        "attention": _ratio("= tensor_chain.layer", "in the query, key and value projections"),
        "ffn": _ratio("= tensor_chain.layer", "in feed-forward networks"),
        "embedding": _ratio("off", "in embedding tables"),
        "output": _ratio("off", "in an untied output matrix"),
        "apply": word_field(APPLY_MODES, "auto", "core by core, as a matrix, or the cheaper"),
        "bond": word_field(BOND_RULES, "solved", "published: the code's, far smaller at length 4")}
    low_rank: Fields = {
        "attention": optional_size_field("rank of the query, key and value projections"),
        "ffn": optional_size_field("rank of feed-forward matrices")}
    return with_synonyms(SchemaGroup({
        "model": word_field(MODELS, "encoder-decoder", "both stacks; a language model; or a masked "
                            "language model or classifier (BERT)"),
        "width": SchemaField("size", low=1, doc="d_model: features of a position between layers"),
        "vocab": SchemaField("size", low=5, optional=True,
                             doc="entries of the vocabulary, one tokenizer per size; by default "
                             "that of the protocol or the data"),
        "target_vocab": SchemaField("size", low=5, optional=True,
                                    doc="entries of a separate target vocabulary (FSMT)"),
        "classes": SchemaField("size", low=2, optional=True,
                               doc="classes of texts (BERT): the output reads the first position; "
                               "needs model: encoder-only"),
        "norm": word_field(NORM_POSITIONS, "pre", "normalize before each sub-layer; after the "
                           "residual sum; after each sub-layer (OLMo 2); before and after "
                           "(Gemma 2)"),
        "norm_kind": word_field(tuple(NORM_CLASSES), "layer", "layer norms with gain and bias, "
                                "with a gain only, without weights; or root mean square and gain"),
        "last_norm": flag_field("yes", "a norm after each stack, unless it is post-norm"),
        "post_last_norm": flag_field("no", "a norm after each post-norm stack"),
        "residual_after_norm": flag_field("no", "with norm: pre, residual connections start after "
                                          "the norms (Bloom)"),
        "embedding": _embedding(),
        "encoder": stack_schema("encoder", encoder),
        "decoder": stack_schema("decoder", decoder),
        "share": _share(), "adapt": _adapt(),
        "tensor_chain": SchemaGroup(tensor_chain, none_means_defaults=True,
                                    doc="matrices as chains of small cores (Anthe)"),
        "low_rank": SchemaGroup(low_rank, none_means_defaults=True,
                                doc="matrices as products of two low-rank matrices"),
        "matrices": _matrices()}))


@cache
def _cached_index(*registered: object) -> SchemaIndex:
    return build_index(_cached_schema(*registered))


def named_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration by the names of parameters, also those of single layers."""
    names = _cached_index(*_registered_blocks()).parameter_names(config)
    params = {names[key]: value for key, value in config.items()}
    layers = {f"{name}[{layer}]": size for name, value in params.items() if isinstance(value, list)
              for layer, size in enumerate(value, 1)}
    return params | layers


def resolve_params(params: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of hyperparameters: sizes in place of the ranges and formulas they are in.

    Args:
        params: sampled values; without any, the result is the whole configuration.
        config: the configuration that follows from them; empty if it cannot be built.
    """
    values = named_config(config)
    keys = {name: name.partition(" (")[0] for name in params}
    return {key: values.get(key, params[name]) for name, key in keys.items()} or values
