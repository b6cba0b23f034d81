"""Gated feed-forward networks: one half decides how much of the other passes (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scalesearch.blocks.core import Block, Size, Use, block
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.ffn.base import FFN, ffn
from scalesearch.blocks.options import option


@block
class Gated(FFN):
    """W₂ (act(W_g x) ⊙ W₁ x), all with biases. The default hidden size keeps a plain FFN's parameters (8/3 · width)."""

    hidden: Size = option("= 8 * width // 3", low=1, doc="hidden units of each half")

    units: ClassVar[str | None] = "gate"

    def parts(self) -> Mapping[str, Block | Use]:
        up = self.site(self.d, self.hidden, self.over)
        return {"gate": up, "up": up, "down": self.site(self.hidden, self.d, self.over)}

    def activation(self, x: Any) -> Any:
        """The activation function of the gate."""
        raise NotImplementedError

    def forward(self, m: Any, x: Any) -> Any:
        gated = self.activation(m.gate(x)) * m.up(x)
        return m.down(dropout(gated, m.rates.activation, m.training))


@ffn("geglu")
@block
class GEGLU(Gated):
    """A GELU gate (Shazeer 2020; Anthe, section 3)."""

    def activation(self, x: Any) -> Any:
        from torch.nn.functional import gelu

        return gelu(x)


@ffn("swiglu")
@block
class SwiGLU(Gated):
    """A SiLU ("swish") gate (Shazeer 2020)."""

    def activation(self, x: Any) -> Any:
        from torch.nn.functional import silu

        return silu(x)
