"""Where feed-forward kinds register under the name that the space language uses."""

from collections.abc import Callable
from typing import TypeVar

from scalesearch.blocks.core import Block

FFNS: dict[str, type[Block]] = {}
Kind = TypeVar("Kind", bound=type[Block])


def ffn(name: str) -> Callable[[Kind], Kind]:
    """Register a block class as the feed-forward kind ``name``."""

    def register(kind: Kind) -> Kind:
        FFNS[name] = kind
        return kind

    return register
