"""Results of a study, running or finished: records, table, figures.

A large study has many records and few members of its front: each part is read when it is asked for, and what the log
alone tells is taken from there. Pandas and Matplotlib are imported by what needs them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.files import write_text
from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import hypervolume, worst_corner
from scalesearch.report.labels import conventions, direction, once, protocol_words
from scalesearch.study.replicates.allocation import Replicated
from scalesearch.study.replicates.summary import Verdict, with_replicates
from scalesearch.study.trials.record import Record, TeacherFacts, describe_taught
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State
from scalesearch.tasks import MEASURED

if TYPE_CHECKING:
    import pandas as pd

    from scalesearch.report.plot import Subject
    from scalesearch.report.proxies import ProxyCorrelations

SHORT = {"total": "", "non_embedding": "-non-embedding"}


@dataclass(frozen=True)
class Results:
    """Everything a study has found so far.

    Attributes:
        study: the study's folder, loaded.
        verdict: what the seeds say of the front's order.
    """

    study: StudyDir
    verdict: Verdict

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Records of all trials; where a trial has none, its JSON."""
        return self.study.rows()

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a candidate (see ``report.table.frame``)."""
        from scalesearch.report.table import frame

        return frame(self.records, self.objectives, self.verdict.confidence)

    @cached_property
    def _records_of_front(self) -> list[dict[str, Any]]:
        """Records of the front and of all that have replicates, by which the noise is known."""
        names, candidates = list(self.objectives), self.verdict.candidates
        on = pareto_front(_values(candidates.values(), names), list(self.objectives.values()))
        numbers = {number for number, is_on in zip(candidates, on) if is_on}
        for trial in self.study.trials.replicates():
            numbers |= {trial.number, *([] if trial.of is None else [trial.of])}
        return self.study.rows(numbers)

    @cached_property
    def front(self) -> pd.DataFrame:
        """The rows that nothing dominates, from the cheapest."""
        from scalesearch.report.table import frame, front_rows

        return front_rows(frame(self._records_of_front, self.objectives, self.verdict.confidence), self.objectives)

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """One row a training of the candidates that have several, the first included."""
        return _trainings(self._records_of_front, self.objectives)

    @cached_property
    def finished(self) -> list[Replicated]:
        """The candidates that were trained to the end, each with its replicates."""
        complete = [trial for trial in self.study.trials.candidates() if trial.state == State.COMPLETE]
        return with_replicates(self.study.trials, complete)

    @property
    def objectives(self) -> dict[str, str]:
        """Name to direction."""
        return dict(self.study.meta.directions)

    @property
    def subject(self) -> Subject:
        """Subject of its figures."""
        from scalesearch.report.plot import Subject

        meta = self.study.meta
        return Subject(self.objectives, meta.protocol, meta.bounds, meta.data.name, meta.synthetic,
                       self.signature, self.verdict.confidence)

    @property
    def params(self) -> set[str]:
        """Every parameter that any proposal answered."""
        return {name for trial in self.study.trials for name in trial.params}

    @property
    def signature(self) -> str:
        """Signature of the task's metric, and of decoding, by the first complete trial; empty before there is one."""
        metrics = self._first_record.get("metrics") or {}
        signatures = {key: text for key, text in metrics.items() if key.endswith("_signature") and text}
        found = signatures.get("bleu_signature") or next(iter(signatures.values()), "")
        return " · ".join(str(one) for one in (found, metrics.get("decode")) if one)

    @property
    def task(self) -> str:
        """Task of the data."""
        return self.study.meta.task

    @property
    def teacher(self) -> TeacherFacts | None:
        """From whose translations the candidates learned, as the first finished record says; None without one."""
        return self._first_record.get("teacher")

    @cached_property
    def _first_record(self) -> Record:
        """The record of the first finished trial that has one."""
        done = (self.study.record(trial) for trial in self.study.trials.having(State.COMPLETE))
        return next((record for record in done if record), {})

    @cached_property
    def lost(self) -> list[int]:
        """Finished trials that have lost their records, and perhaps their folders."""
        damaged = {record["trial"] for record in self._records_of_front if "versions" not in record}
        whole = set(glob("*/record.json", root_dir=self.study.folder / "trials"))  # ten times as fast as a Path a trial
        return [trial.number for trial in self.study.trials.having(State.COMPLETE)
                if trial.number in damaged or f"{trial.folder}/record.json" not in whole]

    def warnings(self) -> list[str]:
        """What is missing of the study, in words."""
        if not self.lost:
            return []
        where = self.study.trial_folder(self.study.trials[self.lost[0]])
        return [f"Known by the log alone: {', '.join(f'trial {number}' for number in self.lost)}, since its record is "
                f"missing or damaged, such as in {where}. `scalesearch study repair` makes records again where it can."]

    def proxies(self) -> ProxyCorrelations:
        """Whether early measurements rank the finished trials as their score does."""
        from scalesearch.report.proxies import proxy_correlations

        return proxy_correlations(self.table, main_metric(self))

    def hypervolume(self) -> tuple[float, list[float]] | None:
        """Hypervolume of the front, and its reference point beyond the worst complete candidates. None before any."""
        names, ways = list(self.objectives), list(self.objectives.values())
        if not self.finished:
            return None
        corner = worst_corner(_values(self.finished, names), ways)
        return hypervolume(self.front[names].to_numpy(dtype=float), corner, ways), corner

    @property
    def once(self) -> list[int]:
        """``macs.once`` of each member of the front: work on weights alone."""
        return [int(self.study.trials[trial].costs.get("macs.once", 0)) for trial in self.front["trial"]]

    def notes(self) -> list[str]:
        """Notes for reading the numbers: protocol, corpus, signature, seed."""
        meta = self.study.meta
        synthetic = " (a synthetic corpus: scores on it compare candidates, and say nothing of real translation)"
        lines = [f"Costs: {protocol_words(meta.protocol)}; {conventions(meta.protocol)}.",
                 *once(meta.protocol, *self.once),
                 f"Data: {meta.data.name}, hash {meta.data.hash}{synthetic if meta.synthetic else ''}.",
                 "Chosen by scores on valid; what is called test was not looked at in choosing.",
                 *self.verdict.notes(meta.seed)]
        name = "BLEU" if self.task == "translation" else f"Metrics of {self.task}"
        taught = [describe_taught(self.teacher)] if self.teacher else []
        return [*self.warnings(), *lines, *taught, *([f"{name}: {self.signature}"] if self.signature else [])]


def load(folder: Path) -> Results:
    """The results in a study's folder.

    Raises:
        UserError: there is no study.
    """
    return results_of(StudyDir(folder).load())


def results_of(study: StudyDir) -> Results:
    """The results of a study that is loaded."""
    return Results(study, Verdict(study.trials, study.meta))


def _values(candidates: Collection[Replicated], names: list[str]) -> NDArray[np.float64]:
    """(candidates, objectives): means over seeds."""
    rows = [[one.value(name) for name in names] for one in candidates]
    return np.array(rows, float).reshape(len(candidates), len(names))


def _trainings(records: list[dict[str, Any]], objectives: dict[str, str]) -> pd.DataFrame:
    """Every training of the candidates that have several, candidate by candidate."""
    from scalesearch.report.table import replicate_rows

    several = {record["of"] for record in records if record["origin"] == Origin.REPLICATE}
    first = [{**record, "origin": Origin.REPLICATE, "of": record["trial"]} for record in records
             if record["trial"] in several]
    rows = replicate_rows([*first, *records], objectives)
    return rows.sort_values(["of", "trial"], kind="stable").reset_index(drop=True) if len(rows) else rows


def publish(results: Results, folder: Path | None = None) -> list[Path]:
    """Writes tables and figures into the study's folder, or ``folder``.

    The tables are front.csv and all.csv, and where any candidate has several seeds, seeds.csv with every training.
    """
    from scalesearch.report.table import filled
    from scalesearch.report.text_tables import to_csv

    place = folder or results.study.folder
    files = []
    for name, rows in (("front.csv", results.front), ("all.csv", results.table),
                       *([("seeds.csv", results.seeds)] if len(results.seeds) else [])):
        write_text(place / name, to_csv(filled(rows)))
        files.append(place / name)
    return files + plots(results, place)


def plots(results: Results, folder: Path) -> list[Path]:
    """A figure of :func:`main_metric` against each cost."""
    from scalesearch.report.plot import tradeoff
    from scalesearch.report.style import save

    y = main_metric(results)
    if not np.any((results.table["state"] == State.COMPLETE) & results.table[y].notna()):
        return []
    files = []
    reported = f"test.{y}"
    for name in (y, reported) if reported in results.table and results.table[reported].notna().any() else (y,):
        for x in costs_drawn(results):
            stem = f"{name.replace('.', '-')}-vs-{_short(x)}"
            files += save(tradeoff(results.table, results.subject, x, name), folder / stem)
    return files


def costs_drawn(results: Results) -> list[str]:
    """The costs that figures have one each of: those among the objectives, params and MACs."""
    costs = [name for name in results.objectives if "." in name or name in MEASURED]
    for usual in ("params.total", "macs.total"):
        if not any(cost.partition(".")[0] == usual.partition(".")[0] for cost in costs):
            costs.append(usual)
    return costs


def main_metric(results: Results) -> str:
    """The task's main metric, or else the first metric among the objectives."""
    return results.study.meta.main_objective


def choose(results: Results, best: str | None, trial: int | None, under: str | None = None) -> tuple[int, str]:
    """Chooses the trial to export: the given one, or the front's best by ``best``. Returns its number and the reason.

    ``best`` is a metric or cost; unless given, the first objective. ``under`` is a condition such as
    ``params.decoder <= 1M and bleu >= 30``: then it is the best of all eligible candidates that meet it. Of a candidate
    with several seeds it is the first training, since the best by its score would be the luckiest; the others are to be
    had by their own numbers.

    Raises:
        UserError: nothing like that is there, or ``best`` is a score on test.
    """
    from scalesearch.report.conditions import meeting
    from scalesearch.report.table import cell

    if trial is not None:
        chosen = results.study.trials.get(trial)
        if chosen is None or chosen.state != State.COMPLETE:
            raise UserError(f"trial {trial} is not a finished candidate of this study", code="no-such-trial")
        again = f"trial {chosen.of} with seed {chosen.seed}, " if chosen.origin == Origin.REPLICATE else ""
        return trial, f"{again}as asked"
    name = best or next(iter(results.objectives))
    if name.startswith("test."):
        raise UserError(f"--best {name}: what is chosen by its test scores has no test score left to report. Choose by "
                        f"{name.removeprefix('test.')}, which is of the validation text, or name a trial",
                        code="chosen-on-test")
    rows, among = (results.front, "the front") if under is None else (_eligible(results), f"those with {under}")
    if name not in rows.columns or not len(rows):
        raise UserError(f"there is no {name} on the front; it has {', '.join(results.objectives)}",
                        code="unknown-objective")
    rows = rows if under is None else meeting(rows, under)
    rows = rows[rows[name].notna()]
    if not len(rows):
        what = f"has {name}" if under is None else f"meets {under}"
        raise UserError(f"no finished candidate {what}", code="nothing-meets")
    low = results.objectives.get(name, direction(name)) == "min"
    values: Any = rows[name].astype(float)
    at = values.idxmin() if low else values.idxmax()
    row, seed = rows.loc[at], results.study.meta.seed
    weights = f"; the weights are those of seed {seed}" if row["seeds"] > 1 else ""
    return int(row["trial"]), f"best {name} of {among} ({cell(row, name)}{weights})"


def _eligible(results: Results) -> pd.DataFrame:
    """The rows of the table that may be on the front, each with all its costs."""
    from scalesearch.report.table import eligible

    rows = results.table[eligible(results.table)]
    costs = [results.study.trials[trial].costs for trial in rows["trial"]]
    more = sorted({name for one in costs for name in one}.difference(rows.columns))
    return rows.assign(**{name: [one.get(name) for one in costs] for name in more})


def _short(name: str) -> str:
    group, _, section = name.partition(".")
    return group + SHORT.get(section, f"-{section}") if section else group
