"""Facts of a study that its page shows and its results do not hold: links, curves, hours, what is itemised."""

import fnmatch
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from matplotlib.figure import Figure

from scalesearch.report.ablation import Ablation, build_ablation
from scalesearch.report.records import labeled_records, scores_over_seeds, validation_loss_name
from scalesearch.study.results.results import Results
from scalesearch.study.results.tables import records_of
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import EventType, Origin, State, Trial
from scalesearch.study.trials.trials import Trials

TRIAL_FILES = ("architecture.yaml", "job.json", "record.json")
STUDY_FILES = ("study.yaml", "command.json", "space.yaml", "study.json", "events.jsonl",
               "front.csv", "all.csv", "seeds.csv")
MAX_CURVES = 400  # in one figure


@dataclass(frozen=True)
class FinishedRun:
    """The first training of a trial that may be on the front.

    Attributes:
        hours: wall time since the study was created.
        training_hours: hours of training, validation and decoding of all workers until then.
        values: of the objectives, in their order.
    """

    hours: float
    training_hours: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class PageFacts:
    """One study as it stands.

    Attributes:
        page_folder: the folder that the page will lie in; None leaves links out.
        figures: of studies that have their own: title, figure, caption.
    """

    results: Results
    page_folder: Path | None = None
    figures: tuple[tuple[str, Figure, str], ...] = ()

    @property
    def meta(self) -> StudyMeta:
        """The study's meta data."""
        return self.results.study.meta

    @cached_property
    def main_metric(self) -> str:
        """The metric that is shown against costs."""
        return self.results.main_metric

    @cached_property
    def sampled(self) -> set[str]:
        """Every hyperparameter that a proposal had a value for."""
        return self.results.params

    @property
    def trials(self) -> Trials:
        """All trials, replicates among them."""
        return self.results.study.trials

    @cached_property
    def candidates(self) -> list[Trial]:
        """All trials but replicates, in order."""
        return self.trials.candidates()

    @cached_property
    def is_search(self) -> bool:
        """Whether trials were, or are to be, proposed; else all that is trained is what the study file names."""
        if self.meta.type != "search" and not self.sampled:
            return False
        named = sum(one.origin == Origin.REFERENCE for one in self.candidates)
        return bool(self.sampled) or self.meta.total_trials > named or len(self.candidates) > named

    @property
    def has_front(self) -> bool:
        """Whether there is a front to speak of: what is searched has one, even if it is empty as yet."""
        return self.is_search or len(self.results.front) > 0

    @cached_property
    def finished_rows(self) -> pd.DataFrame:
        """The finished rows of the table that have the main metric."""
        table = self.results.table
        return table[(table["state"] == State.COMPLETE) & table[self.main_metric].notna()]

    @cached_property
    def front_members(self) -> list[int]:
        """The trials on the front, from the cheapest."""
        return [int(number) for number in self.results.front["trial"]]

    @cached_property
    def itemized(self) -> list[int]:
        """The trials whose costs are shown in full: the front's; where nothing was searched, all that are finished."""
        members = self.front_members if self.is_search else [
            int(number) for number in self.finished_rows["trial"]]
        return [number for number in members if self.trials[number].costs]

    @cached_property
    def architecture_table(self) -> Ablation | None:
        """The table of the named architectures; None where there are not two.

        They are compared with the base that the study names, or else the first that is finished.
        """
        records = records_of(self.results)
        labels = [label
                  for label, record in labeled_records(records).items()
                  if scores_over_seeds(record, records, self.main_metric)]
        if not labels or len(labeled_records(records)) < 2:
            return None
        base = self.meta.base if self.meta.base in labels else labels[0]
        return build_ablation(records, self.main_metric, base,
                              self.results.seed_analysis.confidence)

    @cached_property
    def finished_runs(self) -> list[FinishedRun]:
        """Finished first trainings of eligible trials, in the order of time."""
        spent = dict[int, float]()
        done = []
        start = datetime.fromisoformat(self.meta.created)
        for event in self.results.study.log:
            seconds = event.rung_result.seconds if event.rung_result else event.wall_seconds
            if event.type in (EventType.RUNG, EventType.ENDED) and seconds is not None:
                spent[event.trial] = max(spent.get(event.trial, 0.0), seconds)
            trial = self.trials[event.trial]
            if event.type == EventType.ENDED and trial.is_eligible and trial.values:
                hours = (datetime.fromisoformat(event.time) - start).total_seconds() / 3600
                values = tuple(trial.values[name] for name in self.meta.directions)
                done.append(FinishedRun(hours, sum(spent.values()) / 3600, values))
        return done

    @cached_property
    def loss(self) -> str:
        """The validation loss by which trials compare."""
        return next((validation_loss_name(trial.config)
                     for trial in self.candidates if trial.config), "validation_loss")

    @cached_property
    def curves(self) -> dict[str, dict[int, list[tuple[float, float]]]]:
        """``loss`` and ``train_loss``: (updates, loss) of a trial's validations; no replicates, no empty ones.

        There is no training loss where vocabularies differ: it is of tokens.
        """
        found: dict[str, dict[int, list[tuple[float, float]]]] = {self.loss: {}, "train_loss": {}}
        for trial in self.candidates:
            validations = [one for one in self._validations(trial) if isinstance(one, dict)]
            for key, curves in found.items() if self.loss == "validation_loss" else [
                    (self.loss, found[self.loss])]:
                points = sorted((float(one["step"]), float(one[key])) for one in validations
                                if one.get("step") is not None and one.get(key) is not None)
                if points:
                    curves[trial.number] = points
        return found

    @cached_property
    def curve_trials(self) -> list[Trial]:
        """The trials whose curves are drawn: the latest where there are too many."""
        return [one
                for one in self.candidates
                if one.number in self.curves[self.loss] or one.rungs][-MAX_CURVES:]

    @cached_property
    def plotted_numbers(self) -> set[int]:
        """The numbers of the trials that have a curve of their own."""
        return {one.number for one in self.curve_trials} & set(self.curves[self.loss])

    def _validations(self, trial: Trial) -> list[Any]:
        """As the trial's record says, or the latest rung that it has reached."""
        ended = trial.state in (State.COMPLETE, State.FAILED)
        record = self.results.study.record(trial) if ended else None
        if record and record.get("curve"):
            return list(record["curve"])
        folder = self.results.study.trial_folder(trial)
        for name in reversed(_rung_files(_names_in(folder))):
            try:
                return list(json.loads((folder / name).read_text()).get("curve") or ())
            except (OSError, ValueError):  # being written
                continue
        return []

    def links(self, trial: Trial | None = None) -> dict[str, str]:
        """Name to relative address of the existing files of ``trial``, or of the study."""
        if self.page_folder is None:
            return {}
        study = self.results.study
        folder = study.trial_folder(trial) if trial else study.folder
        there = _names_in(folder)
        names = (*TRIAL_FILES, *_rung_files(there)) if trial else STUDY_FILES
        place = Path(os.path.relpath(folder, self.page_folder)).as_posix()
        return {name: quote(f"{place}/{name}".removeprefix("./"))
                for name in names if name in there}


def _names_in(folder: Path) -> set[str]:
    """Names of the files in a folder, by one look at it; none where there is no folder."""
    return {entry.name
            for entry in os.scandir(folder) if entry.is_file()} if folder.is_dir() else set()


def _rung_files(names: Iterable[str]) -> list[str]:
    """Rung files of a training, in their order."""
    return sorted(fnmatch.filter(names, "rung-*.json"), key=lambda name: (len(name), name))


def shown_params(trial: Trial) -> Mapping[str, Any]:
    """Hyperparameter to value: what was sampled, or for a trial from outside the space, its whole description."""
    return trial.params or (trial.config if trial.state == State.COMPLETE else {})


def trial_name(trial: Trial) -> str:
    """A trial's name in figures and tables."""
    own = f"trial {trial.number}" + (f" ({trial.label})" if trial.label else "")
    return (f"{own}, trial {trial.original} with seed {trial.seed}"
            if trial.origin == Origin.REPLICATE else own)
