"""Encoder and decoder layers: mixers and feed-forward networks, each with its residual and its norm.

Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)). A sub-layer's norm is named after it (``attention_norm``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scalesearch.blocks.core import Block, Size, Use, block
from scalesearch.blocks.elementwise import dropout, lowered, plus
from scalesearch.blocks.ffn.base import FFN
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.norms import NORM_KINDS, norm_kind
from scalesearch.blocks.options import named

NORMS = ("pre", "post")


def sublayer(m: Any, norm: str, normalise: Any, x: Any, f: Callable[[Any], Any]) -> Any:
    """One residual sub-layer; ``norm`` is ``pre`` or ``post``."""
    if norm == "pre":
        return plus(x, dropout(f(lowered(normalise(x))), m.rates.residual, m.training))
    return normalise(plus(x, dropout(f(lowered(x)), m.rates.residual, m.training)))


def with_norms(sublayers: Mapping[str, Mixer | FFN], d: Size, kind: str, calls: Mapping[str, int]
               ) -> dict[str, Block | Use]:
    """The sub-layers that are there, each followed by its norm of this kind."""
    parts: dict[str, Block | Use] = {}
    for name, part in sublayers.items():
        if not (isinstance(part, FFN) and part.empty):
            parts[name] = Use(part, calls.get(name, 1))
            parts[f"{name}_norm"] = Use(NORM_KINDS[kind](d, part.over), calls.get(name, 1))
    return parts


@block
class EncoderLayer(Block):
    """A mixer, then feed-forward: (batch, source, d) to the same.

    ``carried`` takes scores from layer to layer, where attention has residual scores.
    """

    main: Mixer = named("attention")
    ffn: FFN
    norm: str
    norm_kind: str = norm_kind()

    @property
    def slots(self) -> Mapping[str, str]:
        """Name in ``share:`` to part, of all parts that layers can share."""
        return {"attention": self.main.slot, "ffn": "ffn"}

    def parts(self) -> Mapping[str, Block | Use]:
        return with_norms({self.main.slot: self.main, "ffn": self.ffn}, self.main.d, self.norm_kind, {})

    def forward(self, m: Any, x: Any, present: Any, bias: Any, carried: Any = None) -> Any:
        mix, norm = (getattr(m, name) for name in (self.main.slot, f"{self.main.slot}_norm"))
        x = sublayer(m, self.norm, norm, x, lambda y: mix(y, present, bias, None, carried))
        return x if self.ffn.empty else sublayer(m, self.norm, m.ffn_norm, x, m.ffn)


@block
class DecoderLayer(Block):
    """A causal mixer, cross-attention unless decoder-only, feed-forward; (batch, target, d) to the same.

    ``interleaved`` calls the one feed-forward network, and its norm, after each of the two (EdgeFormer, section 3.1).
    """

    main: Mixer = named("self_attention")
    cross_attention: Attention | None
    ffn: FFN
    norm: str
    interleaved: bool = False
    norm_kind: str = norm_kind()

    @property
    def slots(self) -> Mapping[str, str]:
        """Name in ``share:`` to part, of all parts that layers can share."""
        return {"self": f"self_{self.main.slot}", "cross": "cross_attention", "ffn": "ffn"}

    def parts(self) -> Mapping[str, Block | Use]:
        first: dict[str, Mixer] = {f"self_{self.main.slot}": self.main}
        cross = {} if self.cross_attention is None else {"cross_attention": self.cross_attention}
        calls = {"ffn": 2 if self.interleaved else 1}
        return with_norms(first | cross | {"ffn": self.ffn}, self.main.d, self.norm_kind, calls)

    def forward(self, m: Any, x: Any, present: Any, bias: Any, memory: Any, memory_bias: Any, cache: Any,
                carried: Any = None) -> Any:
        name = f"self_{self.main.slot}"
        mix, norm = getattr(m, name), getattr(m, f"{name}_norm")
        x = sublayer(m, self.norm, norm, x, lambda y: mix(y, present, bias, cache, carried))
        if self.interleaved:
            x = self._feed_forward(m, x)
        if self.cross_attention is not None:
            groups = None if cache is None else cache.groups

            def attend(y: Any) -> Any:
                if groups is None:
                    return m.cross_attention(y, None, memory_bias, cache, carried, memory)
                return groups.rows(m.cross_attention(groups.grid(y), None, memory_bias, cache, carried, memory))

            x = sublayer(m, self.norm, m.cross_attention_norm, x, attend)
        return self._feed_forward(m, x)

    def _feed_forward(self, m: Any, x: Any) -> Any:
        return x if self.ffn.empty else sublayer(m, self.norm, m.ffn_norm, x, m.ffn)
