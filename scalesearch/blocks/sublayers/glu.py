"""Gated linear unit as a separate sub-layer (Dauphin et al. 2017; So et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Block, LoopNest, Use, block, discarded_activations
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.sublayers.base import register_sublayer

if TYPE_CHECKING:
    from torch import Tensor


@register_sublayer("glu")
@block
class GatedLinearUnit(Mixer):
    """(W x + b) ⊙ σ(V x + c) at each position: (batch, positions, d) to (batch, positions, d)."""

    output_projections: ClassVar[tuple[str, ...]] = ("value",)

    def parts(self) -> Mapping[str, Block | Use]:
        linear = self.linear_factory(self.d, self.d, self.over)
        return {"value": linear, "gate": linear}

    @property
    def copies_input(self) -> Any:
        return self.linear_factory(self.d, self.d, self.over).copies_input

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.d), "activation"),
                *discarded_activations(self.d, self.over, self)]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        return module.value(x) * module.gate(x).sigmoid()
