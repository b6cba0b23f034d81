"""A gated linear unit as a sub-layer of its own (Dauphin et al. 2017; So et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from scalesearch.blocks.core import Block, Use, Work, block, not_kept
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.sublayers.base import further


@further("glu")
@block
class GatedLinear(Mixer):
    """(W x + b) ⊙ σ(V x + c), position by position; (batch, positions, d) to the same."""

    ends: ClassVar[tuple[str, ...]] = ("value",)

    def parts(self) -> Mapping[str, Block | Use]:
        one = self.site(self.d, self.d, self.over)
        return {"value": one, "gate": one}

    @property
    def copies(self) -> Any:
        return self.site(self.d, self.d, self.over).copies

    def work(self) -> Sequence[Work]:
        return [Work((*self.over, self.d), "activation"), *not_kept(self.d, self.over, self)]

    def forward(self, m: Any, x: Any, present: Any, bias: Any, cache: Any = None, carried: Any = None) -> Any:
        return m.value(x) * m.gate(x).sigmoid()
