"""Attention with other scores than q kᵀ: expanded over heads, relative, residual.

Scores are (batch, heads, queries, keys), scaled by 1/√head_dim and not yet masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Axis, Block, Extent, LoopNest, Shape, Size, Use, block
from scalesearch.blocks.elementwise import add_promoted, dropout, soft_cap
from scalesearch.blocks.leaves import KeyValueCache, Linear, MatMul
from scalesearch.blocks.mixers.attention_extras import DynamicMask
from scalesearch.blocks.mixers.base import key_distances
from scalesearch.blocks.norms import NORM_CLASSES, norm_type_field
from scalesearch.blocks.sizes import is_set, select_where

if TYPE_CHECKING:
    from torch import Tensor

RESIDUAL_SCORES = ("none", "global", "relative", "previous")


@block
class HeadMixing(Block):
    """Affine map across heads.

    (batch, heads_in, queries, keys) to (batch, heads_out, queries, keys).
    """

    heads_in: Size
    heads_out: Size
    queries: Axis
    keys: Axis
    extra_keys: Size = 0  # keys in addition to the axis

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.heads_out, self.heads_in), "bias": (self.heads_out,)}

    def loop_nests(self) -> Sequence[LoopNest]:
        squares: list[tuple[Extent, Extent]] = [(self.queries, self.keys)]
        if is_set(self.extra_keys):
            squares.append((self.queries, self.extra_keys))
        products = [LoopNest((*over, self.heads_in, self.heads_out), "mix") for over in squares]
        return [*products, *(LoopNest((*over, self.heads_out), "activation") for over in squares)]

    def forward(self, module: Any, scores: Tensor) -> Tensor:
        flat = add_promoted(module.weight @ scores.flatten(2), module.bias[:, None])
        return flat.unflatten(2, scores.shape[2:])


@block
class RelativeKeys(Block):
    """Relative scores q · r of the clipped distance to the key (Shaw et al. 2018).

    Keys only, with one table for all heads.
    """

    heads: Size
    head_dim: Size
    clip: Size
    queries: Axis

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (2 * self.clip + 1, self.head_dim)}

    def loop_nests(self) -> Sequence[LoopNest]:
        distances = 2 * self.clip + 1
        copied = select_where(self.heads == 1, 0, self.head_dim)  # queries in another order
        kept = LoopNest((self.queries, self.heads, copied + distances), "activation")
        return [LoopNest((self.queries, self.heads, self.head_dim, distances)), kept]

    def forward(self, module: Any, query: Tensor, keys: int) -> Tensor:
        """Compute the scores.

        Args:
            query: (batch, heads, queries, head_dim), at the last of ``keys`` positions.
            keys: number of keys.

        Returns:
            (batch, heads, queries, keys).
        """
        by_distance = query @ module.weight.t()  # (batch, heads, queries, distances)
        distance = key_distances(query.shape[2], keys, query.device)
        index = distance.clamp(-self.clip, self.clip) + self.clip
        return by_distance.gather(3, index.expand(*query.shape[:3], -1))


@block
class ExplicitAttention(Block):
    """softmax(scores) v with explicit scores.

    The inputs q, k, v and bias are those of :class:`~scalesearch.blocks.leaves.FusedAttention`.

    Attributes:
        heads: sets of scores of q and k.
        head_dim: features of q and k.
        value_dim: features of v.
        queries: axis of the queries.
        keys: axis of the keys.
        heads_out: if positive, scores are expanded to this number of sets by
            W₂ relu(W₁ scores + b₁) + b₂ across heads (head scaling, PartialFormer, section 3.3).
        clip: if positive, largest distance of relative keys.
        score_cache_key: if set, the scores of the previous layer under this key are added
            (RealFormer, He et al. 2021).
        extra_keys: keys in addition to the axis, for example of a prompt.
        mask: learned mask.
        soft_cap: if positive, scores s become soft_cap · tanh(s / soft_cap).
    """

    heads: Size
    head_dim: Size
    value_dim: Size
    queries: Axis
    keys: Axis
    heads_out: Size = 0
    clip: Size = 0
    score_cache_key: str | None = None
    extra_keys: Size = 0
    mask: DynamicMask | None = field(default=None, metadata={"plain": None})
    soft_cap: float = field(default=0.0, metadata={"plain": 0.0})

    def parts(self) -> Mapping[str, Block | Use]:
        expands = is_set(self.heads_out)
        out = self.heads_out if expands else self.heads
        parts: dict[str, Block | Use] = {
            "product": MatMul((self.heads, self.queries), self.head_dim, self.keys, self.extra_keys)
        }
        if is_set(self.clip):
            parts["relative"] = RelativeKeys(self.heads, self.head_dim, self.clip, self.queries)
        if expands:
            parts["widen"] = HeadMixing(self.heads, out, self.queries, self.keys, self.extra_keys)
            parts["deepen"] = HeadMixing(out, out, self.queries, self.keys, self.extra_keys)
        if self.mask is not None:
            parts["mask"] = self.mask
        return parts | {"mix": MatMul((out, self.queries), self.keys, self.value_dim,
                                      self.extra_keys, keys_are_inner=True)}

    def loop_nests(self) -> Sequence[LoopNest]:
        # Head scaling stores the scores between its two products twice: as output of the ReLU and
        # as input of the second product, except for one head. The tanh of a limit is stored, too.
        keys: list[Extent] = [self.keys]
        if is_set(self.extra_keys):
            keys.append(self.extra_keys)
        expands = is_set(self.heads_out)
        heads = [*[select_where(self.heads_out == 1, 0, self.heads_out)] * expands,
                 *[self.heads_out if expands else self.heads] * bool(self.soft_cap)]
        return [LoopNest((count, self.queries, extent), "activation")
                for count in heads for extent in keys]

    def forward(self, module: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
                carried: dict[str, Any] | None = None, x: Tensor | None = None) -> Tensor:
        """Compute attention.

        Args:
            q: (batch, heads, queries, head_dim).
            k: (batch, heads, keys, head_dim).
            v: (batch, heads_out or heads, keys, value_dim).
            bias: broadcasts to the scores.
            carried: scores of the previous layer by key; those of this layer replace them.
            x: input of the attention (batch, queries, d), for the mask.

        Returns:
            (batch, heads_out or heads, queries, value_dim).
        """
        from torch.nn.functional import pad

        q = q * self.head_dim**-0.5
        scores = module.product(q, k.transpose(2, 3))
        if self.clip:
            relative = module.relative(q, k.shape[2] - self.extra_keys)
            scores = scores + pad(relative, (self.extra_keys, 0))  # prompts have no position
        if self.heads_out:
            scores = module.deepen(module.widen(scores).relu())
        if self.score_cache_key:
            assert carried is not None
            if self.score_cache_key in carried:
                scores = scores + carried[self.score_cache_key]
            carried[self.score_cache_key] = scores
        if self.soft_cap:
            scores = soft_cap(scores, self.soft_cap)
        if self.mask is not None:
            mask = module.mask(x, k.shape[2] - self.extra_keys)
            scores = scores + pad(mask, (self.extra_keys, 0))
        scores = scores if bias is None else add_promoted(scores, bias)
        weights = dropout(scores.softmax(-1), module.dropout_rates.attention, module.training)
        return module.mix(weights, v)


@block
class RelativeBuckets(Block):
    """A learned bias of scores per head and bucket of distances (T5, Raffel et al. 2020).

    Small distances have buckets of their own. The others are logarithmic up to ``max_distance``,
    and all larger distances have the last one. An encoder (``is_causal`` false) has half of the
    buckets for each side.
    """

    heads: Size
    buckets: int
    max_distance: int
    is_causal: bool

    def validate(self) -> tuple[str, str] | None:
        sides = 1 if self.is_causal else 2
        if self.buckets % sides or self.buckets < 2 * sides:
            return "position_buckets", f"{self.buckets} are not at least 2 for each side"
        if self.max_distance <= self.buckets // sides // 2:
            return ("bucket_distance", f"{self.max_distance} is not above the "
                    f"{self.buckets // sides // 2} distances with buckets of their own")
        return None

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.buckets, self.heads)}

    def initialization(self, name: str) -> str:
        return "zero"

    def forward(self, module: Any, queries: int, keys: int) -> Tensor:
        """Return the bias (heads, queries, keys) of the last queries of ``keys`` positions."""
        import torch

        offset = key_distances(queries, keys, module.weight.device)
        buckets = self.buckets if self.is_causal else self.buckets // 2
        distance = (-offset).clamp(min=0) if self.is_causal else offset.abs()
        exact = buckets // 2
        log_distance = (distance.clamp(min=1).float() / exact).log()
        large = log_distance / math.log(self.max_distance / exact) * (buckets - exact)
        logarithmic = (exact + large.long()).clamp(max=buckets - 1)
        index = torch.where(distance < exact, distance, logarithmic)
        index = index if self.is_causal else index + (offset > 0) * buckets
        return module.weight[index].permute(2, 0, 1)


@block
class GlobalScores(Block):
    """Scores A^G of the input of a stack, added in all layers (PartialFormer, eq. 6).

    It has its own norm, queries and keys. ``clip`` > 0 adds relative keys (Table 17). ``cached``:
    whether decoding stores the keys.
    """

    d: Size
    heads: Size
    head_dim: Size
    queries: Axis
    keys: Axis
    clip: Size = 0
    cached: bool = True
    norm_kind: str = norm_type_field()

    def parts(self) -> Mapping[str, Block | Use]:
        width = self.heads * self.head_dim
        parts: dict[str, Block | Use] = {
            "norm": NORM_CLASSES[self.norm_kind](self.d, (self.queries,)),
            "query": Linear(self.d, width, (self.queries,)),
            "key": Linear(self.d, width, (self.queries,)),
            "product": MatMul((self.heads, self.queries), self.head_dim, self.keys,
                              saved_for_backward=False)}
        if is_set(self.clip):
            parts["relative"] = RelativeKeys(self.heads, self.head_dim, self.clip, self.queries)
        return parts | ({"store": KeyValueCache(width, self.keys)} if self.cached else {})

    def part_roles(self) -> Mapping[str, str]:
        return {"query": "attention_in", "key": "attention_in"}

    def forward(self, module: Any, x: Tensor, cache: Any = None) -> Tensor:
        """Return the scores (batch, heads, queries, keys) of ``x`` (batch, queries, d)."""
        x = module.norm(x)
        q, k = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for part in (module.query, module.key))
        q = q * self.head_dim**-0.5
        if cache is not None:
            (k,) = cache.append(module, k)
        scores = module.product(q, k.transpose(2, 3))
        return scores + module.relative(q, k.shape[2]) if self.clip else scores
