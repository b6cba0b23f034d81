"""The tables of tokens and the output that answers describe."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from scalesearch.blocks.attentive_embedding import AttentiveEmbedding
from scalesearch.blocks.core import SEQ, SRC, TGT, TGT_KEYS, VOCAB, Axis, Block, Extent, Use
from scalesearch.blocks.embedding import (
    AdaptiveEmbedding,
    AdaptiveOutput,
    FactorizedEmbedding,
    FactorizedOutput,
    SoftPOS,
    TokenEmbedding,
)
from scalesearch.blocks.ffn.networks import NoFFN
from scalesearch.blocks.layers import DecoderLayer, EncoderLayer
from scalesearch.blocks.leaves import Embedding, Linear
from scalesearch.blocks.maps.dextra import DExTraEmbedding, ProjectedOutput
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.maps.tensor_chains import ChainEmbedding, ChainLinear, ChainTableBase, TiedChainOutput
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.sizes import decide, minimum, require_single_value
from scalesearch.space.assembly.components import Config, build_dextra, chain_factory, linear_factory, optional_value
from scalesearch.space.syntax.diagnostics import UnbuildableError


def vocabulary_extent(a: Config) -> Extent:
    """Rows of a table of tokens: the answer ``vocab``, or the axis that protocols and corpora bind."""
    extent: Extent = a.get("vocab", VOCAB)
    return extent


def build_embedding(a: Config, axis: Axis, tied_path: str | None = None) -> Block:
    """From tokens to vectors; ``tied_path``: the path of the table that this one is."""
    width = a["width"]
    kind = a.get("embedding", "plain")
    over = (axis,)
    positions = a["embedding.positions"], a["embedding.max_length"] if a[
        "embedding.positions"] == "learned" else 0
    if kind == "dextra":
        rank = a["embedding.rank"]
        inside = None if tied_path is None else f"{tied_path}.table"
        lift = build_dextra(a, "embedding", rank, width // 2, width, over)
        return TokenEmbedding(width, over,
                              DExTraEmbedding(rank, _embedding_table(a, rank, over), lift, inside),
                              *positions, scaled=False)
    if kind == "attentive":
        return _attentive(a, axis, tied_path, positions)
    if kind == "h-softpos":
        _require_untied(a, "embedding", "h-softpos has a narrower table")
        return _soft_positions(a, axis, positions)
    if kind == "adaptive" and a.get("matrices.embedding", "dense") != "dense":
        raise UnbuildableError("matrices.embedding", "adaptive embeddings have tables of their own")
    table: Block = AdaptiveEmbedding(width, *_adaptive_bands(a),
                                     require_single_value(vocabulary_extent(a)),
                                     over=over) if kind == "adaptive" else _embedding_table(
        a, a["embedding.rank"] if kind == "factorised" else width, over)
    if kind == "factorised":
        table = FactorizedEmbedding(width, a["embedding.rank"], over, table)
    return TokenEmbedding(width, over, table, *positions, tied_path)


def _adaptive_bands(a: Config) -> tuple[tuple[int, ...], int]:
    """Where the bands of an adaptive table end, and by how much each is narrower."""
    cutoffs = tuple(a["embedding.cutoffs"])
    if any(cut >= later for cut, later in pairwise(cutoffs)):
        raise UnbuildableError("embedding.cutoffs",
                               f"each band ends after the one before, unlike {list(cutoffs)}")
    return cutoffs, require_single_value(a["embedding.factor"])


def _attentive(a: Config, axis: Axis, tied: str | None,
               positions: tuple[str, int]) -> AttentiveEmbedding:
    rank = a["embedding.rank"]
    heads = a["embedding.heads"]
    decoder = axis == TGT
    if axis == SEQ:
        raise UnbuildableError("embedding",
                               "attentive embeddings are of an encoder-decoder: one reads the "
                               "source alone")
    if decide(rank % heads != 0):
        raise UnbuildableError("embedding.heads",
                               f"{heads} do not divide the table's {rank} features")
    main = Attention(rank, axis, decoder, DENSE, heads, rank // heads, heads, axis,
                     TGT_KEYS if decoder else SRC)
    bare = NoFFN(rank, (axis,), DENSE)
    layer = (DecoderLayer if decoder else EncoderLayer)(
        main, bare, a["norm"], norm_kind=a.get("norm_kind", "layer"))
    return AttentiveEmbedding(a["width"], (axis,), _embedding_table(a, rank, (axis,)), layer,
                              *positions, tied)


def _soft_positions(a: Config, axis: Axis, positions: tuple[str, int]) -> SoftPOS:
    levels = require_single_value(a["embedding.levels"])
    level_width = a["embedding.level_width"]
    roles = a["embedding.roles"]
    left = SoftPOS.table_width(a["width"], levels, level_width)
    if decide(left < 1):
        raise UnbuildableError("embedding.level_width",
                               f"{2 * levels - 1} x {level_width} features leave none of "
                               f"{a['width']} for the table")
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
    where = "tensor_chain.embedding" if kind == "dense" else "matrices.embedding"
    if a.get("embedding", "plain") != "plain":
        _require_untied(a, where,
                        f"of {a['embedding']} embeddings the table inside is not the output's")
    if kind == "dense":
        return ChainEmbedding(d, over, ratio, require_single_value(a["tensor_chain.length"]),
                              a["tensor_chain.bond"], vocabulary_extent(a))
    of_tables: Any = linear_factory(a, "embedding")
    return of_tables.table(d, over, vocabulary_extent(a))  # type: ignore[no-any-return]


def build_output(a: Config, table_path: str) -> Use:
    """From vectors to scores of tokens: tied to the table at ``table_path``, or a matrix of its own."""
    width = a["width"]
    kind = a.get("embedding", "plain")
    tied = a["embedding.tie"] != "none"
    bias = not tied and bool(a.get("embedding.output_bias", True))
    ratio = optional_value(a, "tensor_chain.output")
    if a.get("matrices.output", "dense") != "dense":
        _require_untied(a, "matrices.output", "a tied output is the table")
        made: Any = linear_factory(a, "output")
        return Use(made.output(width, vocabulary_extent(a), (TGT,), bias))
    if ratio is not None:
        _require_untied(a, "tensor_chain.output", "a tied output is the table")
        made = chain_factory(a, ratio)
        return Use(ChainLinear(width, vocabulary_extent(a), (TGT,), bias, made.ratio, made.length,
                               made.apply, made.bond))
    if kind == "adaptive":
        return Use(AdaptiveOutput(width, *_adaptive_bands(a),
                                  require_single_value(vocabulary_extent(a)),
                                  table_path if tied else None))
    if kind == "attentive":
        return Use(ProjectedOutput(width, a["embedding.rank"], table_path if tied else None,
                                   vocabulary_extent(a), True))
    if kind == "dextra":
        return Use(ProjectedOutput(width, a["embedding.rank"],
                                   f"{table_path}.table" if tied else None, vocabulary_extent(a)))
    table: Any = _embedding_table(a, width, (TGT,)) if kind == "plain" and tied else None
    if isinstance(table, ChainTableBase):
        return Use(TiedChainOutput(width, vocabulary_extent(a), (TGT,), bias, table),
                   tied=table_path)
    if tied and (kind == "factorised" or isinstance(table, FactorizedEmbedding)):
        rank = a["embedding.rank"] if table is None else table.rank
        return Use(FactorizedOutput(width, rank, table_path, vocabulary_extent(a)))
    return Use(Linear(width, vocabulary_extent(a), (TGT,), bias), tied=table_path if tied else None)


def _require_untied(a: Config, where: str, why: str) -> None:
    if a["embedding.tie"] != "none":
        raise UnbuildableError(where,
                               f"{why}: it needs embedding.tie: none, not {a['embedding.tie']}")
