"""Forks: studies that go on in another folder after a change.

Space, budget or objectives may change; what still counts is kept.

A trained trial stays what it is when the parameter changes. Its costs and constraints are computed anew from its
architecture, by the new study's protocol and limits; its metrics are those of its record. The old folder is only read.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalesearch.errors import UserError
from scalesearch.space import read_space
from scalesearch.space.assembly.architecture import Architecture
from scalesearch.study.config.objectives import values
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.transfer.warm_start import import_trial, params_here
from scalesearch.study.trials.compatibility import trained_otherwise
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State, Trial

UNFINISHED = {State.PENDING: "it is not finished", State.PAUSED: "it is not finished: it is paused at a rung"}


@dataclass(frozen=True)
class Carried:
    """Trial of the old study, and its fate: ``new``, or the ``reason`` against taking it over."""

    old: Trial
    new: Trial | None = None
    reason: str = ""


def open_old(spec: StudySpec, folder: Path) -> tuple[StudyDir, StudySpec]:
    """Opens the study to fork, and the one that ``spec`` describes, in ``folder``.

    Raises:
        UserError: there is no study to fork, or one in ``folder`` already.
    """
    if spec.rows is not None:
        raise UserError(f"--fork {folder}: a study of kind {spec.rows.kind} is not forked. Rows that are added to it "
                        "are trained on --resume; for anything else start another with --out", code="not-forkable")
    if folder.resolve() == spec.out.resolve():
        raise UserError(f"--fork {folder}: this is the study's own folder; name another one", code="fork-onto-itself")
    if StudyDir(folder).begun():
        raise UserError(f"--fork {folder}: a study is there already. Go on with it by --out {folder} --resume, or name "
                        "another folder", code="study-exists")
    return StudyDir(spec.out).load(), replace(spec, out=folder, name=folder.resolve().name)


def carried(old: StudyDir, plan: Plan, meta: StudyMeta) -> list[Carried]:
    """Evaluates every trial that ``old`` has begun to train for the new study.

    Args:
        old: loaded.
        plan: of the new study.
        meta: of the new study.

    Raises:
        UserError: nothing can be taken over, because training the same architecture gives other numbers now.
    """
    otherwise = trained_otherwise(old.meta, meta)
    if otherwise:
        raise UserError(f"{old.folder}: {' and '.join(otherwise)} changed since that study began, so nothing that it "
                        "trained compares with what this one would train. Start anew with --out, without --fork",
                        code="trained-otherwise")
    labels = {reference.architecture.id: reference.label for reference in plan.references}
    result: list[Carried] = []
    taken: dict[int | None, Trial] = {}  # by its number in the old study
    for trial in old.trials.having(State.COMPLETE, State.FAILED, State.PENDING, State.PAUSED):
        first = taken.get(trial.of) if trial.origin == Origin.REPLICATE else None
        try:
            new = _carry(old, trial, plan, first.label if first else labels.pop(str(trial.architecture), None))
            new = _replicate(trial, new, first) if trial.origin == Origin.REPLICATE else new
            new = new if old.meta.rungs == meta.rungs else replace(new, rungs=())
            taken[trial.number] = replace(new, number=len(taken))
            result.append(Carried(trial, taken[trial.number]))
        except UserError as error:
            result.append(Carried(trial, reason=str(error)))
    return result


def _replicate(trial: Trial, new: Trial, first: Trial | None) -> Trial:
    """``new`` as the replicate of ``first``, as ``trial`` was. Raises UserError where that one is not taken over."""
    if first is None:
        raise UserError(f"it is another training of trial {trial.of}, which is not taken over", code="trial-not-taken")
    return replace(new, origin=Origin.REPLICATE, of=first.number, seed=trial.seed)


def _carry(old: StudyDir, trial: Trial, plan: Plan, label: str | None) -> Trial:
    """``trial`` as the new study has it. Raises UserError with the reason where it cannot have it."""
    record = old.record(trial)
    if trial.state == State.FAILED:
        raise UserError(f"it failed: {trial.reason}", code="trial-not-taken")
    if trial.state != State.COMPLETE or record is None:
        raise UserError(UNFINISHED.get(trial.state, "its record is missing"), code="trial-not-taken")
    architecture = _architecture(old.trial_folder(trial) / "architecture.yaml", trial)
    new = plan.evaluator.evaluate_architecture(architecture, params_here(plan.evaluator, trial))
    if not new.feasible and label is None:
        raise UserError(new.reason, code="trial-not-taken")
    source = {**origin_of(old), "trial": trial.number, "folder": str(old.trial_folder(trial).resolve())}
    return replace(new, state=State.COMPLETE, origin=_origin(trial, label), label=label, reason="", rungs=trial.rungs,
                   values=values(plan.objectives, record["metrics"], new.costs), wall_seconds=trial.wall_seconds,
                   source=source)


def _origin(trial: Trial, label: str | None) -> Origin:
    if label is not None:
        return Origin.REFERENCE
    return Origin.SAMPLER if trial.origin == Origin.REFERENCE else trial.origin


def _architecture(file: Path, trial: Trial) -> Architecture:
    """Architecture that was trained.

    Raises UserError where its file is not to be read, or means another network by now.
    """
    architecture = read_space(file).closed()
    if architecture.id != trial.architecture:
        raise UserError(f"{file} describes {architecture.id} in this version of scalesearch, and "
                        f"{trial.architecture} was trained", code="other-architecture")
    return architecture


def origin_of(old: StudyDir) -> dict[str, Any]:
    """Source of forked trials."""
    return {"study": old.meta.name, "id": old.meta.id, "folder": str(old.folder.resolve()), "space": old.meta.space}


def describe(old: StudyDir, trials: list[Carried]) -> list[str]:
    """Describes which trials are taken over, which are not, and why."""
    taken = [one.new for one in trials if one.new is not None]
    outside = sum(not trial.in_space for trial in taken)
    also = f" ({outside} of them no longer in the space, but within the limits)" if outside else ""
    return [f"From {old.folder}: {len(taken)} of {len(trials)} candidates are taken over{also}.",
            *(f"  not trial {one.old.number} ({one.old.architecture}): {one.reason}" for one in trials if not one.new)]


def write(old: StudyDir, trials: list[Carried], folder: Path, meta: StudyMeta, spec: StudySpec) -> None:
    """Writes the new study's folder. Until its last file is there, it counts as never begun, and can be made again.

    Raises:
        UserError: nothing is taken over.
    """
    taken = [one.new for one in trials if one.new is not None]
    if not taken:
        raise UserError("\n".join([f"--fork {folder}: nothing can be taken over, so start anew with --out",
                                   *describe(old, trials)]), code="nothing-to-fork")
    new = StudyDir(folder)
    new.log.file.unlink(missing_ok=True)  # of a fork that was cut off
    for trial in taken:
        import_trial(new, trial, {key: meta.shared[key] for key in ("study", "protocol", "objectives")})
    if (old.folder / "teacher").is_dir():
        shutil.copytree(old.folder / "teacher", folder / "teacher", ignore=shutil.ignore_patterns(".*", "progress.*"),
                        dirs_exist_ok=True)
    new.create(replace(meta, forked_from={**origin_of(old), "trials": len(taken)}), spec.text, spec.space.to_yaml())
