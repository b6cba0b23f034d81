"""NePS on a table: qLogNEHVI, MO-Hyperband, MOASHA, and PriMO without informative priors.

Objectives are scaled to 0 (best) to 1. At a rung, the measured objective is the loss at this rung,
scaled over all rows of the table. The prior of PriMO for each objective is the middle of the space.
"""

import logging
import random

import numpy as np
from table_search import Done, Task, main, nearest

BEGIN = 6
REFERENCE = 1.01
IDLE = 500  # proposals in a row without a new run, after which a search ends


def search(task: Task, seed: int) -> Done:
    """Return pairs of a row and a rung, in the order of their training."""
    import torch
    from neps.optimizers import algorithms
    from neps.optimizers.ask_and_tell import AskAndTell
    from neps.space import HPOInteger, SearchSpace

    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # NePS uses all three global generators
    method = str(task["method"])
    levels = len(task["shares"])
    names = [f"q{index}" for index in range(len(task["options"]))]
    sizes = [int(count) for count in task["options"]]
    params = {name: HPOInteger(0, max(1, 2 * (count - 1))) for name, count in zip(names, sizes)}
    steps = [round(share / task["shares"][0]) for share in task["shares"]]
    if method == "bo":
        optimizer = algorithms.bayesian_optimization(SearchSpace(params), initial_design_size=BEGIN,
                                                reference_point=(REFERENCE,) * task["y"].shape[1])
    else:
        space = SearchSpace(params | {"budget": HPOInteger(1, steps[-1], is_fidelity=True)})
        middle = {f"objective{index}": dict(zip(names, [count - 1 for count in sizes]))
                  for index in range(task["y"].shape[1])}
        more = {"prior_centers": middle} if method == "primo" else {}
        optimizer = getattr(algorithms, method)(space, **more)
    neps = AskAndTell(optimizer)
    rows = dict[str, int]()
    trained = Done()
    idle = 0
    while _spent(task, trained) < task["count"] and idle < IDLE:
        trial = neps.ask()
        number, _, _ = str(trial.id).partition("_rung_")
        level = levels - 1 if method == "bo" else int(np.searchsorted(steps, trial.config["budget"]))
        if number not in rows:
            if len(rows) == len(task["y"]):
                break
            rows[number] = nearest(task, [trial.config[name] / 2 for name in names],
                                   list(rows.values()))
        idle = idle + 1 if (rows[number], level) in trained else 0
        if not idle:
            trained.append((rows[number], level))
        neps.tell(trial, _losses(task, rows[number], level))
    return trained


def _losses(task: Task, row: int, level: int) -> list[float]:
    """Return the objectives of a row at a rung, scaled to 0 (best of the table) to 1."""
    worse = -task["y"].astype(float)
    if level < len(task["shares"]) - 1:
        worse[:, task["measured"]] = task["losses"][:, level : level + 1]
    low = np.nanmin(worse, 0)
    high = np.nanmax(worse, 0)
    return [float(loss) for loss in (worse[row] - low) / np.where(high > low, high - low, 1)]


def _spent(task: Task, trained: Done) -> float:
    """Return the compute so far, in full-budget runs."""
    ends: dict[int, int] = {}
    for row, level in trained:
        ends[row] = max(level, ends.get(row, 0))
    return float(sum(task["shares"][level] for level in ends.values()))


if __name__ == "__main__":
    main(search)
