"""A light-weight unit before attention, which then reads fewer features (DeLighT, Mehta et al. 2021, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalesearch.blocks.core import Block, Use, block
from scalesearch.blocks.maps.dextra import DExTra
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.base import Mixer, ScoreSets


@block
class Lifted(Mixer):
    """``main`` of what ``lift`` makes of the input."""

    main: Attention
    lift: DExTra

    @property
    def scores(self) -> ScoreSets | None:
        return self.main.scores

    @property
    def added(self) -> Mapping[str, Mixer]:
        return {"main": self.main}

    def parts(self) -> Mapping[str, Block | Use]:
        return {"lift": self.lift, "main": self.main}

    def forward(self, m: Any, x: Any, present: Any, bias: Any, cache: Any = None, carried: Any = None) -> Any:
        return m.main(m.lift(x), present, bias, cache, carried)
