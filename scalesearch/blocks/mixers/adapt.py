"""Layer adaptation: unshared parameters beside shared weights (EdgeFormer, section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.blocks.core import Block, Shape, Size, Use, Work, block, walk
from scalesearch.blocks.leaves import Linear

ADAPTED = ("query", "key", "value", "out")


@block
class Adapter(Block):
    """A low-rank path beside a matrix: B A x, not scaled, without biases (Hu et al. 2022; EdgeFormer's Adapter-LA)."""

    d_in: Size
    d_out: Size
    rank: Size
    over: Shape

    def parts(self) -> Mapping[str, Block | Use]:
        down = Linear(self.d_in, self.rank, self.over, bias=False)
        return {"down": down, "up": Linear(self.rank, self.d_out, self.over, bias=False)}

    def forward(self, m: Any, x: Any) -> Any:
        return m.up(m.down(x))


@block
class Prompt(Block):
    """``length`` learned vectors of width ``d`` in front of the keys and values (EdgeFormer's Prompt-LA).

    They go through the same maps as the input, ``maps``, which is work on weights alone: done once, and for
    inference folded away.
    """

    length: Size
    d: Size
    maps: tuple[Block, ...]

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.length, self.d)}

    def start(self, name: str) -> str:
        return "table"

    def work(self) -> Sequence[Work]:
        nests = [work for part in self.maps for line in walk(part) for work in line.leaf.work()]
        sizes = [[n for n in work.loops if not isinstance(n, str)] for work in nests if work.kind == "mac"]
        applied = [(self.length, *loops) for loops in sizes]
        built = [work.loops for work in nests if work.kind == "once"]
        return [Work(loops, "once") for loops in (*applied, *built)]

    def forward(self, m: Any) -> Any:
        return m.weight
