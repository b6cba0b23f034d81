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

from scalesearch.report.labels import describe_costs, weight_only_lines
from scalesearch.studies.replicates.summary import SeedAnalysis, StudyView
from scalesearch.studies.trials.record import Record, TeacherFacts, describe_teacher_facts
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, State
from scalesearch.tasks import METRICS

if TYPE_CHECKING:
    import pandas as pd

    from scalesearch.report.figures.plot import FigureContext
    from scalesearch.report.proxies import ProxyCorrelations


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

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Records of all trials; the JSON of a trial if its record is missing."""
        return self.study.table_rows()

    @cached_property
    def table(self) -> pd.DataFrame:
        """Table with one row per candidate (see :func:`.trials_frame`)."""
        return self._trials_frame(self.records)

    @cached_property
    def _records_of_front(self) -> list[dict[str, Any]]:
        """Records of the front and of trials with replicates, which give the noise."""
        numbers = {member.number for member in self.view.members}
        for trial in self.study.trials.replicates():
            numbers |= {trial.number, *([] if trial.original is None else [trial.original])}
        return self.study.table_rows(numbers)

    @cached_property
    def front(self) -> pd.DataFrame:
        """Rows of the Pareto front, from the lowest cost."""
        from scalesearch.report.table import select_front

        return select_front(self._trials_frame(self._records_of_front), self.objectives)

    def _trials_frame(self, records: Iterable[dict[str, Any]]) -> pd.DataFrame:
        from scalesearch.report.table import trials_frame

        return trials_frame(records, self.objectives, self.seed_analysis.confidence,
                            self.study.meta.main_objective)

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """Table with one row per run of all candidates with several seeds."""
        return _seed_rows(self._records_of_front, self.objectives)

    @property
    def objectives(self) -> dict[str, str]:
        """Name of each objective to its direction, ``min`` or ``max``."""
        return dict(self.study.meta.directions)

    @property
    def subject(self) -> FigureContext:
        """Context of the study's figures: objectives, protocol, data, signature."""
        from scalesearch.report.figures.plot import FigureContext

        meta = self.study.meta
        return FigureContext(self.objectives, meta.protocol, meta.bounds, meta.data.name,
                             meta.synthetic, self.signature, self.seed_analysis.confidence)

    @property
    def params(self) -> set[str]:
        """Names of all parameters that any trial has a value for."""
        return {name for trial in self.study.trials for name in trial.params}

    @property
    def signature(self) -> str:
        """Signature of the main metric and of decoding.

        The result is empty before the first complete trial.
        """
        decoding = (self._first_record.get("metrics") or {}).get("decoding")
        return " · ".join(str(part) for part in (self._signed[1], decoding) if part)

    @property
    def _signed(self) -> tuple[str, str]:
        """Name and signature of the main metric.

        If it has no signature, as a loss, another metric of the task is used.
        """
        metrics = self._first_record.get("metrics") or {}
        signed = [key.removesuffix("_signature")
                  for key, text in metrics.items() if key.endswith("_signature") and text]
        name = next((name for name in (self.main_metric, "bleu", *signed) if name in signed), "")
        return name, str(metrics[f"{name}_signature"]) if name else ""

    @property
    def main_metric(self) -> str:
        """Main metric of the study (see :attr:`.StudyMeta.main_metric`)."""
        return self.study.meta.main_metric

    @property
    def task(self) -> str:
        """Task of the data."""
        return self.study.meta.task

    @property
    def teacher(self) -> TeacherFacts | None:
        """Teacher of the candidates, from the first complete record.

        The result is None without a teacher.
        """
        return self._first_record.get("teacher")

    @cached_property
    def _first_record(self) -> Record:
        """First record of a complete trial; empty if all are missing."""
        records = (self.study.record(trial)
                   for trial in self.study.trials.with_state(State.COMPLETE))
        return next((record for record in records if record), Record())

    @cached_property
    def trials_without_record(self) -> list[int]:
        """Numbers of complete trials with a missing or damaged record."""
        damaged = {record["trial"] for record in self._records_of_front if "versions" not in record}
        # ten times as fast as one Path per trial
        record_files = set(glob("*/record.json", root_dir=self.study.folder / "trials"))
        return [trial.number for trial in self.study.trials.with_state(State.COMPLETE)
                if trial.number in damaged or f"{trial.folder}/record.json" not in record_files]

    def warnings(self) -> list[str]:
        """Warnings about missing records."""
        if not self.trials_without_record:
            return []
        folder = self.study.trial_folder(self.study.trials[self.trials_without_record[0]])
        numbers = ", ".join(f"trial {number}" for number in self.trials_without_record)
        return [f"Missing or damaged record: {numbers}, such as in {folder}. Only the values in "
                "the event log are shown. `scalesearch study repair` restores records if possible."]

    def proxies(self) -> ProxyCorrelations:
        """Rank correlations of early measurements with the final score."""
        from scalesearch.report.proxies import compute_proxy_correlations

        return compute_proxy_correlations(self.table, self.main_metric)

    def hypervolume(self) -> tuple[float, list[float]] | None:
        """Hypervolume of the front, and its reference point.

        The result is None without complete candidates.

        The reference point is beyond the worst value of each objective over all complete
        candidates.
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
        lines = [describe_costs(meta.protocol), *weight_only_lines(meta.protocol, *self.macs_once),
                 f"Data: {meta.data.name}, hash "
                 f"{meta.data.hash}{synthetic if meta.synthetic else ''}.",
                 "Selection uses validation scores; test scores were not used for selection.",
                 *self.seed_analysis.notes(meta.seed)]
        signed = self._signed[0]
        name = (METRICS[signed].label if signed in METRICS and self.task == "translation"
                else f"Metrics of {self.task}")
        teacher = [describe_teacher_facts(self.teacher)] if self.teacher else []
        return [*self.warnings(), *lines, *teacher,
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


def _seed_rows(records: list[dict[str, Any]], objectives: dict[str, str]) -> pd.DataFrame:
    """Table of all runs of candidates with several seeds, sorted by candidate."""
    from scalesearch.report.table import replicates_frame

    repeated = {record["original"] for record in records if record["origin"] == Origin.REPLICATE}
    first_runs = [{**record, "origin": Origin.REPLICATE, "original": record["trial"]}
                  for record in records if record["trial"] in repeated]
    rows = replicates_frame([*first_runs, *records], objectives)
    if not len(rows):
        return rows
    return rows.sort_values(["original", "trial"], kind="stable").reset_index(drop=True)
