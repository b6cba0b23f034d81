"""How often shared weights are used: load and balance of parameter groups (EdgeFormer, section 3.2).

A group is the matrices of one part of the layers that share them, p of them, used l times a pass. The mean is
Σ p l / Σ p; the balance is Jain's index (Σ p l)² / (Σ p · Σ p l²), 1 where all loads are equal. These are the cost
ledger's own numbers (:mod:`scalesearch.cost.load`): they follow from the architecture, no data is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scalesearch.blocks.core import Block
from scalesearch.cost.load import groups_of, load_of


@dataclass(frozen=True)
class LoadRow:
    """One group; ``share``: of all uses of weights, p l / Σ p l."""

    group: str
    params: int
    load: int
    share: float


def loads(block: Block) -> tuple[list[LoadRow], Mapping[str, float]]:
    """The groups, and ``load.mean``, ``load.balance``, ``load.min``, ``load.max``."""
    groups = groups_of(block)
    used = sum(group.params * group.load for group in groups)
    rows = [LoadRow(g.name, g.params, g.load, g.params * g.load / used) for g in groups]
    return rows, load_of(block)
