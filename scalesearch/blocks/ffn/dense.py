"""Two-matrix feed-forward networks: d → hidden → d with a pointwise activation between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scalesearch.blocks.core import Block, Size, Use, block
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.ffn.base import FFN, ffn
from scalesearch.blocks.options import option


@block
class TwoLayer(FFN):
    """W₂ act(W₁ x + b₁) + b₂; (batch, positions, d) to the same."""

    hidden: Size = option("= 4 * width", low=1, doc="hidden units")

    units: ClassVar[str | None] = "up"

    def parts(self) -> Mapping[str, Block | Use]:
        return {"up": self.site(self.d, self.hidden, self.over), "down": self.site(self.hidden, self.d, self.over)}

    def activation(self, x: Any) -> Any:
        """The activation function between the two matrices."""
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
