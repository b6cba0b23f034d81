"""Two-matrix feed-forward networks: d → hidden → d with a pointwise activation between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import Any

from scalesearch.blocks.core import Block, Shape, Site, Size, Use, block, option
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.ffn.registry import ffn
from scalesearch.blocks.sites import DENSE


@block
class TwoLayer(Block):
    """W₂ act(W₁ x + b₁) + b₂; (batch, positions, d) to the same."""

    d: Size
    over: Shape
    site: Site = DENSE
    _: KW_ONLY
    hidden: Size = option("= 4 * width", low=1, doc="hidden units")

    def parts(self) -> Mapping[str, Block | Use]:
        return {"up": self.site(self.d, self.hidden, self.over), "down": self.site(self.hidden, self.d, self.over)}

    def activation(self, x: Any) -> Any:
        """What stands between the two matrices."""
        raise NotImplementedError

    def forward(self, m: Any, x: Any) -> Any:
        return m.down(dropout(self.activation(m.up(x)), m.rates.activation, m.training))


@ffn("relu")
@block
class ReLU(TwoLayer):
    """ReLU between the matrices (Vaswani et al. 2017, eq. 2)."""

    def activation(self, x: Any) -> Any:
        return x.relu()


@ffn("gelu")
@block
class GELU(TwoLayer):
    """GELU between the matrices (Hendrycks & Gimpel 2016)."""

    def activation(self, x: Any) -> Any:
        from torch.nn.functional import gelu

        return gelu(x)
