"""Does a larger pool of candidates pay? ``bayes`` with and without sheets that are billed many at a time.

    python benchmarks/pool.py edge flagship papers slim --seeds 6 --trials 15 25 40

On shipped spaces under no budget, with invented scores: they grow with the logarithms of params and
macs, each word adds what a hash of it says, and each number has a best value. Printed is the
hypervolume after so many trials, as a share of the box around all that either search or 300 random
sheets have, and the difference of the two, paired: mean and standard error over seeds, each of
which is another score.
"""

import argparse
import math
import random
import zlib
from collections.abc import Sequence
from functools import partial

import numpy as np
import optuna
from load import OBJECTIVES, evaluator
from numpy.typing import NDArray

from scalesearch.pareto.hypervolume import hypervolume
from scalesearch.samplers import SamplerSpec, make_sampler
from scalesearch.samplers.encoding import suggest_params
from scalesearch.samplers.feasible_region import FeasibleRegion
from scalesearch.study.trials.evaluator import Evaluator
from scalesearch.study.trials.trial import Trial

RANDOM = 300  # sheets that the box is around, beside those of the searches
BEYOND = 1.01  # the reference point, in units of the box

Table = NDArray[np.float64]


def score(trial: Trial, seed: int) -> float:
    """An invented score, another one for each ``seed``."""
    total = 12 * math.log10(trial.costs["params.total"]) + 4 * math.log10(trial.costs["macs.total"])
    for name, value in trial.params.items():
        if isinstance(value, str | bool):
            total += 1.5 * (_lot(seed, name, value) - 0.5)
        else:
            far = math.log(max(float(value), 1e-3)) / 5 - _lot(seed, name, "best")
            total -= 2 * _lot(seed, name) * abs(far)
    return total


def _lot(*key: object) -> float:
    return zlib.crc32(repr(key).encode()) / 2**32


def values(trial: Trial, seed: int) -> tuple[float, float, float]:
    """What a trial comes to."""
    return score(trial, seed), trial.costs["params.total"], trial.costs["macs.total"]


def search(given: Evaluator, region: FeasibleRegion, seed: int, trials: int) -> Table:
    """(trials, objectives) values that ``bayes`` finds."""
    sampler = make_sampler(SamplerSpec("bayes", {}, seed), given.suggest_params,
                           partial(given.candidate_facts, objectives=OBJECTIVES), region,
                           OBJECTIVES)
    study = optuna.create_study(directions=["maximize", "minimize", "minimize"], sampler=sampler)
    for _ in range(trials):
        asked = study.ask()
        study.tell(asked, values(given.evaluate(suggest_params(given.space, asked).params), seed))
    return np.array([trial.values for trial in study.trials])


def compare(name: str, seeds: int, marks: Sequence[int]) -> None:
    """Prints the hypervolumes of both searches in one space."""
    given = evaluator(name)
    rng = random.Random(0)
    drawn = [given.evaluate(given.space.sample(rng).params) for _ in range(RANDOM)]
    found = []
    for seed in range(1, seeds + 1):
        alone = FeasibleRegion(given.define, given.known)
        tables = [search(given, region, seed, max(marks)) for region in (alone, given.region)]
        others = np.array([values(trial, seed) for trial in drawn if trial.feasible])
        found.append(_shares(tables, np.vstack([*tables, others]), marks))
    without, many = np.array(found).transpose(1, 0, 2)
    for title, table in (("one by one", without), ("many at a time", many),
                         ("difference", many - without)):
        error = table.std(0, ddof=1) / len(table) ** 0.5 if len(table) > 1 else table[0] * math.nan
        print(f"{name:10} {title:15}",
              *(f"{mean:.3f} ± {its:.3f}" for mean, its in zip(table.mean(0), error)), flush=True)


def _shares(tables: Sequence[Table], everything: Table, marks: Sequence[int]) -> list[list[float]]:
    box = _losses(everything)
    low = box.min(0)
    size = np.ptp(box, axis=0)
    return [[hypervolume((_losses(table[:mark]) - low) / size, [BEYOND] * 3, ["min"] * 3)
             for mark in marks] for table in tables]


def _losses(table: Table) -> Table:
    return np.column_stack([-table[:, 0], np.log(table[:, 1:])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spaces", nargs="+")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--trials", type=int, nargs="+", default=[15, 25, 40])
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(f"{'':26}", *(f"{mark:>13}" for mark in given.trials))
    for name in given.spaces:
        compare(name, given.seeds, given.trials)


if __name__ == "__main__":
    main()
