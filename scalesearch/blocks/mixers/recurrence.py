"""Simpler simple recurrent unit (SSRU, Kim et al. 2019, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Block, LoopNest, Use, block, discarded_activations
from scalesearch.blocks.leaves import StateCache
from scalesearch.blocks.mixers.base import Mixer, register_mixer

if TYPE_CHECKING:
    from torch import Tensor

MAX_SHIFTS = 15  # steps of a scan in a graph with any number of positions, at most 2^15


@register_mixer("ssru")
@block
class SSRU(Mixer):
    """Simpler simple recurrent unit (Kim et al. 2019): a weighted mean, gated per channel.

    f_t = σ(F x_t + b), c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ W x_t, and the output is ReLU(c_t). In an
    encoder, the last half of the channels is computed from the end of the sentence to its start.
    """

    output_projections: ClassVar[tuple[str, ...]] = ("value",)

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {
            "value": self.linear_factory(self.d, self.d, self.over, bias=False),
            "forget": self.linear_factory(self.d, self.d, self.over)}
        return parts | ({"store": StateCache(self.d)} if self.decoder else {})

    @property
    def copies_input(self) -> Any:
        return self.linear_factory(self.d, self.d, self.over).copies_input

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, 2 * self.d), "activation"),
                *discarded_activations(self.d, self.over, self)]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        value = module.value(x)
        forget = module.forget(x)
        if token_mask is not None:  # the state is unchanged at padding
            forget = forget.masked_fill(~token_mask[..., None], float("inf"))
        forget = forget.sigmoid()
        if cache is None:
            backward_channels = 0 if self.decoder else self.d // 2
            return weighted_mean(forget, value, backward_channels).relu()
        states = scan_states(forget, value, 0, cache.read_state(module))
        cache.store_state(module, states[:, states.shape[1] - 1 :])
        return states.to(value.dtype).relu()


def weighted_mean(forget: Tensor, value: Tensor, backward_channels: int) -> Tensor:
    """Return c_t = f_t c_{t-1} + (1 - f_t) v_t, with gradients.

    The gradient of v_t is a recurrence in the other direction. Autograd therefore stores one step
    per position only, and not the steps of the scans.

    Args:
        forget: f (batch, positions, d), from 0 to 1.
        value: v (batch, positions, d).
        backward_channels: number of the last channels whose recurrence starts at the last position.
    """
    import torch
    from torch.nn.functional import pad

    def previous(states: Tensor) -> Tensor:  # c_{t-1}, 0 at the start
        turned = turn(states, backward_channels)
        return turn(pad(turned[:, :-1], (0, 0, 1, 0)), backward_channels)

    def sum_gradients(grad: Tensor) -> Tensor:  # g_t + f_{t+1} g_{t+1} + f_{t+1} f_{t+2} g_{t+2} …
        next_forget = previous(forget.detach().flip(1))
        sums = scan(next_forget, grad.flip(1), backward_channels)
        return sums.flip(1).to(grad.dtype)

    with torch.no_grad():
        states = scan_states(forget, value, backward_channels)
        before = previous(states).to(value.dtype)
    mean = value + forget * (before - value)
    if mean.requires_grad:
        mean.register_hook(sum_gradients)
    return mean


def scan_states(forget: Tensor, value: Tensor, backward_channels: int,
                initial: Tensor | None = None) -> Tensor:
    """Return the states c_t after ``initial`` (batch, 1, d), at least in float32.

    The other arguments are those of :func:`weighted_mean`.
    """
    import torch

    wide = torch.promote_types(value.dtype, torch.float32)
    forget = forget.to(wide)
    fresh = (1 - forget) * value.to(wide)
    if initial is not None:
        fresh = torch.cat([fresh[:, :1] + forget[:, :1] * initial, fresh[:, 1:]], 1)
    return scan(forget, fresh, backward_channels)


def scan(decay: Tensor, fresh: Tensor, backward_channels: int) -> Tensor:
    """Return h_t = a_t h_{t-1} + b_t by a parallel scan of log₂ positions steps.

    Args:
        decay: a (batch, positions, d).
        fresh: b (batch, positions, d).
        backward_channels: number of the last channels whose recurrence starts at the last position.
    """
    from torch.nn.functional import pad

    decay = turn(decay, backward_channels)
    fresh = turn(fresh, backward_channels)
    length = fresh.shape[1]
    shifts = (length - 1).bit_length() if isinstance(length, int) else MAX_SHIFTS
    for step in range(shifts):
        if step:
            decay = decay * pad(decay, (0, 0, 2**(step - 1), 0))[:, :length]
        fresh = fresh + decay * pad(fresh, (0, 0, 2**step, 0))[:, :length]
    return turn(fresh, backward_channels)


def turn(x: Tensor, backward_channels: int) -> Tensor:
    """Return ``x`` (batch, positions, d) with the positions of the last channels reversed."""
    import torch

    if not backward_channels:
        return x
    forward = x.shape[2] - backward_channels
    return torch.cat([x[..., :forward], x[..., forward:].flip(1)], 2)
