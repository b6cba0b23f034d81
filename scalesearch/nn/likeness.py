"""In what two networks differ besides sizes that may grow without a change of the function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from scalesearch.blocks.adapt import Adapter
from scalesearch.blocks.attention import Attention
from scalesearch.blocks.core import Block, Repeat, Site, Use
from scalesearch.blocks.embed import FactorisedTable, TokenEmbedding
from scalesearch.blocks.embed.factorised import FactorisedOutput
from scalesearch.blocks.ffn.dense import TwoLayer
from scalesearch.blocks.ffn.gated import Gated
from scalesearch.blocks.partial import PartialFFN
from scalesearch.blocks.scores import GlobalScores
from scalesearch.blocks.sites import Chain, LowRank
from scalesearch.blocks.stacks import Stack, WaistedStack

# Where a weight is kept is no part of the function; nor are the axes that a block is applied over, or how.
IGNORED = ("tied", "path", "ties", "over", "apply", "cached")
GROWS: dict[type, tuple[str, ...]] = {
    Attention: ("heads", "head_dim", "score_heads", "kv_heads", "clip", "rank"),
    PartialFFN: ("heads", "head_dim"), GlobalScores: ("heads", "head_dim", "clip"),
    TwoLayer: ("hidden",), Gated: ("hidden",), Repeat: ("depth",), FactorisedTable: ("rank",),
    FactorisedOutput: ("rank",), TokenEmbedding: ("max_length",), LowRank: ("rank",), Chain: ("ratio",),
    Adapter: ("rank",),
}


def unlike(child: Any, parent: Any) -> list[str]:
    """What stands against the child computing what the parent does, by these two descriptions."""
    return list(dict.fromkeys(_unlike(child, parent)))


def _unlike(child: Any, parent: Any) -> Iterator[str]:
    if type(child) is not type(parent):
        yield f"{_kind(parent)} became {_kind(child)}"
        return
    grows = {name for kind, names in GROWS.items() if isinstance(child, kind) for name in names}
    for f in fields(child):
        mine, its = getattr(child, f.name), getattr(parent, f.name)
        inside = isinstance(child, TwoLayer | Gated) and f.name == "d"  # the width, which attention says, or a head's
        if f.name in IGNORED or mine == its or inside:
            continue
        if isinstance(mine, Block | Site | Use) or isinstance(its, Block | Site | Use):
            yield from _unlike(mine, its)
        elif f.name not in grows or not mine or not its or mine < its:
            yield f"{_kind(child)}: {f.name} was {its} and is {mine}"
    if isinstance(child, Attention) and isinstance(parent, Attention):
        yield from _regrouped(child, parent)
    if isinstance(child, Stack | WaistedStack) and child.steps and _depth(child) != _depth(parent):
        yield "another depth, and each layer adds the signal of its number"


def _regrouped(child: Attention, parent: Attention) -> Iterator[str]:
    """Keys and values of heads that no longer share them are copied; of those that newly do, only one can stay."""
    for by in ("score_heads", "bias_heads"):
        mine, its = getattr(child, by), getattr(parent, by)
        of_child, of_parent = ((block.kv_heads or n) for block, n in ((child, mine), (parent, its)))
        served: dict[int, set[int]] = {}
        for head in range(min(mine, its)):
            served.setdefault(head * of_child // mine, set()).add(head * of_parent // its)
        if any(len(heads) > 1 for heads in served.values()):
            yield f"attention: {of_parent} heads of keys became {of_child}"
            return


def _depth(stack: Any) -> int:
    return int((stack.layers if isinstance(stack, Stack) else stack.middle).depth)


def _kind(part: Any) -> str:
    return "nothing" if part is None else type(part).__name__
