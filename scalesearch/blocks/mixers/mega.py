"""Gated attention of one head (Ma et al. 2023, Mega): of a moving average, and across sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Axis, Block, LoopNest, Shape, Size, Use, block
from scalesearch.blocks.elementwise import add_promoted, multiply_promoted
from scalesearch.blocks.leaves import KeyValueCache
from scalesearch.blocks.mixers.base import Mixer, register_mixer
from scalesearch.blocks.mixers.moving_average import MovingAverageMixer
from scalesearch.blocks.mixers.scores import ExplicitAttention
from scalesearch.blocks.options import option_field

if TYPE_CHECKING:
    from torch import Tensor


@block
class RelativePositionBias(Block):
    """A learned number for each distance from query to key; from ``clip`` - 1 on to either side they are alike."""

    clip: Size

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (2 * self.clip - 1,)}

    def initialization(self, name: str) -> str:
        return "zero"

    def forward(self, module: Any, at: Any, keys: int) -> Tensor:
        """Positions (queries,) among ``keys`` or beside them, to (queries, keys)."""
        import torch

        far = self.clip - 1
        return module.weight[(torch.arange(keys, device=at.device) - at[:, None]).clamp(-far, far)
                             + far]


def gated_update(x: Tensor, update: Tensor, inner: Tensor) -> Tensor:
    """u · (SiLU(inner) - x), with u = σ(update): added to x it is the mean of the two with weight u."""
    from torch.nn.functional import silu

    return multiply_promoted(update.sigmoid(), add_promoted(silu(inner), -x))


@register_mixer("mega")
@block
class Mega(Mixer):
    """Gated attention of one head, queries and keys of a moving average (Ma et al.

    2023, section 3.3).

    The gate is the residual: of norms after the layer has (1 - u) x + u h, as published; of norms
    before, what is taken off is u times the normed x. ``distances`` are learned scalars added to
    scores, ``clip`` - 1 to each side.
    """

    dims: Size = option_field("16", doc="averages of each channel")
    head_dim: Size = option_field("= max(1, width // 4)", doc="features of queries and keys")
    value_dim: Size = option_field("= 2 * width", doc="features of values")
    clip: Size = option_field("1024", doc="distance from which positions look alike")

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
        copied = self.d * self.parts()["average"].copies_input  # type: ignore[union-attr]  # and values read it in place
        kept = 3 * self.d + 3 * self.head_dim + 3 * self.value_dim + copied
        return [LoopNest((*self.over, kept), "activation")]

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
        at = torch.arange(key.shape[2], device=x.device)[key.shape[2] - x.shape[1] :]
        near = module.distances(at, key.shape[2])
        mixed = module.core(query, key, value,
                            near if bias is None else add_promoted(near, bias))[:, 0]
        return gated_update(x, update,
                            add_promoted(inner, module.out(multiply_promoted(silu(reset), mixed))))


@block
class GatedCrossAttention(Mixer):
    """Mega's attention across sequences: one head of ``head_dim`` for scores and ``d`` for values, and the gates."""

    projected_axis: Axis
    keys: Axis
    head_dim: Size
    clip: Size

    def parts(self) -> Mapping[str, Block | Use]:
        d = self.d
        z = self.head_dim
        return {
            "inward": self.linear_factory(d, 2 * d + z, self.over),
            "key": self.linear_factory(d, z, (self.projected_axis,)),
            "value": self.linear_factory(d, d, (self.projected_axis,)),
            "distances": RelativePositionBias(self.clip),
            "core": ExplicitAttention(1, z, d, self.queries, self.keys),
            "out": self.linear_factory(d, d, self.over),
            "store": KeyValueCache(z + d, self.keys),
        }

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((self.queries, 5 * self.d + self.head_dim), "activation"),
                LoopNest((self.projected_axis, self.d), "activation")]

    def project(self, m: Any, memory: Tensor | None) -> tuple[Any, Any]:
        """Keys and values (batch, 1, positions, n) of ``memory`` (batch, positions, d)."""
        from torch.nn.functional import silu

        return m.key(memory)[:, None], silu(m.value(memory))[:, None]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None,
                memory: Tensor | None = None) -> Tensor:
        from torch.nn.functional import silu

        update, reset, query = module.inward(x).split([self.d, self.d, self.head_dim], -1)
        if cache is None:
            key, value = self.project(module, memory)
        else:
            key, value = cache[module] if module in cache else cache.store_source(
                module, *self.project(module, memory))
        near = module.distances(_at(x, cache), key.shape[2])
        mixed = module.core(query[:, None], key, value,
                            near if bias is None else add_promoted(near, bias))[:, 0]
        return gated_update(x, update, module.out(multiply_promoted(silu(reset), mixed)))


def _at(x: Tensor, cache: Any) -> Tensor:
    """Positions of ``x`` (batch, n, d): with rows grouped by source, which stand as positions, all the one of now."""
    import torch

    before, one = (0, False) if cache is None else (cache.length, cache.groups is not None)
    return torch.arange(x.shape[1], device=x.device) * (not one) + before
