"""Gated attention with one head (Mega, Ma et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Axis, Block, LoopNest, Shape, Size, Use, block
from scalesearch.blocks.elementwise import add_promoted, multiply_promoted
from scalesearch.blocks.leaves import KeyValueCache
from scalesearch.blocks.mixers.base import Mixer, register_mixer
from scalesearch.blocks.mixers.moving_average import MovingAverageMixer
from scalesearch.blocks.mixers.scores import ExplicitAttention
from scalesearch.blocks.options import option_field
from scalesearch.blocks.sizes import is_set

if TYPE_CHECKING:
    from torch import Tensor


@block
class RelativePositionBias(Block):
    """A learned bias per distance from query to key.

    Larger distances use ``clip`` - 1.
    """

    clip: Size

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (2 * self.clip - 1,)}

    def initialization(self, name: str) -> str:
        return "zero"

    def forward(self, module: Any, positions: Tensor, keys: int) -> Tensor:
        """Return the bias (queries, keys) for queries at ``positions`` (queries,)."""
        import torch

        limit = self.clip - 1
        distance = torch.arange(keys, device=positions.device) - positions[:, None]
        return module.weight[distance.clamp(-limit, limit) + limit]


def gated_update(x: Tensor, update: Tensor, inner: Tensor) -> Tensor:
    """Return u · (SiLU(inner) - x), with u = σ(update).

    Added to x, this is the weighted mean (1 - u) x + u SiLU(inner).
    """
    from torch.nn.functional import silu

    return multiply_promoted(update.sigmoid(), add_promoted(silu(inner), -x))


@register_mixer("mega")
@block
class Mega(Mixer):
    """Gated attention with one head on a moving average (Ma et al. 2023, section 3.3).

    The residual is gated: in a post-norm layer the result is (1 - u) x + u h, as published. In a
    pre-norm layer, u times the normalized x is subtracted.
    """

    dims: Size = option_field("16", doc="averages per channel")
    head_dim: Size = option_field("= max(1, width // 4)", doc="features of queries and keys")
    value_dim: Size = option_field("= 2 * width", doc="features of values")
    clip: Size = option_field("1024", doc="largest distance with its own bias, plus 1")

    has_scores: ClassVar[bool] = True

    def parts(self) -> Mapping[str, Block | Use]:
        z = self.head_dim
        v = self.value_dim
        average = MovingAverageMixer(self.d, self.queries, self.decoder, self.linear_factory,
                                     dims=self.dims)
        parts: dict[str, Block | Use] = {
            "average": average,
            "inward": self.linear_factory(self.d, 2 * self.d + z + v, self.over),
            "value": self.linear_factory(self.d, v, self.over),
            "distances": RelativePositionBias(self.clip),
            "core": ExplicitAttention(1, z, v, self.queries, average.keys),
            "out": self.linear_factory(v, self.d, self.over),
        }
        return parts | ({"store": KeyValueCache(z + v, average.keys)} if self.decoder else {})

    def weights(self) -> Mapping[str, Shape]:
        return {"scale": (2, self.head_dim), "shift": (2, self.head_dim)}

    def initialization(self, name: str) -> str:
        return "table" if name == "scale" else "zero"

    def loop_nests(self) -> Sequence[LoopNest]:
        # The values read the input itself: if the average stores a copy, both are stored.
        copied = self.d * self.parts()["average"].copies_input  # type: ignore[union-attr]
        saved = 3 * self.d + 3 * self.head_dim + 3 * self.value_dim + copied
        return [LoopNest((*self.over, saved), "activation")]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        import torch
        from torch.nn.functional import silu

        sizes = [self.d, self.d, self.head_dim, self.value_dim]
        update, inner, shared, reset = module.inward(
            module.average(x, token_mask, bias, cache)).split(sizes, -1)
        shared = silu(shared)
        query, key = (add_promoted(multiply_promoted(shared, scale), shift)[:, None]
                      for scale, shift in zip(module.scale, module.shift))
        value = silu(module.value(x))[:, None]
        if cache is not None:
            key, value = cache.append(module, key, value)
        keys = key.shape[2]
        positions = torch.arange(keys, device=x.device)[keys - x.shape[1] :]
        relative = module.distances(positions, keys)
        scores_bias = relative if bias is None else add_promoted(relative, bias)
        mixed = module.core(query, key, value, scores_bias)[:, 0]  # (batch, queries, value_dim)
        output = module.out(multiply_promoted(silu(reset), mixed))
        return gated_update(x, update, add_promoted(inner, output))


@block
class GatedCrossAttention(Mixer):
    """Gated cross-attention with one head (Mega, Ma et al. 2023).

    Attributes:
        projected_axis: positions that are projected to keys and values in this pass.
        keys: positions that are attended to.
        head_dim: features of queries and keys; values have ``d``.
        clip: as for :class:`RelativePositionBias`.
        memory_d: features of the memory; 0 for ``d``.
    """

    projected_axis: Axis
    keys: Axis
    head_dim: Size
    clip: Size
    memory_d: Size = field(default=0, metadata={"plain": 0})

    def parts(self) -> Mapping[str, Block | Use]:
        d = self.d
        z = self.head_dim
        memory_d = self.memory_d if is_set(self.memory_d) else d
        return {
            "inward": self.linear_factory(d, 2 * d + z, self.over),
            "key": self.linear_factory(memory_d, z, (self.projected_axis,)),
            "value": self.linear_factory(memory_d, d, (self.projected_axis,)),
            "distances": RelativePositionBias(self.clip),
            "core": ExplicitAttention(1, z, d, self.queries, self.keys),
            "out": self.linear_factory(d, d, self.over),
            "store": KeyValueCache(z + d, self.keys),
        }

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((self.queries, 5 * self.d + self.head_dim), "activation"),
                LoopNest((self.projected_axis, self.d), "activation")]

    def project(self, m: Any, memory: Tensor | None) -> tuple[Any, Any]:
        """Return keys and values (batch, 1, positions, n) of ``memory``.

        ``memory`` is (batch, positions, d).
        """
        from torch.nn.functional import silu

        return m.key(memory)[:, None], silu(m.value(memory))[:, None]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None,
                memory: Tensor | None = None) -> Tensor:
        import torch
        from torch.nn.functional import silu

        update, reset, query = module.inward(x).split([self.d, self.d, self.head_dim], -1)
        if cache is None:
            key, value = self.project(module, memory)
        else:
            key, value = cache[module] if module in cache else cache.store_source(
                module, *self.project(module, memory))
        past = 0 if cache is None else cache.length
        # If the cache groups the rows of a batch by source, the second axis is rows of a source,
        # which are all at the current position.
        is_grouped = cache is not None and cache.groups is not None
        positions = torch.arange(x.shape[1], device=x.device) * (not is_grouped) + past
        relative = module.distances(positions, key.shape[2])
        scores_bias = relative if bias is None else add_promoted(relative, bias)
        mixed = module.core(query[:, None], key, value, scores_bias)[:, 0]  # (batch, queries, d)
        return gated_update(x, update, module.out(multiply_promoted(silu(reset), mixed)))
