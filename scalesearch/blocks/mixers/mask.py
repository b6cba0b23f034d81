"""Learned attention mask (DMAN, Mask Attention Networks, Fan et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Axis, Block, LoopNest, Shape, Size, Use, block
from scalesearch.blocks.elementwise import add_promoted
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.mixers.base import key_distances

if TYPE_CHECKING:
    from torch import Tensor

MIN_MASK_WEIGHT = 1e-10  # lower bound of the mask, as in the released code


@block
class DynamicMask(Block):
    """log max(σ(w · x_t + P[s - t] + U[h]), 10⁻¹⁰), added to attention scores (eq. 9).

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
            module: module of the block.
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
