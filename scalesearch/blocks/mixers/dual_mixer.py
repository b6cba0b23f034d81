"""Two mixers in one sub-layer: parallel or one after the other."""

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
    """Two mixers in one sub-layer.

    Attributes:
        main: the main mixer, usually attention.
        local: the other mixer.
        join: ``split``, each has its own channels, those of ``local`` are the last ones (Wu et al.
            2020); ``sum``, their outputs are added; ``before``, ``local`` is applied first.
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
        """Return the correction of the activations of the two mixers.

        Their common input is stored if at least one of them does not copy it, and their sum is
        stored instead of their outputs.
        """
        if self.join == "before":
            return []
        main = self.main
        local = self.local
        size = main.d * main.copies_input + local.d * local.copies_input - self.d * (
            main.copies_input & local.copies_input)
        return [LoopNest((*self.over, size - (self.d if self.join == "sum" else 0)), "activation")]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        import torch

        context = (token_mask, bias, cache, carried_scores)
        if self.join == "split":
            first, last = x.split([self.main.d, self.local.d], -1)
            return torch.cat([module.main(first, *context), module.local(last, *context)], -1)
        if self.join == "before":
            return module.main(module.local(x, *context), *context)
        return add_promoted(module.main(x, *context), module.local(x, *context))
