"""The base of mixers, ways for positions to meet, and their registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Axis, Block, LinearFactory, Size, block
from scalesearch.blocks.options import register

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AttentionScoreShape:
    """The attention scores of a mixer, to which a stack adds its own: (batch, ``heads``, queries, ``keys``)."""

    heads: Size
    head_dim: Size
    keys: Axis


@block
class Mixer(Block):
    """A way for positions to meet: (batch, queries, d) to the same.

    ``decoder``: no position may see a later one, and decoding runs step by step; what it needs of
    earlier positions is then on the bill (:mod:`scalesearch.blocks.leaves`) and in the ``cache``.
    ``site(d_in, d_out, over)`` makes its matrices. What else a subclass asks for are its
    :func:`~scalesearch.blocks.options.option_field` fields.
    """

    d: Size
    queries: Axis
    decoder: bool
    linear_factory: LinearFactory

    part_name: ClassVar[str] = "mixing"  # what layers call the part
    # whether it adds the ``bias`` to scores: then it stands beside no other that does
    has_scores: ClassVar[bool] = False
    # linear maps whose outputs add up to its own: with zeros there it gives zero
    output_projections: ClassVar[tuple[str, ...]] = ()
    adaptable_parts: ClassVar[tuple[str, ...]] = ()  # maps that layer adaptation may stand beside

    @property
    def over(self) -> tuple[Axis, ...]:
        """The axes that it is applied over."""
        return (self.queries,)

    @property
    def score_shape(self) -> AttentionScoreShape | None:
        """Its scores, if it has any."""
        return None

    @property
    def branches(self) -> Mapping[str, Mixer]:
        """The mixers within it whose outputs add up to its own, by their parts' names; none if it is one itself."""
        return {}

    @property
    def second_call(self) -> Mixer:
        """What stands where a layer has the same sub-layer once more."""
        return self

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        """Mix the positions of ``x``.

        Args:
            token_mask: (batch, positions of x) True where there is no padding, or None where no
                padding matters.
            bias: added to scores, (batch or 1, 1 or heads, queries or 1, keys): hides padding and
                later positions.
            cache: what earlier steps of decoding kept
                (:class:`scalesearch.nn.model.DecodingCache`), or None.
            carried_scores: scores by name, from layer to layer.
        """
        raise NotImplementedError


MIXERS: dict[str, type[Mixer]] = {}
# @mixer("name") makes a block class the mixer of that name
register_mixer = partial(register, MIXERS)
