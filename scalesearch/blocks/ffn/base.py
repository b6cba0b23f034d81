"""The base of feed-forward networks, and their registry."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Any, ClassVar

from scalesearch.blocks.core import Block, Shape, Site, Size, block
from scalesearch.blocks.options import registered


@block
class FFN(Block):
    """A feed-forward network: (…, d) to (…, d), position by position.

    ``over`` are the axes that it is applied over, ``site(d_in, d_out, over)`` makes its matrices. What else a subclass
    asks for are its :func:`~scalesearch.blocks.options.option` fields; one called ``hidden`` lets it be inside heads.
    """

    d: Size
    over: Shape
    site: Site

    normed: str = field(default="", kw_only=True, metadata={"plain": ""})  # the kind of a norm of its hidden units

    empty: ClassVar[bool] = False  # a layer has neither the network nor its norm
    ends: ClassVar[tuple[str, ...]] = ()  # linear maps whose outputs add up to its own: with zeros there it gives zero
    units: ClassVar[str | None] = None  # the part whose outputs above zero are active hidden units
    normable: ClassVar[bool] = False  # whether ``normed`` is heeded

    @property
    def copies(self) -> Any:
        parts: Any = self.parts()
        return parts[self.units].copies if self.units else False


FFNS: dict[str, type[FFN]] = {}
ffn = partial(registered, FFNS)  # @ffn("name") makes a block class the feed-forward kind of that name
