"""The keys of a space file; those of registered blocks are read from the block catalog."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

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
from scalesearch.space.schema.stack import (
    OFF_VALUES,
    cross_attention_schema,
    dextra_schema,
    flag_field,
    optional_size_field,
    schema_of_block,
    stack_schema,
    sublayer_order_field,
)
from scalesearch.space.schema.synonyms import with_synonyms
from scalesearch.space.schema.types import ScheduleSignature, SchemaField, SchemaGroup

MODELS = ("encoder-decoder", "decoder-only")


def _fits(name: str, arguments: tuple[int, ...], depth: int) -> str | None:
    return make_schedule(name, arguments).validate(depth)


def _calls() -> dict[str, ScheduleSignature]:
    """Every schedule as a call of the language."""

    def spec(name: str) -> ScheduleSignature:
        low, high = SCHEDULES[name].argument_counts
        return ScheduleSignature(low, high, lambda arguments, depth: _fits(name, arguments, depth))

    return {name: spec(name) for name in SCHEDULES}


def _shared(depth: str, what: str) -> SchemaField:
    return SchemaField("schedule", default="own", calls=_calls(), depth_key=depth,
                       doc=f"which layers share their {what}")


def _share() -> SchemaGroup:
    encoder = {"attention": _shared("encoder.depth", "mixer; also called `mixing`"),
               "ffn": _shared("encoder.depth", "feed-forward")}
    decoder = {"self": _shared("decoder.depth", "mixer"),
               "cross": _shared("decoder.depth", "cross-attention"),
               "ffn": _shared("decoder.depth", "feed-forward")}
    for depth, keys in (("encoder.depth", encoder), ("decoder.depth", decoder)):
        keys |= {word: _shared(depth, f"sub-layers {word}") for word in SUBLAYERS}
    fields: dict[str, SchemaField | SchemaGroup] = {
        "encoder": SchemaGroup(encoder, none_means_defaults=True, spellings={"mixing": "attention"},
                               doc="of the encoder's layers"),
        "decoder": SchemaGroup(decoder, none_means_defaults=True, doc="of the decoder's layers"),
        "norms": SchemaField("word", ("own", "follow"), default="own",
                             doc="norms of layers that share the rest"),
        "biases": SchemaField("word", ("follow", "own"), default="follow",
                              doc="biases of matrices that are shared")}
    return SchemaGroup(fields, none_means_defaults=True,
                       doc="parameter sharing: which layers use the same weights")


def _embedding() -> SchemaGroup:
    fields: dict[str, SchemaField | SchemaGroup] = {
        "tie": SchemaField("word", TYING_MODES, default="all",
                           doc="which of source table, target table and output share weights"),
        "output_bias": flag_field("yes", "a bias on an output matrix that is not tied"),
        "positions": SchemaField("word", POSITION_TYPES, default="sinusoidal",
                                 doc="how positions are encoded"),
        "max_length": SchemaField("size", default="1024", low=1, doc="number of learned positions")}
    per_level = "= width // (2 * embedding.levels)"
    soft: dict[str, SchemaField | SchemaGroup] = {
        "levels": SchemaField("size", default="2", low=1, doc="scales"),
        "level_width": SchemaField("size", default=per_level, low=1,
                                   doc="features of a role or of a convolution"),
        "roles": SchemaField("size", default="= embedding.level_width", low=1, doc="soft roles")}
    adaptive: dict[str, SchemaField | SchemaGroup] = {
        "cutoffs": SchemaField("list", low=1, default="[20000, 60000]",
                               doc="tokens at which bands end"),
        "factor": SchemaField("size", default="4", low=2, doc="by how much each band is narrower")}
    variants = {
        "plain": SchemaGroup(doc="a table as wide as the model"),
        "factorised": SchemaGroup({"rank": SchemaField("size", default="= width // 4", low=1,
                                                       doc="width of the table")},
                                  doc="a narrower table, and a map to the model's width"),
        "dextra": SchemaGroup({"rank": SchemaField("size", default="= width // 4", low=1,
                                                   doc="width of the table"),
                               **dextra_schema("rank").fields},
                              doc="a narrower table, and DeLighT's unit for each side"),
        "attentive": SchemaGroup({"rank": SchemaField("size", default="= width // 4", low=1,
                                                      doc="width of the table"),
                                  "heads": SchemaField("size", default="1", low=1,
                                                       doc="of its attention; they divide rank")},
                                 doc="a narrower table, and an attention layer over its rows "
                                 "(Subformer)"),
        "h-softpos": SchemaGroup(soft, doc="Anthe's embedding with soft roles"),
        "adaptive": SchemaGroup(adaptive, doc="bands of rarer tokens are narrower")}
    return SchemaGroup(fields, variants, default_variant="plain", doc="embeddings and output")


def _adapt() -> SchemaGroup:
    """Layer adaptation, of encoder layers."""
    lora: dict[str, SchemaField | SchemaGroup] = {
        "rank": SchemaField("size", default="32", low=1, doc="of the low-rank paths"),
        "on": SchemaField("list", words=ADAPTABLE_PARTS, default="[query, value]",
                          doc="matrices that have one")}
    variants = {"nothing": SchemaGroup(doc="layers that share weights are equal"),
                "bias": SchemaGroup(doc="biases are each layer's own"),
                "lora": SchemaGroup(lora, doc="low-rank paths next to shared matrices"),
                "prompt": SchemaGroup({"length": SchemaField("size", default="8", low=1,
                                                             doc="vectors per layer")},
                                      doc="learned vectors before each layer's input")}
    doc = "weights that encoder layers with shared weights do not share"
    return SchemaGroup({}, variants, default_variant="nothing", doc=doc)


def _ratio(default: str, doc: str) -> SchemaField:
    return SchemaField("number", default=default, low=0, high=1, special_values=OFF_VALUES, doc=doc)


def _chain() -> SchemaGroup:
    fields: dict[str, SchemaField | SchemaGroup] = {
        "length": SchemaField("size", default="2", low=2, high=4, doc="cores in a chain"),
        "layer": _ratio("off", "ratio of weights kept in all matrices of layers"),
        "attention": _ratio("= tensor_chain.layer", "in the maps of query, key and value"),
        "ffn": _ratio("= tensor_chain.layer", "in feed-forward networks"),
        "embedding": _ratio("off", "in embedding tables"),
        "output": _ratio("off", "in an untied output matrix"),
        "apply": SchemaField("word", APPLY_MODES, default="auto",
                             doc="core by core, as a matrix, or the cheaper"),
        "bond": SchemaField("word", BOND_RULES, default="solved",
                            doc="published: the code's, far smaller at length 4")}
    return SchemaGroup(fields, none_means_defaults=True,
                       doc="matrices as chains of small cores (Anthe)")


def _low_rank() -> SchemaGroup:
    fields: dict[str, SchemaField | SchemaGroup] = {
        "attention": optional_size_field("rank of the maps of query, key and value"),
        "ffn": optional_size_field("rank of feed-forward matrices")}
    return SchemaGroup(fields, none_means_defaults=True, doc="matrices as two of low rank")


def _matrices() -> SchemaGroup:
    places = {"attention": "the maps of query, key and value", "out": "attention's output map",
              "ffn": "the maps of feed-forward networks"}
    kinds = {name: schema_of_block(kind) for name, kind in MATRIX_STRUCTURES.items()}
    places |= {"embedding": "tables, and outputs that are one of them",
               "output": "an output that is not tied"}
    of_tables = {name: group
                 for name, group in kinds.items()
                 if issubclass(MATRIX_STRUCTURES[name], TableLinearFactory | Dense)}
    unsupported = {"phm": "it divides the rows, and a vocabulary is rarely divisible; "
                          "kronecker adds rows instead",
                   "group": "equal groups would keep most features from most tokens"}
    offered = {where: (of_tables, unsupported) if where in ("embedding", "output") else (kinds, {})
               for where in places}
    return SchemaGroup({where: SchemaGroup({}, offered[where][0], default_variant="dense",
                                           unsupported=offered[where][1],
                                           doc=f"structure of {what}")
                        for where, what in places.items()}, none_means_defaults=True,
                       doc="structures of matrices")


def architecture_schema() -> SchemaGroup:
    """The keys of a space file, with those of registered blocks and of installed packages."""
    _load_installed()
    return _cached_schema(tuple(FFNS.items()), tuple(MIXERS.items()), tuple(SUBLAYERS.items()))


@cache
def _load_installed() -> None:
    """Import modules that installed packages register as entry points of ``scalesearch.blocks``."""
    for point in entry_points(group="scalesearch.blocks"):
        point.load()


@cache
def _cached_schema(*registered: object) -> SchemaGroup:
    return with_synonyms(
        SchemaGroup({"model": SchemaField("word", MODELS, default="encoder-decoder",
                                          doc="with an encoder, or a language model"),
                     "width": SchemaField("size", low=1,
                                          doc="d_model: features of a position between layers"),
                     "vocab": SchemaField("size", low=5, optional=True,
                                          doc="entries of the vocabulary, one tokenizer per size; "
                                              "by default that of the protocol or the data"),
                     "norm": SchemaField("word", NORM_POSITIONS, default="pre",
                                         doc="normalize before each sub-layer, or after"),
                     "norm_kind": SchemaField("word", tuple(NORM_CLASSES), default="layer",
                                              doc="with mean, deviation, gain and bias; or root "
                                              "mean square and gain"),
                     "last_norm": flag_field("yes", "a norm after a pre-norm stack"),
                     "embedding": _embedding(),
                     "encoder": stack_schema("encoder", "6",
                                             {"solver": SchemaField("word", tuple(SOLVERS),
                                                                    default="euler",
                                                                    doc="order of a layer's step "
                                                                    "(ODE Transformer)"),
                                              "sublayers": sublayer_order_field("attention",
                                                                                "ffn")}),
                     "decoder": stack_schema("decoder", "6",
                                             {"sublayers": sublayer_order_field("self", "cross",
                                                                                "ffn"),
                                              "interleaved": flag_field("no",
                                                                        "short for sublayers: "
                                                                        "[self, ffn, cross, "
                                                                        "ffn_again] (EdgeFormer)"),
                                              "cross": cross_attention_schema(),
                                              "cross_gate": SchemaField("word", GATES,
                                                                        default="none",
                                                                        doc="Anthe's gate in "
                                                                        "cross-attention")}),
                     "share": _share(), "adapt": _adapt(), "tensor_chain": _chain(),
                     "low_rank": _low_rank(), "matrices": _matrices()}))
