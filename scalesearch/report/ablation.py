"""The table of an ablation: named architectures with exact costs, scores over seeds, and differences to one of them.

The interval of a difference is Student's, by the variance between seeds pooled over all rows (see
:mod:`scalesearch.pareto.noise`): it also holds for a row of one seed, and is unknown where no row has two.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalesearch.errors import UserError
from scalesearch.pareto.noise import CONFIDENCE, Noise, format_percent, pool_noise, sample_std
from scalesearch.report.records import Record, get_cost, labeled_records, scores_over_seeds, training_trial
from scalesearch.report.text_tables import one_line, to_latex, to_markdown

MISSING_CELL = "–"


@dataclass(frozen=True)
class AblationRow:
    """One architecture.

    Attributes:
        name: as the study file has it.
        params, macs: exact, by the study's protocol.
        n_seeds: trainings that the score is the mean of.
        score: the mean.
        sd: the sample standard deviation between seeds; None of one seed.
        difference: of the means, to the base.
        half_width: half the interval of the difference; 0 of the base, None where the noise is
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
    """All rows, the base's first, then in the order of the study file.

    Attributes:
        metric: name of the score.
        confidence: of the intervals.
        noise: between seeds.
        unfinished: names of rows without a finished training.
    """

    metric: str
    rows: tuple[AblationRow, ...]
    confidence: float
    noise: Noise
    unfinished: tuple[str, ...] = ()

    def frame(self) -> pd.DataFrame:
        """One row an architecture, with the fields of :class:`AblationRow`."""
        return pd.DataFrame([asdict(row) for row in self.rows])

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {"metric": self.metric, "base": self.rows[0].name, "confidence": self.confidence,
                "noise": {"sd": self.noise.sd, "df": self.noise.df} if self.noise.is_known
                else None, "rows": [asdict(row) for row in self.rows],
                "unfinished": list(self.unfinished)}

    def format_cells(self) -> pd.DataFrame:
        """The table as text."""
        return pd.DataFrame([self._texts(row) for row in self.rows])

    def _texts(self, row: AblationRow) -> dict[str, str]:
        half = MISSING_CELL if row.half_width is None else f"{row.half_width:.2f}"
        return {"name": row.name, "params": f"{row.params:,}", "MACs": f"{row.macs:,}",
                self.metric: f"{row.score:.2f}"
                + (f" ± {row.sd:.2f}" if row.sd is not None else ""), "seeds": str(row.n_seeds),
                f"difference to {self.rows[0].name}": MISSING_CELL if row is self.rows[0]
                else f"{row.difference:+.2f} ± {half}"}

    def notes(self) -> list[str]:
        """What the numbers mean."""
        known = (f"Noise between seeds: standard deviation {self.noise.sd:.3g}, pooled over "
                 f"{self.noise.n_candidates} rows, {self.noise.df} degrees of freedom. Differences "
                 f"have {format_percent(self.confidence)} intervals, each for itself."
                 if self.noise.is_known
                 else "No row has a second seed, so no difference has an interval.")
        return ["The ± of a score is the standard deviation between its seeds.", known,
                *([f"Not finished: {', '.join(self.unfinished)}."] if self.unfinished else [])]

    def to_markdown(self) -> str:
        """Markdown table, then the notes."""
        return "\n".join([to_markdown(self.format_cells()), "", *self.notes()]) + "\n"

    def to_latex(self) -> str:
        """LaTeX table, then the notes as comments."""
        return to_latex(self.format_cells()) + "".join(
            f"% {one_line(note)}\n" for note in self.notes())


def build_ablation(records: Iterable[Record], metric: str, base: str | None = None,
             confidence: float = CONFIDENCE) -> Ablation:
    """Table of all labeled records of a study, replicates among them; ``base``: a label, the first by default.

    Raises:
        UserError: nothing is labeled, there is no such base, or it has no finished training.
    """
    every = list(records)
    rows = labeled_records(every)
    first = base or next(iter(rows), None)
    if first is None:
        raise UserError("the study has no named architecture to compare: name some under "
                        "`reference`. `scalesearch study front` shows what was searched",
                        code="no-named-architecture")
    if first not in rows:
        raise UserError(f"--base {first}: the study has no architecture of that name; it has "
                        f"{', '.join(rows)}", code="unknown-architecture")
    samples = {name: scores_over_seeds(record, every, metric) for name, record in rows.items()}
    if not samples[first]:
        raise UserError(f"{first}: the base has no finished training with a {metric} yet",
                        code="base-unfinished")
    # duplicates once
    noise = pool_noise({training_trial(rows[name]): sample
                        for name, sample in samples.items()}.values())
    order = [first, *(name for name in rows if name != first)]

    def row(name: str) -> AblationRow:
        record = rows[name]
        sample = samples[name]
        own = samples[first]
        same = training_trial(record) == training_trial(rows[first])
        half = 0.0 if same else noise.interval_half_width(
            confidence, len(sample), len(own)) if noise.is_known else None
        mean = float(np.mean(sample))
        return AblationRow(name, int(get_cost(record, "params.total")),
                           int(get_cost(record, "macs.total")), len(sample), mean,
                           sample_std(sample), 0.0 if same else mean - float(np.mean(own)), half)

    return Ablation(metric, tuple(row(name) for name in order if samples[name]), confidence, noise,
                    tuple(name for name in order if not samples[name]))
