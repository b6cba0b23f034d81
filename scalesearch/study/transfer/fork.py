"""Forks: continue a study in another folder after a change of space, budget or objectives.

Costs and constraints of a finished trial are computed again, with the new study's protocol and
limits. Its metrics are taken from its record. The old folder is only read.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.study.config.command import command_of
from scalesearch.study.config.objectives import objective_values
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.transfer.imports import (
    evaluate_imported,
    import_trial,
    is_same_recipe,
    trial_source,
)
from scalesearch.study.trials.compatibility import training_differences
from scalesearch.study.trials.plan import StudyPlan
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State, Trial


@dataclass(frozen=True)
class CarriedTrial:
    """A trial of the old study, with its copy (``new_trial``) or the ``reason`` why it has none."""

    old_trial: Trial
    new_trial: Trial | None = None
    reason: str = ""


def open_studies(spec: StudySpec, folder: Path) -> tuple[StudyDir, StudySpec]:
    """Open the study to fork; return it and ``spec`` with the new ``folder``.

    Raises:
        UserError: the study cannot be forked, or ``folder`` holds a study.
    """
    if spec.architectures is not None:
        raise UserError(f"--fork {folder}: a study of type {spec.architectures.type} cannot "
                        "be forked. Added architectures are trained with --resume; for other "
                        "changes start another study with --out", code="not-forkable")
    if folder.resolve() == spec.out.resolve():
        raise UserError(f"--fork {folder}: this is the study's own folder; choose another one",
                        code="fork-onto-itself")
    if StudyDir(folder).has_started():
        raise UserError(f"--fork {folder}: a study exists there already. Continue it with --out "
                        f"{folder} --resume, or choose another folder", code="study-exists")
    return StudyDir(spec.out).load(), replace(spec, out=folder, name=folder.resolve().name)


def carry_over(old: StudyDir, plan: StudyPlan, meta: StudyMeta) -> list[CarriedTrial]:
    """Evaluate, for the new study, each trial of ``old`` whose training has started.

    Args:
        old: loaded.
        plan: of the new study.
        meta: of the new study.

    Raises:
        UserError: training differs between the studies, so no trial can be taken over.
    """
    differences = training_differences(old.meta, meta)
    if differences:
        raise UserError(f"{old.folder}: {' and '.join(differences)} changed since that study "
                        "began, so its trials cannot be compared with those of this study. Start "
                        "a new study with --out, without --fork", code="training-differs")
    labels = {plan.evaluator.identity(reference): reference.label for reference in plan.references}
    result: list[CarriedTrial] = []
    carried: dict[int | None, Trial] = {}  # by number in the old study
    for trial in old.trials.with_state(State.COMPLETE, State.FAILED, State.PENDING, State.PAUSED):
        first = carried.get(trial.original) if trial.origin == Origin.REPLICATE else None
        try:
            new = replace(_carry(old, trial, plan, labels, first), number=len(carried))
        except UserError as error:
            result.append(CarriedTrial(trial, reason=str(error)))
            continue
        carried[trial.number] = new if old.meta.rungs == meta.rungs else replace(new, rungs=())
        result.append(CarriedTrial(trial, carried[trial.number]))
    return result


def _carry(old: StudyDir, trial: Trial, plan: StudyPlan, labels: dict[str | None, str],
           first: Trial | None) -> Trial:
    """Return ``trial`` for the new study: a reference, a replicate or a candidate.

    Args:
        old: the study of the trial.
        trial: of the old study.
        plan: of the new study.
        labels: label of each reference by identity; a used label is removed.
        first: the new trial of which ``trial`` is a replicate.

    Raises:
        UserError: the trial cannot be taken over.
    """
    new, record = evaluate_imported(old, trial, plan.evaluator, allow_outside_space=True)
    if not is_same_recipe(record, new, plan.record_fields["recipe"]):
        raise UserError("it was trained by a recipe that this study does not propose",
                        code="trial-not-imported")
    label = first.label if first else labels.pop(new.identity, None)
    if not new.is_feasible and label is None:
        raise UserError(new.reason, code="trial-not-imported")
    new = replace(new, values=objective_values(plan.objectives, record["metrics"], new.costs),
                  label=label, reason="", rungs=trial.rungs)
    if trial.origin != Origin.REPLICATE:
        candidate = Origin.SAMPLER if trial.origin == Origin.REFERENCE else trial.origin
        return replace(new, origin=candidate if label is None else Origin.REFERENCE)
    if first is None:
        raise UserError(
            f"it is a replicate of trial {trial.original}, which is not taken over",
            code="trial-not-imported")
    return replace(new, origin=Origin.REPLICATE, original=first.number, seed=trial.seed)


def describe_carried(old: StudyDir, trials: list[CarriedTrial]) -> list[str]:
    """Describe the trials that are taken over, and why others are not."""
    new_trials = [carried.new_trial for carried in trials if carried.new_trial is not None]
    n_outside = sum(not trial.is_in_space for trial in new_trials)
    note = (f" ({n_outside} of them no longer in the space, but within the limits)" if n_outside
            else "")
    return [f"From {old.folder}: {len(new_trials)} of {len(trials)} candidates are taken "
            f"over{note}.",
            *(f"  not trial {carried.old_trial.number} ({carried.old_trial.architecture}): "
              f"{carried.reason}" for carried in trials if not carried.new_trial)]


def write_fork(old: StudyDir, trials: list[CarriedTrial], folder: Path, meta: StudyMeta,
               spec: StudySpec) -> None:
    """Write the new study's folder.

    Its last file marks the study as started. If the fork is interrupted before, it can be repeated.

    Raises:
        UserError: no trial is taken over.
    """
    new_trials = [carried.new_trial for carried in trials if carried.new_trial is not None]
    if not new_trials:
        raise UserError("\n".join([f"--fork {folder}: nothing can be taken over, so start a new "
                                   "study with --out", *describe_carried(old, trials)]),
                        code="nothing-to-fork")
    new = StudyDir(folder)
    new.log.file.unlink(missing_ok=True)  # of an interrupted fork
    # A record keeps the hash of the space that its trial is from.
    record_fields = {key: value for key, value in meta.record_fields.items()
                     if key != "space_hash"}
    for trial in new_trials:
        import_trial(new, trial, record_fields)
    if (old.folder / "teacher").is_dir():
        shutil.copytree(old.folder / "teacher", folder / "teacher",
                        ignore=shutil.ignore_patterns(".*", "progress.*"), dirs_exist_ok=True)
    command_of(spec).write(folder, spec.text)
    source = {**trial_source(old), "trials": len(new_trials)}
    new.create(replace(meta, forked_from=source), spec.text,
               spec.space.to_yaml())
