"""Results of a study, running or finished: records, table, front, hypervolume.

All parts are computed on demand, from the event log if possible: reading all records of a large
study is slow. Pandas and Matplotlib are imported only by functions that need them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError, option
from scalesearch.report.labels import better_direction, describe_costs, weight_only_lines
from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.spaces.schema.builtin import architecture_schema
from scalesearch.studies.monitor.heartbeat import RUNNING, read_owner
from scalesearch.studies.replicates.summary import SeedAnalysis, StudyView
from scalesearch.studies.trials.record import Record, TeacherFacts, describe_teacher_facts
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, State, Trial
from scalesearch.tasks import METRICS
from scalesearch.terminal import format_count

if TYPE_CHECKING:
    import pandas as pd

    from scalesearch.compression.front import Prediction
    from scalesearch.report.figures.plot import FigureContext
    from scalesearch.report.proxies import ProxyAudit, ProxyCorrelations


@dataclass(frozen=True)
class Results:
    """Results of a study so far.

    Attributes:
        study: the loaded folder of the study.
        seed_analysis: noise between seeds, and the order of the front under this noise.
    """

    study: StudyDir
    seed_analysis: SeedAnalysis

    @property
    def view(self) -> StudyView:
        """Candidates, front and reference point."""
        return self.seed_analysis.view

    def trial(self, number: int) -> Trial:
        """Return trial ``number``. Raises UserError if it does not exist."""
        trial = self.study.trials.get(number)
        if trial is None:
            raise UserError(f"{self.study.folder}: trial {number} does not exist; the study has "
                            f"{format_count(len(self.study.trials), 'trial')}, counted from 0",
                            code="no-such-trial")
        return trial

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Records of all trials; the JSON of a trial if its record is missing."""
        return self.study.table_rows()

    @cached_property
    def table(self) -> pd.DataFrame:
        """Table with one row per candidate (see :func:`.trials_frame`)."""
        return self._trials_frame(self.records)

    @property
    def eligible(self) -> pd.DataFrame:
        """Rows of ``table`` that may be on the front."""
        trials = self.study.trials
        return self.table.loc[[trials[number].is_eligible for number in self.table["trial"]]]

    @cached_property
    def front(self) -> pd.DataFrame:
        """Rows of the Pareto front, from the lowest cost."""
        from scalesearch.report.table import select_front

        return select_front(self._trials_frame(self._records_of_front), self.objectives)

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """Table with one row per run of all candidates with several seeds, by candidate."""
        import pandas as pd

        from scalesearch.report.table import run_row

        index = build_index(architecture_schema())
        records = self._records_of_front
        repeated = {record["original"] for record in records
                    if record["origin"] == Origin.REPLICATE}
        rows = []
        for record in records:
            is_replicate = record["origin"] == Origin.REPLICATE
            original = record["original"] if is_replicate else record["trial"]
            if original in repeated:
                rows.append({"original": original, **run_row(record, self.objectives, index)})
        return pd.DataFrame(sorted(rows, key=lambda row: (row["original"], row["trial"])))

    @cached_property
    def _records_of_front(self) -> list[dict[str, Any]]:
        """Records of the front and of trials with replicates, which give the noise."""
        numbers = {member.number for member in self.view.members}
        for trial in self.study.trials.replicates():
            numbers |= {trial.number, *([] if trial.original is None else [trial.original])}
        return self.study.table_rows(numbers)

    def _trials_frame(self, records: Iterable[dict[str, Any]]) -> pd.DataFrame:
        from scalesearch.report.table import trials_frame

        return trials_frame(records, self.objectives,
                            {member.number for member in self.view.members},
                            self.seed_analysis.confidence)

    @property
    def objectives(self) -> dict[str, str]:
        """Name of each objective to its direction, ``min`` or ``max``."""
        return dict(self.study.meta.directions)

    @property
    def main_metric(self) -> str:
        """Main metric of the study (see :attr:`.StudyMeta.main_metric`)."""
        return self.study.meta.main_metric

    @property
    def subject(self) -> FigureContext:
        """Context of the study's figures: objectives, protocol, data, signature."""
        from scalesearch.report.figures.plot import FigureContext

        meta = self.study.meta
        return FigureContext(self.objectives, meta.protocol, meta.bounds, meta.data.name,
                             meta.synthetic, self.signature, self.seed_analysis.confidence,
                             meta.architecture_noun)

    @property
    def params(self) -> set[str]:
        """Names of all parameters that any trial has a value for."""
        return {name for trial in self.study.trials for name in trial.params}

    @cached_property
    def _first_record(self) -> Record:
        """First record of a complete trial; empty if all are missing."""
        records = (self.study.record(trial)
                   for trial in self.study.trials.with_state(State.COMPLETE))
        return next((record for record in records if record), Record())

    @property
    def teacher(self) -> TeacherFacts | None:
        """Teacher of the candidates, from the first complete record.

        The result is None without a teacher.
        """
        return self._first_record.get("teacher")

    @property
    def teacher_note(self) -> str:
        """Description of the teacher; empty without a teacher."""
        return (describe_teacher_facts(self.teacher, self.study.meta.type) if self.teacher
                else "")

    @property
    def signed_metric(self) -> str:
        """Main metric, or another metric of the task if it has no signature, as a loss.

        The result is empty if no metric has a signature.
        """
        metrics = self._first_record.get("metrics") or {}
        signed = [key.removesuffix("_signature")
                  for key, text in metrics.items() if key.endswith("_signature") and text]
        return next((name for name in (self.main_metric, "bleu", *signed) if name in signed), "")

    @property
    def signature(self) -> str:
        """Signature of :attr:`signed_metric` and of decoding.

        The result is empty before the first complete trial.
        """
        metrics = self._first_record.get("metrics") or {}
        parts = (metrics.get(f"{self.signed_metric}_signature"), metrics.get("decoding"))
        return " · ".join(str(part) for part in parts if part)

    @cached_property
    def trials_without_record(self) -> list[int]:
        """Numbers of complete trials with a missing or damaged record."""
        damaged = {record["trial"] for record in self._records_of_front if "versions" not in record}
        # ten times as fast as one Path per trial
        record_files = set(glob("*/record.json", root_dir=self.study.folder / "trials"))
        return [trial.number for trial in self.study.trials.with_state(State.COMPLETE)
                if trial.number in damaged or f"{trial.folder}/record.json" not in record_files]

    @cached_property
    def records_without_event(self) -> list[str]:
        """Folders of trials whose record was written, but whose end is not in the event log."""
        ended = {trial.folder
                 for trial in self.study.trials.with_state(State.COMPLETE, State.FAILED)}
        recorded = glob("*/record.json", root_dir=self.study.folder / "trials")
        return sorted({Path(name).parts[0] for name in recorded} - ended)

    def warnings(self) -> list[str]:
        """Warnings about missing records and events.

        While a process runs the study, its latest record may be newer than the log that was read.
        """
        is_running = read_owner(self.study.folder).state == RUNNING
        lost = [] if is_running else self.records_without_event
        warnings = ["The event log lacks the end of "
                    f"{format_count(len(lost), 'recorded trial')}, such as in "
                    f"{self.study.folder / 'trials' / lost[0]}: they are not shown. `scalesearch "
                    "study repair` restores them."] if lost else []
        if not self.trials_without_record:
            return warnings
        folder = self.study.trial_folder(self.study.trials[self.trials_without_record[0]])
        numbers = ", ".join(f"trial {number}" for number in self.trials_without_record)
        return [*warnings,
                f"Missing or damaged record: {numbers}, such as in {folder}. Only the values in "
                "the event log are shown. `scalesearch study repair` restores records if possible."]

    def proxies(self) -> ProxyCorrelations:
        """Rank correlations of early measurements with the final score."""
        from scalesearch.report.proxies import compute_proxy_correlations

        return compute_proxy_correlations(self.table, self.main_metric)

    def predict(self, budgets: Iterable[str]) -> tuple[Prediction, list[int]]:
        """Predict the front of a compression; return it, and its rows within ``budgets``.

        Raises:
            UserError: replacements are not scored yet, or no combination meets the budgets.
        """
        from scalesearch.compression.front import predict_front, predicted_costs, read_library
        from scalesearch.cost import load_protocol
        from scalesearch.feasible.limits import read_budgets
        from scalesearch.spaces import read_space

        folder = self.study.folder
        parent, library = read_library(folder)
        limits = read_budgets(read_space(folder / "space.yaml"), tuple(budgets))
        return predict_front(parent, library, predicted_costs(self.objectives, limits), limits,
                             load_protocol(self.study.meta.protocol))

    def proxy_audit(self, metric: str | None = None, cost: str | None = None,
                    proxies: Iterable[str] = (), tables: Iterable[pd.DataFrame] = (),
                    constraint: str | None = None, confidence: float | None = None) -> ProxyAudit:
        """Audit proxies of the final score over the finished trials.

        Args:
            metric: score; the main metric if not given.
            cost: cost; the number of parameters if not given.
            proxies: columns of the table; all early measurements if none is given.
            tables: further proxies, joined by the column ``trial``.
            constraint: condition that the trials meet, such as ``bleu >= 1``.
            confidence: confidence level of the intervals; the study's if not given.

        Raises:
            UserError: a column is missing.
        """
        from scalesearch.report.proxies import (
            DEFAULT_COST,
            audit_proxies,
            finished_trials,
            proxy_columns,
            split_direction,
        )
        from scalesearch.report.trial_filter import filter_trials

        metric = metric or self.main_metric
        trials = finished_trials(self.table, split_direction(metric)[0])
        trials = filter_trials(trials, constraint) if constraint else trials
        names = list(proxies)
        for table in tables:
            if "trial" not in table:
                raise UserError("a table of a proxy has no column trial; its columns are "
                                f"{', '.join(table)}", code="unknown-metric")
            trials = trials.merge(table, on="trial", how="left")
            names += [name for name in table if name != "trial"]
        return audit_proxies(trials, metric, cost or DEFAULT_COST, names or proxy_columns(trials),
                             confidence or self.seed_analysis.confidence)

    def hypervolume(self) -> tuple[float, list[float]] | None:
        """Hypervolume of the front, and its reference point (see :class:`.StudyView`).

        The result is None without complete candidates.
        """
        if not self.view.completed:
            return None
        front = self.front[list(self.objectives)].to_numpy(dtype=float)
        return self.view.hypervolume(front), self.view.reference_point

    @property
    def macs_once(self) -> list[int]:
        """``macs.once`` of each member of the front: MACs that depend on weights only."""
        return [int(self.study.trials[trial].costs.get("macs.once", 0))
                for trial in self.front["trial"]]

    def notes(self) -> list[str]:
        """Notes that explain the numbers: protocol, corpus, signature, seed."""
        meta = self.study.meta
        synthetic = (" (synthetic corpus: scores compare candidates and are not meaningful "
                     "for real translation)")
        name = (METRICS[self.signed_metric].label
                if self.signed_metric in METRICS and meta.task == "translation"
                else f"Metrics of {meta.task}")
        return [*self.warnings(), describe_costs(meta.protocol),
                *weight_only_lines(meta.protocol, *self.macs_once),
                f"Data: {meta.data.name}, hash "
                f"{meta.data.hash}{synthetic if meta.synthetic else ''}.",
                "Selection uses validation scores; test scores were not used for selection.",
                *self.seed_analysis.notes(meta.seed), *filter(None, [self.teacher_note]),
                *([f"{name}: {self.signature}"] if self.signature else [])]


def load_results(folder: Path) -> Results:
    """Load the results of the study in ``folder``.

    Raises:
        UserError: the folder contains no study.
    """
    return make_results(StudyDir(folder).load())


def make_results(study: StudyDir) -> Results:
    """Create the results of a loaded study."""
    return Results(study, SeedAnalysis(study.trials, study.meta))


def select_by_number(results: Results, number: int) -> tuple[int, str]:
    """Check that a trial is finished, and return its number and the reason of the selection.

    Raises:
        UserError: it is not a finished trial of this study.
    """
    trial = results.trial(number)
    if trial.state != State.COMPLETE:
        raise UserError(f"{results.study.folder}: trial {number} is {trial.state}, so it has no "
                        "final model", code="no-such-trial")
    seed_words = (f"trial {trial.original} with seed {trial.seed}, "
                  if trial.origin == Origin.REPLICATE else "")
    return number, f"{seed_words}selected by number"


def select_best(results: Results, objective: str | None = None,
                condition: str | None = None) -> tuple[int, str]:
    """Select the best trial.

    If a candidate has several seeds, its first run is selected: the run with the best score would
    be selected by chance (winner's curse). Other runs can be selected by number.

    Args:
        objective: metric or cost by which the best trial of the front is selected; the first
            objective if not given.
        condition: condition such as ``params.decoder <= 1M and bleu >= 30``. The best of all
            eligible candidates that meet it is selected.

    Returns:
        The number of the trial and the reason of the selection.

    Raises:
        UserError: no trial meets the request, or ``objective`` is a test score.
    """
    from scalesearch.report.table import format_cell
    from scalesearch.report.trial_filter import filter_trials

    name = objective or next(iter(results.objectives))
    if name.startswith("test."):
        raise UserError(f"{option('best', name)}: a trial selected by its test score has no "
                        f"unbiased test score. Select by {name.removeprefix('test.')}, the score "
                        "on the validation set, or give the number of a trial",
                        code="selection-on-test")
    if not results.view.completed:
        raise UserError(f"{results.study.folder}: no finished trials, so none can be "
                        "selected", code="nothing-finished")
    rows = results.front
    if condition is not None:  # with all costs
        rows = results.eligible
        costs = [results.study.trials[number].costs for number in rows["trial"]]
        missing = sorted({name for trial_costs in costs for name in trial_costs} - {*rows.columns})
        rows = rows.assign(**{cost: [trial_costs.get(cost) for trial_costs in costs]
                              for cost in missing})
    if not len(rows):
        raise UserError(f"{results.study.folder}: the front is empty, since no finished trial is "
                        "in the space and within the budget", code="nothing-meets")
    if name not in rows.columns:
        raise UserError(f"the front has no {name}; its objectives are "
                        f"{', '.join(results.objectives)}", code="unknown-objective")
    rows = rows if condition is None else filter_trials(rows, condition)
    rows = rows[rows[name].notna()]
    if not len(rows):
        requirement = f"has {name}" if condition is None else f"meets {condition}"
        raise UserError(f"no finished candidate {requirement}", code="nothing-meets")
    is_minimized = results.objectives.get(name, better_direction(name)) == "min"
    values: Any = rows[name].astype(float)
    row = rows.loc[values.idxmin() if is_minimized else values.idxmax()]
    group = "the front" if condition is None else f"the trials with {condition}"
    number = int(row["trial"])
    notes = [format_cell(row, name)]
    if results.study.trials[number].label:
        notes.append(f"named {results.study.trials[number].label}")
    if row["seeds"] > 1:
        notes.append(f"the weights are those of seed {results.study.meta.seed}")
    elif rows["seeds"].max() > 1:
        notes.append("one seed, other trials have more")
    return number, f"best {name} of {group} ({'; '.join(notes)})"
