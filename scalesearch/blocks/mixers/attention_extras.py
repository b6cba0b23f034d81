"""Parts of attention: rotary positions, networks inside heads, a prompt, and a learned mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import (
    Axis,
    Block,
    LoopNest,
    Shape,
    Size,
    Use,
    block,
    iterate_cost_lines,
)
from scalesearch.blocks.elementwise import add_promoted
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.mixers.base import key_distances

if TYPE_CHECKING:
    from torch import Tensor

ADAPTABLE_PARTS = ("query", "key", "value", "out")  # maps that can have an adapter
HEAD_GATES = ("relu", "sigmoid", "tanh", "none")
ROTARY_BASE = 10_000.0  # base of the wavelengths of rotary positions
MIN_MASK_WEIGHT = 1e-10  # lower bound of the mask, as in the released code


def apply_rotary(x: Tensor, first: int | Tensor) -> Tensor:
    """Rotate queries or keys by their positions (Su et al. 2021).

    The pair of the features i and i + n / 2 is rotated by the angle position / base^(2 i / n).

    Args:
        x: (batch, heads, positions, n), with even n.
        first: first position.
    """
    import torch

    half = x.shape[-1] // 2
    # float64: angles of far positions are exact
    positions = torch.arange(x.shape[2], device=x.device, dtype=torch.float64) + first
    pairs = torch.arange(half, device=x.device, dtype=torch.float64)
    angles = positions[:, None] * ROTARY_BASE ** (-pairs / half)
    cos = angles.cos().to(x.dtype)
    sin = angles.sin().to(x.dtype)
    left, right = x.split(half, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def hide_outside_window(bias: Tensor | None, query: Tensor, keys: int, window: int) -> Tensor:
    """Return a bias of attention scores that also hides keys at a distance of ``window`` or more.

    Args:
        bias: broadcasts to (batch, heads, queries, keys), or None.
        query: (batch, heads, queries, n), at the last of ``keys`` positions.
        keys: number of keys.
        window: the window.
    """
    import torch

    distance = key_distances(query.shape[2], keys, query.device)
    bias = query.new_zeros(distance.shape) if bias is None else bias
    return bias.masked_fill(distance.abs() >= window, torch.finfo(bias.dtype).min / 2)


def add_distance_bias(bias: Tensor | None, query: Tensor, keys: int, heads: int,
                      factor: float = 1.0) -> Tensor:
    """Return a bias of attention scores minus slope · distance (ALiBi, Press et al. 2022).

    For n heads, a power of two, the slopes are 2^(-8 i / n) for i = 1 … n. For another n, they are
    those of the power below n, and then every second one of the power above n (released code).

    Args:
        bias, query, keys: as for :func:`hide_outside_window`.
        heads: number of sets of scores.
        factor: factor of the slopes.
    """
    import torch

    distance = key_distances(query.shape[2], keys, query.device).abs()
    power = 1 << (heads.bit_length() - 1)
    first = torch.arange(1, power + 1, device=query.device)
    others = torch.arange(heads - power, device=query.device) + 0.5
    exponents = torch.cat([first, others]) * 8 / power
    slopes = (factor * 2.0 ** -exponents).to(query.dtype)
    penalty = slopes[:, None, None] * distance  # (heads, queries, keys)
    return -penalty if bias is None else add_promoted(bias, -penalty)


@block
class PartialFFN(Block):
    """gate(x) ⊙ (head + FFN(head)) of each head (PartialFormer, section 3.2).

    Attributes:
        d: features of the model.
        heads: number of heads.
        head_dim: features of a head.
        over: axis of the positions.
        ffn: network with head_dim features, shared by the heads or with one matrix per head.
        gate: one of ``HEAD_GATES``; the gate is a linear map of the input of the attention.
        residual: whether to add the head, as in the released model but not in eq. 5.
    """

    d: Size
    heads: Size
    head_dim: Size
    over: Axis
    ffn: Block
    gate: str = "relu"
    residual: bool = True

    def parts(self) -> Mapping[str, Block | Use]:
        gate = Linear(self.d, self.heads * self.head_dim, (self.over,))
        return {"ffn": self.ffn} | ({} if self.gate == "none" else {"gate": gate})

    def part_roles(self) -> Mapping[str, str]:
        return {"gate": "head_gate"}

    def loop_nests(self) -> Sequence[LoopNest]:
        gated = LoopNest((self.over, self.heads * self.head_dim), "activation")
        return [] if self.gate == "none" else [gated]

    def forward(self, module: Any, mixed: Tensor, x: Tensor) -> Tensor:
        """Run the networks.

        Args:
            mixed: output of the heads (batch, queries, heads · head_dim).
            x: input of the attention (batch, queries, d).

        Returns:
            (batch, queries, heads · head_dim).
        """
        heads = mixed.unflatten(-1, (self.heads, -1))  # (batch, queries, heads, head_dim)
        inner = module.ffn(heads)
        output = (heads + inner if self.residual else inner).flatten(2)
        return output if self.gate == "none" else getattr(module.gate(x), self.gate)() * output


@block
class PromptVectors(Block):
    """Learned vectors (length, d) before keys and values (Prompt-LA, EdgeFormer).

    They are projected by ``maps``, the maps of the input. This depends on weights only and is
    computed once before inference.
    """

    length: Size
    d: Size
    maps: tuple[Block, ...]

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.length, self.d)}

    def initialization(self, name: str) -> str:
        return "table"

    def loop_nests(self) -> Sequence[LoopNest]:
        lines = [line for part in self.maps for line in iterate_cost_lines(part)]
        nests = [nest for line in lines for nest in line.loop_nests]
        sizes = [[n for n in nest.loops if not isinstance(n, str)]
                 for nest in nests if nest.operation == "mac"]
        once: list[Shape] = [(self.length, *loops) for loops in sizes]
        once += [nest.loops for nest in nests if nest.operation == "once"]
        saved = [nest for nest in nests if nest.operation == "activation_once"]
        return [*(LoopNest(loops, "once") for loops in once), *saved]

    def forward(self, module: Any) -> Tensor:
        return module.weight


@block
class DynamicMask(Block):
    """log max(σ(w · x_t + P[s - t] + U[h]), 10⁻¹⁰), added to attention scores.

    Source: Mask Attention Networks (DMAN, Fan et al. 2021), equation 9.

    For head h, query t and key s. P has ``clip`` entries for each side; it is 0 for s = t, and
    larger distances use the last entry.
    """

    d: Size
    heads: Size
    clip: Size
    queries: Axis
    keys: Axis

    def parts(self) -> Mapping[str, Block | Use]:
        return {"content": Linear(self.d, 1, (self.queries,), bias=False),
                "places": RelativeMaskBias(self.heads, self.clip, self.queries, self.keys)}

    def forward(self, module: Any, x: Tensor, keys: int) -> Tensor:
        """Compute the mask.

        Args:
            x: (batch, queries, d), at the last of ``keys`` positions.
            keys: number of keys.

        Returns:
            (batch, heads, queries, keys).
        """
        from torch.nn.functional import logsigmoid

        logits = add_promoted(module.content(x)[:, None], module.places(x.shape[1], keys))
        return logsigmoid(logits).clamp(min=math.log(MIN_MASK_WEIGHT))


@block
class RelativeMaskBias(Block):
    """P[s - t] + U[h]: (heads, queries, keys)."""

    heads: Size
    clip: Size
    queries: Axis
    keys: Axis

    def weights(self) -> Mapping[str, Shape]:
        return {"distance": (2 * self.clip,), "head": (self.heads,)}

    def initialization(self, name: str) -> str:
        return "zero"

    def loop_nests(self) -> Sequence[LoopNest]:
        # The sum, its exponential and the logarithm before it is clamped are stored; the output of
        # the content map is not.
        saved = [LoopNest((self.heads, self.queries, self.keys), "activation") for _ in range(3)]
        return [*saved, LoopNest((self.queries, -1), "activation")]

    def forward(self, module: Any, queries: int, keys: int) -> Tensor:
        import torch

        distance = key_distances(queries, keys, module.head.device)
        index = distance.clamp(-self.clip, self.clip) + self.clip
        past, future = module.distance.split(self.clip)
        return torch.cat([past, past.new_zeros(1), future])[index] + module.head[:, None, None]
