"""Forks: studies that go on in another folder after a change of space, budget or objectives.

Costs and constraints of a finished trial are computed anew, by the new study's protocol and limits;
its metrics are those of its record. The old folder is only read.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.study.config.command import command_of
from scalesearch.study.config.objectives import objective_values
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.transfer.imports import evaluate_imported, import_trial, is_same_recipe, trial_source
from scalesearch.study.trials.compatibility import training_differences
from scalesearch.study.trials.plan import StudyPlan
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State, Trial


@dataclass(frozen=True)
class CarriedTrial:
    """Trial of the old study, and its fate: ``new_trial``, or the ``reason`` against taking it over."""

    old_trial: Trial
    new_trial: Trial | None = None
    reason: str = ""


def open_studies(spec: StudySpec, folder: Path) -> tuple[StudyDir, StudySpec]:
    """Opens the study to fork, and the one that ``spec`` describes, in ``folder``.

    Raises:
        UserError: there is no study to fork, or one in ``folder`` already.
    """
    if spec.architectures is not None:
        raise UserError(f"--fork {folder}: a study of kind {spec.architectures.type} is not "
                        "forked. Rows that are added to it are trained on --resume; for anything "
                        "else start another with --out", code="not-forkable")
    if folder.resolve() == spec.out.resolve():
        raise UserError(f"--fork {folder}: this is the study's own folder; name another one",
                        code="fork-onto-itself")
    if StudyDir(folder).has_started():
        raise UserError(f"--fork {folder}: a study is there already. Go on with it by --out "
                        f"{folder} --resume, or name another folder", code="study-exists")
    return StudyDir(spec.out).load(), replace(spec, out=folder, name=folder.resolve().name)


def carry_over(old: StudyDir, plan: StudyPlan, meta: StudyMeta) -> list[CarriedTrial]:
    """Evaluates every trial that ``old`` has begun to train for the new study.

    Args:
        old: loaded.
        plan, meta: of the new study.

    Raises:
        UserError: nothing can be taken over, because training the same architecture gives other
            numbers now.
    """
    otherwise = training_differences(old.meta, meta)
    if otherwise:
        raise UserError(f"{old.folder}: {' and '.join(otherwise)} changed since that study began, "
                        "so nothing that it trained compares with what this one would train. Start "
                        "anew with --out, without --fork", code="training-differs")
    labels = {plan.evaluator.identity(reference): reference.label for reference in plan.references}
    result: list[CarriedTrial] = []
    taken: dict[int | None, Trial] = {}  # by its number in the old study
    for trial in old.trials.with_state(State.COMPLETE, State.FAILED, State.PENDING, State.PAUSED):
        first = taken.get(trial.original) if trial.origin == Origin.REPLICATE else None
        try:
            new = replace(_carry(old, trial, plan, labels, first), number=len(taken))
        except UserError as error:
            result.append(CarriedTrial(trial, reason=str(error)))
            continue
        taken[trial.number] = new if old.meta.rungs == meta.rungs else replace(new, rungs=())
        result.append(CarriedTrial(trial, taken[trial.number]))
    return result


def _carry(old: StudyDir, trial: Trial, plan: StudyPlan, labels: dict[str | None, str],
           first: Trial | None) -> Trial:
    """``trial`` as the new study has it: a reference of ``labels``, a replicate of ``first``, or a candidate.

    Raises:
        UserError: the reason against taking it over.
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
            f"it is another training of trial {trial.original}, which is not taken over",
            code="trial-not-imported")
    return replace(new, origin=Origin.REPLICATE, original=first.number, seed=trial.seed)


def describe_carried(old: StudyDir, trials: list[CarriedTrial]) -> list[str]:
    """Describes which trials are taken over, which are not, and why."""
    taken = [one.new_trial for one in trials if one.new_trial is not None]
    outside = sum(not trial.is_in_space for trial in taken)
    also = f" ({outside} of them no longer in the space, but within the limits)" if outside else ""
    return [f"From {old.folder}: {len(taken)} of {len(trials)} candidates are taken over{also}.",
            *(f"  not trial {one.old_trial.number} ({one.old_trial.architecture}): {one.reason}"
              for one in trials if not one.new_trial)]


def write_fork(old: StudyDir, trials: list[CarriedTrial], folder: Path, meta: StudyMeta,
               spec: StudySpec) -> None:
    """Writes the new study's folder.

    Until its last file is there, it counts as never begun, and can be made again.

    Raises:
        UserError: nothing is taken over.
    """
    taken = [one.new_trial for one in trials if one.new_trial is not None]
    if not taken:
        raise UserError("\n".join([f"--fork {folder}: nothing can be taken over, so start anew "
                                   "with --out", *describe_carried(old, trials)]),
                        code="nothing-to-fork")
    new = StudyDir(folder)
    new.log.file.unlink(missing_ok=True)  # of a fork that was cut off
    # a record names the one it is of
    shared = {key: value for key, value in meta.record_fields.items() if key != "space_hash"}
    for trial in taken:
        import_trial(new, trial, shared)
    if (old.folder / "teacher").is_dir():
        shutil.copytree(old.folder / "teacher", folder / "teacher",
                        ignore=shutil.ignore_patterns(".*", "progress.*"), dirs_exist_ok=True)
    command_of(spec).write(folder, spec.text)
    new.create(replace(meta, forked_from={**trial_source(old), "trials": len(taken)}), spec.text,
               spec.space.to_yaml())
