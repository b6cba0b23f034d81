"""Ablation table: costs, scores over seeds, and differences to a base.

The interval of a difference is Student's t, with the variance between seeds pooled over all trials
of the study (see :mod:`scalesearch.pareto.noise`). It also holds for rows with one seed. If no
trial has two seeds, the interval is unknown.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from scalesearch.errors import UserError, option
from scalesearch.pareto.noise import CONFIDENCE, Noise, format_percent, pool_noise, sample_std
from scalesearch.report.labels import MISSING_CELL, paper_heading
from scalesearch.report.records import (
    Record,
    check_metric,
    get_cost,
    labeled_records,
    scores_by_trial,
    training_trial,
)
from scalesearch.report.text_tables import one_line, to_latex, to_markdown
from scalesearch.spaces.syntax.diagnostics import format_alternatives
from scalesearch.tasks import format_score
from scalesearch.terminal import format_count, format_sizes


@dataclass(frozen=True)
class AblationRow:
    """One architecture of an ablation.

    Attributes:
        name: label in the study file.
        params, macs: exact costs under the study's protocol.
        n_seeds: number of training runs that ``score`` averages.
        score: mean over seeds.
        sd: sample standard deviation between seeds; None for one seed.
        difference: mean score minus that of the base.
        half_width: half the interval of the difference; 0 for the base, None if the noise is
            unknown.
    """

    name: str
    params: int
    macs: int
    n_seeds: int
    score: float
    sd: float | None
    difference: float
    half_width: float | None


@dataclass(frozen=True)
class Ablation:
    """Ablation table.

    The base is the first row, the others keep the order of the study file.

    Attributes:
        metric: name of the score.
        confidence: confidence level of the intervals.
        noise: noise between seeds.
        unfinished: names of rows without a finished training run.
        cost_note: protocol of the costs.
    """

    metric: str
    rows: tuple[AblationRow, ...]
    confidence: float
    noise: Noise
    unfinished: tuple[str, ...] = ()
    cost_note: str = ""

    def frame(self) -> pd.DataFrame:
        """Data frame with a row per architecture and the fields of :class:`AblationRow`."""
        return pd.DataFrame([asdict(row) for row in self.rows])

    def format_cells(self) -> pd.DataFrame:
        """Format the table as a data frame of text cells."""
        base = self.rows[0]
        rows = []

        def shown(value: float, sign: str = "-") -> str:
            return format_score(value, self.metric, sign)

        for row in self.rows:
            if row is base:
                difference = MISSING_CELL
            elif row.half_width == 0 and (self.noise.sd or not self.noise.is_known):
                difference = "same run"  # without noise, all half-widths are 0
            else:
                interval = "" if row.half_width is None else f" ± {shown(row.half_width)}"
                difference = f"{shown(row.difference, '+')}{interval}"
            score = shown(row.score)
            if self.noise.is_known:
                half_width = self.noise.interval_half_width(self.confidence, row.n_seeds)
                score += f" ± {shown(half_width)}"
            rows.append({"name": row.name, "params": f"{row.params:,}", "MACs": f"{row.macs:,}",
                         self.metric: score, "seeds": str(row.n_seeds),
                         f"difference to {base.name}": difference})
        return pd.DataFrame(rows)

    def notes(self) -> list[str]:
        """Sentences on the meaning of the numbers, and the rows that are not finished."""
        noise = (f"± is the {format_percent(self.confidence)} interval of a mean or a difference, "
                 f"by the noise between seeds (standard deviation {self.noise.sd:.3g}, pooled over "
                 f"{format_count(self.noise.n_candidates, 'architecture')}, "
                 f"{format_count(self.noise.df, 'degree')} of freedom), without a correction for "
                 "multiple comparisons." if self.noise.is_known
                 else "No architecture has a second seed, so scores and differences have no "
                      "intervals.")
        unfinished = ", ".join(map(repr, self.unfinished))
        return [noise, *([f"Without a finished run: {unfinished}."] if unfinished else []),
                *filter(None, [self.cost_note])]

    def to_markdown(self) -> str:
        """Format as a Markdown table, followed by the notes."""
        return "\n".join([to_markdown(self.format_cells()), "", *self.notes()]) + "\n"

    def to_latex(self) -> str:
        """Format as a LaTeX table with costs in thousands, …, and the notes as comments."""
        params, params_unit = format_sizes(row.params for row in self.rows)
        macs, macs_unit = format_sizes(row.macs for row in self.rows)
        cells = self.format_cells().assign(params=params, MACs=macs)
        headings = ["Name", paper_heading("params.total", params_unit),
                    paper_heading("macs.total", macs_unit), paper_heading(self.metric), "Seeds",
                    f"Difference to {self.rows[0].name}"]
        return to_latex(cells.set_axis(headings, axis="columns")) + "".join(
            f"% {one_line(note)}\n" for note in self.notes())


def build_ablation(records: Iterable[Record], metric: str, base: str | None = None,
                   confidence: float = CONFIDENCE) -> Ablation:
    """Compare all labeled architectures of a study with a base.

    Args:
        records: all records of the study, including replicates.
        metric: name of the score, such as ``bleu``.
        base: label of the base; by default the first label.
        confidence: confidence level of the intervals.

    Raises:
        UserError: no record has a label, no run has the metric, or the base does not exist or has
            no finished training run.
    """
    records = list(records)
    labeled = labeled_records(records)
    base = base or next(iter(labeled), None)
    if base is None:
        raise UserError("the study has no named architecture to compare: name some under "
                        "`reference`. `scalesearch study front` shows the searched candidates",
                        code="no-named-architecture")
    if base not in labeled:
        raise UserError(f"{option('base', base)}: the study has no architecture of that name; it "
                        f"has {format_alternatives(labeled)}", code="unknown-architecture")
    check_metric(records, metric)
    scores = scores_by_trial(records, metric)
    samples = {name: scores[training_trial(record)] for name, record in labeled.items()}
    base_sample = samples[base]
    if not base_sample:
        raise UserError(f"{base}: the base has no finished training run with a {metric} yet",
                        code="base-unfinished")
    noise = pool_noise(scores.values())
    order = [base, *(name for name in labeled if name != base)]

    def build_row(name: str) -> AblationRow:
        record = labeled[name]
        sample = samples[name]
        mean = float(np.mean(sample))
        difference = mean - float(np.mean(base_sample))
        half_width = (noise.interval_half_width(confidence, len(sample), len(base_sample))
                      if noise.is_known else None)
        if training_trial(record) == training_trial(labeled[base]):
            difference = half_width = 0.0
        return AblationRow(name, int(get_cost(record, "params.total")),
                           int(get_cost(record, "macs.total")), len(sample), mean,
                           sample_std(sample), difference, half_width)

    return Ablation(metric, tuple(build_row(name) for name in order if samples[name]), confidence,
                    noise, tuple(name for name in order if not samples[name]))
