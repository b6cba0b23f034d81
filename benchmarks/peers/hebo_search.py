"""HEBO on a table: GeneralBO, which learns all objectives, without rungs."""

import numpy as np
from table_search import Done, Task, main, nearest

BEGIN = 6


def search(task: Task, seed: int) -> Done:
    """Return the rows in the order of their training."""
    import pandas as pd
    import torch
    from hebo.design_space.design_space import DesignSpace
    from hebo.optimizers.general import GeneralBO

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # HEBO uses the global generator
    names = [f"q{index}" for index in range(len(task["options"]))]
    n_objectives = task["y"].shape[1]
    space = DesignSpace().parse([{"name": name, "type": "num", "lb": 0,
                                  "ub": max(1, int(count) - 1)}
                                 for name, count in zip(names, task["options"])])
    optimizer = GeneralBO(space, num_obj=n_objectives, num_constr=0, rand_sample=BEGIN,
                     ref_point=-task["reference_point"][None])
    done: list[int] = []
    while len(done) < min(int(task["count"]), len(task["y"])):
        suggestion = optimizer.suggest()
        row = nearest(task, suggestion[names].to_numpy(float)[0], done)
        optimizer.observe(pd.DataFrame(task["codes"][row][None].astype(float), columns=names),
                     -task["y"][row][None])
        done.append(row)
    return [(row, len(task["shares"]) - 1) for row in done]


if __name__ == "__main__":
    main(search)
