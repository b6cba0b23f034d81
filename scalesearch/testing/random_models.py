"""Small random models of every family."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.mixture import EXPERT_CLASSES
from scalesearch.blocks.multi_path import MERGE_METHODS, PATH_TARGETS
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.library import find_file
from scalesearch.spaces import Space, UnbuildableError, read_space
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble

SHARED_PARTS = ("encoder.attention", "encoder.ffn", "decoder.self", "decoder.cross", "decoder.ffn",
          *(f"{stack}.{word}" for stack in ("encoder", "decoder") for word in SUBLAYERS))
ENCODER_ONLY_KEYS = ("encoder.solver", "encoder.sublayers")  # words that decoders do not have
SMALL_SIZES = {
    "width": "4..24 step 2",
    "norm": "pre | post | branch | sandwich",
    "post_last_norm": "yes | no",
    "residual_after_norm": "no | yes if norm == pre else no",
    "norm_kind": "layer | layer-no-bias | layer-no-weights | rms",
    # The library's file draws tied tables once in 75 networks: most chains and H-SoftPOS exclude
    # them.
    "embedding.tie": "none if embedding == h-softpos else none | decoder | inputs | all",
    "tensor_chain.layer": "off | 0.05 | 0.4 | 0.8",
    "tensor_chain.attention": "off | = layer | 0.2",
    "tensor_chain.ffn": "off | = layer | 0.2",
    "tensor_chain.embedding": "off | 0.05 | 0.4 | 0.8 if embedding.tie == none else off",
    "tensor_chain.output": "off | 0.05 | 0.4 | 0.8 if embedding.tie == none else off",
    "embedding.factorised.rank": "1..6",
    "embedding.adaptive.cutoffs": "[3, 7]",
    "embedding.positions": "sinusoidal | sinusoidal-marian | learned | none",
    "embedding.max_length": "64",
    "embedding.factorised.own_map": "yes | no",
    "embedding.scaled": "yes | no if embedding == plain or embedding == factorised else yes",
    "embedding.norm": "yes | no if embedding == plain or embedding == factorised else no",
    "embedding.output_transform": "no | yes if embedding != adaptive else no",
    "embedding.output_soft_cap": "0 | 3 if embedding != adaptive else 0",
    "embedding.tied_bias": "yes | no if embedding != adaptive else no",
    "encoder.depth": "1..4",
    "decoder.depth": "1..3",
    "share.encoder.ffn": "own | one | cycle(2..3) | sequence(2..3)",
    "adapt.lora.rank": "1..4",
    "adapt.lora.on": "[query, out, value]",
    "adapt.prompt.length": "1..3",
    **{f"matrices.{place}": "dense | low_rank(1..4) | chain | kronecker(1..3) | "
                            "phm(1 | 2, 1..3) | group(1 | 2)"
       for place in ("attention", "out", "ffn")},
    **{f"matrices.{place}": "dense | low_rank(1..4) | chain(0.1 | 0.4, 2 | 3 | 4) | kronecker(1..3)"
       for place in ("embedding", "output")},
    "low_rank.attention": "off | 1..5 if tensor_chain.attention == off else off",
    "low_rank.ffn": "off | 1..5 if tensor_chain.ffn == off else off",
    **{f"{stack}.heads": "1 | 2 | 3 | 4 | 6 | [2 | 4, 4, 1 | 2, 2]"
       for stack in ("encoder", "decoder")},
    **{f"{stack}.head_dim": "1..5 | = max(1, width // heads)" for stack in ("encoder", "decoder")},
    **{f"{stack}.rotary": "yes | no if head_dim % 2 == 0 and not relative_positions else no"
       for stack in ("encoder", "decoder")},
    **{f"{stack}.{key}": drawn for stack in ("encoder", "decoder") for key, drawn in (
        ("position_buckets", "0 | 4 | 8"), ("bucket_distance", "3 | 16"),
        ("qk_norm", "none | head | width"), ("alibi", "no | yes"), ("soft_cap", "0 | 2"),
        ("alibi_scaled", "no | yes"), ("score_dim", "0 | 1 | 8"))},
    **{f"{stack}.window": "0 | 1..4 | [2, 0, 3, 1]" for stack in ("encoder", "decoder")},
    **{f"{stack}.global_every": "0 | 2" for stack in ("encoder", "decoder")},
    **{f"{stack}.lift": "none | dextra" for stack in ("encoder", "decoder")},
    **{f"{stack}.lift.dextra.{key}": drawn for stack in ("encoder", "decoder") for key, drawn in (
        ("depth", "1..4 | ramp(1..3, 4)"), ("multiplier", "1 | 1.7"), ("groups", "1 | 2 | 4"))},
    "decoder.cross": "{ one of: { attention: {}, gated: { head_dim: 1..4, clip: 1..4 } } }",
    **{f"{stack}.mask": "{ one of: { none: {}, dynamic: { clip: 1..3 } } }"
       for stack in ("encoder", "decoder")},
    **{f"{stack}.relative_clip": "1..3" for stack in ("encoder", "decoder")},
    **{f"{stack}.{key}": drawn for stack in ("encoder", "decoder") for key, drawn in (
        ("projection_bias", "yes | no"), ("out_bias", "yes | no"),
        ("parallel_norms", "yes | no if norm == pre or norm == sandwich else no"),
        ("ffn_bias", "yes | no if ffn != self_gated else no"), ("parallel_heads", "off | 1..3"),
        ("ffn_norm", "yes | no if ffn != self_gated else no"),
        ("branches.kernel", "1..9"), ("branches.multiple", "1 | 0.5"))},
    **{f"{stack}.branches.{side}{key}": drawn
       for stack in ("encoder", "decoder") for side in ("left", "right") for key, drawn in (
           ("", "dense | convolution | separable"), ("_kernel", "1..5 | ramp(1..9, 1..5)"),
           ("_multiple", "0.25..3 | ramp(1, 2)"), ("_activation", "none | relu | gelu | swish"))},
    **{f"{stack}.ffn.{kind}.hidden": f"1..12 | {sizes}" for kind, sizes in (
        ("relu", "[1..12, 1..12, 3, 1..12]"), ("swiglu", "ramp(1..12, 1..12)"))
       for stack in ("encoder", "decoder")},
}

_TAPS = "kernel: '1..9 | ramp(1..9, 1..9)', heads: 1 | 2, glu: yes | no"
_KINDS = {"lightweight": _TAPS, "dynamic": _TAPS, "separable": "kernel: 1..9, glu: yes | no",
          "average": "dims: 1..4", "ssru": "",
          "linear_attention": "heads: 1 | 2, key_dim: 1..4",
          "mega": "dims: 1..3, head_dim: 1..4, value_dim: 1..5, clip: 1..4",
          "latent": "heads: 1..3, rank: 1..6, head_dim: 1..4, rotary_dim: 2 | 4, value_dim: 1..4, "
                    "query_rank: 0..4"}
_JOINED = "join: split | sum | before, channels: = width // 2 if join == split else 1"
_OTHERS = ", ".join(f"{kind}: {{ {keys} }}" for kind, keys in _KINDS.items())
_LOCAL = ", ".join(f"{kind}: {{ {keys}{', ' if keys else ''}{_JOINED} }}"
                   for kind, keys in _KINDS.items() if not MIXERS[kind].has_scores)
MIXER_CHOICES = {f"{stack}.{key}": f"{{ one of: {{ {kinds} }} }}"
                 for stack in ("encoder", "decoder")
                 for key, kinds in (("mixer", f"attention: {{}}, {_OTHERS}"),
                                    ("local", f"none: {{}}, {_LOCAL}"))}


def small_space(**changes: str) -> Space:
    """Return the largest space of the library with small sizes.

    Args:
        changes: overrides; ``encoder__ffn="geglu"`` overrides ``encoder.ffn``.
    """
    space = read_space(find_file("slim", "spaces")).with_overrides(SMALL_SIZES)
    return space.with_overrides({path.replace("__", "."): text for path, text in changes.items()})


@cache
def _small_space(mixed: bool) -> Space:
    """Return :func:`small_space`, or a space with all mixers if ``mixed``."""
    return small_space().with_overrides(MIXER_CHOICES) if mixed else small_space()


def random_architecture(rng: Random, space: Space | None = None, **fixed: Any) -> ModelSpec:
    """Sample an architecture with random weight sharing.

    Samples that cannot be built are rejected.

    Args:
        rng: random number generator.
        space: the space; by default :func:`small_space`.
        fixed: fixed parameters; ``encoder__depth=3`` fixes ``encoder.depth``.
    """
    while True:
        drawn = dict(_resolve_conflicts((space or _small_space(rng.random() < 0.4)).sample(rng)))
        if rng.random() < 0.7:
            drawn["model"] = "encoder-decoder"  # which has more that can go wrong
        if rng.random() < 0.1 and drawn["model"] == "encoder-decoder":
            drawn |= {"embedding": "attentive", "embedding.heads": rng.randint(1, 2),
                      "embedding.rank": 4, "matrices.embedding": "dense"}
        if rng.random() < 0.25:
            drawn |= {"encoder.sublayers": random_order(rng, "attention", "ffn"),
                      "decoder.interleaved": False,
                      "decoder.sublayers": random_order(rng, "self", "cross", "ffn")}
        for stack in ("encoder", "decoder"):
            if rng.random() < 0.1:
                drawn |= random_mixture(rng, stack)
        if rng.random() < 0.2:
            drawn |= {f"{stack}.paths.{key}": rng.choice(among) for stack in ("encoder", "decoder")
                      for key, among in (("of", PATH_TARGETS), ("count", (1, 2, 3)),
                                         ("merge", MERGE_METHODS), ("norm", (False, True)))}
        drawn |= {path.replace("__", "."): value for path, value in fixed.items()}
        if rng.random() < 0.5:
            for slot in SHARED_PARTS:
                drawn[f"share.{slot}"] = random_schedule(rng, drawn[f"{slot.split('.')[0]}.depth"])
        if rng.random() < 0.2:
            _tie_decoder_to_encoder(rng, drawn)
        for stack in ("encoder", "decoder"):
            if rng.random() < 0.2 and drawn[f"{stack}.depth"] > 2:
                drawn |= {f"{stack}.middle_width": rng.randint(2, 12), "encoder.solver": "euler",
                          f"{stack}.residual_scores": rng.choice(["none", "previous"])}
                drawn |= {f"share.{slot}": rng.choice(["own", "sandwich"])
                          for slot in SHARED_PARTS if slot.startswith(stack)}
        try:
            if None not in drawn.values():  # a computed size that came out below 1
                return assemble(drawn)
        except UnbuildableError:
            continue


def _resolve_conflicts(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve conflicts between structures of a matrix, and of widths with groups."""
    plain = {f"matrices.{place}": "dense"
             for place in ("attention", "ffn", "embedding", "output")
             if {drawn.get(f"{way}.{place}", "off")
                 for way in ("tensor_chain", "low_rank")} != {"off"}}
    if drawn.get("embedding.tie", "none") != "none":
        plain["matrices.output"] = "dense"
        if drawn["embedding"] != "plain":
            plain["matrices.embedding"] = "dense"
    if drawn.get("embedding") == "adaptive":
        plain["matrices.embedding"] = "dense"
    if drawn["width"] % 8:
        plain |= {f"{stack}.lift": "none" for stack in ("encoder", "decoder")}
    return {key: plain.get(key, value) for key, value in drawn.items()}


def _tie_decoder_to_encoder(rng: Random, drawn: dict[str, Any]) -> None:
    """Tie the mixers of the decoder to those of the encoder, as in EdgeFormer."""
    lent = {path: value
            for path, value in drawn.items() if path.startswith("encoder.") and ".ffn" not in path}
    drawn |= {path.replace("en", "de", 1): lent[path]
              for path in lent if path not in ENCODER_ONLY_KEYS}
    drawn |= {"decoder.pg.on": "both", "decoder.depth": rng.randint(1, 2)}
    drawn["encoder.depth"] = 2 * drawn["decoder.depth"]
    for slot in ("encoder.ffn", "decoder.ffn"):
        drawn[f"share.{slot}"] = "own"
    drawn["share.encoder.attention"] = rng.choice(["own", "cycle(2)"])
    drawn["share.decoder.self"] = "encoder.attention[2*i]"
    if "encoder.gate" in drawn:  # cross-attention can be tied to attention only
        drawn |= {"decoder.cross": "attention", "decoder.cross_gate": drawn["encoder.gate"],
                  "share.decoder.cross": "encoder.attention[2*i + 1]"}


def random_mixture(rng: Random, stack: str) -> dict[str, Any]:
    """Sample a mixture of experts as the feed-forward networks of a stack."""
    sizes = {"experts": rng.randint(2, 4), "active": rng.randint(1, 2), "shared": rng.randint(0, 1),
             "expert_hidden": rng.randint(1, 8), "expert": rng.choice(list(EXPERT_CLASSES))}
    return {f"{stack}.ffn": "mixture"} | {f"{stack}.ffn.{key}": value
                                          for key, value in sizes.items()}


def random_order(rng: Random, *words: str) -> list[Any]:
    """Sample an order of sub-layers, with repeated and parallel ones."""
    flat = [*words, *rng.choices([*words, "ffn_again", *SUBLAYERS], k=rng.randint(0, 3))]
    rng.shuffle(flat)
    order: list[list[str]] = []
    for word in flat:
        if order and rng.random() < 0.25:
            order[-1].append(word)
        else:
            order.append([word])
    return [step if len(step) > 1 else step[0] for step in order]


def random_schedule(rng: Random, depth: int) -> Any:
    """Sample a sharing schedule that is valid for ``depth`` layers."""
    first = rng.randint(1, depth)
    groups = rng.randint(1, 3)
    counted = f"{first}, {depth - first}" if first < depth else f"{depth}"
    return rng.choice(["own", "one", "sandwich", f"cycle({groups})", f"sequence({groups})",
                       f"reverse_cycle({groups})", f"runs({counted})", f"load({counted})",
                       [rng.randint(0, 2) for _ in range(depth)]])
