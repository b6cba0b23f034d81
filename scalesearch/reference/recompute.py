"""The printed rows again, by our ledger, and whether that gives the printed digits; all also under one protocol."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any

from scalesearch.blocks.core import Block
from scalesearch.cost import CostBreakdown, evaluate_cost, find_protocol
from scalesearch.library import library_folder
from scalesearch.reference.reported_costs import ReportedCost
from scalesearch.space import Space, read_space
from scalesearch.space.assembly.architecture import ModelSpec

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
ROUNDINGS = {"nearest": ROUND_HALF_UP, "floor": ROUND_FLOOR, "ceil": ROUND_CEILING}
COMMON_PROTOCOL = find_protocol("forward", 30, 30, 32768)  # one ruler for all three papers
COMPARED_COSTS = ("params.non_embedding", "params.total", "macs.total", "macs.once", "flops.total")
AGREEMENT_LEVELS = ("equal", "rounding", "no fit")


@dataclass(frozen=True)
class Agreement:
    """How a printed number and an exact one agree.

    Args:
        name: ``equal`` (rounded to the nearest), ``rounding`` (cut or rounded up, as the paper does
            elsewhere) or
            ``no fit``.
        rounding_mode: the rounding that gives the printed digits; ``None`` where none does.
    """

    name: str
    rounding_mode: str | None

    def __str__(self) -> str:
        return f"{self.name} ({self.rounding_mode})" if self.name == "rounding" else self.name


def classify_agreement(reported_text: str, exact: int,
                       other_roundings: Collection[str] = ()) -> Agreement:
    """The verdict on ``reported_text`` (``68M``, ``1.84G``), where ``other_roundings`` are the paper's other ways of rounding.

    >>> str(judge("62M", 62_176_320)), str(judge("36M", 36_694_044, ["floor"])), str(judge("37M", 41_049_988))
    ('equal', 'rounding (floor)', 'no fit')
    """
    for by in ("nearest",
               *(name for name in ROUNDINGS if name in other_roundings and name != "nearest")):
        if round_like(exact, reported_text, by) == reported_text:
            return Agreement("equal" if by == "nearest" else "rounding", by)
    return Agreement("no fit", None)


def round_like(exact: int, reported_text: str, rounding_mode: str = "nearest") -> str:
    """``exact`` with the unit and the digits of ``reported_text``, which is ``1.84G`` or has all digits: ``30,695,032``."""
    if reported_text[-1] not in UNITS:
        return f"{exact:,}"
    digits = len(reported_text[:-1].partition(".")[2])
    value = (Decimal(exact) / UNITS[reported_text[-1]]).quantize(
        Decimal(1).scaleb(-digits), ROUNDINGS[rounding_mode])
    return f"{value}{reported_text[-1]}"


@dataclass(frozen=True)
class RecomputedCost:
    """A row, its number by our ledger, the verdict, and what the same architecture costs under ``COMMON``."""

    reported: ReportedCost
    architecture: ModelSpec
    recomputed: int
    agreement: Agreement
    common_cost: CostBreakdown

    def to_json(self) -> dict[str, Any]:
        """Everything, exact."""
        row = self.reported
        return {"paper": row.paper, "table": row.table, "row": row.model_name,
                "file": f"reference/{row.file}", "set": dict(row.settings), "layer": row.layer,
                "architecture": self.architecture.id, "quantity": row.quantity,
                "protocol": row.protocol.to_json(), "printed": row.reported_text,
                "reference": row.recomputed_text, "recomputed": self.recomputed,
                "verdict": self.agreement.name, "rounding": self.agreement.rounding_mode,
                "why": self.mismatch_reason, "note": row.note,
                "common": {name: self.common_cost[name] for name in COMPARED_COSTS}
                | {"protocol": self.common_cost.protocol.to_json()}}

    @property
    def mismatch_reason(self) -> str:
        """What is known where the reading used does not fit; empty where it does."""
        return self.reported.mismatch_reason if self.agreement.name == "no fit" else ""


def recompute(reported: ReportedCost) -> RecomputedCost:
    """``reported`` by our ledger."""
    found = load_reference_model(reported.file, tuple(reported.settings.items()))
    block: Block = found.block if reported.layer is None else getattr(
        found.block, reported.layer).layer
    exact = int(evaluate_cost(block, reported.protocol)[reported.quantity])
    return RecomputedCost(reported, found, exact,
                          classify_agreement(reported.reported_text, exact,
                                             reported.allowed_roundings), _common(block))


@lru_cache(maxsize=256)
def load_reference_model(file: str, settings: tuple[tuple[str, str], ...] = ()) -> ModelSpec:
    """The architecture in a file of ``spaces/reference``."""
    return load_reference_space(file, settings).single_architecture()


def load_reference_space(file: str, settings: tuple[tuple[str, str], ...] = ()) -> Space:
    """A file of ``spaces/reference`` as a space with nothing left to choose."""
    space = read_space(library_folder("spaces") / "reference" / f"{file}.yaml")
    return space.with_overrides(dict(settings)) if settings else space


@lru_cache(maxsize=256)
def _common(block: Block) -> CostBreakdown:
    return evaluate_cost(block, COMMON_PROTOCOL)
