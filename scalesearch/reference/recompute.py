"""The printed rows again, by our ledger, and whether that gives the printed digits; all also under one protocol."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any

from scalesearch.blocks.core import Block
from scalesearch.cost import Cost, cost, find_protocol
from scalesearch.library import library_folder
from scalesearch.reference.rows import Row
from scalesearch.space import Space, read_space
from scalesearch.space.assembly.architecture import Architecture

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
ROUNDINGS = {"nearest": ROUND_HALF_UP, "floor": ROUND_FLOOR, "ceil": ROUND_CEILING}
COMMON = find_protocol("forward", 30, 30, 32768)  # one ruler for all three papers
SHARED = ("params.non_embedding", "params.total", "macs.total", "macs.once", "flops.total")
VERDICTS = ("equal", "rounding", "no fit")


@dataclass(frozen=True)
class Verdict:
    """How a printed number and an exact one agree.

    Args:
        name: ``equal`` (rounded to the nearest), ``rounding`` (cut or rounded up, as the paper does elsewhere) or
            ``no fit``.
        by: the rounding that gives the printed digits; ``None`` where none does.
    """

    name: str
    by: str | None

    def __str__(self) -> str:
        return f"{self.name} ({self.by})" if self.name == "rounding" else self.name


def judge(printed: str, exact: int, also: Collection[str] = ()) -> Verdict:
    """The verdict on ``printed`` (``68M``, ``1.84G``), where ``also`` are the paper's other ways of rounding.

    >>> str(judge("62M", 62_176_320)), str(judge("36M", 36_694_044, ["floor"])), str(judge("37M", 41_049_988))
    ('equal', 'rounding (floor)', 'no fit')
    """
    for by in ("nearest", *(name for name in ROUNDINGS if name in also and name != "nearest")):
        if rounded(exact, printed, by) == printed:
            return Verdict("equal" if by == "nearest" else "rounding", by)
    return Verdict("no fit", None)


def rounded(exact: int, like: str, by: str = "nearest") -> str:
    """``exact`` with the unit and the digits of ``like``, which is ``1.84G`` or has all digits: ``30,695,032``."""
    if like[-1] not in UNITS:
        return f"{exact:,}"
    digits = len(like[:-1].partition(".")[2])
    value = (Decimal(exact) / UNITS[like[-1]]).quantize(Decimal(1).scaleb(-digits), ROUNDINGS[by])
    return f"{value}{like[-1]}"


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
    block: Block = found.block if row.layer is None else getattr(found.block, row.layer).layer
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


@lru_cache(maxsize=256)
def _common(block: Block) -> Cost:
    return cost(block, COMMON)
