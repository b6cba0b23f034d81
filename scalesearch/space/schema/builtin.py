"""The keys of an architecture: what a space file may say, read off the catalogue wherever the catalogue knows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from scalesearch.blocks.chains import APPLY, BONDS
from scalesearch.blocks.core import Block, Option, options
from scalesearch.blocks.embed import POSITIONS
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.layers import NORMS
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.mixers.adapt import ADAPTED
from scalesearch.blocks.mixers.gates import GATES
from scalesearch.blocks.mixers.partial import HEAD_GATES
from scalesearch.blocks.mixers.scores import RESIDUAL_SCORES
from scalesearch.blocks.seq2seq import TYINGS
from scalesearch.blocks.share import SCHEDULES, schedule
from scalesearch.blocks.solvers import SOLVERS
from scalesearch.space.schema.synonyms import with_synonyms
from scalesearch.space.schema.types import Beside, CallSpec, Field, Group

MODELS = ("encoder-decoder", "decoder-only")


def _fits(name: str, arguments: tuple[int, ...], depth: int) -> str | None:
    return schedule(name, arguments).misfit(depth)


def _calls() -> dict[str, CallSpec]:
    """Every schedule as a call of the language."""

    def spec(name: str) -> CallSpec:
        low, high = SCHEDULES[name].arguments
        return CallSpec(low, high, lambda arguments, depth: _fits(name, arguments, depth))

    return {name: spec(name) for name in SCHEDULES}


def _shared(depth: str, what: str) -> Field:
    return Field("schedule", default="own", calls=_calls(), fits=depth, doc=f"which layers share their {what}")


def _kind(block: type[Block]) -> Group:
    """A block's options as keys."""
    return Group(_keys(block), doc=_first_line(block))


def _keys(block: type[Block]) -> dict[str, Field | Group]:
    return {name: _key(meta) for name, meta in options(block).items()}


def _key(meta: Option) -> Field:
    """An option as a key."""
    if meta.kind == "word":
        return Field("word", meta.among, default=meta.default, doc=meta.doc)
    return Field(meta.kind, default=meta.default, low=meta.low, high=meta.high, among=meta.among, doc=meta.doc)


OFF = ("off",)
NO_FFN = "none"


def _flag(default: str, doc: str) -> Field:
    return Field("flag", default=default, doc=doc)


def _count(doc: str) -> Field:
    """A whole number, or off."""
    return Field("size", default="off", low=1, also=OFF, doc=doc)


def _partial(decoder: bool) -> Group:
    """The feed-forward networks inside heads, by their kind."""
    fields: dict[str, Field | Group] = {
        "ratio": Field("size", default="2" if decoder else "4", low=1, doc="hidden units, in multiples of head_dim"),
        "gate": Field("word", HEAD_GATES, default="relu", doc="what the head-specific gate goes through"),
        "residual": _flag("yes", "add what the network was given (as released, not in equation 5)"),
        "per_head": _flag("no", "a network for each head, not one for all"),
    }
    if decoder:
        fields["on"] = Field("word", ("both", "self", "cross"), default="both", doc="in which attention")
    kinds = {}
    for kind, block in FFNS.items():
        more = _keys(block)
        if more.pop("hidden", None) is None:
            continue  # nothing that ratio could set
        if taken := sorted({"on", *fields} & set(more)):
            raise ValueError(f"ffn {kind}: heads have a key {taken[0]} of their own; give that option another name")
        kinds[kind] = Group(fields | more, doc=_first_line(block))
    off = Group(doc="no network inside heads")
    return Group({}, {"none": off, **kinds}, default_variant="none", doc="PartialFormer's FFNs inside heads")


def _first_line(block: type[Block]) -> str:
    return (block.__doc__ or "").split("\n")[0]


# Keys of attention, written beside `mixer`; those of self-attention alone.
OF_SELF_ATTENTION = frozenset({"relative_positions", "relative_clip", "residual_scores", "gate"})
OF_ATTENTION = OF_SELF_ATTENTION | {
    "heads", "head_dim", "score_heads", "head_scaling", "key_value_heads", "projections", "pg"}


def _stack(name: str, depth: str, extra: Mapping[str, Field | Group]) -> Group:
    ffn = Group({}, {kind: _kind(block) for kind, block in FFNS.items()}, default_variant="relu",
                doc="the feed-forward network of each layer")
    fields: dict[str, Field | Group] = {
        "depth": Field("size", default=depth, low=1, doc="layers"),
        "mixer": _mixers(),
        "heads": Field("size", default="8", low=1, doc="value heads"),
        "head_dim": Field("size", default=f"= width // {name}.heads", low=1, doc="width of a head"),
        "score_heads": Field("size", default=f"= {name}.heads", low=1, doc="sets of attention scores"),
        "head_scaling": Field("word", ("none", "mlp"), default="none", doc="score heads expanded to value heads"),
        "key_value_heads": _count("heads of keys and values, each serving several"),
        "relative_positions": _flag("no", "relative keys in self-attention (Shaw et al. 2018)"),
        "relative_clip": Field("size", default="8", low=1, doc="distance from which positions look alike"),
        "residual_scores": Field("word", RESIDUAL_SCORES, default="none", doc="A^G of a stack, or RealFormer's"),
        "gate": Field("word", GATES, default="none", doc="Anthe's gate between query, key and value"),
        "projections": Field("word", ("matrices", "identity"), default="matrices", doc="of query, key and value"),
        "step_embedding": _flag("no", "a sinusoid of the layer's number before each layer (Universal Transformer)"),
        **extra,
        "pg": _partial(name == "decoder"),
        "ffn": ffn,
    }
    alone = OF_SELF_ATTENTION if name == "decoder" else OF_ATTENTION  # cross-attention has the others as well
    return Group(fields, beside=Beside("mixer", "attention", OF_ATTENTION, alone), doc=f"the {name}'s layers")


def _mixers() -> Group:
    kinds = {name: _kind(kind) for name, kind in MIXERS.items()}
    return Group({}, kinds, default_variant="attention", doc="how positions of a sequence meet")


def _share() -> Group:
    encoder = {
        "attention": _shared("encoder.depth", "mixer; also called `mixing`"),
        "ffn": _shared("encoder.depth", "feed-forward"),
    }
    decoder = {
        "self": _shared("decoder.depth", "mixer"),
        "cross": _shared("decoder.depth", "cross-attention"),
        "ffn": _shared("decoder.depth", "feed-forward"),
    }
    fields: dict[str, Field | Group] = {
        "encoder": Group(encoder, clears=True, spellings={"mixing": "attention"}, doc="of the encoder's layers"),
        "decoder": Group(decoder, clears=True, doc="of the decoder's layers"),
        "norms": Field("word", ("own", "follow"), default="own", doc="norms of layers that share the rest"),
        "biases": Field("word", ("follow", "own"), default="follow", doc="biases of matrices that are shared"),
    }
    return Group(fields, clears=True, doc="parameter sharing: which layers use the same weights")


def _embedding() -> Group:
    fields: dict[str, Field | Group] = {
        "tie": Field("word", TYINGS, default="all", doc="which of source table, target table, output are one"),
        "output_bias": _flag("yes", "a bias on an output matrix that is not tied"),
        "positions": Field("word", POSITIONS, default="sinusoidal", doc="how a token's place is told"),
        "max_length": Field("size", default="1024", low=1, doc="positions that are learned, if they are"),
    }
    per_level = "= width // (2 * embedding.levels)"
    soft: dict[str, Field | Group] = {
        "levels": Field("size", default="2", low=1, doc="scales"),
        "level_width": Field("size", default=per_level, low=1, doc="features of a role or of a convolution"),
        "roles": Field("size", default="= embedding.level_width", low=1, doc="soft roles"),
    }
    adaptive: dict[str, Field | Group] = {
        "cutoffs": Field("list", low=1, default="[20000, 60000]", doc="tokens at which bands end"),
        "factor": Field("size", default="4", low=2, doc="by how much each band is narrower"),
    }
    variants = {
        "plain": Group(doc="a table as wide as the model"),
        "factorised": Group({"rank": Field("size", default="= width // 4", low=1, doc="width of the table")},
                            doc="a narrower table, and a map to the model's width"),
        "h-softpos": Group(soft, doc="Anthe's embedding with soft roles"),
        "adaptive": Group(adaptive, doc="bands of rarer tokens are narrower"),
    }
    return Group(fields, variants, default_variant="plain", doc="embeddings and output")


def _adapt() -> Group:
    """Layer adaptation, of encoder layers."""
    lora: dict[str, Field | Group] = {
        "rank": Field("size", default="32", low=1, doc="of the low-rank paths"),
        "on": Field("list", words=ADAPTED, default="[query, value]", doc="matrices that have one"),
    }
    variants = {
        "nothing": Group(doc="layers that share weights are alike"),
        "bias": Group(doc="biases are each layer's own"),
        "lora": Group(lora, doc="low-rank paths beside shared matrices"),
        "prompt": Group({"length": Field("size", default="8", low=1, doc="vectors a layer")},
                        doc="learned vectors before each layer's input"),
    }
    doc = "what encoder layers that share weights have of their own"
    return Group({}, variants, default_variant="nothing", doc=doc)


def _ratio(default: str, doc: str) -> Field:
    return Field("number", default=default, low=0, high=1, also=OFF, doc=doc)


def _chain() -> Group:
    fields: dict[str, Field | Group] = {
        "length": Field("size", default="2", low=2, high=4, doc="cores in a chain"),
        "layer": _ratio("off", "ratio of weights kept in all matrices of layers"),
        "attention": _ratio("= tensor_chain.layer", "in the maps of query, key and value"),
        "ffn": _ratio("= tensor_chain.layer", "in feed-forward networks"),
        "embedding": _ratio("off", "in embedding tables"),
        "output": _ratio("off", "in an untied output matrix"),
        "apply": Field("word", APPLY, default="auto", doc="core by core, as a matrix, or the cheaper"),
        "bond": Field("word", BONDS, default="solved", doc="published: as in the paper's code, 2 for length 4"),
    }
    return Group(fields, clears=True, doc="matrices as chains of small cores (Anthe)")


def _low_rank() -> Group:
    fields: dict[str, Field | Group] = {
        "attention": _count("rank of the maps of query, key and value"),
        "ffn": _count("rank of feed-forward matrices"),
    }
    return Group(fields, clears=True, doc="matrices as two of low rank")


def architecture_schema() -> Group:
    """The keys of a space file, with those of every kind that is registered or that an installed package brings."""
    _load_installed()
    return _schema(tuple(FFNS.items()), tuple(MIXERS.items()))


@cache
def _load_installed() -> None:
    """Import the modules that installed packages name under the entry point group ``scalesearch.blocks``."""
    for point in entry_points(group="scalesearch.blocks"):
        point.load()


@cache
def _schema(*registered: object) -> Group:
    return with_synonyms(Group({
        "model": Field("word", MODELS, default="encoder-decoder", doc="with an encoder, or a language model"),
        "width": Field("size", low=1, doc="d_model: features of a position between layers"),
        "norm": Field("word", NORMS, default="pre", doc="normalise before each sub-layer, or after"),
        "last_norm": _flag("yes", "a norm after a pre-norm stack"),
        "embedding": _embedding(),
        "encoder": _stack(
            "encoder",
            "6",
            {
                "solver": Field(
                    "word", tuple(SOLVERS), default="euler", doc="order of a layer's step (ODE Transformer)"
                ),
                "middle_width": _count("width of all layers but the first and last (Subformer)"),
            },
        ),
        "decoder": _stack(
            "decoder",
            "6",
            {
                "interleaved": _flag("no", "feed-forward after each of the two attentions"),
                "cross_gate": Field("word", GATES, default="none", doc="Anthe's gate in cross-attention"),
            },
        ),
        "share": _share(),
        "adapt": _adapt(),
        "tensor_chain": _chain(),
        "low_rank": _low_rank(),
    }))
