"""A gate without matrices: what Anthe's "no ff" leaves of the feed-forward sub-layer (Table 5)."""

from __future__ import annotations

from typing import Any

from scalesearch.blocks.core import Block, Shape, Site, Size, block
from scalesearch.blocks.ffn.registry import ffn
from scalesearch.blocks.sites import DENSE


@ffn("self_gated")
@block
class SelfGated(Block):
    """SiLU(x) ⊙ x, without weights; the sub-layer keeps its residual and its norm."""

    d: Size
    over: Shape
    site: Site = DENSE

    def forward(self, m: Any, x: Any) -> Any:
        from torch.nn.functional import silu

        return silu(x) * x
