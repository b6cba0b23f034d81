"""BoTorch on a table: qLogEHVI and MOMF with exact costs, or qLogNEHVI, which learns the costs.

A search starts with six random rows. After each run, a Gaussian process is fitted to each objective
that is not exact, and the remaining row with the largest acquisition value over 64 samples is
trained.

MOMF (Irshad et al. 2021) selects a row and a rung: it maximizes the gain of hypervolume per compute,
with the rung as a further objective. The losses at rungs must have the unit of the final score.
"""

from typing import Any

import numpy as np
from table_search import Done, Task, main

BEGIN = 6
SAMPLES = 64


def search(task: Task, seed: int) -> Done:
    """Return the rows in the order of their training."""
    import torch

    torch.manual_seed(seed)
    if str(task["method"]) == "momf":
        return _multi_fidelity(task, seed)
    x = torch.from_numpy(task["x"])
    y = torch.from_numpy(task["y"])
    done = np.random.default_rng(seed).permutation(len(x))[:BEGIN].tolist()
    while len(done) < min(int(task["count"]), len(x)):
        gain, wide = (_exact if str(task["method"]) == "exact" else _learned)(task, x, y, done, seed)
        left = [row for row in range(len(x)) if row not in set(done)]
        with torch.no_grad():
            done.append(left[int(torch.cat([gain(part[:, None])
                                            for part in wide[left].split(128)]).argmax())])
    return [(row, len(task["shares"]) - 1) for row in done]


def _multi_fidelity(task: Task, seed: int) -> Done:
    """Return pairs of a row and a rung, in the order of their training."""
    import torch
    from botorch.acquisition.multi_objective.multi_fidelity import MOMF
    from botorch.models import SingleTaskMultiFidelityGP
    from botorch.models.deterministic import GenericDeterministicModel
    from botorch.models.model import ModelList
    from botorch.models.transforms.input import FilterFeatures
    from botorch.sampling.get_sampler import get_sampler
    from botorch.utils.multi_objective.box_decompositions import NondominatedPartitioning

    shares = np.asarray(task["shares"])
    last = len(shares) - 1
    n_rows, n_features = task["x"].shape
    goal = int(np.flatnonzero(task["measured"])[0])
    costs = [index for index in range(task["y"].shape[1]) if index != goal]
    scores = np.column_stack([-task["losses"][:, :last], task["y"][:, goal]])  # (rows, rungs)
    reference_point = torch.tensor([*task["reference_point"][[goal, *costs]], 0.0])
    rng = np.random.default_rng(seed)
    # Columns of points: features, share, exact costs, compute.
    share_column = n_features
    cost_columns = slice(n_features + 1, n_features + 1 + len(costs))

    def points(pairs: list[tuple[int, int]], trained: dict[int, int]) -> torch.Tensor:
        rows, levels = np.array(pairs).T
        before = [shares[trained[row]] if row in trained else 0.0 for row in rows.tolist()]
        return torch.from_numpy(np.column_stack([
            task["x"][rows], shares[levels], task["y"][rows][:, costs], shares[levels] - before]))

    exact = GenericDeterministicModel(
        lambda x: torch.cat([x[..., cost_columns], x[..., share_column : share_column + 1]], -1),
        num_outputs=len(costs) + 1)
    done = [(int(row), int(rng.integers(len(shares)))) for row in rng.permutation(n_rows)[:BEGIN]]
    trained = dict(done)
    spent = float(shares[[level for _, level in done]].sum())
    while spent < float(task["count"]):
        left = [(row, level) for row in range(n_rows)
                for level in range(trained.get(row, -1) + 1, len(shares))]
        if not left:
            break
        observed = points(done, {})
        rows, levels = np.array(done).T
        observed_scores = torch.from_numpy(scores[rows, levels])
        model = _fitted(observed, observed_scores, SingleTaskMultiFidelityGP,
                        data_fidelities=[share_column],
                        input_transform=FilterFeatures(torch.arange(n_features + 1)))
        both = ModelList(model, exact)
        values = torch.cat([observed_scores[:, None], observed[:, cost_columns],
                            observed[:, share_column : share_column + 1]], 1)
        front = NondominatedPartitioning(ref_point=reference_point, Y=values)
        candidates = points(left, trained)
        sampler = get_sampler(both.posterior(candidates[:1]), torch.Size([SAMPLES]), seed=seed)
        gain = MOMF(both, reference_point.tolist(), front, sampler, cost_call=lambda x: x[..., -1:])
        with torch.no_grad():
            best = int(torch.cat([gain(part[:, None]) for part in candidates.split(128)]).argmax())
        row, level = left[best]
        spent += float(candidates[best, -1])
        trained[row] = level
        done.append((row, level))
    return done


def _fitted(x: Any, y: Any, model_type: Any = None, **more: Any) -> Any:
    from botorch import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    model = (model_type or SingleTaskGP)(x, y[:, None], outcome_transform=Standardize(1), **more)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def _exact(task: Task, x: Any, y: Any, done: list[int], seed: int) -> tuple[Any, Any]:
    """Return qLogEHVI, and points with exact costs as columns that the surrogate does not use."""
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
    """Return qLogNEHVI with a surrogate for each objective, and the points."""
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
