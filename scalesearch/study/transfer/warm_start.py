"""Warm starts: trials of other studies that are imported, or enqueued.

A finished trial counts here as it is where the same training would give the same numbers: same
data, recipe, seed and number of processes. It has no rung results, so it does not count towards
promotion quotas. Elsewhere scores are on another scale; then the architectures of that study's
front are trained here first. What was chosen is written to ``warm.json`` before anything acts on
it: an interrupted study goes on alike, whatever has become of the others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np

from scalesearch.errors import UserError
from scalesearch.files import read_json, write_json
from scalesearch.pareto.front import pareto_front
from scalesearch.schedule.rungs import order_by_spread
from scalesearch.study.config.objectives import objective_values
from scalesearch.study.config.sections import WARM_START_FILE, WarmStartSpec, expand_path
from scalesearch.study.replicates.summary import front_candidates
from scalesearch.study.transfer.imports import evaluate_imported, import_trial, is_same_recipe
from scalesearch.study.trials.plan import StudyPlan
from scalesearch.study.trials.record import Record, data_of
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State, Trial

SKIP_REASONS = {"outside-space": "do not fit this space",
                "infeasible": "miss a limit of this study", "known": "are known already",
                "trial-not-imported": "have no record",
                "other-architecture": "are another architecture in this version of scalesearch"}


@dataclass(frozen=True)
class WarmStart:
    """Warm start of a study: trials whose ``source`` says where they come from.

    Attributes:
        imported: taken over as finished. first: trained here before anything else.
        skipped: reason to how many were left out for it.
        differences: what is different of the studies whose scores do not count here.
    """

    imported: tuple[Trial, ...] = ()
    enqueued: tuple[Trial, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[str, ...] = ()

    def to_json(self) -> Mapping[str, object]:
        """JSON of all fields."""
        return {"imported": [trial.to_json() for trial in self.imported],
                "enqueued": [trial.to_json() for trial in self.enqueued], "skipped": dict(self.skipped),
                "differences": list(self.differences)}

    @classmethod
    def read(cls, file: Path) -> "WarmStart":
        """Reads the JSON that ``to_json`` wrote. Raises UserError where it is damaged."""
        try:
            data = read_json(file, dict)
            imported, first = (tuple(map(Trial.from_json, data[key]))
                               for key in ("imported", "enqueued"))
            return cls(imported, first, data["skipped"], tuple(data["differences"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file}: {error}; the file was changed, or the disk damaged it. "
                            "Restore it", code="file-damaged") from None

    def describe(self) -> str:
        """Describes it in a line."""
        why = f" (theirs had {', '.join(self.differences)})" if self.differences else ""
        left = (f"; left out: {', '.join(f'{n} that {why}' for why, n in self.skipped.items())}"
                if self.skipped else "")
        return (f"Warm start: {len(self.imported)} finished candidates imported, "
                f"{len(self.enqueued)} architectures of other fronts to be trained here "
                f"first{why}{left}.")


def choose_warm_start(spec: WarmStartSpec, plan: StudyPlan,
                      default_max_candidates: int) -> WarmStart:
    """Chooses trials of the studies in ``spec``; nothing is written.

    Args:
        plan: of this study.
        default_max_candidates: architectures to train first, where ``spec`` does not say.

    Raises:
        UserError: a folder holds no study, or a damaged one.
    """
    left: Counter[str] = Counter()
    other: dict[str, None] = {}
    studies = [StudyDir(expand_path(folder)).load() for folder in spec.folders]
    usable = [list(_usable(study, plan, left, other)) for study in studies]
    imported = _once((trial for trials in usable for trial in trials if trial.values), set(), left)
    here = {str(trial.identity) for trial in imported}
    queues = [_spread(study, trials) for study, trials in zip(studies, usable)]
    in_turn = (trial for trial in chain.from_iterable(zip_longest(*queues)) if trial is not None)
    first = _once(in_turn, here, Counter())[
        : default_max_candidates if spec.max_candidates is None else spec.max_candidates]
    return WarmStart(imported, first, dict(left), tuple(other) if first else ())


def _usable(study: StudyDir, plan: StudyPlan, left: Counter[str],
            other: dict[str, None]) -> Iterable[Trial]:
    """Finished trials that fit this study's space and limits.

    They have values where their scores count here.
    """
    for old in study.trials.with_state(State.COMPLETE):
        if old.origin == Origin.REPLICATE:
            continue
        try:
            trial, record = evaluate_imported(study, old, plan.evaluator)
            if not trial.is_feasible:
                raise UserError(trial.reason, code="infeasible")
        except UserError as error:
            left[SKIP_REASONS[error.code]] += 1
            continue
        differs = training_differences_of_record(record, trial, plan)
        scored = None
        if not differs:
            try:
                scored = objective_values(plan.objectives, record.get("metrics") or {}, trial.costs)
            except UserError:  # none was measured, or not every one
                differs = ["other metrics"]
        other |= dict.fromkeys(differs)
        yield replace(trial, values=scored)


def training_differences_of_record(record: Record, trial: Trial, plan: StudyPlan) -> list[str]:
    """Differences of ``record`` to the training that ``trial`` is here.

    Scores count where there are none.
    """
    mine = plan.record_fields
    pairs = {"other data": (record.get("data", {}).get("hash"), data_of(trial, mine).get("hash")),
             "another recipe": (is_same_recipe(record, trial, mine.get("recipe", {})), True),
             "another seed": (record.get("seed"), mine.get("study_seed")),
             "another teacher": (bool(record.get("teacher")), bool(mine.get("teacher"))),
             "another number of processes": (record.get("processes", 1),
                                             plan.job_template.get("processes", 1))}
    return [words for words, (theirs, ours) in pairs.items() if theirs != ours]


def _once(trials: Iterable[Trial], here: set[str], left: Counter[str]) -> tuple[Trial, ...]:
    """Each architecture and recipe once, and none that is ``here``."""
    kept: dict[str, Trial] = {}
    for trial in trials:
        if trial.identity in kept or trial.identity in here:
            left[SKIP_REASONS["known"]] += 1
        else:
            kept[str(trial.identity)] = trial
    return tuple(kept.values())


def _spread(study: StudyDir, usable: list[Trial]) -> list[Trial]:
    """Trials to enqueue, of those whose scores do not count here.

    They are on their study's front, far apart ones first.
    """
    objectives = study.meta.objectives
    trials = [one.first for one in front_candidates(study.trials, objectives)]
    if not trials:
        return []
    table = np.array([[(trial.values or {})[one.name] * one.sign for one in objectives]
                      for trial in trials], float)
    on = pareto_front(table, ["min"] * len(objectives))
    front = {trial.number: row for trial, row, is_on in zip(trials, table, on) if is_on}
    able = [trial
            for trial in usable if not trial.values and (trial.source or {})["trial"] in front]
    places = np.array([front[trial.source["trial"]] for trial in able if trial.source])
    return [able[place] for place in order_by_spread(places, len(able))]


def apply_warm_start(study: StudyDir, spec: WarmStartSpec | None, plan: StudyPlan,
                     default_max_candidates: int, report: Callable[[str], object]) -> StudyPlan:
    """Imports what is not imported yet; returns the plan with what to train first.

    Only the process that owns ``study`` may call this, before it proposes anything.

    Raises:
        UserError: a folder holds no study, or what was chosen from it cannot be read any more.
    """
    if spec is None:
        return plan
    file = study.folder / WARM_START_FILE
    if file.is_file():
        warm = WarmStart.read(file)
    else:
        warm = choose_warm_start(spec, plan, default_max_candidates)
        write_json(file, warm.to_json())
    report(warm.describe())
    labels = {plan.evaluator.identity(reference): reference.label for reference in plan.references}
    for trial in warm.imported:
        # from last time, or a fork has brought it along
        if study.trials.first_with_identity(trial.identity):
            continue
        label = labels.get(trial.identity)
        import_trial(study, replace(trial, origin=Origin.IMPORTED, label=label), plan.record_fields)
    return replace(plan, enqueued=tuple(trial.params for trial in warm.enqueued))
