"""Synthetic records of a study."""

import math
import random

OBJECTIVES = {"bleu": "max", "params.total": "min", "macs.total": "min"}
PROTOCOL = {"name": "forward", "source": 20, "target": 18, "vocab": 1000}


def record(number, bleu, params, macs, state="complete", label=None, in_space=True, feasible=True,
           **config):
    """Record of a trial."""
    return {"trial": number, "state": state, "label": label, "is_in_space": in_space,
            "is_feasible": feasible, "reason": "", "architecture": f"id{number}",
            "config": {"width": 8 * number, "norm": "pre", **config},
            "metrics": {} if bleu is None else {"bleu": bleu, "chrf": bleu + 10, "loss": 3.0},
            "costs": {"params.total": params, "params.non_embedding": params // 2,
                      "macs.total": macs}, "seconds": 12.0, "seed": 1}


def records(count=24, seed=1, widest=6.5):
    """Records with 10^5.5 to 10^widest params; those over two million are infeasible."""
    rng = random.Random(seed)
    trials = []
    for number in range(count):
        params = int(10 ** rng.uniform(5.5, widest))
        is_infeasible = params > 2_000_000
        bleu = None if is_infeasible else 38 * (1 - math.exp(-params / 4e5)) + rng.gauss(0, 2)
        state = "infeasible" if is_infeasible else "complete"
        trials.append(record(number, bleu, params, params * 25, state, feasible=not is_infeasible))
    return trials


def replicate(first, number, bleu, state="complete"):
    """Record of a further seed of a trial."""
    costs = first["costs"]
    trial = record(number, bleu, costs["params.total"], costs["macs.total"], state)
    return trial | {"origin": "replicate", "original": first["trial"], "seed": number,
                   "architecture": first["architecture"]}
