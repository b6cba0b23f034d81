"""Whether early signs of a candidate rank it as its final score does: Spearman's correlation, with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

FEWEST = 5  # finished candidates below which no correlation is told
SIGNS = {  # column to words; zero-cost scores: see train/proxies.py
    "params.decoder": "decoder params", "params.total": "all params", "macs.total": "MACs",
    "proxy.first_loss": "first validation loss", "proxy.synflow": "SynFlow", "proxy.snip": "SNIP",
    "proxy.grad_norm": "gradient norm",
}
Z95 = 1.959963984540054


@dataclass(frozen=True)
class Correlation:
    """Spearman's ``rho`` of one sign with the final score over ``candidates``; ``low`` to ``high``: 95 % interval."""

    sign: str
    candidates: int
    rho: float
    low: float
    high: float

    @property
    def telling(self) -> bool:
        """Whether it is certain that there is any relation, and of which direction."""
        return self.low > 0 or self.high < 0

    def describe(self) -> str:
        """One line for a person."""
        few = "" if self.telling else ": says little"
        return f"{SIGNS.get(self.sign, self.sign)}: {self.rho:+.2f} ({self.low:+.2f} to {self.high:+.2f}){few}"


@dataclass(frozen=True)
class Signs:
    """All correlations with ``score``, over at most ``candidates`` finished candidates; none where they are too few."""

    score: str
    candidates: int
    found: tuple[Correlation, ...]

    def lines(self) -> list[str]:
        """For people."""
        if self.candidates < FEWEST:
            return [f"Early signs: {FEWEST} finished candidates are needed to say whether they rank as {self.score} "
                    f"does; there are {self.candidates}."]
        counts = {one.candidates for one in self.found} - {self.candidates}
        least = f" (some signs {min(counts)})" if counts else ""
        return [f"Early signs: rank correlation with the final {self.score} over {self.candidates} finished "
                f"candidates{least}, with its 95 % interval", *(f"  {one.describe()}" for one in self.found)]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        rows = [{**asdict(one), "telling": one.telling} for one in self.found]
        return {"score": self.score, "candidates": self.candidates, "needed": FEWEST, "correlations": rows}


def signs(table: pd.DataFrame, score: str) -> Signs:
    """The correlations in a study's table (see ``report.table.frame``) of every sign that some candidates have."""
    if score not in table or "state" not in table:
        return Signs(score, 0, ())
    done = table[(table["state"] == "complete") & np.isfinite(pd.to_numeric(table[score]))]
    found = []
    for name in (column for column in SIGNS if column in done) if len(done) >= FEWEST else ():
        sign = pd.to_numeric(done[name])
        both = done[np.isfinite(sign)]
        one = correlation(name, sign[both.index].to_numpy(float), both[score].to_numpy(float))
        found += [one] if one else []
    return Signs(score, len(done), tuple(found))


def correlation(name: str, sign: Any, score: Any) -> Correlation | None:
    """Of two columns (n,); None where they are too short, or one is the same everywhere.

    The interval is Fisher's, with the variance that Fieller et al. (1957) found for ranks, 1.06 / (n - 3). A perfect
    order has no such interval; its is centred on the next lower value that n ranks can have.
    """
    count = len(sign)
    if count < FEWEST or len(set(sign)) < 2 or len(set(score)) < 2:
        return None
    ranks = [pd.Series(column).rank() for column in (sign, score)]
    rho = float(np.clip(np.corrcoef(*ranks)[0, 1], -1, 1))
    most = 1 - 12 / (count**3 - count)
    middle = math.atanh(max(-most, min(most, rho)))
    half = Z95 * math.sqrt(1.06 / (count - 3))
    low, high = (math.tanh(middle + way * half) for way in (-1, 1))
    return Correlation(name, count, rho, min(low, rho), max(high, rho))


def of_record(record: Mapping[str, Any]) -> dict[str, float | None]:
    """A record's early signs, as columns of the table."""
    given = (record.get("metrics") or {}).get("proxies") or {}
    return {"proxy.first_loss": _first_loss(record), **{f"proxy.{name}": value for name, value in given.items()}}


def _first_loss(record: Mapping[str, Any]) -> float | None:
    """The loss at the first rung; in a study without rungs, at the first validation before the end."""
    if "rungs" in record:
        return float(record["rungs"][0]) if record["rungs"] else None  # a reference passes none
    curve = record.get("curve") or []
    first = curve[0] if len(curve) > 1 else None
    return first.get("valid_loss") if isinstance(first, Mapping) else None
