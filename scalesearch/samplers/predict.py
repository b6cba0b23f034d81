"""What a candidate that was stopped early would have come to: a line through those that were not.

A sampler must hear of every candidate that cost something, or it learns only from the few that were trained to the
end. So the final value of a paused one is read off its loss at the last rung, by a line (Theil and Sen: the median of
all slopes, which a diverged run cannot bend) through the candidates of which both are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from scalesearch.samplers.history import COMPLETE, PAUSED, Goal, History, Seen

FEWEST = 3  # candidates through which a line is drawn


def foreseen(history: History, goals: Sequence[Goal]) -> dict[int, dict[str, float]]:
    """Candidate's number to values of all goals: real ones where there are any, foreseen ones for the paused.

    As long as too few were trained to the end, every measured goal of every candidate is told by its loss at the first
    rung, so that all are on one scale.
    """
    known = [seen for seen in history if seen.state in (COMPLETE, PAUSED)]
    ended = [seen for seen in known if seen.values is not None]
    if not any(seen.state == PAUSED for seen in known):
        return {seen.number: dict(seen.values or {}) for seen in ended}
    if sum(bool(seen.rungs) for seen in ended) < FEWEST:  # a reference passes no rung
        return {seen.number: _early(seen, goals) for seen in known if seen.rungs}
    lines = {(goal.name, rung): _line(ended, goal, rung) for goal in goals if goal.measured
             for rung in range(max(len(seen.rungs) for seen in known))}
    return {seen.number: dict(seen.values) if seen.values is not None else _late(seen, goals, lines) for seen in known}


def _early(seen: Seen, goals: Sequence[Goal]) -> dict[str, float]:
    loss = math.log(max(seen.rungs[0], 1e-12))
    return {goal.name: goal.sign * loss if goal.measured else seen.costs[goal.name] for goal in goals}


def _late(seen: Seen, goals: Sequence[Goal], lines: Mapping[tuple[str, int], tuple[float, float]]) -> dict[str, float]:
    loss, rung = math.log(max(seen.rungs[-1], 1e-12)), len(seen.rungs) - 1
    found = {}
    for goal in goals:
        if goal.measured:
            start, slope = lines[goal.name, rung]
            found[goal.name] = start + slope * loss
        else:
            found[goal.name] = seen.costs[goal.name]
    return found


def _line(ended: Sequence[Seen], goal: Goal, rung: int) -> tuple[float, float]:
    """Start and slope of the goal over the log of the loss at ``rung``; a slope that says worse is better is none."""
    x, y = np.array([(math.log(max(s.rungs[rung], 1e-12)), s.values[goal.name]) for s in ended
                     if s.values and len(s.rungs) > rung]).reshape(-1, 2).T
    one, other = np.triu_indices(len(x), 1)
    apart = np.abs(x[one] - x[other]) > 1e-9
    slopes = (y[one] - y[other])[apart] / (x[one] - x[other])[apart]
    slope = float(np.median(slopes)) if len(slopes) else 0.0
    slope = slope if slope * goal.sign > 0 else 0.0
    return float(np.median(y - slope * x)) if len(x) else 0.0, slope
