"""Damped exponential moving averages (Mega, Ma et al. 2023, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import (
    KEY_AXES,
    TGT,
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

LAG_BLOCK = 64  # cached kernels have a multiple of this number of lags, for several decoding steps


@block
class MovingAverage(Block):
    """SiLU(y + ω x), with y a sum of damped averages (Mega, eq. 4 to 6).

    There are ``dims`` averages per channel.

    h_t = (1 - p a) h_{t-1} + p β x_t with p = σ(δ) and a = σ(α), and y = γ · h / √dims. With
    ``sides`` = 2 the averages from both ends are added; both include x_t.

    It is computed as a product with the weights of all lags. A decoding step reads all earlier
    positions, which needs fewer operations than the recurrence for up to 3 · dims positions.
    """

    d: Size
    dims: Size
    queries: Axis
    keys: Axis
    sides: int = 1

    def weights(self) -> Mapping[str, Shape]:
        shape = (self.sides * self.d, self.dims)
        return {"delta": shape, "alpha": shape, "beta": shape, "gamma": shape, "omega": (self.d,)}

    def initialization(self, name: str) -> str:
        return "one" if name in ("gamma", "omega") else "table"

    def loop_nests(self) -> Sequence[LoopNest]:
        channels = self.sides * self.d
        averages = (self.keys, channels, self.dims)
        product = (self.queries, self.keys, self.d)
        # 5: intermediate results between the weights and the weights of lag 0
        saved: list[Shape] = [averages, product, (5, channels, self.dims)]
        return [LoopNest(product), LoopNest(averages, "once"),
                *(LoopNest(loops, "activation_once") for loops in saved),
                LoopNest((self.queries, 2, self.d), "activation")]

    def forward(self, module: Any, x: Tensor, history: Tensor) -> Tensor:
        """Compute the averages.

        Args:
            x: (batch, queries, d), the last positions of ``history``.
            history: (batch, keys, d).

        Returns:
            (batch, queries, d).
        """
        import torch
        from torch.nn.functional import silu

        length = history.shape[1]
        positions = torch.arange(length, device=x.device)
        lag = positions[length - x.shape[1] :, None] - positions[None]  # (queries, keys)
        lags = (length if module.weight_cache is None
                else -(-length // LAG_BLOCK) * LAG_BLOCK)  # longer, to be cached

        def lag_weights() -> Tensor:  # (sides · d, lags)
            p = module.delta.sigmoid()
            exponents = torch.arange(lags, device=module.delta.device)
            decay = 1 - p * module.alpha.sigmoid()
            first = module.gamma * p * module.beta * self.dims**-0.5
            return (first[:, None] @ decay[..., None] ** exponents)[:, 0]

        weights = module.cached_constant(f"lags {lags}", lag_weights)
        kernel = weights[: self.d, lag.clamp(min=0)] * (lag >= 0)  # (d, queries, keys)
        if self.sides == 2:
            kernel = kernel + weights[self.d :, (-lag).clamp(min=0)] * (lag <= 0)
        average = (kernel @ history.permute(2, 1, 0)).permute(2, 1, 0)
        return silu(module.omega * x + average)


@register_mixer("average")
@block
class MovingAverageMixer(Mixer):
    """The damped moving average of Mega, without its gated attention."""

    dims: Size = option_field("16", doc="averages per channel")

    @property
    def keys(self) -> Axis:
        """Axis of the positions that are averaged."""
        return KEY_AXES.get(self.queries, self.queries)

    def parts(self) -> Mapping[str, Block | Use]:
        average = MovingAverage(self.d, self.dims, self.queries, self.keys,
                                1 if self.decoder else 2)
        return {"average": average} | ({"store": KeyValueCache(self.d, self.keys)} if self.decoder
                                       else {})

    @property
    def copies_input(self) -> Any:
        return self.queries != TGT  # padding is set to 0 in a copy, unless it follows all tokens

    def loop_nests(self) -> Sequence[LoopNest]:
        copied = [LoopNest((*self.over, self.d), "activation")] if self.copies_input else []
        return [*discarded_activations(self.d, self.over, self), *copied]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        x = x if token_mask is None else x * token_mask[..., None]
        return module.average(x, x if cache is None else cache.append(module, x[:, None])[0][:, 0])
