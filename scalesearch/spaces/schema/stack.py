"""The keys of a stack: registered mixers and FFNs, and attention."""

from __future__ import annotations

from dataclasses import replace

from scalesearch.blocks.core import Block, LinearFactory
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.layers import SECOND_FFN
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.mixers.attention_extras import HEAD_GATES
from scalesearch.blocks.mixers.composites import JOIN_MODES
from scalesearch.blocks.mixers.gates import GATES
from scalesearch.blocks.mixers.scores import RESIDUAL_SCORES
from scalesearch.blocks.multi_path import MERGE_METHODS, PATH_TARGETS
from scalesearch.blocks.options import option_fields
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.spaces.schema.types import InlinedVariant, SchemaField, SchemaGroup

Fields = dict[str, SchemaField | SchemaGroup]
OFF_VALUES = ("off",)
# keys with the same value for all layers
STACK_LEVEL_KEYS = ("depth", "width", "middle_width", "relative_clip", "paths", "global_every",
                    "position_buckets", "bucket_distance")
MAX_DEPTH = 10_000  # each layer takes time and memory, even if all share their weights
# Keys of attention, written next to `mixer`; the first are only for self-attention.
SELF_ATTENTION_KEYS = frozenset({"relative_positions", "relative_clip", "rotary", "residual_scores",
                                 "gate", "mask", "lift", "parallel_heads", "window",
                                 "position_buckets", "bucket_distance", "qk_norm", "alibi",
                                 "alibi_scaled", "soft_cap", "global_every"})
ATTENTION_KEYS = SELF_ATTENTION_KEYS | {"heads", "head_dim", "score_heads", "head_scaling",
                                        "score_dim", "key_value_heads", "attention_rank",
                                        "projections", "projection_bias", "out_bias", "pg"}


def flag_field(default: str, doc: str) -> SchemaField:
    """Yes or no."""
    return SchemaField("flag", default=default, doc=doc)


def size_field(default: str, doc: str, *, low: int = 1, high: int | None = None) -> SchemaField:
    """A whole number."""
    return SchemaField("size", default=default, low=low, high=high, doc=doc)


def word_field(words: tuple[str, ...], default: str, doc: str) -> SchemaField:
    """One of several words."""
    return SchemaField("word", words, default=default, doc=doc)


def optional_size_field(doc: str) -> SchemaField:
    """A whole number, or off."""
    return SchemaField("size", default="off", low=1, special_values=OFF_VALUES, doc=doc)


def sublayer_order_field(*words: str) -> SchemaField:
    """The order of sub-layers; each may be repeated."""
    return SchemaField("list", (*words, SECOND_FFN, *SUBLAYERS), default=f"[{', '.join(words)}]",
                       allows_nested=True,
                       doc="sub-layers in their order, each with separate weights; an inner "
                       "list is in parallel")


def stack_schema(name: str, extra: Fields) -> SchemaGroup:
    """The keys of the encoder or decoder, with ``extra`` keys."""
    mixers = {word: schema_of_block(block) for word, block in MIXERS.items()}
    fields: Fields = {
        "depth": size_field("6", "layers", high=MAX_DEPTH),
        "mixer": SchemaGroup({}, mixers, default_variant="attention",
                             doc="token mixer of each layer"),
        "local": _local(),
        **_attention_fields(name),
        "parallel_norms": flag_field("no", "parallel sub-layers have a norm each (GPT-NeoX)"),
        "step_embedding": flag_field("no", "a sinusoid of the layer's number before each layer "
                                     "(Universal Transformer)"),
        "middle_width": optional_size_field("width of all layers but the first and last "
                                            "(Subformer)"), **extra,
        **{word: schema_of_block(block) for word, block in SUBLAYERS.items()
           if option_fields(block)},
        "paths": SchemaGroup(
            {"of": word_field(PATH_TARGETS, "sublayer", "replicated part: attention is any mixer"),
             "count": size_field("1", "paths, each with separate weights"),
             "merge": word_field(MERGE_METHODS, "mean", "how outputs are merged; gated: by weights "
                                 "of each position"),
             "norm": flag_field("no", "a norm at the end of each path")},
            none_means_defaults=True, doc="several paths in the place of one (MAT, MUTE, "
            "Multi-Path)"),
        "pg": _partial(name == "decoder"),
        **_ffn_fields()}
    # In the decoder, cross-attention has the others, too.
    exclusive_keys = SELF_ATTENTION_KEYS if name == "decoder" else ATTENTION_KEYS
    children = {key: child if key in STACK_LEVEL_KEYS else _per_layer_schema(child, f"{name}.depth")
                for key, child in fields.items()}
    inlined = InlinedVariant("mixer", "attention", ATTENTION_KEYS, exclusive_keys)
    return SchemaGroup(children, inlined_variant=inlined, doc=f"the {name}'s layers")


def _attention_fields(stack: str) -> Fields:
    """The keys of attention, except for networks inside heads."""
    no_lift = SchemaGroup(doc="attention reads the layer's input")
    no_mask = SchemaGroup(doc="masks only padding and later positions")
    mask_clip = size_field("16", "distance from which positions are equal")
    dynamic_mask = SchemaGroup(
        {"clip": mask_clip}, doc="by content, distance and head; only in the first "
        "self-attention of a layer")
    return {
        "heads": size_field("8", "value heads; 0: no attention", low=0),
        "head_dim": size_field(f"= width // max(1, {stack}.heads)", "width of a head"),
        "score_heads": size_field(f"= {stack}.heads", "sets of attention scores", low=0),
        "head_scaling": word_field(("none", "mlp"), "none", "score heads expanded to value heads"),
        "key_value_heads": optional_size_field("key-value heads (grouped-query attention)"),
        "attention_rank": size_field("0", "rank of the query, key and value projections; "
                                     "0: as `matrices.attention`", low=0),
        "relative_positions": flag_field("no", "relative keys in self-attention (Shaw et al. "
                                         "2018)"),
        "relative_clip": size_field("8", "distance from which positions are equal"),
        "rotary": flag_field("no", "rotary positions (RoPE, Su et al. 2021) in self-attention"),
        "position_buckets": size_field("0", "buckets of distances with a learned bias of scores, "
                                       "one table for all layers (T5); 0: no biases", low=0),
        "bucket_distance": size_field("128", "distance from which positions are in one bucket"),
        "qk_norm": word_field(("none", "head", "width"), "none", "RMS norm of queries and keys of "
                              "self-attention: of each head, or of all heads together"),
        "alibi": flag_field("no", "scores of self-attention fall linearly with the distance "
                            "(Press et al. 2022)"),
        "alibi_scaled": flag_field("no", "with alibi: its bias is divided like the scores "
                                   "(Falcon)"),
        "score_dim": size_field("0", "scores are divided by its square root (T5: 1, Gemma 2); "
                                "0: head_dim", low=0),
        "soft_cap": SchemaField("number", default="0", low=0, doc="scores of self-attention are "
                                "limited to ±soft_cap by tanh (Gemma 2); 0: no limit"),
        "window": size_field("0", "a position attends to positions at a smaller distance: earlier "
                             "ones in a decoder, both sides in an encoder; 0: to all", low=0),
        "global_every": size_field("0", "with a window: each layer whose number is a multiple "
                                   "attends to all positions; 0: no layer", low=0),
        "mask": SchemaGroup({}, {"none": no_mask, "dynamic": dynamic_mask}, default_variant="none",
                            doc="a learned mask added to scores (DMAN, Fan et al. 2021)"),
        "lift": SchemaGroup({}, {"none": no_lift, "dextra": dextra_schema("width")},
                            default_variant="none", doc="a unit before self-attention, which then "
                            "reads fewer features"),
        "residual_scores": word_field(RESIDUAL_SCORES, "none", "A^G of a stack, or RealFormer's"),
        "gate": word_field(GATES, "none", "Anthe's gate between query, key and value"),
        "projections": word_field(("matrices", "identity"), "matrices",
                                  "query, key and value projections"),
        "projection_bias": flag_field("yes", "biases of the query, key and value "
                                     "projections"),
        "out_bias": flag_field(f"= {stack}.projection_bias", "a bias of the output projection"),
        "parallel_heads": optional_size_field("heads of self-attention in steps of parallel "
                                              "sub-layers, of the same total width")}


def _ffn_fields() -> Fields:
    """The keys of feed-forward networks."""
    ffns = {word: schema_of_block(block) for word, block in FFNS.items()}
    for word, ffn in ffns.items():
        if "hidden" in ffn.fields:
            hidden = replace(ffn.fields["hidden"], low=0)  # type: ignore[arg-type]
            ffns[word] = replace(ffn, fields={**ffn.fields, "hidden": hidden})
    return {
        "ffn": SchemaGroup({}, ffns, default_variant="relu",
                           doc="the feed-forward network of each layer"),
        "ffn_norm": flag_field("no", "a norm of its hidden units (Evolved Transformer)"),
        "ffn_bias": flag_field("yes", "biases of its linear layers"),
        "ffn_rank": size_field("0", "rank of its matrices; 0: as `matrices.ffn`", low=0),
        "ffn_groups": size_field("0", "blocks on the diagonals of its matrices; 0: as "
                                 "`matrices.ffn`", low=0),
        "ffn_products": size_field("0", "Kronecker products whose sum is each of its matrices; 0: "
                                   "as `matrices.ffn`", low=0)}


def _per_layer_schema(child: SchemaField | SchemaGroup, depth: str) -> SchemaField | SchemaGroup:
    """A key or a group of keys with sizes that may be set per layer."""
    if isinstance(child, SchemaField):
        return replace(child, layer_depth_key=depth) if child.type in ("size", "number") else child
    fields = {name: _per_layer_schema(field, depth) for name, field in child.fields.items()}
    variants = {name: _per_layer_schema(group, depth) for name, group in child.variants.items()}
    return replace(child, fields=fields, variants=variants)  # type: ignore[arg-type]


def dextra_schema(of: str) -> SchemaGroup:
    """The keys of a DExTra unit (DeLighT).

    ``of`` is the size that the multiplier refers to.
    """
    return SchemaGroup(
        {"depth": size_field("4", "grouped maps", high=64),
         "multiplier": SchemaField("number", default="2", low=1, high=64,
                                   doc=f"largest width, in multiples of {of}"),
         "groups": size_field("16", "largest number of groups; a power of two")},
        doc="grouped maps that grow and shrink again (DeLighT, Mehta et al. 2021)")


def cross_attention_schema() -> SchemaGroup:
    """The types of cross-attention."""
    gated = SchemaGroup({"head_dim": size_field("= max(1, width // 4)",
                                                "features of queries and keys"),
                         "clip": size_field("1024", "distance from which positions are equal")},
                        doc="one head, gated (Mega)")
    attention = SchemaGroup(doc="with the decoder's heads")
    return SchemaGroup({}, {"attention": attention, "gated": gated}, default_variant="attention",
                       doc="type of cross-attention")


def _local() -> SchemaGroup:
    """The mixers that can be combined with another one: all without attention scores."""
    fields: Fields = {
        "join": word_field(JOIN_MODES, "split", "split channels, add outputs, or feed the "
                           "mixer"),
        "channels": size_field("= width // 2", "channels of a split; the mixer has the others",
                               low=0)}
    variants = {"none": SchemaGroup(doc="the mixer alone")}
    for word, block in MIXERS.items():
        if not block.has_scores:
            options = schema_of_block(block)
            variants[word] = SchemaGroup(_combined(fields, options, f"mixer {word}"),
                                         argument_order=(*options.fields, *fields), doc=options.doc)
    return SchemaGroup({}, variants, default_variant="none",
                       doc="a second mixer, combined with the first")


def _partial(is_decoder: bool) -> SchemaGroup:
    """The feed-forward networks inside heads, by type."""
    fields: Fields = {
        "ratio": size_field("2" if is_decoder else "4", "hidden units, in multiples of head_dim"),
        "gate": word_field(HEAD_GATES, "relu", "activation of the head-specific gate"),
        "residual": flag_field("yes", "add the network's input (as released, not in equation 5)"),
        "per_head": flag_field("no", "a network for each head, not one for all")}
    if is_decoder:
        fields["on"] = word_field(("both", "self", "cross"), "both", "in which attention")
    variants = {"none": SchemaGroup(doc="no network inside heads")}
    for word, block in FFNS.items():
        options = schema_of_block(block)
        if "hidden" in options.fields:  # which `ratio` determines
            combined = _combined(fields, options, f"ffn {word}", "on")
            del combined["hidden"]
            variants[word] = SchemaGroup(combined, doc=options.doc)
    return SchemaGroup({}, variants, default_variant="none",
                       doc="PartialFormer's FFNs inside heads")


def schema_of_block(block: type[Block] | type[LinearFactory]) -> SchemaGroup:
    """The options of a block or linear factory as keys."""
    fields = {name: word_field(option.choices, option.default, option.doc)
              if option.type == "word" else
              SchemaField(option.type, default=option.default, low=option.minimum,
                          high=option.maximum, allowed_sizes=option.choices, doc=option.doc)
              for name, option in option_fields(block).items()}
    return SchemaGroup(fields, doc=(block.__doc__ or "").split("\n")[0])


def _combined(fields: Fields, options: SchemaGroup, what: str, *others: str) -> Fields:
    """``fields`` and the options of a block.

    Raises:
        ValueError: an option has the name of a field or of ``others``.
    """
    duplicates = sorted({*fields, *others} & set(options.fields))
    if duplicates:
        raise ValueError(f"{what}: the key {duplicates[0]} exists already; rename that option")
    return {**fields, **options.fields}
