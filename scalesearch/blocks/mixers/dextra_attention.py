"""DExTra before attention with fewer features (DeLighT, Mehta et al. 2021, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Block, Use, block
from scalesearch.blocks.maps.dextra import DExTra
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.base import AttentionScoreShape, Mixer

if TYPE_CHECKING:
    from torch import Tensor


@block
class DExTraAttention(Mixer):
    """The attention ``main`` with the output of ``lift`` as input."""

    main: Attention
    lift: DExTra

    @property
    def score_shape(self) -> AttentionScoreShape | None:
        return self.main.score_shape

    @property
    def branches(self) -> Mapping[str, Mixer]:
        return {"main": self.main}

    def parts(self) -> Mapping[str, Block | Use]:
        return {"lift": self.lift, "main": self.main}

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        return module.main(module.lift(x), token_mask, bias, cache, carried_scores)
