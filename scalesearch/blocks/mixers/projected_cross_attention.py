"""Cross-attention in layers of another width (Subformer, Reid et al. 2021, released code)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Block, Use, block
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.mixers.base import AttentionScoreShape, Mixer
from scalesearch.blocks.norms import NORM_CLASSES, norm_type_field

if TYPE_CHECKING:
    from torch import Tensor


@block
class ProjectedCrossAttention(Mixer):
    """Cross-attention ``main`` with the width of the memory.

    Linear maps and norms before and after it project from the width of the layer and back.
    """

    main: Mixer
    norm_kind: str = norm_type_field()

    @property
    def score_shape(self) -> AttentionScoreShape | None:
        return self.main.score_shape

    def parts(self) -> Mapping[str, Block | Use]:
        norm = NORM_CLASSES[self.norm_kind]
        inner = self.main.d
        return {"enter": Linear(self.d, inner, self.over), "enter_norm": norm(inner, self.over),
                "main": self.main, "leave": Linear(inner, self.d, self.over),
                "leave_norm": norm(self.d, self.over)}

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None,
                memory: Tensor | None = None) -> Tensor:
        y = module.main(module.enter_norm(module.enter(x)), token_mask, bias, cache, carried_scores,
                        memory)
        return module.leave_norm(module.leave(y))
