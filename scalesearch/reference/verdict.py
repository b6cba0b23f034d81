"""Does a recomputed number give the printed one? Decided from the printed digits alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
ROUNDINGS = {"nearest": ROUND_HALF_UP, "floor": ROUND_FLOOR, "ceil": ROUND_CEILING}
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
