"""Multi-head attention with heads × head_dim free of the width (Vaswani et al. 2017, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.blocks.core import Axis, Block, Size, Use, Work, block
from scalesearch.blocks.leaves import FusedAttention, Linear


@block
class KeyValueStore(Block):
    """Keys and values kept while decoding: ``numbers`` of them for each position of ``over``."""

    numbers: Size
    over: Axis

    def work(self) -> Sequence[Work]:
        return [Work((self.over, self.numbers), "cache")]


@block
class Attention(Block):
    """Queries from ``x``, keys and values from ``y``: (batch, queries, d) and (batch, keys, d) to (batch, queries, d).

    ``heads`` value heads of ``head_dim``; ``score_heads`` sets of scores, each serving ``heads / score_heads``
    consecutive value heads, so that the value width can grow without more queries and keys. All four projections
    have biases.

    Axes: ``queries`` positions ask; ``projected`` positions are turned into keys and values in this pass; ``keys``
    positions are attended to. The three differ when earlier keys are cached.
    """

    d: Size
    heads: Size
    head_dim: Size
    score_heads: Size
    queries: Axis
    projected: Axis
    keys: Axis
    cached: bool = True  # whether decoding keeps its keys and values (not in an encoder)

    def parts(self) -> Mapping[str, Block | Use]:
        score_width, width = self.score_heads * self.head_dim, self.heads * self.head_dim
        group_dim = width // self.score_heads
        core = FusedAttention(self.score_heads, self.head_dim, group_dim, self.queries, self.keys)
        return {
            "query": Linear(self.d, score_width, (self.queries,)),
            "key": Linear(self.d, score_width, (self.projected,)),
            "value": Linear(self.d, width, (self.projected,)),
            "core": core,
            "out": Linear(width, self.d, (self.queries,)),
        } | ({"store": KeyValueStore(score_width + width, self.keys)} if self.cached else {})

    def forward(self, m: Any, x: Any, y: Any, bias: Any, cache: Any = None) -> Any:
        """``bias`` is added to the scores: (batch or 1, 1, queries or 1, keys), or None."""
        query = self._split(m.query(x))
        key, value = self._keys_values(m, x, y, cache)
        mixed = m.core(query, key, value, bias)
        return m.out(mixed.transpose(1, 2).flatten(2))

    def _keys_values(self, m: Any, x: Any, y: Any, cache: Any) -> tuple[Any, Any]:
        """From ``y``, and in decoding from the cache: self-attention appends to it, cross-attention fills it once."""
        if cache is not None and x is not y and m in cache:
            key, value = cache[m]
            return key, value
        key, value = self._split(m.key(y)), self._split(m.value(y))
        if cache is not None:
            key, value = cache.append(m, key, value)
        return key, value

    def _split(self, x: Any) -> Any:
        """(batch, positions, score_heads · n) to (batch, score_heads, positions, n)."""
        return x.unflatten(-1, (self.score_heads, -1)).transpose(1, 2)
