"""BoTorch's qLogEHVI as a search on a table, with the costs given exactly; by an interpreter of its own.

Called with the paths of two .npz files it searches, under that interpreter; ``regrets`` calls it so. It begins with six
random rows, fits SingleTaskGP to the measured goal after each, and takes of all rows that are left the one of the
largest qLogExpectedHypervolumeImprovement, the costs being deterministic. A failed row counts with the worst value.
"""

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BEGIN = 6
SAMPLES = 64


def regrets(table: Any, python: str, seeds: Sequence[int], ends: Sequence[int]) -> NDArray[np.float64]:
    """(seeds, ends) regret in per cent after so many full trainings."""
    from scalesearch.samplers.coordinates import Coordinates
    from scalesearch.samplers.encoding import encode
    from scalesearch.samplers.sheet import Sheet

    values = table.values(range(len(table.rows)))
    failed = np.array([row.failed for row in table.rows])
    signs = np.array([-one.sign for one in table.objectives])  # BoTorch maximises
    measured = np.array([one.measured for one in table.objectives])
    worst = table.corner * signs
    y = np.where(failed[:, None] & measured, worst, values * signs)
    points = Coordinates.of([Sheet(*encode(table.space, row.answers)) for row in table.rows], values[:, ~measured])
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "table.npz", Path(folder) / "order.npz"
        np.savez(given, x=points.points, y=y, corner=worst, measured=measured, seeds=list(seeds), count=max(ends))
        subprocess.run([python, __file__, given, found], check=True)
        orders = np.load(found)["orders"]

    def left(rows: Any) -> float:
        done = [int(row) for row in rows if not failed[row]]
        return 100 * (1 - table.volume(table.values(done)) / table.best)

    return np.array([[left(order[:end]) for end in ends] for order in orders])


def search(task: Any, seed: int) -> list[int]:
    """The rows in the order of their training."""
    import torch
    from botorch import fit_gpytorch_mll
    from botorch.acquisition.multi_objective.logei import qLogExpectedHypervolumeImprovement
    from botorch.models import SingleTaskGP
    from botorch.models.deterministic import GenericDeterministicModel
    from botorch.models.model import ModelList
    from botorch.models.transforms import Standardize
    from botorch.models.transforms.input import FilterFeatures
    from botorch.sampling.get_sampler import get_sampler
    from botorch.utils.multi_objective.box_decompositions import NondominatedPartitioning
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(seed)
    x, y = torch.from_numpy(task["x"]), torch.from_numpy(task["y"])
    corner, goal = torch.from_numpy(task["corner"]), int(np.flatnonzero(task["measured"])[0])
    costs = [at for at in range(y.shape[1]) if at != goal]
    # The costs stand as further columns, from which the exact models read them; the surrogate does not see these.
    wide = torch.cat([x, y[:, costs]], 1)
    done = np.random.default_rng(seed).permutation(len(x))[:BEGIN].tolist()
    while len(done) < min(int(task["count"]), len(x)):
        model = SingleTaskGP(wide[done], y[done, goal][:, None], outcome_transform=Standardize(1),
                             input_transform=FilterFeatures(torch.arange(x.shape[1])))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        front = NondominatedPartitioning(ref_point=corner[[goal, *costs]], Y=y[done][:, [goal, *costs]])
        exact = GenericDeterministicModel(lambda given: given[..., x.shape[1]:], num_outputs=len(costs))
        left = [row for row in range(len(x)) if row not in set(done)]
        both = ModelList(model, exact)
        sampler = get_sampler(both.posterior(wide[:1]), torch.Size([SAMPLES]), seed=seed)
        gain = qLogExpectedHypervolumeImprovement(both, corner[[goal, *costs]].tolist(), front, sampler)
        with torch.no_grad():
            done.append(left[int(torch.cat([gain(part[:, None]) for part in wide[left].split(128)]).argmax())])
    return done


def main() -> None:
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    task = dict(np.load(sys.argv[1]))
    np.savez(sys.argv[2], orders=np.array([search(task, int(seed)) for seed in task["seeds"]]))


if __name__ == "__main__":
    main()
