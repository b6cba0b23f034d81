"""A gate without matrices: what Anthe's "no ff" leaves of the feed-forward sub-layer (Table 5)."""

from __future__ import annotations

from typing import Any

from scalesearch.blocks.core import block
from scalesearch.blocks.ffn.base import FFN, ffn


@ffn("self_gated")
@block
class SelfGated(FFN):
    """SiLU(x) ⊙ x, without weights; the sub-layer keeps its residual and its norm."""

    def forward(self, m: Any, x: Any) -> Any:
        from torch.nn.functional import silu

        return silu(x) * x
