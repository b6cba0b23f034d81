"""Warm starts: trials of other studies are imported or enqueued.

A finished trial is imported if training it here would give the same scores: same data, recipe,
seed and number of processes. It has no rung results, so it does not count for promotions at rungs.
Otherwise scores cannot be compared; then the architectures of that study's front are trained first.
The choice is written to ``warm.json`` before it takes effect. An interrupted study resumes with the
same choice, even if the other studies have changed.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.errors import UserError
from scalesearch.files import read_json, write_json
from scalesearch.pareto.front import pareto_front
from scalesearch.schedule.rungs import order_by_spread
from scalesearch.studies.config.objectives import objective_values
from scalesearch.studies.config.sections import WARM_START_FILE, WarmStartSpec, expand_path
from scalesearch.studies.replicates.summary import front_candidates
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.plan import StudyPlan
from scalesearch.studies.trials.record import Record, data_of
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, Params, State, Trial
from scalesearch.training.recipe import RESUME_FREE_KEYS, fill_defaults
from scalesearch.training.recipe_space import override_keys

IGNORED_PATTERNS = (".*", "progress.*", "job.json", "record.json", "crash.txt", "*.part")
# Record fields that are taken from the importing study.
STUDY_RECORD_KEYS = ("study", "space_hash", "protocol", "objectives")
SKIP_REASONS = {"outside-space": "do not fit this space",
                "infeasible": "miss a limit of this study", "known": "are duplicates",
                "trial-not-imported": "have no record",
                "other-architecture": "are another architecture in this version of scalesearch"}


@dataclass(frozen=True)
class WarmStart:
    """Trials with which a study starts; their ``source`` names the study of origin.

    Attributes:
        imported: finished trials with their scores.
        enqueued: architectures to train before all others.
        skipped: number of trials by the reason why they are not used.
        differences: of the studies whose scores cannot be compared.
    """

    imported: tuple[Trial, ...] = ()
    enqueued: tuple[Trial, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[str, ...] = ()

    def to_json(self) -> Mapping[str, object]:
        """Return the JSON value of all fields."""
        return {"imported": [trial.to_json() for trial in self.imported],
                "enqueued": [trial.to_json() for trial in self.enqueued],
                "skipped": dict(self.skipped),
                "differences": list(self.differences)}

    @classmethod
    def read(cls, file: Path) -> "WarmStart":
        """Read the file that holds the value of ``to_json``.

        Raises:
            UserError: the file is damaged.
        """
        try:
            data = read_json(file, dict)
            imported, enqueued = (tuple(map(Trial.from_json, data[key]))
                                  for key in ("imported", "enqueued"))
            return cls(imported, enqueued, data["skipped"], tuple(data["differences"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file}: {error}; the file was changed, or the disk damaged it. "
                            "Restore it", code="file-damaged") from None

    def describe(self) -> str:
        """Describe the warm start in one line."""
        why = f" (the other study has {', '.join(self.differences)})" if self.differences else ""
        skipped = ", ".join(f"{count} that {reason}" for reason, count in self.skipped.items())
        note = f"; skipped: {skipped}" if skipped else ""
        return (f"Warm start: {len(self.imported)} finished candidates imported, "
                f"{len(self.enqueued)} architectures of other fronts to be trained here "
                f"first{why}{note}.")


def choose_warm_start(spec: WarmStartSpec, plan: StudyPlan,
                      default_max_candidates: int) -> WarmStart:
    """Choose trials of the studies in ``spec``, without writing a file.

    Args:
        spec: folders of the other studies.
        plan: of this study.
        default_max_candidates: number of architectures to train first, if ``spec`` sets none.

    Raises:
        UserError: a folder holds no study, or a damaged one.
    """
    skipped: Counter[str] = Counter()
    differences: dict[str, None] = {}
    studies = [StudyDir(expand_path(folder)).load() for folder in spec.folders]
    usable = [list(_usable(study, plan, skipped, differences)) for study in studies]
    scored = (trial for trials in usable for trial in trials if trial.values)
    imported = _without_duplicates(scored, set(), skipped)
    identities = {str(trial.identity) for trial in imported}
    queues = [_spread(study, trials) for study, trials in zip(studies, usable)]
    in_turn = (trial for trial in chain.from_iterable(zip_longest(*queues)) if trial is not None)
    max_candidates = (default_max_candidates if spec.max_candidates is None
                      else spec.max_candidates)
    enqueued = _without_duplicates(in_turn, identities, Counter())[:max_candidates]
    return WarmStart(imported, enqueued, dict(skipped), tuple(differences) if enqueued else ())


def _usable(study: StudyDir, plan: StudyPlan, skipped: Counter[str],
            differences: dict[str, None]) -> Iterable[Trial]:
    """Yield finished trials that fit this study's space and limits.

    A trial has values if its scores can be compared with those of this study. The reasons of other
    trials are added to ``skipped`` and ``differences``.
    """
    for old in study.trials.with_state(State.COMPLETE):
        if old.origin == Origin.REPLICATE:
            continue
        try:
            trial, record = evaluate_imported(study, old, plan.evaluator)
            if not trial.is_feasible:
                raise UserError(trial.reason, code="infeasible")
        except UserError as error:
            skipped[SKIP_REASONS[error.code]] += 1
            continue
        own_differences = training_differences_of_record(record, trial, plan)
        scores = None
        if not own_differences:
            try:
                metrics: Any = record.get("metrics") or {}
                scores = objective_values(plan.objectives, metrics, trial.costs)
            except UserError:  # an objective was not measured
                own_differences = ["other metrics"]
        differences |= dict.fromkeys(own_differences)
        yield replace(trial, values=scores)


def evaluate_imported(study: StudyDir, old: Trial,
                      evaluator: Evaluator) -> tuple[Trial, Record]:
    """Evaluate a complete trial of another study; return the new trial and the record.

    Costs and constraints are computed again. The new trial has no values; its ``source`` names the
    old one. If its recipe is outside the recipe space, it gets the default recipe parameters.

    Args:
        study: of the trial, loaded.
        old: the trial.
        evaluator: of the importing study.

    Raises:
        UserError: the trial cannot be imported.
    """
    record = study.record(old)
    if record is None:
        raise UserError("its record is missing", code="trial-not-imported")
    space = evaluator.space
    try:
        values = space.resolve(space.replay_values(old.config))
        is_in_space = space.architecture(values).id == old.architecture
    except UserError:
        is_in_space = False
    if not is_in_space:
        raise UserError("it does not fit this space", code="outside-space")
    folder = study.trial_folder(old)
    recipe = (evaluator.recipe.params_of_recipe(record.get("recipe", {}))
              or evaluator.recipe.default_params({}))
    new = evaluator.evaluate({**values.params, **recipe})
    # None: it cannot be built with the costs of this study; `reason` holds the cause.
    if new.architecture not in (None, old.architecture):
        raise UserError(f"{folder / 'architecture.yaml'} describes {new.architecture} in this "
                        f"version of scalesearch, and {old.architecture} was trained",
                        code="other-architecture")
    source: dict[str, str | int] = {"study": study.meta.name, "id": study.meta.id, "space": study.meta.space_hash,
              "trial": old.number, "folder": str(folder.resolve())}
    return replace(new, wall_seconds=old.wall_seconds, efforts=old.efforts, source=source), record


def training_differences_of_record(record: Record, trial: Trial, plan: StudyPlan) -> list[str]:
    """Return how the training of ``record`` differs from that of ``trial``."""
    own = plan.record_fields
    pairs = {"other data": (record.get("data", {}).get("hash"), data_of(trial, own).get("hash")),
             "another recipe": (is_same_recipe(record, trial, own.get("recipe", {})), True),
             "another seed": (record.get("seed"), own.get("study_seed")),
             "another teacher": (bool(record.get("teacher")), bool(own.get("teacher"))),
             "another number of processes": (record.get("processes", 1),
                                             plan.job_template.get("processes", 1))}
    return [difference for difference, (recorded, new) in pairs.items() if recorded != new]


def is_same_recipe(record: Record, trial: Trial, recipe: Params) -> bool:
    """Whether ``record`` was trained by the recipe of ``trial`` here.

    Keys that do not change the training result are ignored.
    """
    ignored = (*RESUME_FREE_KEYS, "measure")
    recorded, new = ({key: value for key, value in fill_defaults(keys).items()
                      if key not in ignored}
                     for keys in (record.get("recipe", {}),
                                  override_keys(recipe, trial.recipe_params)))
    return recorded == new


def _without_duplicates(trials: Iterable[Trial], identities: set[str],
                        skipped: Counter[str]) -> tuple[Trial, ...]:
    """Return the first trial per architecture and recipe, except ``identities``."""
    kept: dict[str, Trial] = {}
    for trial in trials:
        if trial.identity in kept or trial.identity in identities:
            skipped[SKIP_REASONS["known"]] += 1
        else:
            kept[str(trial.identity)] = trial
    return tuple(kept.values())


def _spread(study: StudyDir, usable: list[Trial]) -> list[Trial]:
    """Return trials to enqueue, most distant first.

    They are on the front of their study; their values are not known here.
    """
    objectives = study.meta.objectives
    trials = [candidate.first for candidate in front_candidates(study.trials, study.meta)]
    if not trials:
        return []
    # (n_trials, n_objectives), to be minimized
    losses = np.array([[(trial.values or {})[objective.name] * objective.sign
                        for objective in objectives] for trial in trials], float)
    is_on_front = pareto_front(losses, ["min"] * len(objectives))
    front = {trial.number: point for trial, point, is_member in zip(trials, losses, is_on_front)
             if is_member}
    members = [trial for trial in usable
               if not trial.values and (trial.source or {})["trial"] in front]
    points = np.array([front[int(trial.source["trial"])] for trial in members if trial.source])
    return [members[index] for index in order_by_spread(points, len(members))]


def apply_warm_start(study: StudyDir, spec: WarmStartSpec | None, plan: StudyPlan,
                     default_max_candidates: int, report: Callable[[str], object]) -> StudyPlan:
    """Import the missing trials.

    Return the plan with the architectures to train first.

    Only the process that owns ``study`` may call this, before its first proposal.

    Raises:
        UserError: a folder holds no study, or a chosen trial cannot be read any more.
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
        # It was imported before an interruption.
        if study.trials.first_with_identity(trial.identity):
            continue
        label = labels.get(trial.identity)
        import_trial(study, replace(trial, origin=Origin.IMPORTED, label=label), plan.record_fields)
    return replace(plan, enqueued=tuple(trial.params for trial in warm.enqueued))


def import_trial(study: StudyDir, trial: Trial, shared: Params) -> Trial:
    """Add a trial of another study: copy files, write its record, log the event.

    Args:
        study: the importing study.
        trial: with its ``source``.
        shared: record fields of the importing study.

    Raises:
        UserError: the folder of the source is gone.
    """
    assert trial.source is not None, "an imported trial has a source"
    source = Path(str(trial.source["folder"]))
    trial = replace(trial, number=study.trials.next_number, state=State.COMPLETE)
    target = study.trial_folder(trial)
    if not (source / "record.json").is_file():
        raise UserError(f"{source}: the trial to import is gone. Restore it, or start another "
                        "study with --out", code="source-trial-missing")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*IGNORED_PATTERNS),
                    dirs_exist_ok=True)
    record = read_json(source / "record.json", dict)
    own_fields = {key: shared[key] for key in STUDY_RECORD_KEYS if key in shared}
    write_json(target / "record.json",
               {**record, **trial.to_json(), "seed": record["seed"], **own_fields})
    return study.propose(trial)
