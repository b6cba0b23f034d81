"""Damped moving averages instead of attention (Ma et al. 2023, Mega, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import (
    SEQ,
    SEQ_KEYS,
    TGT,
    TGT_KEYS,
    Axis,
    Block,
    LoopNest,
    Shape,
    Size,
    Use,
    block,
    discarded_activations,
)
from scalesearch.blocks.leaves import KeyValueCache
from scalesearch.blocks.mixers.base import Mixer, register_mixer
from scalesearch.blocks.options import option_field

if TYPE_CHECKING:
    from torch import Tensor

LAG_BLOCK = 64  # lags in a folded kernel, and multiples of it: steps of a search then share one


@block
class MovingAverage(Block):
    """SiLU(y + ω x), y a sum of ``dims`` damped exponential averages for each channel (Mega, eq.

    4 to 6).

    h_t = (1 - p a) h_{t-1} + p β x_t with p = σ(δ), a = σ(α), and y = γ · h / √dims. With ``sides``
    2 those from both ends add up, both with a position's own x. Runs as a product with weights of
    all distances: a step of decoding reads all positions before it, which up to 3 · dims of them
    takes less than the recurrence.
    """

    d: Size
    dims: Size
    queries: Axis
    keys: Axis
    sides: int = 1

    def weights(self) -> Mapping[str, Shape]:
        each = (self.sides * self.d, self.dims)
        return {"delta": each, "alpha": each, "beta": each, "gamma": each, "omega": (self.d,)}

    def initialization(self, name: str) -> str:
        return "one" if name in ("gamma", "omega") else "table"

    def loop_nests(self) -> Sequence[LoopNest]:
        channels = self.sides * self.d
        averages = (self.keys, channels, self.dims)
        product = (self.queries, self.keys, self.d)
        # Five: steps from its weights to those of the first distance.
        kept: list[Shape] = [averages, product, (5, channels, self.dims), (self.queries, 2, self.d)]
        return [LoopNest(product), LoopNest(averages, "once"),
                *(LoopNest(loops, "activation") for loops in kept)]

    def forward(self, module: Any, x: Tensor, seen: Tensor) -> Tensor:
        """(batch, queries, d) at the end of ``seen`` (batch, keys, d) to (batch, queries, d)."""
        import torch
        from torch.nn.functional import silu

        new = x.shape[1]
        length = seen.shape[1]
        at = torch.arange(length, device=x.device)
        distance = at[length - new :, None] - at[None]
        lags = self._lag_weights(module, length)
        near = lags[: self.d, distance.clamp(min=0)] * (distance >= 0)  # (d, queries, keys)
        if self.sides == 2:
            near = near + lags[self.d :, (-distance).clamp(min=0)] * (distance <= 0)
        return silu(module.omega * x + (near @ seen.permute(2, 1, 0)).permute(2, 1, 0))

    def _lag_weights(self, m: Any, length: int) -> Tensor:
        """Weights (sides · d, ``length`` or more) of what is so many positions away."""
        import torch

        many = length if m.weight_cache is None else -(-length // LAG_BLOCK) * LAG_BLOCK

        def compute() -> Any:
            p = m.delta.sigmoid()
            lag = torch.arange(many, device=m.delta.device)
            kept = 1 - p * m.alpha.sigmoid()
            first = m.gamma * p * m.beta * self.dims**-0.5
            return (first[:, None] @ kept[..., None] ** lag)[:, 0]

        return m.cached_constant(f"lags {many}", compute)


@register_mixer("average")
@block
class MovingAverageMixer(Mixer):
    """A damped moving average of each channel (Mega's, without its gated attention)."""

    dims: Size = option_field("16", doc="averages of each channel")

    @property
    def keys(self) -> Axis:
        """The axis of all positions that it averages."""
        return {TGT: TGT_KEYS, SEQ: SEQ_KEYS}.get(self.queries, self.queries)

    def parts(self) -> Mapping[str, Block | Use]:
        average = MovingAverage(self.d, self.dims, self.queries, self.keys,
                                1 if self.decoder else 2)
        return {"average": average} | ({"store": KeyValueCache(self.d, self.keys)} if self.decoder
                                       else {})

    @property
    def copies_input(self) -> Any:
        return self.queries != TGT  # with zeros for padding, which is after a target

    def loop_nests(self) -> Sequence[LoopNest]:
        copied = [LoopNest((*self.over, self.d), "activation")] if self.copies_input else []
        return [*discarded_activations(self.d, self.over, self), *copied]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        x = x if token_mask is None else x * token_mask[..., None]
        return module.average(x, x if cache is None else cache.append(module, x[:, None])[0][:, 0])
