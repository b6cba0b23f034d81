"""Synthetic scaling study with known laws."""

import numpy as np

from tests.report.trial_records import PROTOCOL, record, replicate

BASE = 1e6
STEPS = 1.6 ** np.arange(1, 5)
RULES = {"wider": 0.6, "deeper": 0.15}  # exponents of the laws, which have the same base


def law(size, c, limit=40.0, gap=15.0):
    """Score limit - gap · (size / BASE)^-c; 25 at the base by default."""
    return limit - gap * (size / BASE) ** -c


def study(rules=RULES, seeds=3, sd=0.15, rng=1, steps=STEPS, metric="bleu", sign=1,
          held_out="largest", bounds=None):
    """Records and study.json; with ``sign`` -1, a lower score is better."""
    rng = np.random.default_rng(rng)
    trials = []
    labels = {rule: [f"{rule}: {number}" for number in range(1, len(steps) + 1)] for rule in rules}

    def train(label, size, mean):
        first = None
        for _ in range(seeds):
            score = sign * (mean + rng.normal(0, sd))
            if first is None:
                first = {**record(len(trials), score, round(size), round(20 * size), label=label),
                         "origin": "reference"}
                trial = first
            else:
                trial = replicate(first, len(trials), score) | {"label": label}
            trials.append(trial | {"metrics": {metric: score, "test": {metric: score - sign}}})

    train("base", BASE, law(BASE, 1))
    for rule, c in rules.items():
        for label, step in zip(labels[rule], steps):
            train(label, BASE * step, law(BASE * step, c))
    meta = {"name": "growth", "type": "scaling",
            "architectures": ["base", *(label for rule_labels in labels.values()
                                        for label in rule_labels)],
            "base": "base",
            "scaling": {"base": "base", "rules": labels, "held_out": held_out},
            "bounds": bounds or {}, "protocol": {**PROTOCOL, "counts": {"mac": 1}},
            "data": {"name": "grammar", "hash": "abc"}, "synthetic": True, "seed": 1}
    return trials, meta


def without(records, *labels):
    """The records without those of the given labels."""
    return [record for record in records if record["label"] not in labels]
