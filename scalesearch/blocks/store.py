"""What decoding keeps between steps, as a line on the bill."""

from __future__ import annotations

from collections.abc import Sequence

from scalesearch.blocks.core import Axis, Block, Size, Work, block


@block
class KeyValueStore(Block):
    """Keys and values kept while decoding: ``numbers`` of them for each position of ``over``."""

    numbers: Size
    over: Axis

    def work(self) -> Sequence[Work]:
        return [Work((self.over, self.numbers), "cache")]
