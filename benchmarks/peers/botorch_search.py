"""BoTorch on a table: qLogEHVI with the costs given exactly, or qLogNEHVI, which learns them.

It begins with six random rows, fits SingleTaskGP to each goal that is learned after every training,
and takes of all rows that are left the one of the largest acquisition, over 64 samples.
"""

from typing import Any

import numpy as np
from table_search import Done, Task, main

BEGIN = 6
SAMPLES = 64


def search(task: Task, seed: int) -> Done:
    """The rows in the order of their training."""
    import torch

    torch.manual_seed(seed)
    x = torch.from_numpy(task["x"])
    y = torch.from_numpy(task["y"])
    done = np.random.default_rng(seed).permutation(len(x))[:BEGIN].tolist()
    while len(done) < min(int(task["count"]), len(x)):
        gain, wide = (_exact if str(task["way"]) == "exact" else _learned)(task, x, y, done, seed)
        left = [row for row in range(len(x)) if row not in set(done)]
        with torch.no_grad():
            done.append(left[int(torch.cat([gain(part[:, None])
                                            for part in wide[left].split(128)]).argmax())])
    return [(row, len(task["shares"]) - 1) for row in done]


def _fitted(x: Any, y: Any, **more: Any) -> Any:
    from botorch import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    model = SingleTaskGP(x, y[:, None], outcome_transform=Standardize(1), **more)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def _exact(task: Task, x: Any, y: Any, done: list[int], seed: int) -> tuple[Any, Any]:
    """qLogEHVI, and the points with the costs as further columns, which the surrogate does not see."""
    import torch
    from botorch.acquisition.multi_objective.logei import qLogExpectedHypervolumeImprovement
    from botorch.models.deterministic import GenericDeterministicModel
    from botorch.models.model import ModelList
    from botorch.models.transforms.input import FilterFeatures
    from botorch.sampling.get_sampler import get_sampler
    from botorch.utils.multi_objective.box_decompositions import NondominatedPartitioning

    goal = int(np.flatnonzero(task["measured"])[0])
    costs = [index for index in range(y.shape[1]) if index != goal]
    order = [goal, *costs]
    wide = torch.cat([x, y[:, costs]], 1)
    reference_point = torch.from_numpy(task["reference_point"])[order]
    model = _fitted(wide[done], y[done, goal],
                    input_transform=FilterFeatures(torch.arange(x.shape[1])))
    exact = GenericDeterministicModel(lambda points: points[..., x.shape[1]:], num_outputs=len(costs))
    both = ModelList(model, exact)
    front = NondominatedPartitioning(ref_point=reference_point, Y=y[done][:, order])
    sampler = get_sampler(both.posterior(wide[:1]), torch.Size([SAMPLES]), seed=seed)
    return qLogExpectedHypervolumeImprovement(both, reference_point.tolist(), front, sampler), wide


def _learned(task: Task, x: Any, y: Any, done: list[int], seed: int) -> tuple[Any, Any]:
    """qLogNEHVI over a surrogate for each goal, none of which is known."""
    import torch
    from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
    from botorch.models import ModelListGP
    from botorch.sampling.get_sampler import get_sampler

    models = ModelListGP(*(_fitted(x[done], y[done, index]) for index in range(y.shape[1])))
    sampler = get_sampler(models.posterior(x[:1]), torch.Size([SAMPLES]), seed=seed)
    return qLogNoisyExpectedHypervolumeImprovement(
        models, task["reference_point"].tolist(), x[done], sampler, prune_baseline=True), x


if __name__ == "__main__":
    main(search)
