"""Recompute the costs that papers report, and compare the digits.

Costs under one common protocol are also computed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import lru_cache

from scalesearch.blocks.core import Block
from scalesearch.cost import CostBreakdown, evaluate_cost, find_protocol
from scalesearch.library import library_folder
from scalesearch.reference.reported_costs import ReportedCost
from scalesearch.spaces import Space, read_space
from scalesearch.spaces.assembly.architecture import ModelSpec

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
ROUNDINGS = {"nearest": ROUND_HALF_UP, "floor": ROUND_FLOOR, "ceil": ROUND_CEILING}
COMMON_PROTOCOL = find_protocol("forward", 30, 30, 32768)  # the same protocol for all papers
AGREEMENT_LEVELS = ("equal", "rounding", "no fit")


@dataclass(frozen=True)
class Agreement:
    """How a reported number and the recomputed one agree.

    Args:
        name: ``equal`` (rounded to the nearest), ``rounding`` (rounded down or up, as elsewhere in
            the paper) or ``no fit``.
        rounding_mode: the rounding that gives the reported digits; ``None`` for ``no fit``.
    """

    name: str
    rounding_mode: str | None

    def __str__(self) -> str:
        return f"{self.name} ({self.rounding_mode})" if self.name == "rounding" else self.name


def classify_agreement(reported_text: str, exact: int,
                       other_roundings: Collection[str] = ()) -> Agreement:
    """Classify the agreement of ``reported_text`` with the exact number.

    Reported texts are, for example, ``68M`` and ``1.84G``.

    Args:
        other_roundings: rounding modes of the paper, in addition to the nearest.

    >>> str(classify_agreement("62M", 62_176_320))
    'equal'
    >>> str(classify_agreement("36M", 36_694_044, ["floor"]))
    'rounding (floor)'
    >>> str(classify_agreement("37M", 41_049_988))
    'no fit'
    """
    others = [mode for mode in ROUNDINGS if mode in other_roundings and mode != "nearest"]
    for mode in ("nearest", *others):
        if round_like(exact, reported_text, mode) == reported_text:
            return Agreement("equal" if mode == "nearest" else "rounding", mode)
    return Agreement("no fit", None)


def round_like(exact: int, reported_text: str, rounding_mode: str = "nearest") -> str:
    """``exact`` with the unit and number of digits of ``reported_text``.

    Reported texts are, for example, ``1.84G`` and ``30,695,032``.
    """
    if reported_text[-1] not in UNITS:
        return f"{exact:,}"
    digits = len(reported_text[:-1].partition(".")[2])
    value = (Decimal(exact) / UNITS[reported_text[-1]]).quantize(
        Decimal(1).scaleb(-digits), ROUNDINGS[rounding_mode])
    return f"{value}{reported_text[-1]}"


@dataclass(frozen=True)
class RecomputedCost:
    """A recomputed cost and its agreement with the reported one.

    Attributes:
        common_cost: costs of the same architecture under ``COMMON_PROTOCOL``.
    """

    reported: ReportedCost
    architecture: ModelSpec
    recomputed: int
    agreement: Agreement
    common_cost: CostBreakdown

    @property
    def mismatch_reason(self) -> str:
        """The likely reason of a mismatch; empty if the numbers agree."""
        return self.reported.mismatch_reason if self.agreement.name == "no fit" else ""


def recompute(reported: ReportedCost) -> RecomputedCost:
    """Compute the cost of ``reported`` with :func:`scalesearch.cost.evaluate_cost`."""
    model = load_reference_model(reported.file, tuple(reported.settings.items()))
    block: Block = model.block
    if reported.layer is not None:
        block = getattr(model.block, reported.layer).layer
    exact = int(evaluate_cost(block, reported.protocol)[reported.quantity])
    agreement = classify_agreement(reported.reported_text, exact, reported.allowed_roundings)
    return RecomputedCost(reported, model, exact, agreement, _common(block))


@lru_cache(maxsize=256)
def load_reference_model(file: str, settings: tuple[tuple[str, str], ...] = ()) -> ModelSpec:
    """The architecture in a file of ``spaces/reference``."""
    return load_reference_space(file, settings).single_architecture()


def load_reference_space(file: str, settings: tuple[tuple[str, str], ...] = ()) -> Space:
    """A file of ``spaces/reference`` as a space without open parameters."""
    space = read_space(library_folder("spaces") / "reference" / f"{file}.yaml")
    return space.with_overrides(dict(settings)) if settings else space


@lru_cache(maxsize=256)
def _common(block: Block) -> CostBreakdown:
    return evaluate_cost(block, COMMON_PROTOCOL)
