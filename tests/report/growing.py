"""A made-up scaling study of which the laws are known."""

import numpy as np

from tests.report.made_up import PROTOCOL, again, record

BASE = 1e6
STEPS = 1.6 ** np.arange(1, 5)
RULES = {"wider": 0.6, "deeper": 0.15}  # exponents of laws that all begin at the base


def law(size, c, limit=40.0, gap=15.0):
    """40 - 15 · (size / base)^-c: 25 at the base."""
    return limit - gap * (size / BASE) ** -c


def study(rules=RULES, seeds=3, sd=0.15, rng=1, steps=STEPS, metric="bleu", sign=1,
          held_out="largest", bounds=None):
    """Records and study.json; ``sign`` -1 gives scores of which less is better."""
    rng = np.random.default_rng(rng)
    made = []
    labels = {rule: [f"{rule}: {number}" for number in range(1, len(steps) + 1)] for rule in rules}

    def train(label, size, mean):
        first = None
        for _ in range(seeds):
            score = sign * (mean + rng.normal(0, sd))
            if first is None:
                first = {**record(len(made), score, round(size), round(20 * size), label=label),
                         "origin": "reference"}
                one = first
            else:
                one = again(first, len(made), score) | {"label": label}
            made.append(one | {"metrics": {metric: score, "test": {metric: score - sign}}})

    train("base", BASE, law(BASE, 1))
    for rule, c in rules.items():
        for label, step in zip(labels[rule], steps):
            train(label, BASE * step, law(BASE * step, c))
    meta = {"name": "growth", "type": "scaling",
            "architectures": ["base", *(one for some in labels.values() for one in some)], "base": "base",
            "scaling": {"base": "base", "rules": labels, "held_out": held_out},
            "bounds": bounds or {}, "protocol": {**PROTOCOL, "counts": {"mac": 1}},
            "data": {"name": "grammar", "hash": "abc"}, "synthetic": True, "seed": 1}
    return made, meta


def without(records, *labels):
    """The records of all others."""
    return [record for record in records if record["label"] not in labels]
