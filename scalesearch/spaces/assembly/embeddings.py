"""Build embeddings and the output from a configuration."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from scalesearch.blocks.attentive_embedding import AttentiveEmbedding
from scalesearch.blocks.core import SEQ, SRC, TGT, TGT_KEYS, VOCAB, Axis, Block, Extent, Use
from scalesearch.blocks.embedding import (
    AdaptiveEmbedding,
    AdaptiveOutput,
    Classifier,
    FactorizedEmbedding,
    FactorizedOutput,
    SoftCappedOutput,
    SoftPOS,
    TokenEmbedding,
    TransformedOutput,
)
from scalesearch.blocks.ffn import NoFFN
from scalesearch.blocks.layers import DecoderLayer, EncoderLayer
from scalesearch.blocks.leaves import Embedding, Linear
from scalesearch.blocks.maps.dextra import DExTraEmbedding, ProjectedOutput
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.maps.tensor_chains import (
    ChainEmbedding,
    ChainLinear,
    ChainTableBase,
    TiedChainOutput,
)
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.sizes import decide, minimum, require_single_value
from scalesearch.spaces.assembly.components import (
    Config,
    build_dextra,
    chain_factory,
    linear_factory,
    optional_value,
)
from scalesearch.spaces.syntax.diagnostics import UnbuildableError

UNTIED_OUTPUTS = ("none", "inputs")  # modes of tying with an output matrix of its own


def vocabulary_extent(a: Config) -> Extent:
    """Rows of an embedding table: ``vocab``, or an axis that the protocol binds."""
    extent: Extent = a.get("vocab", VOCAB)
    return extent


def build_embedding(a: Config, axis: Axis, tied_path: str | None = None) -> Block:
    """The embedding of one axis.

    ``tied_path`` is the path of the table that it shares, if any.
    """
    width = a["width"]
    kind = a.get("embedding", "plain")
    over = (axis,)
    positions = a["embedding.positions"], a["embedding.max_length"] if a[
        "embedding.positions"] == "learned" else 0
    is_scaled = bool(a.get("embedding.scaled", True))
    norm_type = str(a.get("norm_kind", "layer")) if a.get("embedding.norm", False) else ""
    if not is_scaled and kind in ("dextra", "attentive", "h-softpos"):
        raise UnbuildableError("embedding.scaled", f"embeddings of type {kind} are always scaled")
    if norm_type and kind in ("attentive", "h-softpos"):
        raise UnbuildableError("embedding.norm", f"embeddings of type {kind} have no norm")
    if kind == "dextra":
        rank = a["embedding.rank"]
        table_path = None if tied_path is None else f"{tied_path}.table"
        dextra = build_dextra(a, "embedding", rank, width // 2, width, over)
        return TokenEmbedding(width, over,
                              DExTraEmbedding(rank, _embedding_table(a, rank, over), dextra,
                                              table_path),
                              *positions, scaled=False, norm_type=norm_type)
    if kind == "attentive":
        return _attentive(a, axis, tied_path, positions)
    if kind == "h-softpos":
        _require_untied(a, "embedding", "the table of h-softpos is narrower than the model",
                        ("none",))
        return _soft_positions(a, axis, positions)
    if kind == "adaptive" and a.get("matrices.embedding", "dense") != "dense":
        raise UnbuildableError("matrices.embedding", "adaptive embeddings have separate tables")
    table: Block
    if kind == "adaptive":
        table = AdaptiveEmbedding(width, *_adaptive_bands(a),
                                  require_single_value(vocabulary_extent(a)), over=over)
    elif kind == "factorised":
        rank = a["embedding.rank"]
        table = FactorizedEmbedding(width, rank, over, _embedding_table(a, rank, over))
    else:
        table = _embedding_table(a, width, over)
    return TokenEmbedding(width, over, table, *positions, tied_path, is_scaled, norm_type)


def _adaptive_bands(a: Config) -> tuple[tuple[int, ...], int]:
    """The cutoffs of an adaptive embedding, and the factor between its widths.

    Each band is narrower than the previous one by this factor.
    """
    cutoffs = tuple(a["embedding.cutoffs"])
    if any(cut >= later for cut, later in pairwise(cutoffs)):
        raise UnbuildableError("embedding.cutoffs",
                               f"cutoffs must increase, unlike {list(cutoffs)}")
    return cutoffs, require_single_value(a["embedding.factor"])


def _attentive(a: Config, axis: Axis, tied: str | None,
               positions: tuple[str, int]) -> AttentiveEmbedding:
    rank = a["embedding.rank"]
    heads = a["embedding.heads"]
    decoder = axis == TGT
    if axis == SEQ:
        raise UnbuildableError("embedding",
                               "attentive embeddings need model: encoder-decoder, since the "
                               "encoder reads only the source")
    if decide(rank % heads != 0):
        raise UnbuildableError("embedding.heads",
                               f"{heads} heads do not divide the table's {rank} features")
    main = Attention(rank, axis, decoder, DENSE, heads, rank // heads, heads, axis,
                     TGT_KEYS if decoder else SRC)
    no_ffn = NoFFN(rank, (axis,), DENSE)
    layer = (DecoderLayer if decoder else EncoderLayer)(
        main, no_ffn, a["norm"], norm_kind=a.get("norm_kind", "layer"))
    return AttentiveEmbedding(a["width"], (axis,), _embedding_table(a, rank, (axis,)), layer,
                              *positions, tied)


def _soft_positions(a: Config, axis: Axis, positions: tuple[str, int]) -> SoftPOS:
    levels = require_single_value(a["embedding.levels"])
    level_width = a["embedding.level_width"]
    roles = a["embedding.roles"]
    left = SoftPOS.table_width(a["width"], levels, level_width)
    if decide(left < 1):
        raise UnbuildableError("embedding.level_width",
                               f"{2 * levels - 1} x {level_width} features leave nothing of the "
                               f"width {a['width']} to the table")
    if decide(roles > minimum(left, level_width if levels > 1 else left)):
        raise UnbuildableError("embedding.roles",
                               f"{roles} roles are read from {minimum(left, level_width)} features")
    return SoftPOS(a["width"], (axis,), _embedding_table(a, left, (axis,)), levels, level_width,
                   roles, *positions)


def _embedding_table(a: Config, d: int, over: tuple[Axis, ...]) -> Block:
    ratio = optional_value(a, "tensor_chain.embedding")
    kind = a.get("matrices.embedding", "dense")
    if ratio is None and kind == "dense":
        return Embedding(d, over, vocabulary_extent(a))
    key = "tensor_chain.embedding" if kind == "dense" else "matrices.embedding"
    if a.get("embedding", "plain") != "plain":
        _require_untied(a, key, f"the table of {a['embedding']} embeddings cannot be the output's")
    if kind == "dense":
        return ChainEmbedding(d, over, ratio, require_single_value(a["tensor_chain.length"]),
                              a["tensor_chain.bond"], vocabulary_extent(a))
    factory: Any = linear_factory(a, "embedding")
    return factory.table(d, over, vocabulary_extent(a))  # type: ignore[no-any-return]


def build_output(a: Config, table_path: str) -> Use:
    """The output layer: classes, tied to the table at ``table_path``, or a separate matrix."""
    if (classes := a.get("classes")) is not None:
        return Use(Classifier(a["width"], classes))
    output = _build_readout(a, table_path)
    limit = float(require_single_value(a.get("embedding.output_soft_cap", 0)))
    has_transform = bool(a.get("embedding.output_transform", False))
    if isinstance(output.block, AdaptiveOutput) and (has_transform or limit):
        key = "output_transform" if has_transform else "output_soft_cap"
        raise UnbuildableError(f"embedding.{key}", "needs a single softmax over the vocabulary, "
                               "and adaptive embeddings have one per band")
    if has_transform:
        output = Use(TransformedOutput(a["width"], output, str(a.get("norm_kind", "layer"))))
    return Use(SoftCappedOutput(output, limit, vocabulary_extent(a))) if limit else output


def _build_readout(a: Config, table_path: str) -> Use:
    width = a["width"]
    kind = a.get("embedding", "plain")
    tied = a["embedding.tie"] not in UNTIED_OUTPUTS
    bias = (bool(a.get("embedding.tied_bias", False)) if tied
            else bool(a.get("embedding.output_bias", True)))
    untied = ("bias",) if bias and tied else ()
    ratio = optional_value(a, "tensor_chain.output")
    if a.get("matrices.output", "dense") != "dense":
        _require_untied(a, "matrices.output", "a tied output is the table")
        factory: Any = linear_factory(a, "output")
        return Use(factory.output(width, vocabulary_extent(a), (TGT,), bias))
    if ratio is not None:
        _require_untied(a, "tensor_chain.output", "a tied output is the table")
        chain = chain_factory(a, ratio)
        return Use(ChainLinear(width, vocabulary_extent(a), (TGT,), bias, chain.ratio, chain.length,
                               chain.apply, chain.bond))
    if kind == "adaptive":
        if untied:
            raise UnbuildableError("embedding.tied_bias", "an adaptive softmax has no biases")
        return Use(AdaptiveOutput(width, *_adaptive_bands(a),
                                  require_single_value(vocabulary_extent(a)),
                                  table_path if tied else None))
    if kind == "attentive":
        return Use(ProjectedOutput(width, a["embedding.rank"], table_path if tied else None,
                                   vocabulary_extent(a), True, bias and tied))
    if kind == "dextra" or (kind == "factorised" and tied and a.get("embedding.own_map", False)):
        return Use(ProjectedOutput(width, a["embedding.rank"],
                                   f"{table_path}.table" if tied else None, vocabulary_extent(a),
                                   bias=bias and tied))
    table: Any = _embedding_table(a, width, (TGT,)) if kind == "plain" and tied else None
    if isinstance(table, ChainTableBase):
        return Use(TiedChainOutput(width, vocabulary_extent(a), (TGT,), bias, table),
                   tied=table_path, untied=untied)
    if tied and (kind == "factorised" or isinstance(table, FactorizedEmbedding)):
        rank = a["embedding.rank"] if table is None else table.rank
        return Use(FactorizedOutput(width, rank, table_path, vocabulary_extent(a), bias))
    return Use(Linear(width, vocabulary_extent(a), (TGT,), bias), tied=table_path if tied else None,
               untied=untied)


def _require_untied(a: Config, key: str, reason: str,
                    allowed: tuple[str, ...] = UNTIED_OUTPUTS) -> None:
    if a["embedding.tie"] not in allowed:
        raise UnbuildableError(key, f"{reason}: it needs embedding.tie: {' or '.join(allowed)}, "
                               f"not {a['embedding.tie']}")
