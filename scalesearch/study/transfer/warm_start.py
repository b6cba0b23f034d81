"""Warm starts: trials of other studies that are imported, or enqueued.

A finished trial counts here as it is where the same training would give the same numbers: same data, recipe, seed and
number of processes. It has no rung results, so it does not count towards promotion quotas. Elsewhere scores are on
another scale; then the architectures of that study's front are trained here first. What was chosen is written to
``warm.json`` before anything acts on it: an interrupted study goes on alike, whatever has become of the others.
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
from scalesearch.study.config.objectives import values
from scalesearch.study.config.sections import WARM_FILE, WarmSpec, place_of
from scalesearch.study.replicates.summary import candidates_of
from scalesearch.study.transfer.imports import evaluate_here, import_trial, same_recipe
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.record import Record, data_of
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State, Trial

LEFT = {"outside-space": "do not fit this space", "infeasible": "miss a limit of this study",
        "known": "are known already", "trial-not-taken": "have no record",
        "other-architecture": "are another architecture in this version of scalesearch"}


@dataclass(frozen=True)
class WarmStart:
    """Warm start of a study: trials whose ``source`` says where they come from.

    Attributes:
        imported: taken over as finished. first: trained here before anything else.
        left: reason to how many were left out for it.
        other: what is different of the studies whose scores do not count here.
    """

    imported: tuple[Trial, ...] = ()
    first: tuple[Trial, ...] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    other: tuple[str, ...] = ()

    def to_json(self) -> Mapping[str, object]:
        """JSON of all fields."""
        return {"imported": [trial.to_json() for trial in self.imported],
                "first": [trial.to_json() for trial in self.first], "left": dict(self.left), "other": list(self.other)}

    @classmethod
    def read(cls, file: Path) -> "WarmStart":
        """Reads the JSON that ``to_json`` wrote. Raises UserError where it is damaged."""
        try:
            data = read_json(file, dict)
            imported, first = (tuple(map(Trial.from_json, data[key])) for key in ("imported", "first"))
            return cls(imported, first, data["left"], tuple(data["other"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file}: {error}; the file was changed, or the disk damaged it. Restore it",
                            code="file-damaged") from None

    def describe(self) -> str:
        """Describes it in a line."""
        why = f" (theirs had {', '.join(self.other)})" if self.other else ""
        left = f"; left out: {', '.join(f'{n} that {why}' for why, n in self.left.items())}" if self.left else ""
        return (f"Warm start: {len(self.imported)} finished candidates imported, {len(self.first)} architectures of "
                f"other fronts to be trained here first{why}{left}.")


def choose(spec: WarmSpec, plan: Plan, most: int) -> WarmStart:
    """Chooses trials of the studies in ``spec``; nothing is written.

    Args:
        plan: of this study.
        most: architectures to train first, where ``spec`` does not say.

    Raises:
        UserError: a folder holds no study, or a damaged one.
    """
    left: Counter[str] = Counter()
    other: dict[str, None] = {}
    studies = [StudyDir(place_of(folder)).load() for folder in spec.folders]
    usable = [list(_usable(study, plan, left, other)) for study in studies]
    imported = _once((trial for trials in usable for trial in trials if trial.values), set(), left)
    here = {str(trial.identity) for trial in imported}
    queues = [_spread(study, trials) for study, trials in zip(studies, usable)]
    in_turn = (trial for trial in chain.from_iterable(zip_longest(*queues)) if trial is not None)
    first = _once(in_turn, here, Counter())[: most if spec.most is None else spec.most]
    return WarmStart(imported, first, dict(left), tuple(other) if first else ())


def _usable(study: StudyDir, plan: Plan, left: Counter[str], other: dict[str, None]) -> Iterable[Trial]:
    """Finished trials that fit this study's space and limits. They have values where their scores count here."""
    for old in study.trials.having(State.COMPLETE):
        if old.origin == Origin.REPLICATE:
            continue
        try:
            trial, record = evaluate_here(study, old, plan.evaluator)
            if not trial.feasible:
                raise UserError(trial.reason, code="infeasible")
        except UserError as error:
            left[LEFT[error.code]] += 1
            continue
        differs, scored = differences(record, trial, plan), None
        if not differs:
            try:
                scored = values(plan.objectives, record.get("metrics") or {}, trial.costs)
            except UserError:  # none was measured, or not every one
                differs = ["other metrics"]
        other |= dict.fromkeys(differs)
        yield replace(trial, values=scored)


def differences(record: Record, trial: Trial, plan: Plan) -> list[str]:
    """Differences of ``record`` to the training that ``trial`` is here. Scores count where there are none."""
    mine = plan.shared
    pairs = {"other data": (record.get("data", {}).get("hash"), data_of(trial, mine).get("hash")),
             "another recipe": (same_recipe(record, trial, mine.get("recipe", {})), True),
             "another seed": (record.get("seed"), mine.get("study_seed")),
             "another teacher": (bool(record.get("teacher")), bool(mine.get("teacher"))),
             "another number of processes": (record.get("processes", 1), plan.job.get("processes", 1))}
    return [words for words, (theirs, ours) in pairs.items() if theirs != ours]


def _once(trials: Iterable[Trial], here: set[str], left: Counter[str]) -> tuple[Trial, ...]:
    """Each architecture and recipe once, and none that is ``here``."""
    kept: dict[str, Trial] = {}
    for trial in trials:
        if trial.identity in kept or trial.identity in here:
            left[LEFT["known"]] += 1
        else:
            kept[str(trial.identity)] = trial
    return tuple(kept.values())


def _spread(study: StudyDir, usable: list[Trial]) -> list[Trial]:
    """Trials to enqueue, of those whose scores do not count here.

    They are on their study's front, far apart ones first.
    """
    objectives = study.meta.objectives
    trials = [one.first for one in candidates_of(study.trials, objectives)]
    if not trials:
        return []
    table = np.array([[(trial.values or {})[one.name] * one.sign for one in objectives] for trial in trials], float)
    on = pareto_front(table, ["min"] * len(objectives))
    front = {trial.number: row for trial, row, is_on in zip(trials, table, on) if is_on}
    able = [trial for trial in usable if not trial.values and (trial.source or {})["trial"] in front]
    places = np.array([front[trial.source["trial"]] for trial in able if trial.source])
    return [able[place] for place in order_by_spread(places, len(able))]


def begin(study: StudyDir, spec: WarmSpec | None, plan: Plan, most: int, tell: Callable[[str], object]) -> Plan:
    """Imports what is not imported yet; returns the plan with what to train first.

    Only the process that owns ``study`` may call this, before it proposes anything.

    Raises:
        UserError: a folder holds no study, or what was chosen from it cannot be read any more.
    """
    if spec is None:
        return plan
    file = study.folder / WARM_FILE
    if file.is_file():
        warm = WarmStart.read(file)
    else:
        warm = choose(spec, plan, most)
        write_json(file, warm.to_json())
    tell(warm.describe())
    labels = {plan.evaluator.identity(reference): reference.label for reference in plan.references}
    for trial in warm.imported:
        if study.trials.first(trial.identity):  # from last time, or a fork has brought it along
            continue
        label = labels.get(trial.identity)
        import_trial(study, replace(trial, origin=Origin.IMPORTED, label=label), plan.shared)
    return replace(plan, enqueued=tuple(trial.params for trial in warm.first))
