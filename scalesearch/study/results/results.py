"""Results of a study, running or finished: records, table, front, hypervolume.

A large study has many records and few members of its front: each part is read when it is asked for,
and what the log alone tells is taken from there. Pandas and Matplotlib are imported by what needs
them.
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

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import default_reference_point, hypervolume
from scalesearch.report.labels import describe_costs, weight_only_lines
from scalesearch.study.replicates.replicated import ReplicatedTrial
from scalesearch.study.replicates.summary import SeedAnalysis, completed_candidates
from scalesearch.study.trials.record import Record, TeacherFacts, describe_teacher_facts
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State
from scalesearch.tasks import METRICS

if TYPE_CHECKING:
    import pandas as pd

    from scalesearch.report.figures.plot import FigureContext
    from scalesearch.report.proxies import ProxyCorrelations


@dataclass(frozen=True)
class Results:
    """Everything a study has found so far.

    Attributes:
        study: the study's folder, loaded.
        seed_analysis: what the seeds say of the front's order.
    """

    study: StudyDir
    seed_analysis: SeedAnalysis

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Records of all trials; where a trial has none, its JSON."""
        return self.study.table_rows()

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a candidate (see ``report.table.frame``)."""
        from scalesearch.report.table import trials_frame

        return trials_frame(self.records, self.objectives, self.seed_analysis.confidence)

    @cached_property
    def _records_of_front(self) -> list[dict[str, Any]]:
        """Records of the front and of all that have replicates, by which the noise is known."""
        names = list(self.objectives)
        candidates = self.seed_analysis.candidates
        on = pareto_front(_values(candidates.values(), names), list(self.objectives.values()))
        numbers = {number for number, is_on in zip(candidates, on) if is_on}
        for trial in self.study.trials.replicates():
            numbers |= {trial.number, *([] if trial.original is None else [trial.original])}
        return self.study.table_rows(numbers)

    @cached_property
    def front(self) -> pd.DataFrame:
        """The rows that nothing dominates, from the cheapest."""
        from scalesearch.report.table import select_front, trials_frame

        return select_front(trials_frame(self._records_of_front, self.objectives,
                                         self.seed_analysis.confidence), self.objectives)

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """One row a training of the candidates that have several, the first included."""
        return _seed_rows(self._records_of_front, self.objectives)

    @cached_property
    def finished(self) -> list[ReplicatedTrial]:
        """The candidates that were trained to the end, each with its replicates."""
        return completed_candidates(self.study.trials)

    @property
    def objectives(self) -> dict[str, str]:
        """Name to direction."""
        return dict(self.study.meta.directions)

    @property
    def subject(self) -> FigureContext:
        """Subject of its figures."""
        from scalesearch.report.figures.plot import FigureContext

        meta = self.study.meta
        return FigureContext(self.objectives, meta.protocol, meta.bounds, meta.data.name,
                             meta.synthetic, self.signature, self.seed_analysis.confidence)

    @property
    def params(self) -> set[str]:
        """Every parameter that any proposal answered."""
        return {name for trial in self.study.trials for name in trial.params}

    @property
    def signature(self) -> str:
        """Signature of the score, and of decoding, by the first complete trial; empty before there is one."""
        found = (self._signed[1], (self._first_record.get("metrics") or {}).get("decoding"))
        return " · ".join(str(one) for one in found if one)

    @property
    def _signed(self) -> tuple[str, str]:
        """The main metric and its signature; where it has none, as a loss, another of the task's and that one's."""
        metrics = self._first_record.get("metrics") or {}
        known = [key.removesuffix("_signature")
                 for key, text in metrics.items() if key.endswith("_signature") and text]
        name = next((name for name in (self.main_metric, "bleu", *known) if name in known), "")
        return name, str(metrics[f"{name}_signature"]) if name else ""

    @property
    def main_metric(self) -> str:
        """See :attr:`.StudyMeta.main_metric`."""
        return self.study.meta.main_metric

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
        done = (self.study.record(trial) for trial in self.study.trials.with_state(State.COMPLETE))
        return next((record for record in done if record), {})

    @cached_property
    def trials_without_record(self) -> list[int]:
        """Finished trials that have lost their records, and perhaps their folders."""
        damaged = {record["trial"] for record in self._records_of_front if "versions" not in record}
        # ten times as fast as a Path a trial
        whole = set(glob("*/record.json", root_dir=self.study.folder / "trials"))
        return [trial.number for trial in self.study.trials.with_state(State.COMPLETE)
                if trial.number in damaged or f"{trial.folder}/record.json" not in whole]

    def warnings(self) -> list[str]:
        """What is missing of the study, in words."""
        if not self.trials_without_record:
            return []
        where = self.study.trial_folder(self.study.trials[self.trials_without_record[0]])
        return ["Known by the log alone: "
                f"{', '.join(f'trial {number}' for number in self.trials_without_record)}, since "
                f"its record is missing or damaged, such as in {where}. `scalesearch study repair` "
                "makes records again where it can."]

    def proxies(self) -> ProxyCorrelations:
        """Whether early measurements rank the finished trials as their score does."""
        from scalesearch.report.proxies import compute_proxy_correlations

        return compute_proxy_correlations(self.table, self.main_metric)

    def hypervolume(self) -> tuple[float, list[float]] | None:
        """Hypervolume of the front, and its reference point beyond the worst complete candidates.

        None before any.
        """
        names = list(self.objectives)
        ways = list(self.objectives.values())
        if not self.finished:
            return None
        corner = default_reference_point(_values(self.finished, names), ways)
        return hypervolume(self.front[names].to_numpy(dtype=float), corner, ways), corner

    @property
    def macs_once(self) -> list[int]:
        """``macs.once`` of each member of the front: work on weights alone."""
        return [int(self.study.trials[trial].costs.get("macs.once", 0))
                for trial in self.front["trial"]]

    def notes(self) -> list[str]:
        """Notes for reading the numbers: protocol, corpus, signature, seed."""
        meta = self.study.meta
        synthetic = (" (a synthetic corpus: scores on it compare candidates, and say nothing of "
                     "real translation)")
        lines = [describe_costs(meta.protocol), *weight_only_lines(meta.protocol, *self.macs_once),
                 f"Data: {meta.data.name}, hash "
                 f"{meta.data.hash}{synthetic if meta.synthetic else ''}.",
                 "Chosen by scores on valid; what is called test was not looked at in choosing.",
                 *self.seed_analysis.notes(meta.seed)]
        signed = self._signed[0]
        name = (METRICS[signed].label if signed in METRICS and self.task == "translation"
                else f"Metrics of {self.task}")
        taught = [describe_teacher_facts(self.teacher)] if self.teacher else []
        return [*self.warnings(), *lines, *taught,
                *([f"{name}: {self.signature}"] if self.signature else [])]


def load_results(folder: Path) -> Results:
    """The results in a study's folder.

    Raises:
        UserError: there is no study.
    """
    return make_results(StudyDir(folder).load())


def make_results(study: StudyDir) -> Results:
    """The results of a study that is loaded."""
    return Results(study, SeedAnalysis(study.trials, study.meta))


def _values(candidates: Collection[ReplicatedTrial], names: list[str]) -> NDArray[np.float64]:
    """(candidates, objectives): means over seeds."""
    rows = [[one.mean(name) for name in names] for one in candidates]
    return np.array(rows, float).reshape(len(candidates), len(names))


def _seed_rows(records: list[dict[str, Any]], objectives: dict[str, str]) -> pd.DataFrame:
    """Every training of the candidates that have several, candidate by candidate."""
    from scalesearch.report.table import replicates_frame

    several = {record["original"] for record in records if record["origin"] == Origin.REPLICATE}
    first = [{**record, "origin": Origin.REPLICATE, "original": record["trial"]} for record in records
             if record["trial"] in several]
    rows = replicates_frame([*first, *records], objectives)
    return rows.sort_values(["original", "trial"],
                            kind="stable").reset_index(drop=True) if len(rows) else rows
