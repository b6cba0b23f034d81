"""Made-up records of a study, as ``report`` reads them."""

import math
import random

OBJECTIVES = {"bleu": "max", "params.total": "min", "macs.total": "min"}
PROTOCOL = {"name": "forward", "source": 20, "target": 18, "vocab": 1000}


def record(number, bleu, params, macs, state="complete", label=None, in_space=True, feasible=True,
           **config):
    """One trial's record."""
    return {"trial": number, "state": state, "label": label, "is_in_space": in_space,
            "is_feasible": feasible, "reason": "", "architecture": f"id{number}",
            "config": {"width": 8 * number, "norm": "pre", **config},
            "metrics": {} if bleu is None else {"bleu": bleu, "chrf": bleu + 10, "loss": 3.0},
            "costs": {"params.total": params, "params.non_embedding": params // 2,
                      "macs.total": macs}, "seconds": 12.0, "seed": 1}


def records(count=24, seed=1, widest=6.5):
    """A study over params from 10^5.5 to 10^widest, some over a budget of two million."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        params = int(10 ** rng.uniform(5.5, widest))
        over = params > 2_000_000
        bleu = None if over else 38 * (1 - math.exp(-params / 4e5)) + rng.gauss(0, 2)
        made.append(record(number, bleu, params, params * 25, "infeasible" if over else "complete",
                           feasible=not over))
    return made


def again(first, number, bleu, state="complete"):
    """The record of another training of a candidate."""
    made = record(number, bleu, first["costs"]["params.total"], first["costs"]["macs.total"], state)
    return made | {"origin": "replicate", "original": first["trial"], "seed": number,
                   "architecture": first["architecture"]}
