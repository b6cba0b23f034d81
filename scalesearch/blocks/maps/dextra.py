"""DeLighT's light-weight unit, DExTra: grouped maps that grow and shrink again (Mehta et al.

2021, section 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import TGT, VOCAB, Axes, Block, Extent, LoopNest, Size, Use, block
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.maps.structured_matrices import GroupLinear
from scalesearch.blocks.norms import LayerNorm
from scalesearch.blocks.sizes import decide, require_single_value

if TYPE_CHECKING:
    from torch import Tensor

WIDTH_MULTIPLE = 8  # of which the sizes between grouped maps are multiples, as released


@block
class DExTra(Block):
    """(…, d_in) to (…, d_out) by a matrix to ``inner`` features, ``depth`` grouped maps, and a matrix.

    A norm and a SiLU follow each. Widths go from ``inner`` to ``multiplier`` · d_in and back;
    groups from 2 to at most ``groups`` and back, their features shuffled after each map. Each map
    but the first reads the result of the first matrix as well, group by group.
    """

    d_in: Size
    inner: Size
    d_out: Size
    over: Axes
    depth: Size
    multiplier: float
    groups: Size

    def validate(self) -> tuple[str, str] | None:
        for n, (size, _, groups) in enumerate(self.maps):
            if self.maps[0][0] % groups:
                return ("groups",
                        f"{groups} do not divide {self.maps[0][0]} features, which are half of the "
                        "width")
            if n == len(self.maps) - 1 and require_single_value(self.d_out) % groups:
                return ("groups",
                        f"{groups} do not divide the last map's {require_single_value(self.d_out)} "
                        "features")
            assert size % groups == 0
        return None

    @property
    def maps(self) -> list[tuple[int, int, int]]:
        """Features in, features out and groups of every grouped map."""
        depth = require_single_value(self.depth)
        inner = require_single_value(self.inner)
        most = require_single_value(self.groups)
        half = (depth + 1) // 2
        top = require_single_value(self.multiplier) * require_single_value(self.d_in)
        steps = max(half - 1, 1)
        up = [int(inner + (top - inner) * n / steps) for n in range(half)]
        groups = _mirrored([min(2 ** (n + 1), most) for n in range(half)], depth)
        sizes = [*_mirrored(up, depth)[:-1], require_single_value(self.d_out)]
        for n, pair in enumerate(pairwise(groups)):
            sizes[n] = -(-sizes[n] // max(*pair, WIDTH_MULTIPLE)) * max(*pair, WIDTH_MULTIPLE)
        inputs = [inner, *(size + inner for size in sizes[:-1])]
        return list(zip(inputs, sizes, groups))

    def parts(self) -> Mapping[str, Block | Use]:
        inner = self.inner
        over = self.over
        parts: dict[str, Block | Use] = {"enter": Linear(self.d_in, inner, over),
                                         "enter_norm": LayerNorm(inner, over)}
        for n, (d_in, d_out, groups) in enumerate(self.maps):
            parts[f"map{n}"] = GroupLinear(d_in, d_out, over, True, groups)
            # one gain for all groups
            parts[f"norm{n}"] = LayerNorm(d_out // groups, (*over, groups))
        parts["leave"] = Linear(self.d_out + inner, self.d_out, over)
        return parts | {"leave_norm": LayerNorm(self.d_out, over)}

    def loop_nests(self) -> Sequence[LoopNest]:
        """Both ends after their SiLU, and what they and the maps but the first read, which is joined."""
        read = sum(d_in for d_in, *_ in self.maps[1:])
        return [LoopNest((*self.over, read + 2 * (self.inner + self.d_out)), "activation")]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        import torch
        from torch.nn.functional import silu

        first: Any = silu(module.enter_norm(module.enter(x)))
        y: Any = first
        for n, (_, _, groups) in enumerate(self.maps):
            if n:  # each group reads its own part of both
                y = torch.cat([first.unflatten(-1, (groups, -1)), y.unflatten(-1, (groups, -1))],
                              -1).flatten(-2)
            grouped = getattr(module, f"map{n}")(y).unflatten(-1, (groups, -1))
            shuffled = grouped.transpose(-1, -2).flatten(-2).unflatten(-1, (groups, -1))
            y = silu(getattr(module, f"norm{n}")(shuffled)).flatten(-2)
        return silu(module.leave_norm(module.leave(torch.cat([first, y], -1))))


@block
class DExTraEmbedding(Block):
    """√rank · ``table`` of ``rank`` features, made the model's by ``lift``; ``tied``: the path of the table it is."""

    rank: Size
    table: Block
    lift: DExTra
    tied: str | None = None

    def parts(self) -> Mapping[str, Block | Use]:
        return {"table": Use(self.table, tied=self.tied), "lift": self.lift}

    def forward(self, module: Any, tokens: Tensor) -> Tensor:
        return module.lift(module.table(tokens) * self.rank**0.5)


@block
class ProjectedOutput(Block):
    """Scores by a matrix to ``rank`` features, unless the model has as many, and the table at ``path`` or its own.

    ``affine``: there is always a matrix, with a bias (Subformer).
    """

    d: Size
    rank: Size
    path: str | None
    vocab: Extent = field(default=VOCAB, metadata={"plain": VOCAB})
    affine: bool = field(default=False, metadata={"plain": False})

    def parts(self) -> Mapping[str, Block | Use]:
        none = not self.affine and decide(self.d == self.rank)
        down = {} if none else {"down": Linear(self.d, self.rank, (TGT,), bias=self.affine)}
        return {**down,
                "table": Use(Linear(self.rank, self.vocab, (TGT,), bias=False), tied=self.path)}

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return module.table(self._down(module, x))

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """See :meth:`Linear.softmax_terms`."""
        return [(self._down(m, hidden), m.table.weight, None, target)]

    def _down(self, m: Any, x: Tensor) -> Tensor:
        return x if self.d == self.rank and not self.affine else m.down(x)


def _mirrored(values: list[int], length: int) -> list[int]:
    """``values`` there and back, ``length`` of them; the last one once where that is odd."""
    return values + values[::-1][length % 2 :]
