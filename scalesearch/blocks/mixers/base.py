"""Base class and registry of mixers.

Mixers are blocks that exchange information between positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Axis, Block, LinearFactory, Size, block
from scalesearch.blocks.options import register

if TYPE_CHECKING:
    from torch import Tensor


def key_distances(queries: int, keys: int, device: Any) -> Tensor:
    """Return s - t (queries, keys) for keys s and queries t, which are the last of the keys."""
    import torch

    positions = torch.arange(keys, device=device)
    return positions[None, :] - positions[keys - queries :, None]


@dataclass(frozen=True)
class AttentionScoreShape:
    """Shape of the attention scores of a mixer: (batch, heads, queries, keys)."""

    heads: Size
    head_dim: Size
    keys: Axis


@block
class Mixer(Block):
    """Base class of mixers: (batch, queries, d) to (batch, queries, d).

    Options of a subclass are fields defined by :func:`~scalesearch.blocks.options.option_field`.

    Attributes:
        d: features.
        queries: axis of the positions.
        decoder: whether the mixer is causal and is decoded step by step. Numbers of earlier
            positions are then stored in the cache, and cache blocks of
            :mod:`scalesearch.blocks.leaves` count them.
        linear_factory: ``linear_factory(d_in, d_out, over)`` returns a linear map.
    """

    d: Size
    queries: Axis
    decoder: bool
    linear_factory: LinearFactory

    part_name: ClassVar[str] = "mixing"  # name of the part in layers
    # whether it adds the bias to attention scores: two such mixers cannot be combined
    has_scores: ClassVar[bool] = False
    is_absent: ClassVar[bool] = False  # whether a layer omits the mixer and its norm
    # linear maps with outputs that are summed: if their weights are zero, so is the output
    output_projections: ClassVar[tuple[str, ...]] = ()
    adaptable_parts: ClassVar[tuple[str, ...]] = ()  # maps that layer adaptation can be added to

    @property
    def over(self) -> tuple[Axis, ...]:
        """Axes of the input."""
        return (self.queries,)

    @property
    def score_shape(self) -> AttentionScoreShape | None:
        """Shape of its attention scores, or None."""
        return None

    @property
    def branches(self) -> Mapping[str, Mixer]:
        """Inner mixers whose outputs are summed, by part name; empty for a single mixer."""
        return {}

    @property
    def second_call(self) -> Mixer:
        """The block for further occurrences of the sub-layer in a layer."""
        return self

    def part_roles(self) -> Mapping[str, str]:
        return {"query": "attention_in", "key": "attention_in", "value": "attention_in",
                "out": "attention_out"}

    def residual_roles(self) -> Mapping[str, str]:
        if self.branches:
            return {f"{name}.{path}": role for name, branch in self.branches.items()
                    for path, role in branch.residual_roles().items()}
        parts = self.parts()
        roles = {"value": "residual_in", "query": "query",
                 **dict.fromkeys(self.output_projections, "residual_out")}
        return {path: role for path, role in roles.items() if path.partition(".")[0] in parts}

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        """Run the mixer.

        Args:
            x: (batch, queries, d).
            token_mask: (batch, queries), True for tokens and False for padding; None if padding
                has no influence.
            bias: bias of attention scores, (batch or 1, 1 or heads, queries or 1, keys), which
                hides padding and later positions.
            cache: :class:`scalesearch.nn.model.DecodingCache` of earlier decoding steps, or None.
            carried_scores: attention scores by name, passed from layer to layer.

        Returns:
            (batch, queries, d).
        """
        raise NotImplementedError


@block
class NoMixer(Mixer):
    """An absent sub-layer: attention without heads."""

    is_absent: ClassVar[bool] = True


MIXERS: dict[str, type[Mixer]] = {}
# decorator @register_mixer("name") of a mixer class
register_mixer = partial(register, MIXERS)
