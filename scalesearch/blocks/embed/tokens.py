"""Token embedding plus positions: √d · table[token] + position, then dropout (Vaswani et al. 2017, 3.4 and 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalesearch.blocks.core import Axes, Block, Size, Use, block
from scalesearch.blocks.leaves import Embedding, PositionTable

POSITIONS = ("sinusoidal", "learned")


@block
class TokenEmbedding(Block):
    """Token ids and their positions, both (batch, length), to (batch, length, d)."""

    d: Size
    over: Axes
    positions: str = "sinusoidal"
    max_length: Size = 1024
    tied: str | None = None  # path of the table that this one is

    def parts(self) -> Mapping[str, Block | Use]:
        table: dict[str, Block | Use] = {"table": Use(Embedding(self.d, self.over), tied=self.tied)}
        if self.positions == "learned":
            table["position"] = PositionTable(self.d, self.max_length)
        return table

    def forward(self, m: Any, tokens: Any, positions: Any) -> Any:
        from torch.nn.functional import dropout

        if self.positions == "learned":
            where = m.position(positions)
        else:
            where = sinusoid(positions, self.d, m.table.weight.dtype)
        return dropout(m.table(tokens) * self.d**0.5 + where, m.rates.residual, m.training)


def sinusoid(positions: Any, d: int, dtype: Any) -> Any:
    """Sines in the first half of the features, cosines in the second, wavelengths 2π to 10000 · 2π; (…, d)."""
    import torch

    half = (d + 1) // 2
    rates = torch.exp(torch.arange(half, device=positions.device) * (-9.210340371976184 / max(half - 1, 1)))
    angles = positions.unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], -1)[..., :d].to(dtype)
