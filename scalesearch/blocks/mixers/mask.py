"""A learned mask of attention (Fan et al. 2021, Mask Attention Networks, DMAN's)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Axis, Block, LoopNest, Shape, Size, Use, block
from scalesearch.blocks.elementwise import add_promoted
from scalesearch.blocks.leaves import Linear

if TYPE_CHECKING:
    from torch import Tensor

MIN_MASK_WEIGHT = 1e-10  # a weight that is masked keeps that much of itself, as released


@block
class DynamicMask(Block):
    """log max(σ(w · x_t + P[s - t] + U[h]), 10⁻¹⁰), added to the scores of head h, query t and key s (their eq. 9).

    P has ``clip`` distances to each side, is 0 for s = t, and beyond them as at the last.
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
        """(batch, queries, d), the last of ``keys`` positions, to (batch, heads, queries, keys)."""
        from torch.nn.functional import logsigmoid

        allowed = add_promoted(module.content(x)[:, None], module.places(x.shape[1], keys))
        return logsigmoid(allowed).clamp(min=math.log(MIN_MASK_WEIGHT))


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

    # the sum, an exponential of it, and its logarithm before that is cut off
    def loop_nests(self) -> Sequence[LoopNest]:
        kept = [LoopNest((self.heads, self.queries, self.keys), "activation") for _ in range(3)]
        # what the content said is not, once it is added
        return [*kept, LoopNest((self.queries, -1), "activation")]

    def forward(self, module: Any, queries: int, keys: int) -> Tensor:
        import torch

        at = torch.arange(keys, device=module.head.device)
        distance = (
            at[None, :] - at[keys - queries :, None]).clamp(-self.clip, self.clip) + self.clip
        past, future = module.distance.split(self.clip)
        return torch.cat([past, past.new_zeros(1), future])[distance] + module.head[:, None, None]
