"""Several trainings of one trial as one row: the mean of each score, its spread, and the interval of the mean."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalesearch.pareto.noise import decimals, pooled, spread

SD, HALF = ".sd", ".half"  # after a score's name: the columns of its spread


def with_replicates(table: pd.DataFrame, replicates: pd.DataFrame, names: Sequence[str], confidence: float
                    ) -> pd.DataFrame:
    """``table`` with means over replicates in place of the scores of the first seed alone.

    Adds the columns ``seeds``, how many trainings a complete trial's scores are the mean of; and for each score of
    which the noise is known, ``.sd`` (the sample standard deviation; missing for one seed) and ``.half`` (half the
    interval of the mean, by the noise pooled over all trials; also for those of one seed).

    Args:
        table: a row a trial, with a column ``trial``.
        replicates: a row each, with the same columns and ``of``, the trial that was trained again.
        names: columns of scores.
    """
    done = replicates[replicates["state"] == "complete"] if len(replicates) else replicates
    complete = (table["state"] == "complete").to_numpy()
    more = {trial: done.index[done["of"] == trial] for trial in set(done["of"])} if len(done) else {}
    rows = [more.get(trial, []) for trial in table["trial"]]
    table["seeds"] = [1 + len(extra) if is_done else None for extra, is_done in zip(rows, complete)]
    table["seeds"] = table["seeds"].astype("Int64")
    for name in names if more else ():
        samples = [_sample(value, done.loc[extra, name] if len(extra) else ())
                   for value, extra in zip(table[name], rows)]
        noise = pooled(samples)
        if noise.known:
            table[name] = [float(np.mean(sample)) if sample else None for sample in samples]
            table[name + SD] = [spread(sample) for sample in samples]
            table[name + HALF] = [noise.half(confidence, len(sample)) if sample and is_done else None
                                  for sample, is_done in zip(samples, complete)]
    return table


def _sample(own: Any, others: Iterable[Any]) -> list[float]:
    """The scores that there are; none where the first training has none."""
    return [] if own is None or pd.isna(own) else [float(own), *(float(x) for x in others if pd.notna(x))]


def mean_text(value: float, half: float, seeds: int) -> str:
    """``31.2 ± 0.4 (3)``: a mean to the digits that its interval leaves it, and how many seeds it is of."""
    places = decimals(half)
    return f"{value:.{places}f} ± {half:.{places}f} ({seeds})"
