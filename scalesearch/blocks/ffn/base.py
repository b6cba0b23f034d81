"""The base of feed-forward networks, and their registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

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

    empty: ClassVar[bool] = False  # a layer has neither the network nor its norm
    units: ClassVar[str | None] = None  # the part whose outputs above zero are active hidden units


FFNS: dict[str, type[FFN]] = {}
Kind = TypeVar("Kind", bound=type[FFN])


def ffn(name: str) -> Callable[[Kind], Kind]:
    """Register a block class as the feed-forward kind ``name`` of the space language.

    Raises:
        ValueError: there is one of that name, or a class of its name.
    """
    return registered(FFNS, name)
