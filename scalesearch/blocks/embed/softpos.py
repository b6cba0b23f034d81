"""H-SoftPOS: embeddings with soft roles at several scales (Anthe, section 2; reference/anthe section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalesearch.blocks.caches import RowCache
from scalesearch.blocks.core import Axes, Block, Size, Use, block
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.embed.tokens import sinusoid
from scalesearch.blocks.leaves import Convolution, Linear, PositionTable

KERNEL = 3


@block
class SoftPOS(Block):
    """[X₁, S₁, X₂, S₂, …] for ``levels`` levels, d features together; inputs as :class:`TokenEmbedding`'s.

    X₁ is a table of d - (2 · levels - 1) · width features with sinusoidal positions, X_{m+1} a causal convolution of
    X_m (kernel 3, dilation 2^(m-1)) with ``width`` features, and S_m = softmax(first ``roles`` features of X_m) W_m.
    Padding is zero to the convolutions, so that it never reaches a token after it. Learned positions, where asked for,
    are added to the whole.
    """

    d: Size
    over: Axes
    table: Block
    levels: int
    width: Size
    roles: Size
    positions: str = "sinusoidal"
    max_length: Size = 1024

    @staticmethod
    def table_width(d: Size, levels: int, width: Size) -> Size:
        """Features that are left for the table."""
        return d - (2 * levels - 1) * width

    def _convolution(self, level: int) -> Convolution:
        """The convolution from level ``level`` (from 0) to the next."""
        d_in = self.table_width(self.d, self.levels, self.width) if level == 0 else self.width
        return Convolution(d_in, self.width, KERNEL, self.over, 2**level)

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {"table": self.table}
        for level in range(self.levels):
            parts[f"role{level}"] = Linear(self.roles, self.width, self.over, bias=False)
        for level in range(self.levels - 1):
            convolution = self._convolution(level)
            parts[f"next{level}"] = convolution
            parts[f"store{level}"] = RowCache(convolution.past * convolution.d_in)
        return parts | ({"position": PositionTable(self.d, self.max_length)} if self.positions == "learned" else {})

    def forward(self, m: Any, tokens: Any, positions: Any, cache: Any = None, present: Any = None) -> Any:
        import torch

        table = m.table(tokens)
        x = table * table.shape[-1] ** 0.5
        if self.positions == "sinusoidal":
            x = x + sinusoid(positions, x.shape[-1], x.dtype)
        features = []
        for level in range(self.levels):
            features += [x, getattr(m, f"role{level}")(x[..., : self.roles].softmax(-1))]
            if level < self.levels - 1:
                seen = x if present is None else x * present[..., None]
                x = getattr(m, f"next{level}")(seen, cache)
        whole = torch.cat(features, -1)
        if self.positions == "learned":
            whole = whole + m.position(positions)
        return dropout(whole, m.rates.residual, m.training)
