"""Encoder and decoder layers: attention and feed-forward sub-layers, each with its residual and its norm.

Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)). A sub-layer's norm is named after it (``attention_norm``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scalesearch.blocks.attention import Attention
from scalesearch.blocks.core import Block, Size, Use, block
from scalesearch.blocks.elementwise import dropout, lowered, plus
from scalesearch.blocks.ffn.base import FFN
from scalesearch.blocks.leaves import LayerNorm

NORMS = ("pre", "post")


def sublayer(m: Any, norm: str, normalise: Any, x: Any, f: Callable[[Any], Any]) -> Any:
    """One residual sub-layer; ``norm`` is ``pre`` or ``post``."""
    if norm == "pre":
        return plus(x, dropout(f(lowered(normalise(x))), m.rates.residual, m.training))
    return normalise(plus(x, dropout(f(lowered(x)), m.rates.residual, m.training)))


def with_norms(sublayers: Mapping[str, Block], d: Size, calls: Mapping[str, int]) -> dict[str, Block | Use]:
    """The sub-layers that are there, each followed by its norm."""
    parts: dict[str, Block | Use] = {}
    for name, part in sublayers.items():
        if not getattr(part, "empty", False):
            over = (part.queries,) if isinstance(part, Attention) else part.over  # type: ignore[attr-defined]
            parts[name] = Use(part, calls.get(name, 1))
            parts[f"{name}_norm"] = Use(LayerNorm(d, over), calls.get(name, 1))
    return parts


@block
class EncoderLayer(Block):
    """Self-attention, then feed-forward: (batch, source, d) to the same.

    ``carried`` takes scores from layer to layer, where attention has residual scores.
    """

    attention: Attention
    ffn: FFN
    norm: str

    @property
    def main(self) -> Attention:
        """The self-attention."""
        return self.attention

    def parts(self) -> Mapping[str, Block | Use]:
        return with_norms({"attention": self.attention, "ffn": self.ffn}, self.attention.d, {})

    def forward(self, m: Any, x: Any, bias: Any, carried: Any = None) -> Any:
        x = sublayer(m, self.norm, m.attention_norm, x, lambda y: m.attention(y, y, bias, None, carried))
        return x if self.ffn.empty else sublayer(m, self.norm, m.ffn_norm, x, m.ffn)


@block
class DecoderLayer(Block):
    """Causal self-attention, cross-attention unless decoder-only, feed-forward; (batch, target, d) to the same.

    ``interleaved`` calls the one feed-forward network, and its norm, after each attention (EdgeFormer, section 3.1).
    """

    self_attention: Attention
    cross_attention: Attention | None
    ffn: FFN
    norm: str
    interleaved: bool = False

    @property
    def main(self) -> Attention:
        """The self-attention."""
        return self.self_attention

    def parts(self) -> Mapping[str, Block | Use]:
        cross = {} if self.cross_attention is None else {"cross_attention": self.cross_attention}
        sublayers = {"self_attention": self.self_attention, **cross, "ffn": self.ffn}
        return with_norms(sublayers, self.self_attention.d, {"ffn": 2 if self.interleaved else 1})

    def forward(
        self, m: Any, x: Any, bias: Any, memory: Any, memory_bias: Any, cache: Any, carried: Any = None
    ) -> Any:
        norm = self.norm
        x = sublayer(m, norm, m.self_attention_norm, x, lambda y: m.self_attention(y, y, bias, cache, carried))
        if self.interleaved:
            x = self._feed_forward(m, x)
        if self.cross_attention is not None:
            groups = None if cache is None else cache.groups

            def attend(y: Any) -> Any:
                if groups is None:
                    return m.cross_attention(y, memory, memory_bias, cache, carried)
                return groups.rows(m.cross_attention(groups.grid(y), memory, memory_bias, cache, carried))

            x = sublayer(m, norm, m.cross_attention_norm, x, attend)
        return self._feed_forward(m, x)

    def _feed_forward(self, m: Any, x: Any) -> Any:
        return x if self.ffn.empty else sublayer(m, self.norm, m.ffn_norm, x, m.ffn)
