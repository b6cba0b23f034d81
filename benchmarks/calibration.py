"""Calibration of the surrogate's uncertainty, next to Optuna's and BoTorch's Gaussian processes.

    python benchmarks/calibration.py [--tables FOLDER] [--seeds 20] [--observed 6 12 25 50]
        [--botorch PYTHON]

N random rows of each table are observed, and BLEU of all others is predicted. All models get the
same points: numbers scaled to their ranges, indicators of words, the logarithm of params. The means
over seeds are printed: negative log likelihood per row, share of rows in the 90 % interval, and
root mean squared error in BLEU. The likelihood is in units of the table's standard deviation of
BLEU; its median is also printed, since a single confident mistake dominates the mean. ``--botorch``
is a Python with BoTorch; Optuna's process needs torch. All models have their default settings.
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

from scalesearch.pareto import Objective
from scalesearch.samplers.bayes.coordinates import Coordinates
from scalesearch.samplers.bayes.surrogate import Surrogate
from scalesearch.samplers.candidate import Candidate
from scalesearch.samplers.encoding import encode_params

Array = NDArray[np.float64]
# observed points, their BLEU, the other points, their BLEU
Task = tuple[Coordinates, Array, Coordinates, Array]
INSIDE = 1.6448536269514722  # standard deviations of a 90 % interval
OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))


def tasks(table: Table, n_observed: int, seeds: int) -> Iterator[Task]:
    """Yield one task per seed."""
    rows = [row for row in table.rows if not row.failed]
    candidates = [Candidate(*encode_params(table.space, row.params)) for row in rows]
    costs = table.objectives[1].name
    points = Coordinates.of(candidates, np.array([[row.values[costs]] for row in rows]))
    bleu = np.array([row.values[table.objectives[0].name] for row in rows])
    for seed in range(1, seeds + 1):
        order = np.random.default_rng(seed).permutation(len(rows))
        observed = order[:n_observed]
        others = order[n_observed:]
        yield points[observed], bleu[observed], points[others], bleu[others]


def predict_scalesearch(x_obs: Coordinates, bleu: Array, x_new: Coordinates) -> tuple[Array, Array]:
    """Return mean and standard deviation of measured values, including noise."""
    model = Surrogate(x_obs, bleu)
    mean, spread = model.predict(x_new)
    return mean, np.hypot(spread, model.noise_std) * model.interval_factor


def predict_optuna(x_obs: Coordinates, bleu: Array, x_new: Coordinates) -> tuple[Array, Array]:
    """Predict with the Gaussian process of Optuna's GPSampler, including noise."""
    import torch
    from optuna._gp.gp import fit_kernel_params
    from optuna._gp.prior import DEFAULT_MINIMUM_NOISE_VAR, default_log_prior

    mean = bleu.mean()
    unit = bleu.std() or 1.0
    model = fit_kernel_params(X=x_obs.points, Y=(bleu - mean) / unit,
                              deterministic_objective=False,
                              is_categorical=np.zeros(x_obs.points.shape[1], bool),
                              log_prior=default_log_prior, minimum_noise=DEFAULT_MINIMUM_NOISE_VAR,
                              gpr_cache=None, gtol=1e-2)
    predicted, variance = model.posterior(torch.from_numpy(x_new.points))
    spread = np.sqrt(variance.numpy() + model.noise_var.item()) * unit
    return predicted.numpy() * unit + mean, spread


def predict_botorch(all_tasks: list[Task], python: str) -> list[tuple[Array, Array]]:
    """Predict every task with BoTorch, without noise, in the interpreter ``python``."""
    with tempfile.TemporaryDirectory() as folder:
        tasks_file = Path(folder) / "tasks.npz"
        predictions_file = Path(folder) / "predictions.npz"
        np.savez(tasks_file,  # type: ignore[arg-type]
                 **{f"{name}{number}": value
                    for number, (x_obs, bleu, x_new, _) in enumerate(all_tasks)
                    for name, value in (("x", x_obs.points), ("y", bleu), ("new", x_new.points))})
        subprocess.run([python, str(Path(__file__).parent / "peers" / "botorch_gp.py"),
                        tasks_file, predictions_file], check=True)
        predictions = np.load(predictions_file)
        return [(predictions[f"mean{number}"], predictions[f"spread{number}"])
                for number in range(len(all_tasks))]


def scores(truth: Array, mean: Array, spread: Array, unit: float) -> tuple[float, float, float]:
    """Return negative log likelihood per row, share in the 90 % interval, and RMSE."""
    off = (truth - mean) / spread
    likelihood = 0.5 * off**2 + np.log(spread / unit) + 0.5 * np.log(2 * np.pi)
    return float(likelihood.mean()), float((abs(off) <= INSIDE).mean()), float(
        np.sqrt(((truth - mean) ** 2).mean()))


def show(name: str, results: list[tuple[float, float, float]]) -> None:
    """Print a line of means, with the median of the likelihood."""
    likelihood, inside, error = np.mean(results, 0)
    print(f"    {name:11} nll {likelihood:10.2f} (median {np.median(results, 0)[0]:7.2f})   90 %: "
          f"{inside:5.1%}   rmse {error:6.2f}", flush=True)


def table_of(file: Path) -> Table:
    """Read a table in either format."""
    if own_tables.is_own(file):
        return own_tables.read(file, ["params.total"])
    return read(file, OBJECTIVES, curves=False)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, default=own_tables.FOLDER)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--observed", type=int, nargs="+", default=[6, 12, 25, 50])
    parser.add_argument("--botorch", metavar="PYTHON")
    options = parser.parse_args()
    models: dict[str, Any] = {"scalesearch": predict_scalesearch, "Optuna": predict_optuna}
    for file in sorted(options.tables.glob("*.csv")):
        table = table_of(file)
        goal = table.objectives[0].name
        unit = float(np.std([row.values[goal] for row in table.rows if not row.failed]))
        print(f"{file.stem}: {len(table.rows)} rows, standard deviation of {goal} {unit:.2f}, "
              f"{options.seeds} seeds")
        for n_observed in options.observed:
            all_tasks = list(tasks(table, n_observed, options.seeds))
            print(f"  {n_observed} observed")
            for name, predict in models.items():
                show(name,
                     [scores(truth, *predict(x_obs, bleu, x_new)[:2], unit)
                      for x_obs, bleu, x_new, truth in all_tasks])
            if options.botorch:
                predictions = predict_botorch(all_tasks, options.botorch)
                show("BoTorch", [scores(task[3], mean, spread, unit)
                                 for task, (mean, spread) in zip(all_tasks, predictions)])


if __name__ == "__main__":
    main()
