"""The base of feed-forward networks, and their registry."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Any, ClassVar

from scalesearch.blocks.core import Block, LinearFactory, Shape, Size, block
from scalesearch.blocks.options import register


@block
class FFN(Block):
    """A feed-forward network: (…, d) to (…, d), position by position.

    ``over`` are the axes that it is applied over, ``site(d_in, d_out, over)`` makes its matrices.
    What else a subclass asks for are its :func:`~scalesearch.blocks.options.option_field` fields;
    one called ``hidden`` lets it be inside heads.
    """

    d: Size
    over: Shape
    linear_factory: LinearFactory

    # the kind of a norm of its hidden units
    norm_type: str = field(default="", kw_only=True, metadata={"plain": ""})

    is_absent: ClassVar[bool] = False  # a layer has neither the network nor its norm
    # linear maps whose outputs add up to its own: with zeros there it gives zero
    output_projections: ClassVar[tuple[str, ...]] = ()
    # the part whose outputs above zero are active hidden units
    hidden_part: ClassVar[str | None] = None
    supports_norm: ClassVar[bool] = False  # whether ``normed`` is heeded

    @property
    def copies_input(self) -> Any:
        parts: Any = self.parts()
        return parts[self.hidden_part].copies_input if self.hidden_part else False


FFNS: dict[str, type[FFN]] = {}
# @ffn("name") makes a block class the feed-forward kind of that name
register_ffn = partial(register, FFNS)
