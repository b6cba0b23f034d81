"""DExTra: grouped linear maps that expand and reduce (Mehta et al. 2021).

See DeLighT, section 3.1.
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

WIDTH_MULTIPLE = 8  # sizes between grouped maps are multiples of it, as in the released code


@block
class DExTra(Block):
    """DExTra: (…, d_in) to (…, d_out).

    A linear map to ``inner`` features, ``depth`` grouped maps and a linear map, each followed by a
    norm and a SiLU. Widths increase from ``inner`` to ``multiplier`` · d_in and decrease again; the
    number of groups increases from 2 to at most ``groups`` and decreases again. Features are
    shuffled after each grouped map. Each grouped map except the first also reads the output of the
    first linear map, group by group.
    """

    d_in: Size
    inner: Size
    d_out: Size
    over: Axes
    depth: Size
    multiplier: float
    groups: Size

    def validate(self) -> tuple[str, str] | None:
        max_groups = require_single_value(self.groups)
        if max_groups & (max_groups - 1):
            return "groups", f"{max_groups} is not a power of two"
        inner = self.maps[0][0]
        for index, (size, _, groups) in enumerate(self.maps):
            if inner % groups:
                return ("groups", f"{inner} features, half of the width, are not a multiple of "
                                  f"{groups}")
            d_out = require_single_value(self.d_out)
            if index == len(self.maps) - 1 and d_out % groups:
                return "groups", f"{d_out} features of the last map are not a multiple of {groups}"
            assert size % groups == 0
        return None

    @property
    def maps(self) -> list[tuple[int, int, int]]:
        """Input features, output features and groups of every grouped map."""
        depth = require_single_value(self.depth)
        inner = require_single_value(self.inner)
        max_groups = require_single_value(self.groups)
        half = (depth + 1) // 2
        top = require_single_value(self.multiplier) * require_single_value(self.d_in)
        steps = max(half - 1, 1)
        up = [int(inner + (top - inner) * n / steps) for n in range(half)]
        groups = _mirrored([min(2 ** (n + 1), max_groups) for n in range(half)], depth)
        sizes = [*_mirrored(up, depth)[:-1], require_single_value(self.d_out)]
        for n, pair in enumerate(pairwise(groups)):
            multiple = max(*pair, WIDTH_MULTIPLE)
            sizes[n] = -(-sizes[n] // multiple) * multiple  # rounded up
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
        """Return activations of the SiLUs of the linear maps, and of concatenated inputs."""
        concatenated = sum(d_in for d_in, *_ in self.maps[1:])
        size = concatenated + 2 * (self.inner + self.d_out)
        return [LoopNest((*self.over, size), "activation")]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        import torch
        from torch.nn.functional import silu

        first: Any = silu(module.enter_norm(module.enter(x)))
        y: Any = first
        for n, (_, _, groups) in enumerate(self.maps):
            if n:  # each group reads its part of both
                by_group = [first.unflatten(-1, (groups, -1)), y.unflatten(-1, (groups, -1))]
                y = torch.cat(by_group, -1).flatten(-2)
            grouped = getattr(module, f"map{n}")(y).unflatten(-1, (groups, -1))
            shuffled = grouped.transpose(-1, -2).flatten(-2).unflatten(-1, (groups, -1))
            y = silu(getattr(module, f"norm{n}")(shuffled)).flatten(-2)
        return silu(module.leave_norm(module.leave(torch.cat([first, y], -1))))


@block
class DExTraEmbedding(Block):
    """lift(√rank · table[token]): token ids (…) to (…, d).

    Attributes:
        rank: features of the table.
        table: block that looks up tokens.
        lift: map to the features of the model.
        tied_table: path of the table whose weights ``table`` uses; None if it has its own.
    """

    rank: Size
    table: Block
    lift: DExTra
    tied_table: str | None = None

    def parts(self) -> Mapping[str, Block | Use]:
        return {"table": Use(self.table, tied=self.tied_table), "lift": self.lift}

    def forward(self, module: Any, tokens: Tensor) -> Tensor:
        return module.lift(module.table(tokens) * self.rank**0.5)


@block
class ProjectedOutput(Block):
    """Output layer: a linear map to ``rank`` features, and a table: (…, d) to (…, V).

    Attributes:
        d: features of the model.
        rank: features of the table. If it is ``d``, the linear map is omitted, unless ``affine``.
        tied_table: path of the table whose weights it uses; None if it has its own.
        vocab: size of the vocabulary.
        affine: whether the linear map always exists and has a bias (Subformer).
        bias: whether the output has a bias.
    """

    d: Size
    rank: Size
    tied_table: str | None
    vocab: Extent = field(default=VOCAB, metadata={"plain": VOCAB})
    affine: bool = field(default=False, metadata={"plain": False})
    bias: bool = field(default=False, metadata={"plain": False})

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {}
        if self.affine or not decide(self.d == self.rank):
            parts["down"] = Linear(self.d, self.rank, (TGT,), bias=self.affine)
        table = Linear(self.rank, self.vocab, (TGT,), self.bias)
        untied = ("bias",) if self.bias and self.tied_table else ()
        return parts | {"table": Use(table, tied=self.tied_table, untied=untied)}

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return module.table(self._down(module, x))

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Return the softmax terms; see :meth:`.Linear.softmax_terms`."""
        bias = m.table.bias if self.bias else None
        return [(self._down(m, hidden), m.table.weight, bias, target)]

    def _down(self, m: Any, x: Tensor) -> Tensor:
        return x if self.d == self.rank and not self.affine else m.down(x)


def _mirrored(values: list[int], length: int) -> list[int]:
    """Return ``values`` followed by their reverse.

    If ``length`` is odd, the last value occurs once.
    """
    return values + values[::-1][length % 2 :]
