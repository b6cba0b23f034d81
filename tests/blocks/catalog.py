"""The catalog: all built-in blocks by name, with random samples for generic checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from functools import partial
from random import Random
from typing import Any

from scalesearch.blocks.attentive_embedding import AttentiveEmbedding
from scalesearch.blocks.core import (
    CROSS_MEMORY,
    SRC,
    SRC_KEYS,
    TGT,
    TGT_KEYS,
    VOCAB,
    Axis,
    Block,
    Repeat,
)
from scalesearch.blocks.embedding import (
    POSITION_TYPES,
    AdaptiveEmbedding,
    AdaptiveOutput,
    FactorizedEmbedding,
    SoftPOS,
    TokenEmbedding,
)
from scalesearch.blocks.ffn import FFNS, NoFFN
from scalesearch.blocks.layers import INPUT_NORMS, NORM_POSITIONS, DecoderLayer, EncoderLayer
from scalesearch.blocks.leaves import (
    Convolution,
    Embedding,
    FusedAttention,
    Linear,
    MatMul,
    PositionTable,
    TransposedLinear,
)
from scalesearch.blocks.maps.dextra import DExTra
from scalesearch.blocks.maps.linear_factories import (
    DENSE,
    IDENTITY,
    PER_HEAD,
    HeadLinear,
    LowRankLinear,
)
from scalesearch.blocks.maps.structured_matrices import (
    GroupLinear,
    HypercomplexLinear,
    KroneckerEmbedding,
    KroneckerLinear,
)
from scalesearch.blocks.maps.tensor_chains import ChainEmbedding, ChainLinear, TiedChainOutput
from scalesearch.blocks.mixers import MIXERS, Mixer
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.attention_extras import (
    ADAPTABLE_PARTS,
    HEAD_GATES,
    DynamicMask,
    PartialFFN,
)
from scalesearch.blocks.mixers.composites import JOIN_MODES, DualMixer, ProjectedCrossAttention
from scalesearch.blocks.mixers.gates import GATES
from scalesearch.blocks.mixers.mega import GatedCrossAttention, RelativePositionBias
from scalesearch.blocks.mixers.scores import (
    ExplicitAttention,
    GlobalScores,
    HeadMixing,
    RelativeKeys,
)
from scalesearch.blocks.multi_path import (
    MERGE_METHODS,
    PATH_TARGETS,
    MultiPath,
    MultiPathConfig,
    PathMerge,
)
from scalesearch.blocks.norms import (
    NORM_CLASSES,
    LayerNorm,
    LayerNormWithoutBias,
    LayerNormWithoutWeights,
    RMSNorm,
)
from scalesearch.blocks.options import option_fields
from scalesearch.blocks.stacks import SOLVERS, BottleneckStack, Stack
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.testing.block_sample import (
    LENGTH,
    BlockSample,
    ffn_sample,
    mixer_sample,
    random_linear_factory,
    random_size,
    sample_valid_block,
)

HEADS = 3  # number of heads of leaves that are applied over heads
RATIOS = [0.05, 0.2, 0.5, 0.9]
CUTOFFS = [(1, 3), (2, 9), (5, 14), (8, 40)]


SampleFunction = Callable[[Random], BlockSample]


def plain(kind: type[Block], *inputs: tuple[Any, ...] | None, ids: bool = False,
          more: tuple[object, ...] = (), **field_values: Any) -> SampleFunction:
    """A function that samples blocks of a class, with random flags and sizes.

    Args:
        inputs: shapes of the inputs; the name of a field stands for its value.
        ids: whether the input holds token ids.
        more: further arguments of the forward function.
        field_values: values of fields; lists and ranges are sampled from.
    """
    def sample(rng: Random) -> BlockSample:
        values = dict(field_values)
        for field in fields(kind):
            value = field_values.get(field.name)
            if isinstance(value, list | range):
                values[field.name] = rng.choice(value)
            elif value is None and field.type == "bool":
                values[field.name] = rng.random() < 0.5
            elif value is None and field.default is MISSING:
                values[field.name] = random_size(rng)
        block = kind(**values)
        shapes = (None if shape is None else tuple(values.get(extent, extent) for extent in shape)
                  for shape in inputs)
        return BlockSample(block, tuple(shapes), ids, more)

    return sample


# -- blocks whose sizes depend on each other


def scores(rng: Random) -> BlockSample:
    """Attention with scores that may be relative or expanded over heads."""
    heads = random_size(rng)
    dim = random_size(rng)
    value = random_size(rng)
    out = rng.choice([0, random_size(rng)])
    inputs = ((heads, SRC, dim), (heads, SRC, dim), (out or heads, SRC, value), None)
    return BlockSample(ExplicitAttention(heads, dim, value, SRC, SRC, out, rng.choice([0, 2])),
                       inputs)


def token_embedding(rng: Random) -> BlockSample:
    """A token embedding with positions of any type."""
    d = random_size(rng)
    over = (SRC,)
    bands = AdaptiveEmbedding(d, rng.choice(CUTOFFS), rng.randint(2, 4), over=over)
    table = rng.choice([Embedding(d, over), FactorizedEmbedding(d, 3, over, Embedding(3, over)),
                        bands])
    return BlockSample(TokenEmbedding(d, over, table, rng.choice(POSITION_TYPES), 8,
                                      scaled=rng.random() < 0.7,
                                      norm_type=rng.choice(["", "", *NORM_CLASSES])),
                       ((SRC,), (SRC,)), takes_token_ids=True)


def soft_positions(rng: Random) -> BlockSample:
    """An H-SoftPOS embedding with one to three levels."""
    levels = rng.randint(1, 3)
    width = rng.randint(1, 4)
    left = rng.randint(1, 6)
    roles = rng.randint(1, min(left, width))
    d = left + (2 * levels - 1) * width
    block = SoftPOS(d, (SRC,), Embedding(left, (SRC,)), levels, width, roles,
                    rng.choice(POSITION_TYPES), 8)
    return BlockSample(block, ((SRC,), (SRC,)), takes_token_ids=True)


def attentive(rng: Random) -> BlockSample:
    """A self-attentive embedding of the source."""
    heads = rng.randint(1, 3)
    norm = rng.choice(NORM_POSITIONS)
    kind = rng.choice(list(NORM_CLASSES))
    rank = heads * rng.randint(1, 4)
    d = random_size(rng)
    over = (SRC,)
    main = Attention(rank, SRC, False, DENSE, heads, rank // heads, heads, SRC, SRC)
    layer = EncoderLayer(main, NoFFN(rank, over, DENSE), norm, norm_kind=kind)
    block = AttentiveEmbedding(d, over, Embedding(rank, over), layer, rng.choice(POSITION_TYPES), 8)
    return BlockSample(block, ((SRC,), (SRC,)), takes_token_ids=True)


def attention(
    rng: Random, d: int, axes: tuple[Axis, Axis, Axis], decoder: bool = True, cross: bool = False
) -> Attention:
    """A random attention; a gate and identity projections require heads × head_dim = d."""
    over: dict[str, Any] = {"projected_axis": axes[1], "keys": axes[2], "cross": cross}
    if rng.random() < 0.3:
        heads = rng.choice([n for n in range(1, d + 1) if d % n == 0])
        sizes = {"heads": heads, "head_dim": d // heads, "score_heads": heads}
        linear_factory = rng.choice([random_linear_factory(rng), IDENTITY])
        return Attention(d, axes[0], decoder, linear_factory, **sizes, **over,
                         gate=rng.choice(GATES))
    score_heads = rng.randint(1, 3)
    expand = rng.random() < 0.4
    heads = rng.randint(1, 7) if expand else score_heads * rng.randint(1, 3)
    head_dim = random_size(rng)
    shared = rng.random() < 0.3 and (expand or heads == score_heads)
    kv_heads = rng.choice(
        [n for n in range(1, 8) if heads % n == score_heads % n == 0]) if shared else 0
    encoder = axes[0] == axes[2]
    adapt = rng.choice(["none", "lora", "prompt"]) if encoder else "none"
    clip = rng.choice([0, 3]) if encoder else 0
    return Attention(
        d, axes[0], decoder, random_linear_factory(rng), heads=heads, head_dim=head_dim,
        score_heads=score_heads, **over, expands_heads=expand, kv_heads=kv_heads, clip=clip,
        mask_distance=rng.choice([0, 3]) if encoder else 0,
        head_ffn=partial_ffn(rng, d, heads, head_dim, axes[0]) if rng.random() < 0.5 else None,
        adapters=tuple(rng.sample(ADAPTABLE_PARTS, 2)) if adapt == "lora" else (),
        adapter_rank=random_size(rng), prompt_length=rng.randint(1, 4) if adapt == "prompt" else 0,
        rotary=head_dim % 2 == 0 and not cross and not clip and rng.random() < 0.5)


def cross_attention(rng: Random) -> BlockSample:
    """A cross-attention with its memory."""
    block = any_cross_attention(rng, random_size(rng))
    return BlockSample(block, ((TGT, block.d), None, None, None, None, (SRC, block.d)))


def projected_cross_attention(rng: Random) -> BlockSample:
    """A cross-attention whose width differs from the layer's, with its memory."""
    main = any_cross_attention(rng, random_size(rng))
    block = ProjectedCrossAttention(random_size(rng), TGT, True, DENSE, main=main,
                                    norm_kind=rng.choice(list(NORM_CLASSES)))
    return BlockSample(block, ((TGT, block.d), None, None, None, None, (SRC, main.d)))


def any_cross_attention(rng: Random, d: int) -> Mixer:
    """A cross-attention, gated or plain."""
    axes = (TGT, CROSS_MEMORY, SRC_KEYS)
    if rng.random() < 0.3:
        return GatedCrossAttention(d, axes[0], True, random_linear_factory(rng), *axes[1:],
                                   random_size(rng), random_size(rng))
    return attention(rng, d, axes, cross=True)


def table_output(rng: Random) -> BlockSample:
    """Logits computed with the cores of an embedding table."""
    d = rng.randint(2, 24)
    table = rng.choice([KroneckerEmbedding(d, (), random_size(rng)),
                        ChainEmbedding(d, (), rng.choice(RATIOS), rng.randint(2, 4))])
    return BlockSample(TiedChainOutput(d, VOCAB, (TGT,), rng.random() < 0.5, table), ((TGT, d),))


def partial_ffn(rng: Random, d: int, heads: int, head_dim: int, axis: Axis) -> PartialFFN:
    """A feed-forward network per head."""
    kind = rng.choice([kind for kind in FFNS.values() if "hidden" in option_fields(kind)])
    inner = sample_valid_block(rng, kind, head_dim, (axis, heads), rng.choice([DENSE, PER_HEAD]))
    return PartialFFN(d, heads, head_dim, axis, inner, rng.choice(HEAD_GATES), rng.random() < 0.5)


def head_ffn_block(rng: Random) -> BlockSample:
    """A feed-forward network per head, with the query stream that gates it."""
    d = random_size(rng)
    heads = random_size(rng)
    dim = random_size(rng)
    return BlockSample(partial_ffn(rng, d, heads, dim, SRC), ((SRC, heads * dim), (SRC, d)))


def mixer(rng: Random, d: int, axes: tuple[Axis, Axis, Axis], decoder: bool = True) -> Mixer:
    """A random mixer, or two combined."""
    join = rng.choice(["", "", *JOIN_MODES])
    names = [name for name in MIXERS if name != "attention"]
    names = [name for name in names if join == "" or not MIXERS[name].has_scores]
    local = rng.randint(1, d - 1) if join == "split" and d > 1 else d
    others = [sample_valid_block(rng, MIXERS[rng.choice(names)], width, axes[0], decoder,
                                 random_linear_factory(rng)) for width in (local, d)]
    if join == "" or (join == "split" and d == 1):
        return rng.choice([attention(rng, d, axes, decoder), others[1]])
    main = attention(rng, d - local if join == "split" else d, axes, decoder)
    return DualMixer(d, axes[0], decoder, DENSE, main=main, local=others[0], join=join)


def ffn(rng: Random, d: int, axis: Axis) -> Any:
    """A random feed-forward network."""
    return sample_valid_block(rng, FFNS[rng.choice(list(FFNS))], d, (axis,),
                              random_linear_factory(rng))


def paths(rng: Random) -> MultiPathConfig | None:
    """A random multi-path configuration, or None."""
    config = MultiPathConfig(rng.choice(PATH_TARGETS), rng.randint(2, 3), rng.choice(MERGE_METHODS),
                             rng.random() < 0.5)
    return rng.choice([None, config])


def merged_ffns(rng: Random) -> BlockSample:
    """Several merged feed-forward networks."""
    fed = ffn_sample(rng, "relu")
    d = fed.block.d
    count = rng.randint(2, 4)
    merge = PathMerge(d, (SRC,), count, rng.choice(MERGE_METHODS), rng.choice(["", *NORM_CLASSES]))
    return BlockSample(MultiPath(fed.block, count, merge), fed.inputs)


EVOLVED = (("self", "cross"), ("branches",), ("self", "glu"), ("cross",), ("ffn",))


def more(rng: Random, d: int, axis: Axis) -> tuple[tuple[str, Mixer], ...]:
    """Further sub-layers."""
    return tuple((name,
                  sample_valid_block(rng, kind, d, axis, axis == TGT, random_linear_factory(rng)))
                 for name, kind in SUBLAYERS.items())


def norms(rng: Random, multi_path: MultiPathConfig | None) -> dict[str, Any]:
    """Position and type of the norms of a layer."""
    norm = rng.choice(["pre", "post"] if multi_path and multi_path.target == "layer"
                      else NORM_POSITIONS)
    return {"norm": norm, "norm_kind": rng.choice(list(NORM_CLASSES)), "multi_path": multi_path}


def layer(rng: Random) -> EncoderLayer:
    """A random encoder layer."""
    main = mixer(rng, random_size(rng), (SRC, SRC, SRC), decoder=False)
    orders = [(), (("ffn",), ("attention",), ("ffn", "attention"), ("ffn_again",))]
    if rng.random() < 0.3:
        return EncoderLayer(main, ffn(rng, main.d, SRC), **norms(rng, paths(rng)),
                            extra_sublayers=more(rng, main.d, SRC),
                            sublayer_order=(("glu",), ("attention", "branches"), ("ffn",),
                                            ("branches",)))
    block = EncoderLayer(main, ffn(rng, main.d, SRC), **norms(rng, paths(rng)),
                         sublayer_order=rng.choice(orders))
    is_separate = block.norm in INPUT_NORMS and block.path_names == [""] and rng.random() < 0.5
    return replace(block, separate_norms=is_separate)


def encoder_layer(rng: Random) -> BlockSample:
    """An encoder layer with its input."""
    block = layer(rng)
    return BlockSample(block, ((SRC, block.mixer.d), None, None))


def decoder_layer(rng: Random) -> BlockSample:
    """A decoder layer, with or without cross-attention, with its input and memory."""
    d = random_size(rng)
    cross = any_cross_attention(rng, d) if rng.random() < 0.8 else None
    order, added = rng.choice([((), ()), ((("self", "cross"), ("ffn",), ("self", "ffn_again")), ()),
                               (EVOLVED, None)])
    block = DecoderLayer(
        mixer(rng, d, (TGT, TGT, TGT_KEYS)), ffn(rng, d, TGT), **norms(rng, paths(rng)),
        cross_attention=cross, interleaved=rng.random() < 0.5, sublayer_order=order,
        extra_sublayers=more(rng, d, TGT) if added is None else added)
    return BlockSample(block, ((TGT, d), None, None, None, (SRC, d), None, None))


def stack(rng: Random) -> BlockSample:
    """A stack of up to three layers, with its input and a bias of scores."""
    inner = layer(rng)
    d = inner.mixer.d
    own = inner.mixer.score_shape
    scores = GlobalScores(d, own.heads, random_size(rng), SRC, SRC, 0,
                          False) if own and rng.random() < 0.5 else None
    block = Stack(Repeat(inner, rng.randint(1, 3)), scores, rng.random() < 0.5,
                  rng.choice(list(SOLVERS)), rng.random() < 0.5)
    return BlockSample(block, ((SRC, d), None, (1, SRC, SRC)))


def bottleneck_stack(rng: Random) -> BlockSample:
    """A stack whose middle layers have another width."""
    outer = layer(rng)
    middle = layer(rng)
    block = BottleneckStack(Repeat(outer, 1), Repeat(middle, rng.randint(1, 3)), Repeat(outer, 1),
                            rng.random() < 0.5)
    return BlockSample(block, ((SRC, outer.mixer.d), None, None))


# -- the catalog

ON_SOURCE: dict[str, Any] = {"queries": SRC, "keys": SRC}
CHAINED: dict[str, Any] = {"over": (SRC,), "ratio": RATIOS, "length": range(2, 5), "bond": "solved"}
CATALOG: dict[str, SampleFunction] = {
    "linear": plain(Linear, (SRC, "d_in"), over=(SRC,)),
    "transposed": plain(TransposedLinear, (SRC, "d_in"), over=(SRC,)),
    "embedding": plain(Embedding, (SRC,), ids=True, over=(SRC,)),
    "position_table": plain(PositionTable, (SRC,), ids=True, max_length=8),
    "layer_norm": plain(LayerNorm, (SRC, "d"), over=(SRC,)),
    "layer_norm_without_bias": plain(LayerNormWithoutBias, (SRC, "d"), over=(SRC,)),
    "layer_norm_without_weights": plain(LayerNormWithoutWeights, (SRC, "d"), over=(SRC,)),
    "rms_norm": plain(RMSNorm, (SRC, "d"), over=(SRC,)),
    "kronecker_linear": plain(KroneckerLinear, (SRC, "d_in"), over=(SRC,)),
    "hypercomplex_linear": plain(HypercomplexLinear, (SRC, "d_in"), over=(SRC,), d_in=[2, 6],
                                 d_out=[2, 4], n=[1, 2]),
    "group_linear": plain(GroupLinear, (SRC, "d_in"), over=(SRC,), d_in=[2, 6], d_out=[2, 4],
                          groups=[1, 2]),
    "mat_mul": plain(MatMul, (HEADS, TGT, "n_in"), (HEADS, "n_in", SRC_KEYS), over=(HEADS, TGT),
                     n_out=SRC_KEYS, keys_are_inner=False),
    "fused_attention": plain(FusedAttention, ("heads", TGT, "head_dim"),
                             ("heads", SRC_KEYS, "head_dim"), ("heads", SRC_KEYS, "value_dim"),
                             None, queries=TGT, keys=SRC_KEYS),
    "convolution": plain(Convolution, (SRC, "d_in"), over=(SRC,), width=range(1, 5),
                         dilation=range(1, 4)),
    "chain_linear": plain(ChainLinear, (SRC, "d_in"), d_in=range(2, 25, 2), d_out=range(2, 25, 2),
                          apply=["cores", "matrix"], **CHAINED),
    "chain_embedding": plain(ChainEmbedding, (SRC,), ids=True, **CHAINED),
    "kronecker_table": plain(KroneckerEmbedding, (SRC,), ids=True, over=(SRC,)),
    "table_output": table_output, "low_rank": plain(LowRankLinear, (SRC, "d_in"), over=(SRC,)),
    "head_linear": plain(HeadLinear, (SRC, HEADS, "d_in"), over=(SRC, HEADS)),
    "head_mixer": plain(HeadMixing, ("heads_in", TGT, SRC_KEYS), queries=TGT, keys=SRC_KEYS),
    "dextra": plain(DExTra, (SRC, "d_in"), over=(SRC,), inner=[8, 12], d_out=[4, 8],
                    depth=range(1, 6), multiplier=[1.0, 2.3], groups=[1, 2, 4]),
    "dynamic_mask": plain(DynamicMask, (SRC, "d"), more=(LENGTH,), queries=SRC, keys=SRC_KEYS,
                          clip=range(1, 5)),
    "distances": plain(RelativePositionBias, (SRC,), ids=True, more=(LENGTH,), clip=range(1, 5)),
    "relative_keys": plain(RelativeKeys, ("heads", SRC, "head_dim"), more=(LENGTH,), queries=SRC,
                           clip=range(1, 5)),
    "global_scores": plain(GlobalScores, (SRC, "d"), clip=[0, 2], norm_kind=list(NORM_CLASSES),
                           **ON_SOURCE),
    "adaptive_output": plain(AdaptiveOutput, (TGT, "d"), cutoffs=CUTOFFS, factor=range(2, 5)),
    "scores": scores, "token_embedding": token_embedding, "soft_positions": soft_positions,
    "attentive_embedding": attentive, "attention": cross_attention,
    "projected_cross_attention": projected_cross_attention,
    "partial_ffn": head_ffn_block, "merged_ffns": merged_ffns, "encoder_layer": encoder_layer,
    "decoder_layer": decoder_layer, "stack": stack, "bottleneck_stack": bottleneck_stack,
    **{f"ffn.{kind}": partial(ffn_sample, kind=kind) for kind in FFNS if kind != "none"},
    **{f"sublayer.{name}": partial(mixer_sample, name=name, kinds=SUBLAYERS) for name in SUBLAYERS},
    **{f"mixer.{name}": partial(mixer_sample, name=name) for name in MIXERS if name != "attention"}}
