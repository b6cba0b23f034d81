"""A factorised embedding: a narrow table and a map up to the width (Lan et al. 2020, ALBERT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalesearch.blocks.core import TGT, VOCAB, Axes, Block, Size, Use, block
from scalesearch.blocks.leaves import Linear, Transposed


@block
class FactorisedTable(Block):
    """``table`` looks up ``rank`` features, a matrix without bias makes them ``d``."""

    d: Size
    rank: Size
    over: Axes
    table: Block

    def parts(self) -> Mapping[str, Block | Use]:
        return {"table": self.table, "up": Linear(self.rank, self.d, self.over, bias=False)}

    def forward(self, m: Any, tokens: Any) -> Any:
        return m.up(m.table(tokens))


@block
class FactorisedOutput(Block):
    """Scores from the matrices of the :class:`FactorisedTable` at ``path``, the other way round."""

    d: Size
    rank: Size
    path: str

    def parts(self) -> Mapping[str, Block | Use]:
        return {
            "down": Use(Transposed(self.d, self.rank, (TGT,)), tied=f"{self.path}.up"),
            "table": Use(Linear(self.rank, VOCAB, (TGT,), bias=False), tied=f"{self.path}.table"),
        }

    def forward(self, m: Any, x: Any) -> Any:
        return m.table(m.down(x))

    def terms(self, m: Any, hidden: Any, target: Any) -> list[tuple[Any, ...]]:
        """See :meth:`Linear.terms`."""
        return [(m.down(hidden), m.table.weight, None, target)]
