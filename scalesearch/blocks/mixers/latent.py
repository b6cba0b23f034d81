"""Attention to keys and values of low rank: multi-head latent attention (DeepSeek-V2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import KEY_AXES, Axis, Block, LoopNest, Size, Use, block
from scalesearch.blocks.leaves import FusedAttention, KeyValueCache
from scalesearch.blocks.mixers.attention_extras import apply_rotary
from scalesearch.blocks.mixers.base import Mixer, register_mixer
from scalesearch.blocks.norms import RMSNorm
from scalesearch.blocks.options import option_field
from scalesearch.blocks.sizes import decide, is_set

if TYPE_CHECKING:
    from torch import Tensor


@register_mixer("latent")
@block
class LatentAttention(Mixer):
    """Attention to keys and values of low rank (DeepSeek-AI 2024, section 2.1).

    The cache holds a vector of ``rank`` features per position, from which a map computes the keys
    and values of all heads in each step. Rotary positions are in separate features, which the keys
    of all heads have in common. Maps have no biases.
    """

    heads: Size = option_field("8", doc="heads")
    rank: Size = option_field("= max(1, width // 4)", doc="features of the cached vector")
    head_dim: Size = option_field("= max(1, width // 8)",
                                  doc="features of queries and keys of a head, without positions")
    rotary_dim: Size = option_field("16", doc="features with rotary positions, even", minimum=2)
    value_dim: Size = option_field("= head_dim", doc="features of values of a head")
    query_rank: Size = option_field("0", doc="rank of the queries; 0: one matrix", minimum=0)

    has_scores: ClassVar[bool] = True
    output_projections: ClassVar[tuple[str, ...]] = ("out",)

    @property
    def keys(self) -> Axis:
        """Axis of the positions that one position attends to."""
        return KEY_AXES.get(self.queries, self.queries)

    def validate(self) -> tuple[str, str] | None:
        if decide(self.rotary_dim % 2 != 0):
            return "rotary_dim", f"needs an even number, not {self.rotary_dim}"
        return None

    def parts(self) -> Mapping[str, Block | Use]:
        width = self.head_dim + self.rotary_dim
        parts: dict[str, Block | Use] = {}
        features = self.d
        if is_set(self.query_rank):
            parts["query_down"] = self.linear_factory(self.d, self.query_rank, self.over, False)
            parts["query_norm"] = RMSNorm(self.query_rank, self.over)
            features = self.query_rank
        parts |= {
            "query": self.linear_factory(features, self.heads * width, self.over, False),
            "down": self.linear_factory(self.d, self.rank + self.rotary_dim, self.over, False),
            "norm": RMSNorm(self.rank, self.over),
            "up": self.linear_factory(self.rank, self.heads * (self.head_dim + self.value_dim),
                                      (self.keys,), False),
            "core": FusedAttention(self.heads, width, self.value_dim, self.queries, self.keys),
            "out": self.linear_factory(self.heads * self.value_dim, self.d, self.over, False)}
        return parts | ({"store": KeyValueCache(self.rank + self.rotary_dim, self.keys)}
                        if self.decoder else {})

    def part_roles(self) -> Mapping[str, str]:
        return {**super().part_roles(), "down": "attention_in", "up": "attention_in"}

    def loop_nests(self) -> Sequence[LoopNest]:
        # keys of all heads, and the cosines and sines of positions
        return [LoopNest((self.keys, self.heads * (self.head_dim + self.rotary_dim)), "activation"),
                LoopNest((self.queries, 2 * self.rotary_dim), "activation_once")]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        import torch

        first = 0 if cache is None else cache.cached_length(module)
        y = module.query_norm(module.query_down(x)) if self.query_rank else x
        query = module.query(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        plain, rotated = query.split([self.head_dim, self.rotary_dim], -1)
        query = torch.cat([plain, apply_rotary(rotated, first)], -1)
        latent, positional = module.down(x).split([self.rank, self.rotary_dim], -1)
        latent = module.norm(latent)[:, None]  # (batch, 1, positions, rank)
        positional = apply_rotary(positional[:, None], first)
        if cache is not None:
            latent, positional = cache.append(module, latent, positional)
        both = module.up(latent[:, 0]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = both.split([self.head_dim, self.value_dim], -1)  # (batch, heads, keys, n)
        key = torch.cat([key, positional.expand(-1, self.heads, -1, -1)], -1)
        mixed = module.core(query, key, value, bias)  # (batch, heads, queries, value_dim)
        return module.out(mixed.transpose(1, 2).flatten(2))
