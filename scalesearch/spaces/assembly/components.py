"""Parts of layers from a configuration: matrices, mixers, FFNs."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from scalesearch.blocks.core import Axis, Block, LinearFactory, Size, Use
from scalesearch.blocks.ffn import FFN, FFNS, NoFFN
from scalesearch.blocks.maps.dextra import DExTra
from scalesearch.blocks.maps.linear_factories import DENSE, IDENTITY, PER_HEAD, Chain, LowRank
from scalesearch.blocks.maps.structured_matrices import (
    MATRIX_STRUCTURES,
    Grouped,
    GroupLinear,
    Kronecker,
)
from scalesearch.blocks.maps.tensor_chains import ChainLinearBase
from scalesearch.blocks.mixers import MIXERS, Mixer
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.attention_extras import PartialFFN
from scalesearch.blocks.mixers.base import NoMixer
from scalesearch.blocks.mixers.composites import DExTraAttention, DualMixer
from scalesearch.blocks.mixers.mega import GatedCrossAttention
from scalesearch.blocks.options import option_fields
from scalesearch.blocks.sizes import decide, require_single_value
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.spaces.syntax.diagnostics import UnbuildableError

Config = Mapping[str, Any]
BlockT = TypeVar("BlockT", bound=Block)


def with_changes(a: Config, changes: Config) -> Config:
    """``a`` with other values of some keys."""
    return ChainMap(changes, a)  # type: ignore[arg-type]  # only read


def optional_value(a: Config, path: str) -> Any:
    """The value at ``path``; None if it is ``off`` or missing."""
    value = a.get(path, "off")
    return None if isinstance(value, str) else value


def options_of(a: Config, key: str, block: type) -> dict[str, Any]:
    """The options of a block or linear factory: the keys below ``key``."""
    return {name: a[f"{key}.{name}"] for name in option_fields(block)}


def validated(block: BlockT, key_prefix: str) -> BlockT:
    """``block``, after a check of its options, the keys below ``key_prefix``.

    Raises:
        UnbuildableError: the options cannot be combined.
    """
    problem = block.validate()
    if problem is not None:
        option, reason = problem
        if key_prefix.endswith(".pg") and option == "hidden":
            option = "ratio"  # which determines the hidden units of a head
        raise UnbuildableError(f"{key_prefix}.{option}", reason)
    return block


def _validate_maps(block: BlockT, target: str, layer_key: str = "") -> BlockT:
    """``block``, after a check of its maps.

    The maps have the structure of ``matrices.TARGET``, or of the key ``layer_key``.

    Raises:
        UnbuildableError: the sizes do not allow this structure.
    """
    for name, part in block.parts().items():
        part = part.block if isinstance(part, Use) else part
        if isinstance(part, FFN):  # an expert of a mixture
            _validate_maps(part, target, layer_key)
        problem = part.validate() if isinstance(part, ChainLinearBase | GroupLinear) else None
        if problem is not None:
            option, reason = problem
            key = "out" if name == "out" and isinstance(block, Attention) else target
            raise UnbuildableError(layer_key or f"matrices.{key}.{option}", reason)
    return block


def chain_factory(a: Config, ratio: float) -> Chain:
    """A tensor chain with this ratio, and the other settings of ``tensor_chain``."""
    return Chain(ratio, require_single_value(a["tensor_chain.length"]), a["tensor_chain.apply"],
                 a["tensor_chain.bond"])


def linear_factory(a: Config, target: str) -> LinearFactory:
    """The factory of the linear maps of ``target``.

    Targets are attention, out, ffn, embedding and output.

    Raises:
        UnbuildableError: two structures are on at once, or a ratio is not between 0 and 1.
    """
    ratio = optional_value(a, f"tensor_chain.{target}")
    rank = optional_value(a, f"low_rank.{target}")
    key = f"matrices.{target}"
    if (name := a.get(key, "dense")) != "dense":
        if ratio is not None or rank is not None:
            other_key = "low_rank" if ratio is None else "tensor_chain"
            raise UnbuildableError(key, f"{other_key}.{target} is on, too: set only one of the two")
        if name == "chain" and not decide((a[f"{key}.ratio"] > 0) & (a[f"{key}.ratio"] < 1)):
            raise UnbuildableError(f"{key}.ratio", f"{a[f'{key}.ratio']} is not between 0 and 1")
        return MATRIX_STRUCTURES[name](**options_of(a, key, MATRIX_STRUCTURES[name]))
    if ratio is not None and rank is not None:
        raise UnbuildableError(f"low_rank.{target}",
                               f"tensor_chain.{target} is on, too: set only one of the two")
    if ratio is not None:
        if not decide((ratio > 0) & (ratio < 1)):
            raise UnbuildableError(f"tensor_chain.{target}",
                                   f"the ratio {ratio} is not between 0 and 1")
        return chain_factory(a, ratio)
    return DENSE if rank is None else LowRank(rank)


# structures of the matrices of single layers, by the keys of their sizes
_LAYER_STRUCTURES: dict[str, Callable[[Any], LinearFactory]] = {
    "attention_rank": LowRank, "cross_rank": LowRank, "ffn_rank": LowRank,
    "ffn_groups": lambda groups: Grouped(groups=groups),
    "ffn_products": lambda products: Kronecker(rank=products)}


def layer_factory(a: Config, stack: str, target: str, keys: Sequence[str]) -> LinearFactory:
    """The factory of the maps of one layer: the structure of one of ``keys``, or of ``target``.

    Raises:
        UnbuildableError: see :func:`linear_factory`; or two of the keys are set.
    """
    chosen = [key for key in keys if decide(a.get(f"{stack}.{key}", 0) != 0)]
    if len(chosen) > 1:
        raise UnbuildableError(f"{stack}.{chosen[1]}",
                               f"{stack}.{chosen[0]} is on, too: set only one of the two")
    if chosen:
        return _LAYER_STRUCTURES[chosen[0]](a[f"{stack}.{chosen[0]}"])
    return linear_factory(a, target)


# -- mixers


def build_mixer(a: Config, stack: str, axes: tuple[Axis, Axis, Axis]) -> Mixer:
    """The mixer of a stack's layers.

    Args:
        axes: the axes of the queries, of the input of key and value projections, and of the keys.
    """
    key = f"{stack}.local"
    width = a["width"]
    if a.get(key, "none") == "none":
        return _main(a, stack, axes)
    join = a[f"{key}.join"]
    channels = a[f"{key}.channels"] if join == "split" else width
    if decide(channels > width):
        raise UnbuildableError(f"{key}.channels",
                               f"{channels} channels are more than the width {width}")
    if decide(channels == 0):
        return _main(a, stack, axes)
    local = _registered(a, stack, "local", axes[0], channels)
    if join == "split":
        if decide(channels == width):
            return _check_adaptable(a, stack, "local", local)
        # The mixer reads the other channels, with the same share of attention heads.
        left = width - channels
        changed = {"width": left}
        is_attention = a.get(f"{stack}.mixer", "attention") == "attention"
        for name in ("heads", "score_heads") if is_attention else ():
            product = a[f"{stack}.{name}"] * left
            if decide(product % width != 0):
                raise UnbuildableError(f"{key}.channels",
                                       f"leaves {left} of {width} channels to attention, which is "
                                       f"not a whole number of its {a[f'{stack}.{name}']} {name}")
            changed[f"{stack}.{name}"] = product // width
        a = with_changes(a, changed)
    return DualMixer(width, axes[0], stack == "decoder", DENSE, main=_main(a, stack, axes),
                     local=local, join=join)


def _main(a: Config, stack: str, axes: tuple[Axis, Axis, Axis]) -> Mixer:
    """The mixer of the key ``mixer``, for ``width`` channels."""
    width = a["width"]
    if a.get(f"{stack}.mixer", "attention") != "attention":
        return _check_adaptable(a, stack, "mixer", _registered(a, stack, "mixer", axes[0], width))
    if decide(a[f"{stack}.heads"] == 0):
        return NoMixer(width, axes[0], stack == "decoder", DENSE)
    if a.get(f"{stack}.lift", "none") == "none":
        return build_attention(a, stack, axes)
    # attention on half of the features, which a DExTra unit computes
    if decide(width % 2 != 0):
        raise UnbuildableError(f"{stack}.lift", f"needs an even width, and the width is {width}")
    lift = build_dextra(a, f"{stack}.lift", width, width // 2, width // 2, axes[:1])
    inner = build_attention(with_changes(a, {"width": width // 2}), stack, axes)
    return DExTraAttention(width, axes[0], stack == "decoder", DENSE,
                           main=replace(inner, d_out=width), lift=lift)


def build_dextra(a: Config, key_prefix: str, d_in: Size, inner: Size, d_out: Size,
                 over: tuple[Axis, ...]) -> DExTra:
    """The DExTra unit (DeLighT) that the keys below ``key_prefix`` describe."""
    sizes = (require_single_value(a[f"{key_prefix}.{key}"])
             for key in ("depth", "multiplier", "groups"))
    return validated(DExTra(require_single_value(d_in), require_single_value(inner),
                            require_single_value(d_out), over, *sizes), key_prefix)


def _registered(a: Config, stack: str, key: str, axis: Axis, d: Size) -> Mixer:
    """The mixer that ``key`` selects, other than attention, with its options."""
    path = f"{stack}.{key}"
    mixer_class = MIXERS[a[path]]
    mixer = mixer_class(d, axis, stack == "decoder", linear_factory(a, "attention"),
                        **options_of(a, path, mixer_class))
    return _validate_maps(validated(mixer, path), "attention")


def build_sublayer(a: Config, stack: str, word: str, axis: Axis) -> Mixer:
    """The sub-layer ``word`` of the key ``sublayers``."""
    path = f"{stack}.{word}"
    sublayer_class = SUBLAYERS[word]
    options = options_of(a, path, sublayer_class)
    if "norm_kind" in sublayer_class.__dataclass_fields__:
        options["norm_kind"] = str(a.get("norm_kind", "layer"))
    sublayer = sublayer_class(a["width"], axis, stack == "decoder", linear_factory(a, "ffn"),
                              **options)
    return _validate_maps(validated(sublayer, path), "ffn")


def build_parallel_mixer(a: Config, stack: str, axes: tuple[Axis, Axis, Axis],
                         main: Mixer) -> Mixer | None:
    """``main`` for steps of parallel sub-layers.

    It has the same features, in ``parallel_heads`` heads.
    """
    key = f"{stack}.parallel_heads"
    heads = optional_value(a, key)
    is_attention = a.get(f"{stack}.mixer", "attention") == "attention"
    if heads is None or not main.has_scores or not is_attention:
        return None
    if a.get(f"{stack}.residual_scores", "none") != "none":
        raise UnbuildableError(key,
                               "cannot be combined with residual_scores, which need one number of "
                               "heads")
    features = a[f"{stack}.heads"] * a[f"{stack}.head_dim"]
    if decide(features % heads != 0):
        raise UnbuildableError(key, f"{heads} does not divide the {features} features of all heads")
    changed = {f"{stack}.heads": heads, f"{stack}.score_heads": heads,
               f"{stack}.head_dim": features // heads}
    mixer = build_mixer(with_changes(a, changed), stack, axes)
    return None if mixer == main else mixer


def _check_adaptable(a: Config, stack: str, key: str, mixer: Mixer) -> Mixer:
    """``mixer``, the only one of a layer, after a check that it can be adapted.

    Raises:
        UnbuildableError: layer adaptation needs a weight matrix, and the mixer has none.
    """
    if stack == "encoder" and not mixer.adaptable_parts and a.get("adapt", "nothing") in (
            "lora", "prompt"):
        raise UnbuildableError("adapt",
                               f"{a[f'{stack}.{key}']} has no weight matrix to which {a['adapt']} "
                               "could be added")
    return mixer


def build_attention(a: Config, stack: str, axes: tuple[Axis, Axis, Axis],
                    cross: bool = False) -> Attention:
    """Self- or cross-attention of a stack; ``axes`` as in :func:`build_mixer`."""
    queries, projected, keys = axes
    identity = a.get(f"{stack}.projections", "matrices") == "identity"
    relative = bool(a.get(f"{stack}.relative_positions", False)) and not cross
    rank_key = "cross_rank" if cross and "decoder.cross_rank" in a else "attention_rank"
    kv_key = f"{stack}.key_value_heads"
    if cross:
        kv_key = "decoder.cross_key_value_heads"
    kv_heads = optional_value(a, kv_key if kv_key in a else f"{stack}.key_value_heads")
    if kv_heads is None or (decide(kv_heads == a[f"{stack}.heads"])
                            and decide(kv_heads == a[f"{stack}.score_heads"])):
        kv_heads = 0  # one set per head, so that equal networks share an id
    bias = bool(a.get(f"{stack}.projection_bias", True))
    output_bias = bool(a.get(f"{stack}.out_bias", bias))
    has_alibi = bool(a.get(f"{stack}.alibi", False)) and not cross
    adaptation: dict[str, Any] = {}  # weights that are never tied
    if stack == "encoder" and a.get("adapt", "nothing") == "lora":
        adaptation = {"adapters": tuple(dict.fromkeys(a["adapt.on"])),
                      "adapter_rank": a["adapt.rank"]}
    elif stack == "encoder" and a.get("adapt", "nothing") == "prompt":
        adaptation = {"prompt_length": a["adapt.length"]}
    attention = Attention(
        a["width"], queries, stack == "decoder",
        IDENTITY if identity else layer_factory(a, stack, "attention", [rank_key]),
        heads=a[f"{stack}.heads"],
        head_dim=a[f"{stack}.head_dim"], score_heads=a[f"{stack}.score_heads"],
        projected_axis=projected, keys=keys, cross=cross,
        expands_heads=a.get(f"{stack}.head_scaling", "none") == "mlp", kv_heads=kv_heads,
        clip=a[f"{stack}.relative_clip"] if relative else 0,
        rotary=bool(a.get(f"{stack}.rotary", False)) and not cross,
        mask_distance=0 if cross or a.get(f"{stack}.mask", "none") == "none"
        else a[f"{stack}.mask.clip"],
        residual_scores=a.get(f"{stack}.residual_scores", "none") == "previous",
        gate=a.get(f"{stack}.{'cross_gate' if cross else 'gate'}", "none"),
        output_factory=linear_factory(a, "out"), head_ffn=_head_ffn(a, stack, queries, cross),
        bias=bias, output_bias=None if output_bias == bias else output_bias,
        qk_norm="none" if cross else a.get(f"{stack}.qk_norm", "none"),
        alibi=has_alibi,
        soft_cap=0.0 if cross else float(require_single_value(a.get(f"{stack}.soft_cap", 0))),
        window=0 if cross else require_single_value(a.get(f"{stack}.window", 0)),
        score_dim=a.get(f"{stack}.score_dim", 0),
        alibi_scaled=has_alibi and bool(a.get(f"{stack}.alibi_scaled", False)),
        memory_d=_memory_width(a) if cross else 0, **adaptation)
    return _validate_maps(validated(attention, stack), "attention")


def build_cross_attention(a: Config, axes: tuple[Axis, Axis, Axis]) -> Mixer:
    """The decoder's cross-attention; ``axes`` as in :func:`build_mixer`."""
    if a.get("decoder.cross", "attention") == "attention":
        heads = a.get("decoder.cross_heads", a["decoder.heads"])
        if decide(heads == 0):
            return NoMixer(a["width"], axes[0], True, DENSE)
        if decide(heads != a["decoder.heads"]):
            if decide(a["decoder.score_heads"] != a["decoder.heads"]):
                raise UnbuildableError("decoder.cross_heads", "differs from decoder.heads, which "
                                       "needs score_heads equal to heads")
            a = with_changes(a, {"decoder.heads": heads, "decoder.score_heads": heads})
        return build_attention(a, "decoder", axes, cross=True)
    sizes = (*(a[f"decoder.cross.{key}"] for key in ("head_dim", "clip")), _memory_width(a))
    cross_attention = GatedCrossAttention(a["width"], axes[0], True, linear_factory(a, "attention"),
                                          *axes[1:], *sizes)
    return _validate_maps(cross_attention, "attention")


def _memory_width(a: Config) -> Size:
    """Features of the encoder's states; 0 for the decoder's width, for equal ids."""
    width = a.get("memory_width", a["width"])
    return 0 if decide(width == a["width"]) else width


def _head_ffn(a: Config, stack: str, over: Axis, cross: bool) -> PartialFFN | None:
    """The feed-forward networks of single heads; None if ``pg`` is off.

    Source: PartialFormer.
    """
    ffn_type = a.get(f"{stack}.pg", "none")
    attention_type = a.get(f"{stack}.pg.on", "both")
    if ffn_type == "none" or attention_type not in ("both", "cross" if cross else "self"):
        return None
    heads = a[f"{stack}.heads"]
    head_dim = a[f"{stack}.head_dim"]
    matrix = PER_HEAD if a[f"{stack}.pg.per_head"] else DENSE
    ffn_class = FFNS[ffn_type]
    options = {name: a[f"{stack}.pg.{name}"]
               for name in option_fields(ffn_class)
               if name != "hidden"}
    inner = ffn_class(head_dim, (over, heads), matrix,
                      hidden=a[f"{stack}.pg.ratio"] * head_dim, **options)  # type: ignore[call-arg]
    validated(inner, f"{stack}.pg")
    return PartialFFN(a["width"], heads, head_dim, over, inner, a[f"{stack}.pg.gate"],
                      bool(a[f"{stack}.pg.residual"]))


# -- feed-forward


def build_ffn(a: Config, stack: str, axis: Axis) -> FFN:
    """The feed-forward network of a stack's layers."""
    key = f"{stack}.ffn"
    ffn_class = FFNS[a[key]]
    options = options_of(a, key, ffn_class)
    if decide(options.get("hidden", 1) == 0):
        ffn_class = NoFFN
        options = {}
    if a.get(f"{key}_norm", False) and not ffn_class.is_absent:
        if not ffn_class.supports_norm:
            raise UnbuildableError(f"{key}_norm", f"{a[key]} has no hidden units to normalize")
        options["norm_type"] = str(a.get("norm_kind", "layer"))
    if not a.get(f"{key}_bias", True) and not ffn_class.is_absent:
        if not ffn_class.supports_bias:
            raise UnbuildableError(f"{key}_bias", f"{a[key]} has no linear maps with biases")
        options["bias"] = False
    factory = (linear_factory(a, "ffn") if ffn_class.is_absent
               else layer_factory(a, stack, "ffn", ["ffn_rank", "ffn_groups", "ffn_products"]))
    ffn = ffn_class(a["width"], (axis,), factory, **options)
    groups_key = f"{stack}.ffn_groups"
    return _validate_maps(validated(ffn, key), "ffn",
                          groups_key if decide(a.get(groups_key, 0) != 0) else "")
