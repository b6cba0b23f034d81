"""Two studies beside each other: their hypervolumes up to one corner, and how sure the difference is.

A hypervolume depends on its reference point, so both studies are measured against one that is computed over the
candidates of both together. It is given as the share of the box between that corner and the best value that either
study has in each objective, so that it has no unit and lies between 0 and 1.

The interval is a percentile bootstrap (Efron and Tibshirani, 1993, chapter 13): candidates are drawn with replacement
within each study, as many as it has, and the difference is taken again, with corner and box as they are. It says how
much hinges on single candidates. It does not repeat the searches, whose candidates depend on each other: for that, run
each study again with another seed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.pareto.front import losses, pareto_front
from scalesearch.pareto.hypervolume import hypervolume, worst_corner
from scalesearch.pareto.noise import CONFIDENCE, percent

Points = NDArray[np.float64]
DRAWS = 2000


@dataclass(frozen=True)
class Side:
    """One of two studies.

    Attributes:
        name: what text and figures call it.
        table: its candidates (see ``report.table.frame``).
        objectives: name to ``min`` or ``max``.
        protocol: of its costs, as JSON.
        data: hash of its corpus.
        signature: of its metrics; empty before a candidate is finished.
        recipe: how its candidates are trained; another one is no obstacle, but has to be said.
        teacher: from whose translations they learn, in words; likewise.
    """

    name: str
    table: pd.DataFrame
    objectives: Mapping[str, str]
    protocol: Mapping[str, Any]
    data: str
    signature: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    teacher: str = ""

    @property
    def counted(self) -> pd.DataFrame:
        """Its candidates that were trained to the end, meet the budget and are of the space."""
        table = self.table
        known = table[list(self.objectives)].notna().all(axis=1)
        return table[(table["state"] == "complete") & table["feasible"].astype(bool)
                     & table["in_space"].astype(bool) & known]

    def values(self, objectives: Mapping[str, str]) -> Points:
        """(n, objectives) of the counted candidates, in the order of ``objectives``."""
        return self.counted[list(objectives)].to_numpy(dtype=float)


@dataclass(frozen=True)
class Compared:
    """What two studies have come to.

    Attributes:
        names: of both.
        objectives: of both, name to direction.
        corner: the reference point, a value an objective.
        best: the best value of either study in each objective.
        volumes: the hypervolume of each, as a share of the box between ``corner`` and ``best``.
        raw: the same in the product of the objectives' units.
        sizes: candidates of each that were counted, and among which draws are made.
        fronts: how many of each stand on its front.
        low, high: of the interval of the difference.
        confidence, draws, seed: of the interval.
        differ: what else is not the same in both.
    """

    names: tuple[str, str]
    objectives: Mapping[str, str]
    corner: list[float]
    best: list[float]
    volumes: tuple[float, float]
    raw: tuple[float, float]
    sizes: tuple[int, int]
    fronts: tuple[int, int]
    low: float
    high: float
    confidence: float
    draws: int
    seed: int
    differ: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The first study's hypervolume less the second's: positive where the first is better."""
        return self.volumes[0] - self.volumes[1]

    def lines(self) -> list[str]:
        """The same for people."""
        corner = ", ".join(f"{name} {value:,.6g}" for name, value in zip(self.objectives, self.corner))
        best = ", ".join(f"{name} {value:,.6g}" for name, value in zip(self.objectives, self.best))
        lines = [f"{name}: hypervolume {volume:.4f}, front of {members} among {size} candidates" for name, volume,
                 members, size in zip(self.names, self.volumes, self.fronts, self.sizes)]
        return [
            *lines,
            f"Hypervolumes are shares of the box from the corner ({corner}), which lies beyond the worst of both "
            f"together, to the best of both ({best}).",
            f"Difference, {self.names[0]} less {self.names[1]}: {self.difference:+.4f}, {percent(self.confidence)} "
            f"interval {self.low:+.4f} to {self.high:+.4f}: {self._verdict()}.",
            f"The interval is a percentile bootstrap of {self.draws:,} draws (seed {self.seed}): candidates are drawn "
            "with replacement within each study. It does not repeat the searches; other seeds of them would.",
            *self.differ,
        ]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        studies = [{"name": name, "hypervolume": volume, "hypervolume_in_units": raw, "candidates": size,
                    "front": members} for name, volume, raw, size, members
                   in zip(self.names, self.volumes, self.raw, self.sizes, self.fronts)]
        return {
            "studies": studies, "objectives": dict(self.objectives), "reference": self.corner, "best": self.best,
            "difference": self.difference,
            "interval": {"low": self.low, "high": self.high, "confidence": self.confidence, "draws": self.draws,
                         "seed": self.seed, "method": "percentile bootstrap",
                         "resampled": "finished candidates within each study, with replacement"},
            "differ": list(self.differ),
        }

    def _verdict(self) -> str:
        if self.low <= 0 <= self.high:
            return "0 is inside, so neither is shown to be better"
        return f"{self.names[0] if self.low > 0 else self.names[1]} is better"


def compare(first: Side, second: Side, draws: int = DRAWS, confidence: float = CONFIDENCE, seed: int = 1) -> Compared:
    """Measures two studies against one corner.

    Raises:
        UserError: their numbers do not compare, or one has nothing finished.
    """
    refuse_the_incomparable(first, second)
    ways = list(first.objectives.values())
    sides = (first.values(first.objectives), second.values(first.objectives))
    for side, values in zip((first, second), sides):
        if not len(values):
            raise UserError(f"{side.name}: no candidate of its space is finished within its budget yet, so there is "
                            "nothing to compare")
    every = np.vstack(sides)
    corner = worst_corner(every, ways)
    low = losses(every, ways).min(axis=0)
    box = float(np.prod(losses(np.array(corner), ways)[0] - low))
    raw = tuple(hypervolume(values, corner, ways) for values in sides)
    found = resampled(sides, corner, ways, draws, seed) / box
    interval = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Compared(
        (first.name, second.name), dict(first.objectives), corner, [float(value) for value in losses(low, ways)[0]],
        (raw[0] / box, raw[1] / box), (raw[0], raw[1]), (len(sides[0]), len(sides[1])),
        (int(pareto_front(sides[0], ways).sum()), int(pareto_front(sides[1], ways).sum())),
        float(interval[0]), float(interval[1]), confidence, draws, seed, tuple(differing(first, second)))


def resampled(sides: tuple[Points, Points], corner: list[float], ways: list[str], draws: int, seed: int) -> Points:
    """(draws,) differences of the hypervolumes of candidates drawn with replacement within each study."""
    streams = np.random.SeedSequence(seed).spawn(2)
    one, other = (_volumes(values, corner, ways, draws, np.random.default_rng(stream))
                  for values, stream in zip(sides, streams))
    return one - other


def _volumes(values: Points, corner: list[float], ways: list[str], draws: int, rng: np.random.Generator) -> Points:
    """(draws,) hypervolumes of as many resamples of ``values``."""
    rows = rng.integers(len(values), size=(draws, len(values)))
    return np.array([hypervolume(values[drawn], corner, ways) for drawn in rows])


def refuse_the_incomparable(first: Side, second: Side) -> None:
    """Raises UserError where the numbers of two studies mean different things, naming all that differs."""
    checks: list[tuple[str, Callable[[Side], Any]]] = [
        ("objectives", lambda side: ", ".join(f"{name}: {way}" for name, way in sorted(side.objectives.items()))),
        ("protocol", lambda side: _protocol(side.protocol)),
        ("data", lambda side: f"hash {side.data}"),
        ("metric", lambda side: side.signature),
    ]
    wrong = []
    for name, of in checks:
        one, other = of(first), of(second)
        if one != other and (name != "metric" or (one and other)):
            wrong.append(f"  {name}: {one} in {first.name}, {other} in {second.name}")
    if wrong:
        raise UserError(f"{first.name} and {second.name} do not compare, since their numbers mean different things:\n"
                        + "\n".join(wrong) + "\n  Compare studies with the same data, objectives and protocol, such as "
                        "two proposers or two spaces")


def differing(first: Side, second: Side) -> list[str]:
    """What a reader must know that is not the same in both, though the numbers compare."""
    keys = sorted(key for key in {*first.recipe, *second.recipe} if first.recipe.get(key) != second.recipe.get(key))
    said = ", ".join(f"{key} {first.recipe.get(key)} and {second.recipe.get(key)}" for key in keys)
    lines = [f"Their recipes differ: {said}."] if keys else []
    if first.teacher != second.teacher:
        lines += [f"{side.name}: {side.teacher or 'no teacher.'}" for side in (first, second)]
    return lines


def _protocol(protocol: Mapping[str, Any]) -> str:
    counts = "".join(f", {number} per {kind}" for kind, number in sorted((protocol.get("counts") or {}).items()))
    return (f"{protocol.get('name')} with {protocol.get('source')} source and {protocol.get('target')} target tokens, "
            f"vocabulary {protocol.get('vocab')}{counts}")
