"""What attention may hold besides: feed-forward networks in its heads, and a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Axis, Block, LoopNest, Shape, Size, Use, block, iterate_cost_lines
from scalesearch.blocks.leaves import Linear

if TYPE_CHECKING:
    from torch import Tensor

ADAPTABLE_PARTS = ("query", "key", "value", "out")  # maps that an adapter may stand beside
HEAD_GATES = ("relu", "sigmoid", "tanh", "none")


@block
class PartialFFN(Block):
    """gate(x) ⊙ (head + FFN(head)) for each head's output, before heads are joined (PartialFormer, section 3.2).

    The paper's equation 5 has no inner residual, its released model has: ``residual``. The gate is
    a full-width map of the query stream. ``ffn`` works on head_dim features; heads share it, or it
    has a matrix for each head.
    """

    d: Size
    heads: Size
    head_dim: Size
    over: Axis
    ffn: Block
    gate: str = "relu"
    residual: bool = True

    def parts(self) -> Mapping[str, Block | Use]:
        gate = Linear(self.d, self.heads * self.head_dim, (self.over,))
        return {"ffn": self.ffn} | ({} if self.gate == "none" else {"gate": gate})

    def loop_nests(self) -> Sequence[LoopNest]:
        # as gated
        return [] if self.gate == "none" else [
            LoopNest((self.over, self.heads * self.head_dim), "activation")]

    def forward(self, module: Any, mixed: Tensor, x: Tensor) -> Tensor:
        """``mixed``: (batch, queries, heads · head_dim), as attention mixed it; ``x`` (batch, queries, d)."""
        heads = mixed.unflatten(-1, (self.heads, -1))
        inner = module.ffn(heads)
        u = (heads + inner if self.residual else inner).flatten(2)
        return u if self.gate == "none" else getattr(module.gate(x), self.gate)() * u


@block
class PromptVectors(Block):
    """``length`` learned vectors of width ``d`` in front of the keys and values (EdgeFormer's Prompt-LA).

    They go through the same maps as the input, ``maps``, which is work on weights alone: done once,
    and for inference folded away.
    """

    length: Size
    d: Size
    maps: tuple[Block, ...]

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.length, self.d)}

    def initialization(self, name: str) -> str:
        return "table"

    def loop_nests(self) -> Sequence[LoopNest]:
        nests = [work for part in self.maps for line in iterate_cost_lines(part)
                 for work in line.loop_nests]
        sizes = [[n for n in work.loops if not isinstance(n, str)]
                 for work in nests if work.operation == "mac"]
        applied = [(self.length, *loops) for loops in sizes]
        built = [work.loops for work in nests if work.operation == "once"]
        kept = [work
                for work in nests
                if work.operation == "activation"
                and not any(isinstance(n, str) for n in work.loops)]
        return [*(LoopNest(loops, "once") for loops in (*applied, *built)), *kept]

    def forward(self, module: Any) -> Tensor:
        return module.weight
