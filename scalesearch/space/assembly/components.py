"""The parts of layers that answers describe: matrices, mixers, feed-forward networks."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from scalesearch.blocks.core import Axis, Block, LinearFactory, Size
from scalesearch.blocks.ffn import FFN, FFNS
from scalesearch.blocks.maps.dextra import DExTra
from scalesearch.blocks.maps.linear_factories import DENSE, IDENTITY, PER_HEAD, Chain, LowRank
from scalesearch.blocks.maps.structured_matrices import MATRIX_STRUCTURES, GroupLinear
from scalesearch.blocks.maps.tensor_chains import ChainLinearBase
from scalesearch.blocks.mixers import MIXERS, Mixer
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.attention_extras import PartialFFN
from scalesearch.blocks.mixers.dextra_attention import DExTraAttention
from scalesearch.blocks.mixers.dual_mixer import DualMixer
from scalesearch.blocks.mixers.mega import GatedCrossAttention
from scalesearch.blocks.options import option_fields
from scalesearch.blocks.sizes import decide, require_single_value
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.space.syntax.diagnostics import UnbuildableError

Config = Mapping[str, Any]
BlockT = TypeVar("BlockT", bound=Block)


def optional_value(a: Config, path: str) -> Any:
    """The answer at ``path``; None where it is off or not there."""
    value = a.get(path, "off")
    return None if isinstance(value, str) else value


def validated(block: BlockT, key_prefix: str) -> BlockT:
    """``block``, whose options are the keys of ``key_prefix``.

    Raises Unbuildable where they do not go together.
    """
    if (wrong := block.validate()) is not None:
        option, reason = wrong
        # Of heads the ratio decides about hidden units.
        raise UnbuildableError(f"{key_prefix}.{'ratio' if key_prefix.endswith('.pg') and option == 'hidden' else option}", reason)
    return block


def _validate_maps(block: BlockT, where: str) -> BlockT:
    """``block``, whose maps are as ``matrices.where`` says.

    Raises Unbuildable where sizes do not go with that.
    """
    for name, part in block.parts().items():
        if isinstance(part,
                      ChainLinearBase | GroupLinear) and (wrong := part.validate()) is not None:
            place = "out" if name == "out" and isinstance(block, Attention) else where
            raise UnbuildableError(f"matrices.{place}.{wrong[0]}", wrong[1])
    return block


def chain_factory(a: Config, ratio: float) -> Chain:
    """A chain with this ratio, and everything else as the answers have it."""
    return Chain(ratio, require_single_value(a["tensor_chain.length"]), a["tensor_chain.apply"],
                 a["tensor_chain.bond"])


def linear_factory(a: Config, target: str) -> LinearFactory:
    """What stands for the matrices of ``attention``, its ``out`` map, or ``ffn``."""
    ratio = optional_value(a, f"tensor_chain.{target}")
    rank = optional_value(a, f"low_rank.{target}")
    key = f"matrices.{target}"
    if (name := a.get(key, "dense")) != "dense":
        if ratio is not None or rank is not None:
            longer = "low_rank" if ratio is None else "tensor_chain"
            raise UnbuildableError(key,
                                   f"{longer}.{target} is on, too: a matrix is one or the other")
        if name == "chain" and not decide((a[f"{key}.ratio"] > 0) & (a[f"{key}.ratio"] < 1)):
            raise UnbuildableError(f"{key}.ratio", f"{a[f'{key}.ratio']} is not between 0 and 1")
        return MATRIX_STRUCTURES[name](**{option: a[f"{key}.{option}"]
                                          for option in option_fields(MATRIX_STRUCTURES[name])})
    if ratio is not None and rank is not None:
        raise UnbuildableError(f"low_rank.{target}",
                               f"tensor_chain.{target} is on, too: a matrix is one or the other")
    if ratio is not None:
        if not decide((ratio > 0) & (ratio < 1)):
            raise UnbuildableError(f"tensor_chain.{target}",
                                   f"the ratio {ratio} is not between 0 and 1")
        return chain_factory(a, ratio)
    return DENSE if rank is None else LowRank(rank)


# -- mixers


def build_mixer(a: Config, stack: str, axes: tuple[Axis, Axis, Axis]) -> Mixer:
    """The mixer of a stack's layers; ``axes`` are those of queries, of what is projected, and of keys."""
    where = f"{stack}.local"
    width = a["width"]
    if a.get(where, "none") == "none":
        return _main(a, stack, axes)
    join = a[f"{where}.join"]
    channels = a[f"{where}.channels"] if join == "split" else width
    if decide(channels > width):
        raise UnbuildableError(f"{where}.channels", f"{channels} are more than all {width} of them")
    if decide(channels == 0):
        return _main(a, stack, axes)
    local = _registered(a, stack, "local", axes[0], channels)
    if join == "split":
        if decide(channels == width):
            return _check_adaptable(a, stack, "local", local)
        a = _with_remaining_channels(a, stack, width - channels)
    return DualMixer(width, axes[0], stack == "decoder", DENSE, main=_main(a, stack, axes),
                     local=local, join=join)


def _main(a: Config, stack: str, axes: tuple[Axis, Axis, Axis]) -> Mixer:
    """The mixer under that key, of the channels that ``width`` says."""
    where = f"{stack}.lift"
    if a.get(f"{stack}.mixer", "attention") == "attention":  # whose keys are the stack's own
        return build_attention(a, stack, axes) if a.get(where, "none") == "none" else _lifted(
            a, stack, axes)
    return _check_adaptable(a, stack, "mixer", _registered(a, stack, "mixer", axes[0], a["width"]))


def _lifted(a: Config, stack: str, axes: tuple[Axis, Axis, Axis]) -> Mixer:
    """Attention that reads half of the features, made by DeLighT's unit."""
    width = a["width"]
    if decide(width % 2 != 0):
        raise UnbuildableError(f"{stack}.lift", f"halves the width, which is {width}")
    lift = build_dextra(a, f"{stack}.lift", width, width // 2, width // 2, axes[:1])
    inner = build_attention(ChainMap({"width": width // 2}, a), stack, axes)  # type: ignore[arg-type]  # only read
    return DExTraAttention(width, axes[0], stack == "decoder", DENSE,
                           main=replace(inner, d_out=width), lift=lift)


def build_dextra(a: Config, where: str, d_in: Size, inner: Size, d_out: Size,
                 over: tuple[Axis, ...]) -> DExTra:
    """DeLighT's unit as the answers below ``where`` describe it."""
    sizes = (require_single_value(a[f"{where}.{key}"]) for key in ("depth", "multiplier", "groups"))
    return validated(DExTra(require_single_value(d_in), require_single_value(inner),
                            require_single_value(d_out), over, *sizes), where)


def _registered(a: Config, stack: str, key: str, axis: Axis, d: Size) -> Mixer:
    """The mixer that the answer at ``key`` names, other than attention."""
    where = f"{stack}.{key}"
    kind = MIXERS[a[where]]
    given = {option: a[f"{where}.{option}"] for option in option_fields(kind)}
    return _validate_maps(validated(kind(d, axis, stack == "decoder",
                                         linear_factory(a, "attention"), **given), where),
                          "attention")


def build_sublayer(a: Config, stack: str, word: str, axis: Axis) -> Mixer:
    """The sub-layer that the ``word`` of a list names beside those that every layer has."""
    where = f"{stack}.{word}"
    kind = SUBLAYERS[word]
    given = {option: a[f"{where}.{option}"] for option in option_fields(kind)}
    if "norm_kind" in kind.__dataclass_fields__:
        given["norm_kind"] = str(a.get("norm_kind", "layer"))
    return _validate_maps(validated(kind(a["width"], axis, stack == "decoder",
                                         linear_factory(a, "ffn"), **given), where), "ffn")


def build_parallel_mixer(a: Config, stack: str, axes: tuple[Axis, Axis, Axis],
                         main: Mixer) -> Mixer | None:
    """``main`` as it stands beside other sub-layers, with as many features in heads of another number."""
    where = f"{stack}.parallel_heads"
    if (heads := optional_value(a, where)) is None or not main.has_scores or a.get(
            f"{stack}.mixer", "attention") != "attention":
        return None
    if a.get(f"{stack}.residual_scores", "none") != "none":
        raise UnbuildableError(where,
                               "does not go with residual_scores, which are of one number of heads")
    features = a[f"{stack}.heads"] * a[f"{stack}.head_dim"]
    if decide(features % heads != 0):
        raise UnbuildableError(where, f"{heads} do not divide the {features} features of all heads")
    changed = {f"{stack}.heads": heads, f"{stack}.score_heads": heads,
               f"{stack}.head_dim": features // heads}
    made = build_mixer(ChainMap(changed, a), stack, axes)  # type: ignore[arg-type]  # only read
    return None if made == main else made


def _check_adaptable(a: Config, stack: str, key: str, made: Mixer) -> Mixer:
    """``made``, the only mixer of a layer.

    Raises Unbuildable where it would have to be adapted and cannot.
    """
    if stack == "encoder" and not made.adaptable_parts and a.get("adapt", "nothing") in (
            "lora", "prompt"):
        raise UnbuildableError("adapt",
                               f"{a[f'{stack}.{key}']} has no weight matrix to which {a['adapt']} "
                               "could be added")
    return made


def _with_remaining_channels(a: Config, stack: str, left: Size) -> Config:
    """Answers of a mixer on ``left`` of all channels: attention then has as large a share of its heads."""
    changed = {"width": left}
    for key in ("heads", "score_heads") if a.get(
            f"{stack}.mixer", "attention") == "attention" else ():
        times = a[f"{stack}.{key}"] * left
        if decide(times % a["width"] != 0):
            raise UnbuildableError(f"{stack}.local.channels",
                                   f"leaves attention {left} of {a['width']} channels, and no "
                                   f"whole number of {a[f'{stack}.{key}']} {key}")
        changed[f"{stack}.{key}"] = times // a["width"]
    return ChainMap(changed, a)  # type: ignore[arg-type]  # which is only read


def build_attention(a: Config, stack: str, axes: tuple[Axis, Axis, Axis],
                    cross: bool = False) -> Attention:
    """Self- or cross-attention of a stack; ``axes`` as :func:`build_mixer`'s."""
    queries, projected, keys = axes
    identity = a.get(f"{stack}.projections", "matrices") == "identity"
    relative = bool(a.get(f"{stack}.relative_positions", False)) and not cross
    made = Attention(
        a["width"], queries, stack == "decoder",
        IDENTITY if identity else linear_factory(a, "attention"), heads=a[f"{stack}.heads"],
        head_dim=a[f"{stack}.head_dim"], score_heads=a[f"{stack}.score_heads"],
        projected_axis=projected, keys=keys, cross=cross,
        expands_heads=a.get(f"{stack}.head_scaling", "none") == "mlp", kv_heads=_kv_heads(a, stack),
        clip=a[f"{stack}.relative_clip"] if relative else 0,
        rotary=bool(a.get(f"{stack}.rotary", False)) and not cross,
        mask_distance=0 if cross or a.get(f"{stack}.mask", "none") == "none"
        else a[f"{stack}.mask.clip"],
        residual_scores=a.get(f"{stack}.residual_scores", "none") == "previous",
        gate=a.get(f"{stack}.{'cross_gate' if cross else 'gate'}", "none"),
        output_factory=linear_factory(a, "out"), head_ffn=_head_ffn(a, stack, queries, cross),
        bias=bool(a.get(f"{stack}.projection_bias", True)),
        **(_adaptation_kwargs(a) if stack == "encoder" else {}))
    return _validate_maps(validated(made, stack), "attention")


def _kv_heads(a: Config, stack: str) -> Size:
    """Heads of keys and values; 0 where they are as many as others, as if nothing were said: one network, one id."""
    shared = optional_value(a, f"{stack}.key_value_heads")
    heads = a[f"{stack}.heads"]
    plain = shared is None or (decide(shared == heads)
                               and decide(shared == a[f"{stack}.score_heads"]))
    return 0 if plain else shared


def build_cross_attention(a: Config, axes: tuple[Axis, Axis, Axis]) -> Mixer:
    """The decoder's attention across sequences; ``axes`` as :func:`build_mixer`'s."""
    if a.get("decoder.cross", "attention") == "attention":
        return build_attention(a, "decoder", axes, cross=True)
    sizes = (a[f"decoder.cross.{key}"] for key in ("head_dim", "clip"))
    made = GatedCrossAttention(a["width"], axes[0], True, linear_factory(a, "attention"), *axes[1:],
                               *sizes)
    return _validate_maps(made, "attention")


def _adaptation_kwargs(a: Config) -> dict[str, Any]:
    """What a layer's attention has of its own beside shared weights."""
    kind = a.get("adapt", "nothing")
    if kind == "lora":
        return {"adapters": tuple(dict.fromkeys(a["adapt.on"])), "adapter_rank": a["adapt.rank"]}
    return {"prompt_length": a["adapt.length"]} if kind == "prompt" else {}


def _head_ffn(a: Config, stack: str, over: Axis, cross: bool) -> PartialFFN | None:
    kind = a.get(f"{stack}.pg", "none")
    where = a.get(f"{stack}.pg.on", "both")
    if kind == "none" or where not in ("both", "cross" if cross else "self"):
        return None
    heads = a[f"{stack}.heads"]
    head_dim = a[f"{stack}.head_dim"]
    matrix = PER_HEAD if a[f"{stack}.pg.per_head"] else DENSE
    made = FFNS[kind]
    more = {name: a[f"{stack}.pg.{name}"] for name in option_fields(made) if name != "hidden"}
    inner = made(head_dim, (over, heads), matrix, hidden=a[f"{stack}.pg.ratio"] * head_dim, **more)  # type: ignore[call-arg]
    validated(inner, f"{stack}.pg")
    return PartialFFN(a["width"], heads, head_dim, over, inner, a[f"{stack}.pg.gate"],
                      bool(a[f"{stack}.pg.residual"]))


# -- feed-forward


def build_ffn(a: Config, stack: str, axis: Axis) -> FFN:
    """The feed-forward network of a stack's layers."""
    where = f"{stack}.ffn"
    kind = FFNS[a[where]]
    given = {name: a[f"{where}.{name}"] for name in option_fields(kind)}
    if a.get(f"{where}_norm", False) and not kind.is_absent:
        if not kind.supports_norm:
            raise UnbuildableError(f"{where}_norm",
                                   f"{a[where]} has no hidden units that a norm could be of")
        given["norm_type"] = str(a.get("norm_kind", "layer"))
    return _validate_maps(validated(kind(a["width"], (axis,), linear_factory(a, "ffn"), **given),
                                    where), "ffn")
