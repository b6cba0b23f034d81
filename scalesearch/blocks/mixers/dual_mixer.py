"""Two mixers in one sub-layer: on a share of the channels each, added up, or one before the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Block, LoopNest, Use, block
from scalesearch.blocks.elementwise import add_promoted
from scalesearch.blocks.mixers.base import AttentionScoreShape, Mixer

if TYPE_CHECKING:
    from torch import Tensor

JOIN_MODES = ("split", "sum", "before")


@block
class DualMixer(Mixer):
    """``local`` beside ``main``: ``split``, the last channels are its own (Wu et al.

    2020), ``sum``, or ``before``.
    """

    main: Mixer
    local: Mixer
    join: str

    @property
    def score_shape(self) -> AttentionScoreShape | None:
        return self.main.score_shape

    @property
    def branches(self) -> Mapping[str, Mixer]:
        return {"main": self.main} | ({} if self.join == "before" else {"local": self.local})

    def parts(self) -> Mapping[str, Block | Use]:
        return {"main": self.main, "local": self.local}

    def loop_nests(self) -> Sequence[LoopNest]:
        """What the two say each, put right: an input is kept if one of them reads it in place, outputs as their sum."""
        if self.join == "before":
            return []
        main = self.main
        local = self.local
        kept = main.d * main.copies_input + local.d * local.copies_input - self.d * (
            main.copies_input & local.copies_input)
        return [LoopNest((*self.over, kept - (self.d if self.join == "sum" else 0)), "activation")]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        import torch

        context = (token_mask, bias, cache, carried_scores)
        if self.join == "split":
            mine, theirs = x.split([self.main.d, self.local.d], -1)
            return torch.cat([module.main(mine, *context), module.local(theirs, *context)], -1)
        if self.join == "before":
            return module.main(module.local(x, *context), *context)
        return add_promoted(module.main(x, *context), module.local(x, *context))
