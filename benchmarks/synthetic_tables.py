"""Synthetic tables on which early losses mislead, to test searches with rungs.

The loss per character of a candidate follows a scaling law in its params, with random effects of
the vocabulary, the learning rate and their interactions. During a run, it approaches this value at
a speed that depends on the type of the table:

- ``size``: large models are slow, so that they are behind at all rungs and best at the end.
- ``vocabulary``: models with a large vocabulary are slow, deep ones more than shallow ones.
- ``rate``: models with a small learning rate are slow and best at the end.
- ``random``: the speed is random, so that early ranks say little.
- ``diverged``: speeds are nearly equal; some models of the largest learning rate diverge late.

Losses are per token, so that they are only comparable within a vocabulary.
"""

from __future__ import annotations

import zlib
from itertools import product

import numpy as np
from tabular import Row, Table

from scalesearch.pareto import Objective

TYPES = ("size", "vocabulary", "rate", "random", "diverged")
OBJECTIVES = (Objective("score", "max", True), Objective("params", "min", False))
DEPTHS = (1, 2, 3, 4, 6)
WIDTHS = (64, 96, 128, 192, 256, 384)
CHARACTERS_PER_TOKEN = {1000: 2.2, 4000: 3.2, 16000: 4.1}  # by vocabulary
LEARNING_RATES = (0.3e-3, 1e-3, 3e-3)
N_ROWS = 180
N_CHECKPOINTS = 18  # the default rungs are at the 2nd and the 6th


def make_table(table_type: str, seed: int) -> Table:
    """Return a table of a type, with random effects of ``seed``."""
    rng = np.random.default_rng([seed, zlib.crc32(table_type.encode())])
    vocabulary_effects = dict(zip(CHARACTERS_PER_TOKEN, rng.normal(0, 0.03, 3)))
    rate_effects = dict(zip(LEARNING_RATES, rng.normal(0, 0.03, 3)))
    if table_type == "rate":
        rate_effects = dict(zip(LEARNING_RATES, (-0.06, 0.0, 0.06)))
    depth_effects = rng.normal(0, 0.02, (len(DEPTHS), 3))  # by depth and vocabulary
    exponent = rng.uniform(0.15, 0.3)
    configurations = list(product(DEPTHS, WIDTHS, CHARACTERS_PER_TOKEN, LEARNING_RATES))
    rows = []
    for index in sorted(rng.choice(len(configurations), N_ROWS, replace=False)):
        depth, width, vocabulary, rate = configurations[index]
        params = 12 * depth * width**2 + vocabulary * width
        vocabulary_index = list(CHARACTERS_PER_TOKEN).index(vocabulary)
        loss = (0.4 + 0.5 * (12 * depth * width**2 / 1e5) ** -exponent
                + vocabulary_effects[vocabulary] + rate_effects[rate]
                + depth_effects[DEPTHS.index(depth), vocabulary_index] + rng.normal(0, 0.008))
        slowness = np.exp(rng.normal(0, 1.0 if table_type == "random" else 0.1))
        match table_type:
            case "size":
                slowness *= (params / 1e6) ** 0.5
            case "vocabulary":
                slowness *= (vocabulary / 4000) ** 0.5 * depth**0.5
            case "rate":
                slowness *= (1e-3 / rate) ** 0.6
        progress = np.arange(1, N_CHECKPOINTS + 1) / N_CHECKPOINTS
        curve = loss + 0.15 * slowness * (progress**-0.5 - 1)
        if table_type == "diverged" and rate == max(LEARNING_RATES) and rng.random() < 0.25:
            curve[N_CHECKPOINTS // 2 :] += 2.0
        rows.append(Row({"depth": depth, "width": width, "vocabulary": vocabulary, "rate": rate},
                        {"score": -100 * curve[-1] + rng.normal(0, 0.5), "params": params},
                        tuple((curve * CHARACTERS_PER_TOKEN[vocabulary]).tolist()),
                        params, unit=f"token of {vocabulary}"))
    return Table(rows, OBJECTIVES)
