"""Warm starts: trials of other studies are imported or enqueued.

A finished trial is imported if training it here would give the same scores: same data, recipe,
seed and number of processes. It has no rung results, so it does not count for promotions at rungs.
Otherwise scores cannot be compared; then the architectures of that study's front are trained first.
The choice is written to ``warm.json`` before it takes effect. An interrupted study resumes with the
same choice, even if the other studies have changed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from scalesearch.errors import UserError
from scalesearch.files import copy_files, read_json, write_json
from scalesearch.schedule import order_by_spread
from scalesearch.studies.config.objectives import objective_values
from scalesearch.studies.config.sections import WARM_START_FILE, expand_path
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.replicates.summary import StudyView
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.record import Record, data_of
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, Params, State, Trial
from scalesearch.terminal import format_count
from scalesearch.training.recipe import RESUME_FREE_KEYS, fill_defaults
from scalesearch.training.recipe_space import override_keys
from scalesearch.training.result import Result

IGNORED_PATTERNS = (".*", "progress.*", "job.json", "record.json", "crash.txt", "*.part")
# Record fields that are taken from the importing study.
STUDY_RECORD_KEYS = ("study", "space_hash", "protocol", "objectives")
SKIP_REASONS = {"outside-space": "do not fit this space",
                "infeasible": "violate a limit of this study", "known": "are duplicates",
                "trial-not-imported": "have no record",
                "other-architecture": "are another architecture in this version of scalesearch"}


class WarmStart(msgspec.Struct, frozen=True):
    """Trials with which a study starts; their ``source`` names the study of origin.

    Attributes:
        imported: finished trials with their scores.
        enqueued: architectures to train before all others.
        skipped: number of trials by the reason why they are not used.
        differences: of the studies whose scores cannot be compared.
    """

    imported: tuple[Trial, ...]
    enqueued: tuple[Trial, ...]
    skipped: Mapping[str, int]
    differences: tuple[str, ...]

    def describe(self) -> str:
        """Describe the warm start in one line."""
        why = f" (the other study has {', '.join(self.differences)})" if self.differences else ""
        skipped = ", ".join(f"{count} that {reason}" for reason, count in self.skipped.items())
        note = f"; skipped: {skipped}" if skipped else ""
        return (f"Warm start: {format_count(len(self.imported), 'finished candidate')} imported, "
                f"{format_count(len(self.enqueued), 'architecture')} of other fronts to be trained "
                f"here first{why}{note}.")


def choose_warm_start(study: StudyDir, spec: StudySpec, evaluator: Evaluator,
                      default_max_candidates: int) -> WarmStart:
    """Choose trials of the studies in ``spec.warm_start``, without writing a file.

    Args:
        study, spec, evaluator: of the study that starts.
        default_max_candidates: number of architectures to train first, if ``spec`` sets none.

    Raises:
        UserError: a folder holds no study, or a damaged one.
    """
    skipped: Counter[str] = Counter()
    differences: dict[str, None] = {}
    assert spec.warm_start is not None, "checked by the caller"
    others = [StudyDir(expand_path(folder)).load() for folder in spec.warm_start.folders]
    usable = [list(usable_trials(other, study, spec, evaluator, skipped, differences))
              for other in others]

    imported: dict[str | None, Trial] = {}
    for trial in (trial for trials in usable for trial in trials if trial.values):
        if imported.setdefault(trial.identity, trial) is not trial:
            skipped[SKIP_REASONS["known"]] += 1
    queues = [spread_front(other, trials) for other, trials in zip(others, usable)]
    in_turn = filter(None, chain.from_iterable(zip_longest(*queues)))
    candidates: dict[str | None, Trial] = {}
    for trial in in_turn:
        if trial.identity not in imported:
            candidates.setdefault(trial.identity, trial)
    max_candidates = spec.warm_start.max_candidates
    enqueued = tuple(candidates.values())[
        :default_max_candidates if max_candidates is None else max_candidates]
    return WarmStart(tuple(imported.values()), enqueued, dict(skipped),
                     tuple(differences) if enqueued else ())


def usable_trials(other: StudyDir, study: StudyDir, spec: StudySpec, evaluator: Evaluator,
                  skipped: Counter[str], differences: dict[str, None]) -> Iterator[Trial]:
    """Yield finished trials of an ``other`` study that fit the space and limits of ``study``.

    A trial has values if its scores can be compared with those of ``study``. The reasons of other
    trials are added to ``skipped`` and ``differences``.
    """
    for old in other.trials.candidates():
        if old.state != State.COMPLETE:
            continue
        try:
            trial, record = evaluate_imported(other, old, evaluator)
            if not trial.is_feasible:
                raise UserError(trial.reason, code="infeasible")
        except UserError as error:
            skipped[SKIP_REASONS[error.code]] += 1
            continue
        own_differences = training_differences_of_record(record, trial, study.record_fields)
        scores = None
        if not own_differences:
            try:
                scores = objective_values(spec.objectives, record.get("metrics") or {}, trial.costs)
            except UserError:  # an objective was not measured
                own_differences = ["other metrics"]
        differences |= dict.fromkeys(own_differences)
        yield trial.replace(values=scores)


def spread_front(study: StudyDir, usable: list[Trial]) -> list[Trial]:
    """Return the trials without values on the front of ``study``, most distant first."""
    view = StudyView(study.trials, study.meta)
    signs = [objective.sign for objective in study.meta.objectives]
    # (objectives,) per member, to be minimized
    losses = {member.number: values * signs
              for member, values in zip(view.members, view.values[view.on_front])}
    sources = [int((trial.source or {})["trial"]) for trial in usable]
    members = [(trial, losses[source]) for trial, source in zip(usable, sources)
               if source in losses and not trial.values]
    points = np.array([point for _, point in members])
    return [members[index][0] for index in order_by_spread(points, len(members))]


def evaluate_imported(study: StudyDir, old: Trial, evaluator: Evaluator) -> tuple[Trial, Record]:
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
    source: dict[str, str | int] = {
        "study": study.meta.name, "id": study.meta.id, "space": study.meta.space_hash,
        "trial": old.number, "folder": str(folder.resolve())}
    return new.replace(wall_seconds=old.wall_seconds, efforts=old.efforts, phases=old.phases,
                       source=source), record


def training_differences_of_record(record: Record, trial: Trial,
                                   own: Mapping[str, Any]) -> list[str]:
    """Return how the training of ``record`` differs from that of ``trial``.

    ``own``: the record fields of the study of ``trial``.
    """
    ignored = (*RESUME_FREE_KEYS, "measure")  # these keys do not change the training result
    recorded_recipe, new_recipe = (
        {key: value for key, value in fill_defaults(recipe).items() if key not in ignored}
        for recipe in (record.get("recipe", {}),
                       override_keys(own.get("recipe", {}), trial.recipe_params)))
    pairs = {"other data": (record.get("data", {}).get("hash"), data_of(trial, own).get("hash")),
             "another recipe": (recorded_recipe, new_recipe),
             "another seed": (record.get("seed"), own.get("study_seed")),
             "another teacher": (bool(record.get("teacher")), bool(own.get("teacher"))),
             "another number of processes": (record.get("processes", 1), Result.processes)}
    return [difference for difference, (recorded, new) in pairs.items() if recorded != new]


def apply_warm_start(study: StudyDir, spec: StudySpec, evaluator: Evaluator,
                     default_max_candidates: int,
                     report: Callable[[str], object]) -> tuple[Params, ...]:
    """Import the missing trials; return the params to train first.

    Only the process that owns ``study`` may call this, before its first proposal.

    Raises:
        UserError: a folder holds no study, or a chosen trial cannot be read any more.
    """
    if spec.warm_start is None:
        return ()
    file = study.folder / WARM_START_FILE
    if file.is_file():
        warm = read_json(file, WarmStart)
    else:
        warm = choose_warm_start(study, spec, evaluator, default_max_candidates)
        write_json(file, msgspec.to_builtins(warm))
    report(warm.describe())
    labels = {evaluator.identity(reference): reference.label
              for reference in spec.named_architectures}
    for trial in warm.imported:
        # It was imported before an interruption.
        if study.trials.first_with_identity(trial.identity):
            continue
        label = labels.get(trial.identity)
        import_trial(study, trial.replace(origin=Origin.IMPORTED, label=label))
    return tuple(trial.params for trial in warm.enqueued)


def import_trial(study: StudyDir, trial: Trial) -> Trial:
    """Add a trial of another study: copy files, write its record, log the event.

    Args:
        study: the importing study.
        trial: with its ``source``.

    Raises:
        UserError: the folder of the source is gone.
    """
    assert trial.source is not None, "an imported trial has a source"
    source = Path(str(trial.source["folder"]))
    trial = trial.replace(number=study.trials.next_number, state=State.COMPLETE)
    target = study.trial_folder(trial)
    if not (source / "record.json").is_file():
        raise UserError(f"{source}: the trial to import is gone. Restore it, or start another "
                        "study with --out", code="source-trial-missing")
    if left := copy_files(source, target, exclude=IGNORED_PATTERNS):
        raise UserError(f"{source}: files cannot be copied: {'; '.join(left)}", code="cannot-copy")
    record = read_json(source / "record.json", dict)
    own_fields = {key: study.record_fields[key] for key in STUDY_RECORD_KEYS}
    write_json(target / "record.json",
               {**record, **msgspec.to_builtins(trial), "seed": record["seed"], **own_fields})
    return study.propose(trial)
