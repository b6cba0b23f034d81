"""``bayes``: of many sheets whose costs are known before they run, the one from which the front may gain most.

Bayesian optimisation where only part of the objectives is unknown: a Gaussian process predicts the measured ones alone
(:mod:`scalesearch.samplers.surrogate`), the others are exact. Samplers that must learn the costs, too, spend trials on
sheets that could be known to be dominated.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial
from scipy.special import ndtr

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import hypervolume, worst_corner
from scalesearch.pareto.objective import Objective
from scalesearch.samplers.ask import Ask
from scalesearch.samplers.front_neighbours import FrontNeighbours
from scalesearch.samplers.history import is_complete, is_infeasible
from scalesearch.samplers.sheet import Sheet
from scalesearch.samplers.surrogate import Array, Surrogate, squared_distances

N_CHILDREN, N_DRAWN = 40, 40  # sheets: changes to members of the front, and random ones
BLOCK = 8  # trials that choose among the same random sheets, which take the longest to find
MAX_LEARNED = 120  # trials that a prediction is made from: the latest
ASTRAY = 0.15  # proposals that heed no prediction: two bad trainings must not rule out a whole region
N_SAMPLES = 8  # of the predicted objectives
SHORT_LIST = 8  # sheets of which the gain in hypervolume is computed
DOUBT = 0.05  # of a predicted value of a paused trial, as a share of the variance of all


class HypervolumeGP(FrontNeighbours):
    """Takes the most promising of changes to the front and random draws."""

    n_startup = 6

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._block: tuple[int, list[Sheet]] = (-1, [])  # number of a block of trials, and the sheets drawn for it

    def propose(self, ask: Ask) -> Sheet | None:
        """As :meth:`SheetSampler.propose`; None also where none of many sheets is new and feasible."""
        if len(ask.learned) < max(self.n_startup_trials, 2):
            return super().propose(ask)
        pool = self._pool(ask)
        if not pool:
            return None
        if ask.rng.random() < ASTRAY:
            return ask.rng.choice(pool)
        return pool[self._best(ask, pool)]

    def _pool(self, ask: Ask) -> list[Sheet]:
        """Sheets that nothing known forbids and nobody has seen."""
        keys, identities = set(ask.keys), set(ask.identities)
        parents, pool = self.parents(ask), []
        for sheet in (*(self.changed(ask, ask.rng.choice(parents).params) for _ in range(N_CHILDREN)),
                      *self._drawn(ask)):
            if sheet.key in keys:
                continue
            keys.add(sheet.key)
            identity = ask.known.identity(sheet.params)
            if identity not in identities and ask.known(sheet.params).feasible:
                identities.add(identity)
                pool.append(sheet)
        return pool

    def _drawn(self, ask: Ask) -> Sequence[Sheet]:
        """Random sheets, the same ones for a whole block of trials."""
        block = ask.number // BLOCK
        if ask.define is not self.define:  # made for this trial alone
            return [self.sample(ask) for _ in range(N_DRAWN)]
        if self._block[0] != block:
            rng = random.Random(f"{self.seed}:{block}")
            self._block = block, [self.sample(ask, rng) for _ in range(N_DRAWN)]
        return self._block[1]

    def _best(self, ask: Ask, pool: Sequence[Sheet]) -> int:
        """The place in ``pool`` of the sheet from which the front may gain most."""
        learned = ask.learned[-MAX_LEARNED:]
        waiting = [trial for trial in ask.in_training if trial.number not in ask.values]
        table = _finite(np.array([ask.values[trial.number] for trial in learned], float))
        asked = set().union(*(sheet.params for sheet in pool))
        sheets = [*(_restricted(trial, asked) for trial in (*learned, *waiting)), *pool]
        costs = self._costs(ask, [*learned, *waiting], pool)
        squares = squared_distances(sheets, costs)
        doubt = np.array([0.0 if is_complete(trial) else DOUBT for trial in learned])
        also, new = np.split(np.arange(len(learned), len(sheets)), [len(waiting)])
        normal = np.array([NormalDist().inv_cdf((i + 0.5) / N_SAMPLES) for i in range(N_SAMPLES)])
        found = np.empty((len(pool), N_SAMPLES, len(ask.objectives)))
        exact = iter(costs[new].T)
        for at, objective in enumerate(ask.objectives):
            if objective.measured:
                mean, spread = Surrogate(squares, table[:, at], doubt).predict(new, also)
                order = ask.rng.sample(range(N_SAMPLES), N_SAMPLES)  # objectives are independent of each other
                found[:, :, at] = mean[:, None] + spread[:, None] * normal[order]
            else:
                found[:, :, at] = next(exact)[:, None]
        feasible = np.array([not is_infeasible(trial) for trial in learned])
        best = table[feasible] if feasible.any() else table
        return most_promising(found, best, ask.objectives, self._chances(ask, learned, squares, new))

    def _costs(self, ask: Ask, trials: Sequence[FrozenTrial], pool: Sequence[Sheet]) -> Array:
        """(trials + pool, objectives known exactly)."""
        exact = [(at, objective.name) for at, objective in enumerate(ask.objectives) if not objective.measured]
        rows: list[list[Any]] = [[ask.exact(trial, ask.objectives)[name] for _, name in exact] for trial in trials]
        rows += [[ask.known(sheet.params).values[at] for at, _ in exact] for sheet in pool]
        return np.array(rows, float).reshape(len(rows), len(exact))

    def _chances(self, ask: Ask, learned: Sequence[FrozenTrial], squares: Array, new: NDArray[np.intp]) -> Array:
        """Of each of the pool, the chance to meet the constraints that only a run tells."""
        chances = np.ones(len(new))
        told = {name for trial in learned for name in trial.constraints}
        for name in sorted(told - set(ask.known(learned[0].params).constraints)):
            misses = np.array([trial.constraints.get(name, 0.0) for trial in learned])
            mean, spread = Surrogate(squares, misses, np.zeros(len(learned))).predict(new)
            chances *= ndtr(-mean / spread)
        return chances


def most_promising(found: NDArray[np.float64], table: Array, objectives: Sequence[Objective], chances: Array) -> int:
    """Where of (sheets, samples, objectives) the mean gain over the front of ``table`` is largest.

    A short list by the maximin improvement (Svenson & Santner 2016) comes first, which needs no volumes.

    Args:
        chances: of each sheet to be feasible; its gain counts as much.
    """
    ways = [objective.direction for objective in objectives]
    best = table[pareto_front(table, ways)]
    signs = np.array([objective.sign for objective in objectives])
    unit = np.ptp(table, axis=0)
    unit[unit == 0] = 1.0
    ahead = ((best[None, None] - found[:, :, None]) * signs / unit).max(-1).min(-1)  # (sheets, samples)
    promise = (np.maximum(ahead, 0).mean(1) + 1e-9 * ahead.mean(1)) * chances
    short = np.argsort(-promise, kind="stable")[:SHORT_LIST]
    corner = worst_corner(np.concatenate([table, found[short].reshape(-1, len(ways))]), ways, 0.01)
    base = hypervolume(best, corner, ways)
    gains = [chances[at] * np.mean([hypervolume(np.vstack([best, one]), corner, ways) - base for one in found[at]])
             for at in short]
    top = int(np.argmax(gains))
    return int(short[top]) if gains[top] > 0 else int(short[0])


def _restricted(trial: FrozenTrial, asked: Collection[str]) -> Sheet:
    """The sheet of ``trial``, less what no sheet of the pool has."""
    return Sheet({name: value for name, value in trial.params.items() if name in asked},
                 {name: its for name, its in trial.distributions.items() if name in asked})


def _finite(table: Array) -> Array:
    """``table`` with the infinite values that Optuna allows replaced by the ends of the others."""
    known = np.where(np.isfinite(table), table, np.nan)
    ends = [np.nan_to_num(end(known, axis=0)) for end in (np.nanmin, np.nanmax)]
    return np.asarray(np.clip(table, *ends))
