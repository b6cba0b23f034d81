"""Cross-attention at another width than its layer's (Subformer, Reid et al. 2021, as released)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalesearch.blocks.core import Block, Use, block
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.mixers.base import Mixer, ScoreSets
from scalesearch.blocks.norms import NORM_KINDS, norm_kind


@block
class Bridged(Mixer):
    """``main``, whose width is the memory's, between affine maps and norms from the layer's width and back to it."""

    main: Mixer
    norm_kind: str = norm_kind()

    @property
    def scores(self) -> ScoreSets | None:
        return self.main.scores

    def parts(self) -> Mapping[str, Block | Use]:
        norm, inner = NORM_KINDS[self.norm_kind], self.main.d
        return {"enter": Linear(self.d, inner, self.over), "enter_norm": norm(inner, self.over), "main": self.main,
                "leave": Linear(inner, self.d, self.over), "leave_norm": norm(self.d, self.over)}

    def forward(self, m: Any, x: Any, present: Any, bias: Any, cache: Any = None, carried: Any = None,
                memory: Any = None) -> Any:
        y = m.main(m.enter_norm(m.enter(x)), present, bias, cache, carried, memory)
        return m.leave_norm(m.leave(y))
