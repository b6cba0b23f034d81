"""Partial-level gated FFNs: a small feed-forward network inside every attention head (PartialFormer, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalesearch.blocks.core import Axis, Block, Size, Use, block
from scalesearch.blocks.leaves import Linear

HEAD_GATES = ("relu", "sigmoid", "tanh", "none")


@block
class PartialFFN(Block):
    """gate(x) ⊙ (head + FFN(head)) for each head's output, before the heads are joined.

    The paper's equation 5 has no inner residual, its released model has: ``residual``. The gate is a full-width map
    of the query stream. ``ffn`` works on head_dim features; heads share it, or it has a matrix for each head.
    """

    d: Size
    heads: Size
    head_dim: Size
    over: Axis
    ffn: Block
    gate: str = "relu"
    residual: bool = True

    def parts(self) -> Mapping[str, Block | Use]:
        gate = Linear(self.d, self.heads * self.head_dim, (self.over,))
        return {"ffn": self.ffn} | ({} if self.gate == "none" else {"gate": gate})

    def forward(self, m: Any, mixed: Any, x: Any) -> Any:
        """``mixed``: (batch, queries, heads · head_dim), as attention mixed it; ``x`` (batch, queries, d)."""
        heads = mixed.unflatten(-1, (self.heads, -1))
        inner = m.ffn(heads)
        u = (heads + inner if self.residual else inner).flatten(2)
        return u if self.gate == "none" else getattr(m.gate(x), self.gate)() * u
