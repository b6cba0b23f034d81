"""Selection of the trial of a study to export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError, option
from scalesearch.report.labels import better_direction
from scalesearch.studies.results.results import Results
from scalesearch.studies.trials.trial import Origin, State

if TYPE_CHECKING:
    import pandas as pd


def select_trial(results: Results, objective: str | None, trial: int | None,
                 condition: str | None = None) -> tuple[int, str]:
    """Select a trial to export.

    If a candidate has several seeds, its first run is selected: the run with the best score would
    be selected by chance (winner's curse). Other runs can be selected by number.

    Args:
        objective: metric or cost by which the best trial of the front is selected; the first
            objective if not given.
        trial: number of the trial; overrides the other arguments.
        condition: condition such as ``params.decoder <= 1M and bleu >= 30``. The best of all
            eligible candidates that meet it is selected.

    Returns:
        The number of the trial and the reason of the selection.

    Raises:
        UserError: no trial meets the request, or ``objective`` is a test score.
    """
    from scalesearch.report.table import format_cell
    from scalesearch.report.trial_filter import filter_trials

    if trial is not None:
        chosen = results.study.trials.get(trial)
        if chosen is None or chosen.state != State.COMPLETE:
            raise UserError(f"trial {trial} is not a finished candidate of this study",
                            code="no-such-trial")
        seed_words = (f"trial {chosen.original} with seed {chosen.seed}, "
                      if chosen.origin == Origin.REPLICATE else "")
        return trial, f"{seed_words}selected by number"
    name = objective or next(iter(results.objectives))
    if name.startswith("test."):
        raise UserError(f"{option('best', name)}: a trial selected by its test score has no "
                        f"unbiased test score. Select by {name.removeprefix('test.')}, the score on the "
                        "validation set, or give the number of a trial", code="selection-on-test")
    rows = results.front if condition is None else _eligible(results)
    group = "the front" if condition is None else f"the trials with {condition}"
    if not len(results.view.completed):
        raise UserError(f"{results.study.folder}: no finished trials, so none can be "
                        "selected", code="nothing-finished")
    if name not in rows.columns or not len(rows):
        raise UserError(f"the front has no {name}; its objectives are "
                        f"{', '.join(results.objectives)}",
                        code="unknown-objective")
    rows = rows if condition is None else filter_trials(rows, condition)
    rows = rows[rows[name].notna()]
    if not len(rows):
        requirement = f"has {name}" if condition is None else f"meets {condition}"
        raise UserError(f"no finished candidate {requirement}", code="nothing-meets")
    is_minimized = results.objectives.get(name, better_direction(name)) == "min"
    values: Any = rows[name].astype(float)
    row = rows.loc[values.idxmin() if is_minimized else values.idxmax()]
    seed = results.study.meta.seed
    weights = f"; the weights are those of seed {seed}" if row["seeds"] > 1 else ""
    return int(row["trial"]), f"best {name} of {group} ({format_cell(row, name)}{weights})"


def _eligible(results: Results) -> pd.DataFrame:
    """Rows of the trials that may be on the front, with all costs."""
    from scalesearch.report.table import eligible_mask

    rows = results.table[eligible_mask(results.table)]
    costs = [results.study.trials[trial].costs for trial in rows["trial"]]
    missing = sorted({name for trial_costs in costs for name in trial_costs}
                     .difference(rows.columns))
    return rows.assign(**{name: [trial_costs.get(name) for trial_costs in costs]
                          for name in missing})
