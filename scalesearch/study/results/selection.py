"""Chooses the trial of a study to export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.report.labels import better_direction
from scalesearch.study.results.results import Results
from scalesearch.study.trials.trial import Origin, State

if TYPE_CHECKING:
    import pandas as pd


def select_trial(results: Results, objective: str | None, trial: int | None,
                 condition: str | None = None) -> tuple[int, str]:
    """Chooses the trial to export: the given one, or the front's best by ``objective``.

    Returns its number and the reason.

    ``objective`` is a metric or cost; unless given, the first objective. ``condition`` is a
    condition such as ``params.decoder <= 1M and bleu >= 30``: then it is the best of all eligible
    candidates that meet it. Of a candidate with several seeds it is the first training, since the
    best by its score would be the luckiest; the others are to be had by their own numbers.

    Raises:
        UserError: nothing like that is there, or ``objective`` is a score on test.
    """
    from scalesearch.report.table import format_cell
    from scalesearch.report.trial_filter import filter_trials

    if trial is not None:
        chosen = results.study.trials.get(trial)
        if chosen is None or chosen.state != State.COMPLETE:
            raise UserError(f"trial {trial} is not a finished candidate of this study",
                            code="no-such-trial")
        again = (f"trial {chosen.original} with seed {chosen.seed}, "
                 if chosen.origin == Origin.REPLICATE else "")
        return trial, f"{again}as asked"
    name = objective or next(iter(results.objectives))
    if name.startswith("test."):
        raise UserError(f"--best {name}: what is chosen by its test scores has no test score left "
                        f"to report. Choose by {name.removeprefix('test.')}, which is of the "
                        "validation text, or name a trial", code="selection-on-test")
    rows, among = (results.front, "the front") if condition is None else (
        _eligible(results), f"those with {condition}")
    if not len(results.finished):
        raise UserError(f"{results.study.folder}: no candidate is finished yet, so there is "
                        "nothing to choose", code="nothing-finished")
    if name not in rows.columns or not len(rows):
        raise UserError(f"there is no {name} on the front; it has {', '.join(results.objectives)}",
                        code="unknown-objective")
    rows = rows if condition is None else filter_trials(rows, condition)
    rows = rows[rows[name].notna()]
    if not len(rows):
        what = f"has {name}" if condition is None else f"meets {condition}"
        raise UserError(f"no finished candidate {what}", code="nothing-meets")
    low = results.objectives.get(name, better_direction(name)) == "min"
    values: Any = rows[name].astype(float)
    at = values.idxmin() if low else values.idxmax()
    row = rows.loc[at]
    seed = results.study.meta.seed
    weights = f"; the weights are those of seed {seed}" if row["seeds"] > 1 else ""
    return int(row["trial"]), f"best {name} of {among} ({format_cell(row, name)}{weights})"


def _eligible(results: Results) -> pd.DataFrame:
    """The rows of the table that may be on the front, each with all its costs."""
    from scalesearch.report.table import eligible_mask

    rows = results.table[eligible_mask(results.table)]
    costs = [results.study.trials[trial].costs for trial in rows["trial"]]
    more = sorted({name for one in costs for name in one}.difference(rows.columns))
    return rows.assign(**{name: [one.get(name) for one in costs] for name in more})
