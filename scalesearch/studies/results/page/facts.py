"""Facts for the report page that results do not contain: links, curves, times."""

import fnmatch
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote

import pandas as pd
from matplotlib.figure import Figure

from scalesearch.files import try_read_json
from scalesearch.report.ablation import Ablation, build_ablation
from scalesearch.report.records import labeled_records, scores_by_trial, training_trial
from scalesearch.spaces.schema.builtin import resolve_params
from scalesearch.studies.results.publish import records_of
from scalesearch.studies.results.results import Results
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import EventType, Origin, State, Trial
from scalesearch.studies.trials.trials import Trials

RUNG_FILES = "rung-*.json"
TRIAL_FILES = ("architecture.yaml", "job.json", "record.json")
STUDY_FILES = ("study.yaml", "command.json", "space.yaml", "study.json", "events.jsonl",
               "front.csv", "all.csv", "seeds.csv")
MAX_CURVES = 400  # maximum number of curves in a figure


class _RungFile(TypedDict, total=False):
    """The field of a result at a rung that a page shows."""

    curve: list[dict[str, Any]]


@dataclass(frozen=True)
class FinishedRun:
    """First run of a trial that may be on the front.

    Attributes:
        hours: wall-clock time since the study was created.
        training_hours: hours of training, validation and decoding of all workers until the end of
            the run.
        values: values of the objectives, in their order.
    """

    hours: float
    training_hours: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class PageFacts:
    """Present state of a study.

    Attributes:
        page_folder: folder of the page; None: without links to files.
        figures: title, figure and caption of figures for this type of study.
    """

    results: Results
    page_folder: Path | None = None
    figures: tuple[tuple[str, Figure, str], ...] = ()

    @property
    def meta(self) -> StudyMeta:
        """Metadata of the study."""
        return self.results.study.meta

    @cached_property
    def main_metric(self) -> str:
        """Metric that is plotted against costs."""
        return self.results.main_metric

    @cached_property
    def sampled(self) -> set[str]:
        """Names of all hyperparameters that a proposal has a value for."""
        return {name.partition(" (")[0] for name in self.results.params}

    @property
    def trials(self) -> Trials:
        """All trials, with replicates."""
        return self.results.study.trials

    @cached_property
    def candidates(self) -> list[Trial]:
        """All trials without replicates, in order."""
        return self.trials.candidates()

    @cached_property
    def is_search(self) -> bool:
        """Whether a sampler proposes trials.

        Otherwise the study file names all architectures.
        """
        references = sum(trial.origin == Origin.REFERENCE for trial in self.candidates)
        planned = max(self.meta.total_trials, len(self.candidates))
        return bool(self.sampled) or (self.meta.type == "search" and planned > references)

    @property
    def has_front(self) -> bool:
        """Whether the page shows a front: always for a search, also if the front is empty."""
        return self.is_search or len(self.results.front) > 0

    @cached_property
    def finished_rows(self) -> pd.DataFrame:
        """Rows of complete trials that have the main metric."""
        table = self.results.table
        return table[(table["state"] == State.COMPLETE) & table[self.main_metric].notna()]

    @cached_property
    def front_members(self) -> list[int]:
        """Numbers of the trials on the front, from the lowest cost."""
        return [int(number) for number in self.results.front["trial"]]

    @cached_property
    def itemized(self) -> list[int]:
        """Numbers of the trials with a cost breakdown.

        These are the trials on the front; without a search, all complete trials.
        """
        numbers = self.front_members if self.is_search else self.finished_rows["trial"]
        return [int(number) for number in numbers if self.trials[number].costs]

    @cached_property
    def architecture_table(self) -> Ablation | None:
        """Comparison of the named architectures; None if fewer than two are named.

        The base is the study's base, or the first complete architecture.
        """
        records = records_of(self.results)
        labeled = labeled_records(records)
        scores = scores_by_trial(records, self.main_metric)
        labels = [label for label, record in labeled.items() if scores[training_trial(record)]]
        if not labels or len(labeled) < 2:
            return None
        base = self.meta.base if self.meta.base in labels else labels[0]
        return build_ablation(records, self.main_metric, base,
                              self.results.seed_analysis.confidence)

    @cached_property
    def finished_runs(self) -> list[FinishedRun]:
        """First runs of eligible trials in order of their ends."""
        trial_seconds = dict[int, float]()
        runs = []
        created = datetime.fromisoformat(self.meta.created)
        for event in self.results.study.log:
            seconds = event.rung_result.seconds if event.rung_result else event.wall_seconds
            if event.type in (EventType.RUNG, EventType.ENDED) and seconds is not None:
                trial_seconds[event.trial] = max(trial_seconds.get(event.trial, 0.0), seconds)
            trial = self.trials[event.trial]
            if event.type == EventType.ENDED and trial.is_eligible and trial.values:
                hours = (datetime.fromisoformat(event.time) - created).total_seconds() / 3600
                values = tuple(trial.values[name] for name in self.meta.directions)
                runs.append(FinishedRun(hours, sum(trial_seconds.values()) / 3600, values))
        return runs

    @cached_property
    def loss(self) -> str:
        """Name of the validation loss by which trials are compared."""
        return self.trials.loss_name

    @cached_property
    def curves(self) -> dict[str, dict[int, list[tuple[float, float]]]]:
        """Curves of trials without replicates: name of the loss, trial, (updates, loss).

        The training loss is missing if vocabularies differ, because it is a mean over tokens.
        """
        curves: dict[str, dict[int, list[tuple[float, float]]]] = {self.loss: {}, "train_loss": {}}
        keys = [*curves] if self.loss == "validation_loss" else [self.loss]
        for trial in self.candidates:
            validations = [entry for entry in self.validations(trial) if isinstance(entry, dict)]
            for key in keys:
                points = sorted((float(entry["step"]), float(entry[key])) for entry in validations
                                if entry.get("step") is not None and entry.get(key) is not None)
                if points:
                    curves[key][trial.number] = points
        return curves

    @cached_property
    def curve_trials(self) -> list[Trial]:
        """Trials whose curves are drawn, at most the latest ``MAX_CURVES``."""
        return [trial for trial in self.candidates
                if trial.number in self.curves[self.loss] or trial.rungs][-MAX_CURVES:]

    @cached_property
    def plotted_numbers(self) -> set[int]:
        """Numbers of the trials with a drawn curve."""
        return {trial.number for trial in self.curve_trials} & set(self.curves[self.loss])

    def validations(self, trial: Trial) -> list[Any]:
        """Curve in the trial's record, or in the file of its latest rung."""
        ended = trial.state in (State.COMPLETE, State.FAILED)
        record = self.results.study.record(trial) if ended else None
        if record and record.get("curve"):
            return list(record["curve"])
        folder = self.results.study.trial_folder(trial)
        for name in reversed(fnmatch.filter(names_in(folder), RUNG_FILES)):
            rung = try_read_json(folder / name, _RungFile)  # None if it is incomplete
            if rung is not None:
                return rung.get("curve", [])
        return []

    def links(self, trial: Trial | None = None) -> dict[str, str]:
        """Names and relative addresses of existing files of ``trial``, or of the study."""
        if self.page_folder is None:
            return {}
        study = self.results.study
        folder = study.trial_folder(trial) if trial else study.folder
        existing = names_in(folder)
        names = (*TRIAL_FILES, *fnmatch.filter(existing, RUNG_FILES)) if trial else STUDY_FILES
        path = Path(os.path.relpath(folder, self.page_folder)).as_posix()
        return {name: quote(f"{path}/{name}".removeprefix("./"))
                for name in names if name in existing}


def names_in(folder: Path) -> list[str]:
    """Names of the files in a folder, rungs in their order; empty if it is missing."""
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(names, key=lambda name: (len(name), name))


def shown_params(trial: Trial) -> Mapping[str, Any]:
    """Values of a trial's hyperparameters.

    For a complete trial from outside the space, this is its configuration.
    """
    is_shown = trial.params or trial.state == State.COMPLETE
    return resolve_params(trial.params, trial.config) if is_shown else {}


def name_of(trial: Trial) -> str:
    """Name of a trial in figures and tables."""
    name = f"trial {trial.number}" + (f" ({trial.label})" if trial.label else "")
    return (f"{name}, trial {trial.original} with seed {trial.seed}"
            if trial.origin == Origin.REPLICATE else name)
