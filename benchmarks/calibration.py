"""How right the surrogate is about its own doubt, beside Optuna's Gaussian process and BoTorch's, on tables.

    python benchmarks/calibration.py [--tables FOLDER] [--seeds 20] [--known 6 12 25 50] [--botorch
    PYTHON]

Of each table so many random rows are known, and BLEU of all others is predicted. Every model is
given the same points: places of numbers in their ranges, indicators of words, the logarithm of the
params. Printed are, as means over seeds, the negative log likelihood of a row (in units of the
table's standard deviation of BLEU; medians beside it, since one sure mistake costs thousands), the
share of rows inside the 90 % interval, and the root mean squared error in BLEU. ``--botorch`` is a
Python that has BoTorch; Optuna's process needs torch. Each model is as it comes.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import own_tables
from nmt_tables import read
from numpy.typing import NDArray
from tabular import Table

from scalesearch.pareto.objective import Objective
from scalesearch.samplers.bayes.coordinates import Coordinates
from scalesearch.samplers.bayes.surrogate import Surrogate
from scalesearch.samplers.candidate import Candidate
from scalesearch.samplers.encoding import encode_params

Array = NDArray[np.float64]
# known points, their BLEU, the other points, theirs
Task = tuple[Coordinates, Array, Coordinates, Array]
INSIDE = 1.6448536269514722  # standard deviations of a 90 % interval
OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))


def tasks(table: Table, known: int, seeds: int) -> Iterator[Task]:
    """One task a seed."""
    rows = [row for row in table.rows if not row.failed]
    sheets = [Candidate(*encode_params(table.space, row.answers)) for row in rows]
    costs = table.objectives[1].name
    points = Coordinates.of(sheets, np.array([[row.values[costs]] for row in rows]))
    bleu = np.array([row.values[table.objectives[0].name] for row in rows])
    for seed in range(1, seeds + 1):
        order = np.random.default_rng(seed).permutation(len(rows))
        some = order[:known]
        rest = order[known:]
        yield points[some], bleu[some], points[rest], bleu[rest]


def ours(known: Coordinates, bleu: Array, new: Coordinates) -> tuple[Array, Array]:
    """Mean and standard deviation of what would be measured, noise included."""
    model = Surrogate(known, bleu)
    mean, spread = model.predict(new)
    return mean, np.sqrt(spread**2 + model.noise * model.unit**2)


def optunas(known: Coordinates, bleu: Array, new: Coordinates) -> tuple[Array, Array]:
    """As :func:`ours`, by the process of Optuna's GPSampler."""
    import torch
    from optuna._gp.gp import fit_kernel_params
    from optuna._gp.prior import DEFAULT_MINIMUM_NOISE_VAR, default_log_prior

    mean = bleu.mean()
    unit = bleu.std() or 1.0
    model = fit_kernel_params(X=known.points, Y=(bleu - mean) / unit, deterministic_objective=False,
                              is_categorical=np.zeros(known.points.shape[1], bool),
                              log_prior=default_log_prior, minimum_noise=DEFAULT_MINIMUM_NOISE_VAR,
                              gpr_cache=None, gtol=1e-2)
    found, variance = model.posterior(torch.from_numpy(new.points))
    return found.numpy() * unit + mean, np.sqrt(variance.numpy() + model.noise_var.item()) * unit


def botorchs(all_tasks: list[Task], python: str) -> list[tuple[Array, Array]]:
    """Of every task, as :func:`ours` but for noise, by the interpreter ``python``."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "tasks.npz"
        found = Path(folder) / "found.npz"
        np.savez(given,
                 **{f"{name}{number}": value
                    for number, (known, bleu, new, _) in enumerate(all_tasks)
                    for name, value in (("x", known.points), ("y", bleu), ("new", new.points))})
        subprocess.run([python, str(Path(__file__).parent / "peers" / "botorch_gp.py"), given,
                        found], check=True)
        said = np.load(found)
        return [(said[f"mean{number}"], said[f"spread{number}"])
                for number in range(len(all_tasks))]


def scores(truth: Array, mean: Array, spread: Array, unit: float) -> tuple[float, float, float]:
    """Negative log likelihood a row, share inside the 90 % interval, and RMSE."""
    off = (truth - mean) / spread
    likelihood = 0.5 * off**2 + np.log(spread / unit) + 0.5 * np.log(2 * np.pi)
    return float(likelihood.mean()), float((abs(off) <= INSIDE).mean()), float(
        np.sqrt(((truth - mean) ** 2).mean()))


def show(name: str, found: list[tuple[float, float, float]]) -> None:
    """One line of means, with the median of the likelihood."""
    likelihood, inside, error = np.mean(found, 0)
    print(f"    {name:8} nll {likelihood:10.2f} (median {np.median(found, 0)[0]:7.2f})   90 %: "
          f"{inside:5.1%}   rmse {error:6.2f}", flush=True)


def table_of(file: Path) -> Table:
    """The table in ``file``."""
    if own_tables.is_own(file):
        return own_tables.read(file, ["params.total"])
    return read(file, OBJECTIVES, curves=False)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, default=own_tables.FOLDER)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--known", type=int, nargs="+", default=[6, 12, 25, 50])
    parser.add_argument("--botorch", metavar="PYTHON")
    given = parser.parse_args()
    models: dict[str, Any] = {"ours": ours, "Optuna": optunas}
    for file in sorted(given.tables.glob("*.csv")):
        table = table_of(file)
        unit = float(np.std([row.values["bleu"] for row in table.rows if not row.failed]))
        print(f"{file.stem}: {len(table.rows)} rows, standard deviation of BLEU {unit:.2f}, "
              f"{given.seeds} seeds")
        for known in given.known:
            every = list(tasks(table, known, given.seeds))
            print(f"  {known} known")
            for name, predict in models.items():
                show(name,
                     [scores(truth, *predict(one, bleu, new), unit)
                      for one, bleu, new, truth in every])
            if given.botorch:
                said = botorchs(every, given.botorch)
                show("BoTorch", [scores(task[3], *one, unit) for task, one in zip(every, said)])


if __name__ == "__main__":
    main()
