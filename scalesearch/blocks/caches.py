"""Caches of stepwise decoding, as lines on the bill."""

from __future__ import annotations

from collections.abc import Sequence

from scalesearch.blocks.core import Axis, Block, Size, Work, block


@block
class KeyValueCache(Block):
    """Keys and values: ``numbers`` of them for each position of ``over``."""

    numbers: Size
    over: Axis

    def work(self) -> Sequence[Work]:
        return [Work((self.over, self.numbers), "cache")]


@block
class RowCache(Block):
    """The last rows of features that a convolution has seen: ``numbers`` in all."""

    numbers: Size

    def work(self) -> Sequence[Work]:
        return [Work((self.numbers,), "cache")]
