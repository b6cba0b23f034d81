"""Fits BoTorch's SingleTaskGP, as it comes, to the tasks of an .npz file and writes what it predicts.

    PYTHON botorch_gp.py IN.npz OUT.npz

Of each task N the file has xN (known points, columns), yN and newN; out come meanN and spreadN,
without noise.
"""

import sys
import warnings

import numpy as np
import torch
from botorch import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood

warnings.filterwarnings("ignore")


def predicted(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation at ``new``."""
    model = SingleTaskGP(torch.from_numpy(x), torch.from_numpy(y)[:, None],
                         outcome_transform=Standardize(1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    with torch.no_grad():
        posterior = model.posterior(torch.from_numpy(new))
    return posterior.mean[:, 0].numpy(), posterior.variance[:, 0].clamp(min=1e-12).sqrt().numpy()


def main() -> None:
    torch.set_num_threads(1)
    tasks = np.load(sys.argv[1])
    predictions = {}
    for task in range(sum(name.startswith("new") for name in tasks)):
        mean, spread = predicted(tasks[f"x{task}"], tasks[f"y{task}"], tasks[f"new{task}"])
        predictions |= {f"mean{task}": mean, f"spread{task}": spread}
    np.savez(sys.argv[2], **predictions)


if __name__ == "__main__":
    main()
