"""The printed rows again, by our ledger: under the paper's own protocol, and all of them under one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scalesearch.blocks.core import Block
from scalesearch.cost import Cost, cost, find_protocol
from scalesearch.library import library_folder
from scalesearch.reference.rows import Row
from scalesearch.reference.verdict import Verdict, judge
from scalesearch.space import Space, read_space
from scalesearch.space.assembly.architecture import Architecture

COMMON = find_protocol("forward", 30, 30, 32768)  # one ruler for all three papers
SHARED = ("params.non_embedding", "params.total", "macs.total", "macs.once", "flops.total")


@dataclass(frozen=True)
class Entry:
    """A row, its number by our ledger, the verdict, and what the same architecture costs under ``COMMON``."""

    row: Row
    architecture: Architecture
    exact: int
    verdict: Verdict
    common: Cost

    def to_json(self) -> dict[str, Any]:
        """Everything, exact."""
        row = self.row
        return {"paper": row.paper, "table": row.table, "row": row.label, "file": f"reference/{row.file}",
                "set": dict(row.settings), "layer": row.layer, "architecture": self.architecture.id,
                "quantity": row.quantity, "protocol": row.protocol.to_json(), "printed": row.printed,
                "reference": row.expected, "recomputed": self.exact, "verdict": self.verdict.name,
                "rounding": self.verdict.by, "why": self.why, "note": row.note,
                "common": {name: self.common[name] for name in SHARED} | {"protocol": self.common.protocol.to_json()}}

    @property
    def why(self) -> str:
        """What is known where the reading used does not fit; empty where it does."""
        return self.row.why if self.verdict.name == "no fit" else ""


def recompute(row: Row) -> Entry:
    """``row`` by our ledger."""
    found = architecture_of(row.file, tuple(row.settings.items()))
    block = _block(found, row.layer)
    exact = int(cost(block, row.protocol)[row.quantity])
    return Entry(row, found, exact, judge(row.printed, exact, row.rounding), _common(block))


@lru_cache(maxsize=256)
def architecture_of(file: str, settings: tuple[tuple[str, str], ...] = ()) -> Architecture:
    """The architecture in a file of ``spaces/reference``."""
    return space_of(file, settings).closed()


def space_of(file: str, settings: tuple[tuple[str, str], ...] = ()) -> Space:
    """A file of ``spaces/reference`` as a space with nothing left to choose."""
    space = read_space(library_folder("spaces") / "reference" / f"{file}.yaml")
    return space.set(dict(settings)) if settings else space


def _block(found: Architecture, layer: str | None) -> Block:
    """The whole network, or one layer of the stack ``layer``."""
    block: Block = found.block if layer is None else getattr(found.block, layer).layer
    return block


@lru_cache(maxsize=256)
def _common(block: Block) -> Cost:
    return cost(block, COMMON)
