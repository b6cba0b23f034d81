"""Token embedding plus positions: √d · table[token] + position, then dropout (Vaswani et al. 2017, 3.4 and 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalesearch.blocks.core import Axes, Block, Size, Use, block
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.leaves import PositionTable

POSITIONS = ("sinusoidal", "learned", "none")


@block
class TokenEmbedding(Block):
    """Token ids and their positions, both (batch, length), to (batch, length, d). ``table`` looks tokens up."""

    d: Size
    over: Axes
    table: Block
    positions: str = "sinusoidal"
    max_length: Size = 1024
    tied: str | None = None  # path of the table that this one is

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {"table": Use(self.table, tied=self.tied)}
        if self.positions == "learned":
            parts["position"] = PositionTable(self.d, self.max_length)
        return parts

    def forward(self, m: Any, tokens: Any, positions: Any, cache: Any = None, present: Any = None) -> Any:
        x = m.table(tokens) * self.d**0.5
        if self.positions == "learned":
            x = x + m.position(positions)
        elif self.positions == "sinusoidal":
            x = x + sinusoid(positions, self.d, x.dtype)
        return dropout(x, m.rates.residual, m.training)


def sinusoid(positions: Any, d: int, dtype: Any) -> Any:
    """Sinusoidal positions (…, d): sines, then cosines, of wavelengths 2π to 10000 · 2π."""
    import torch

    half = (d + 1) // 2
    rates = torch.exp(torch.arange(half, device=positions.device) * (-9.210340371976184 / max(half - 1, 1)))
    angles = positions.unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], -1)[..., :d].to(dtype)
