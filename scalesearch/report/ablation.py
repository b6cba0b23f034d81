"""The table of an ablation: named architectures with their exact cost, score over seeds, and difference to one of them.

The interval of a difference is Student's, by the variance between seeds pooled over all rows (see
:mod:`scalesearch.pareto.noise`): it also holds for a row of one seed, and is unknown where no row has two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalesearch.errors import UserError
from scalesearch.pareto.noise import CONFIDENCE, Noise, percent, pooled, spread

HEADINGS = ("name", "params", "MACs", "score", "seeds", "difference")
UNKNOWN = "–"
LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
         "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


@dataclass(frozen=True)
class Row:
    """One architecture.

    Attributes:
        name: as the study file has it.
        params, macs: exact, by the study's protocol.
        seeds: trainings that the score is the mean of.
        score: the mean.
        sd: the sample standard deviation between seeds; None of one seed.
        difference: of the means, to the base.
        half: half the interval of the difference; 0 of the base, None where the noise is unknown.
    """

    name: str
    params: int
    macs: int
    seeds: int
    score: float
    sd: float | None
    difference: float
    half: float | None


@dataclass(frozen=True)
class Ablation:
    """All rows, in the order of the study file, the first of them the base's.

    Attributes:
        metric: what the score is.
        confidence: of the intervals.
        noise: between seeds.
        unfinished: names of rows without a finished training.
    """

    metric: str
    rows: tuple[Row, ...]
    confidence: float
    noise: Noise
    unfinished: tuple[str, ...] = ()

    def frame(self) -> pd.DataFrame:
        """One row an architecture, with the fields of :class:`Row`."""
        return pd.DataFrame([asdict(row) for row in self.rows])

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {"metric": self.metric, "base": self.rows[0].name, "confidence": self.confidence,
                "noise": {"sd": self.noise.sd, "df": self.noise.df} if self.noise.known else None,
                "rows": [asdict(row) for row in self.rows], "unfinished": list(self.unfinished)}

    def headings(self) -> tuple[str, ...]:
        """Of the columns, for people."""
        return tuple({"score": self.metric, "difference": f"difference to {self.rows[0].name}"}.get(name, name)
                     for name in HEADINGS)

    def cells(self) -> list[tuple[str, ...]]:
        """The text of each row."""
        return [self._cells(row) for row in self.rows]

    def notes(self) -> list[str]:
        """What the numbers mean."""
        known = (f"Noise between seeds: standard deviation {self.noise.sd:.3g}, pooled over {self.noise.candidates} "
                 f"rows, {self.noise.df} degrees of freedom. Differences have {percent(self.confidence)} intervals, "
                 "each for itself." if self.noise.known else
                 "No row has a second seed, so no difference has an interval.")
        return ["The ± of a score is the standard deviation between its seeds.", known,
                *([f"Not finished: {', '.join(self.unfinished)}."] if self.unfinished else [])]

    def _cells(self, row: Row) -> tuple[str, ...]:
        score = f"{row.score:.2f}" + (f" ± {row.sd:.2f}" if row.sd is not None else "")
        difference = f"{row.difference:+.2f} ± " + (UNKNOWN if row.half is None else f"{row.half:.2f}")
        return (row.name, f"{row.params:,}", f"{row.macs:,}", score, str(row.seeds),
                UNKNOWN if row is self.rows[0] else difference)


def ablation(records: Iterable[Mapping[str, Any]], metric: str, base: str | None = None,
             confidence: float = CONFIDENCE) -> Ablation:
    """The table of all labelled records.

    Args:
        records: of a study: references with a ``label``, further trainings (``origin: seed``) with ``of``.
        metric: the score.
        base: a label; the first one, unless given.

    Raises:
        UserError: nothing is labelled, there is no such base, or it has no finished training.
    """
    every = list(records)
    named = {str(record["label"]): record for record in every if record.get("label") and record.get("origin") != "seed"}
    first = base or next(iter(named), None)
    if first is None:
        raise UserError("the study has no named architecture; name some under `reference`")
    if first not in named:
        raise UserError(f"--base {first}: the study has no architecture of that name; it has {', '.join(named)}")
    samples = {name: scores_of(record, every, metric) for name, record in named.items()}
    if not samples[first]:
        raise UserError(f"{first}: the base has no finished training with a {metric} yet")
    noise = pooled({_number(named[name]): sample for name, sample in samples.items()}.values())  # twins count once
    order = [first, *(name for name in named if name != first)]
    rows = tuple(_row(name, named[name], samples[name], named[first], samples[first], noise, confidence)
                 for name in order if samples[name])
    return Ablation(metric, rows, confidence, noise, tuple(name for name in order if not samples[name]))


def scores_of(record: Mapping[str, Any], every: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    """The scores of all finished trainings of ``record``'s architecture."""
    number = _number(record)
    same = [one for one in every if one["state"] == "complete"
            and (one["trial"] == number or (one.get("origin") == "seed" and one.get("of") == number))]
    found = [(one.get("values") or {}).get(metric, (one.get("metrics") or {}).get(metric)) for one in same]
    return [float(score) for score in found if score is not None]


def _number(record: Mapping[str, Any]) -> int:
    """The trial that trained it: another's, where it is a duplicate."""
    return int(record["of"] if record["state"] == "duplicate" else record["trial"])


def _row(name: str, record: Mapping[str, Any], sample: list[float], first: Mapping[str, Any], own: list[float],
         noise: Noise, confidence: float) -> Row:
    same = _number(record) == _number(first)
    half = 0.0 if same else noise.half(confidence, len(sample), len(own)) if noise.known else None
    cost, mean = record["cost"], float(np.mean(sample))
    return Row(name, int(cost["params"]["total"]), int(cost["macs"]["total"]), len(sample), mean, spread(sample),
               0.0 if same else mean - float(np.mean(own)), half)


def to_markdown(table: Ablation) -> str:
    """A Markdown table, numbers to the right."""
    lines = [table.headings(), ("---", *["---:"] * (len(HEADINGS) - 1)), *table.cells()]
    rows = ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines]
    return "\n".join([*rows, "", *table.notes()]) + "\n"


def to_latex(table: Ablation) -> str:
    """A ``tabular`` with the rules of the booktabs package; the notes are comments below it."""
    head, *body = [" & ".join(map(latex, line)) + r" \\" for line in (table.headings(), *table.cells())]
    lines = [r"\begin{tabular}{l" + "r" * (len(HEADINGS) - 1) + "}", r"\toprule", head, r"\midrule", *body,
             r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in table.notes())]
    return "\n".join(lines) + "\n"


def latex(text: str) -> str:
    """``text`` as LaTeX prints it."""
    return "".join(LATEX.get(letter, letter) for letter in text).replace("±", r"$\pm$").replace(UNKNOWN, "--")
