"""A study that goes on in another folder with a changed space, budget or objectives, and keeps what still counts.

A trained candidate stays what it is when the question changes. Its cost and its slacks are made again from its
architecture, by the new study's protocol and limits; its metrics are those of its record, which also says under which
space it was found. The old study's folder is only read.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from scalesearch.errors import UserError
from scalesearch.files import write_json, write_text
from scalesearch.space import read_space
from scalesearch.space.assembly.architecture import Architecture
from scalesearch.study.config.objectives import values
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.engine import setup
from scalesearch.study.trials.compatibility import trained_otherwise
from scalesearch.study.trials.evaluator import Candidate
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.study_dir import Store, now
from scalesearch.study.trials.trials import COMPLETE, FAILED, PAUSED, PENDING, PROPOSED, PROPOSER, REFERENCE, Trial

NOT_COPIED = (".*", "progress.*", "record.json", "ray_train")
UNFINISHED = {PENDING: "it is not finished", PAUSED: "it is not finished: it waits at a rung"}


@dataclass(frozen=True)
class Found:
    """A candidate of the old study, and what becomes of it: ``new`` and its ``record``, or the ``reason`` why not."""

    old: Trial
    new: Trial | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


def open_old(spec: StudySpec, folder: Path) -> tuple[Store, StudySpec]:
    """The study to fork, and the one that ``spec`` describes, in ``folder`` and named after it.

    Raises:
        UserError: there is no study to fork, or one in ``folder`` already.
    """
    if spec.rows is not None:
        raise UserError(f"--fork {folder}: a study of kind {spec.rows.kind} is not forked. Rows that are added to it "
                        "are trained on --resume; for anything else start another with --out")
    if folder.resolve() == spec.out.resolve():
        raise UserError(f"--fork {folder}: this is the study's own folder; name another one")
    if Store(folder).begun():
        raise UserError(f"--fork {folder}: a study is there already. Go on with it by --out {folder} --resume, or name "
                        "another folder")
    return Store(spec.out).load(), replace(spec, out=folder, name=folder.resolve().name)


def carried(old: Store, plan: Plan, meta: Mapping[str, Any]) -> list[Found]:
    """Every candidate that ``old`` has trained or begun to train: taken over as it would be in the new study, or not.

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
                        "trained compares with what this one would train. Start anew with --out, without --fork")
    labels = {reference.architecture.id: reference.label for reference in plan.references}
    same_rungs = old.meta.get("rungs") == meta.get("rungs")
    found: list[Found] = []
    for trial in old.ledger.having(COMPLETE, FAILED, PENDING, PAUSED):
        number = sum(one.new is not None for one in found)
        try:
            one = _take(old, trial, plan, labels.pop(str(trial.id), None), number, same_rungs)
        except UserError as error:
            one = Found(trial, reason=str(error))
        found.append(one)
    return found


def _take(old: Store, trial: Trial, plan: Plan, label: str | None, number: int, same_rungs: bool) -> Found:
    """``trial`` as the new study has it. Raises UserError with the reason where it cannot have it."""
    record = old.record(trial)
    if trial.state == FAILED:
        raise UserError(f"it failed: {trial.reason}")
    if trial.state != COMPLETE or record is None:
        raise UserError(UNFINISHED.get(trial.state, "its record is missing"))
    architecture = _architecture(old.trial_folder(trial) / "architecture.yaml", trial)
    params = setup.params(plan.bill.space, architecture.answers)
    candidate = plan.bill.judge_architecture(architecture, params or {})
    if not candidate.feasible and label is None:
        raise UserError(candidate.reason)
    new = Trial(
        number, COMPLETE, _origin_of(trial, label), label, params is not None, dict(candidate.params),
        dict(candidate.answers), dict(candidate.slacks), trial.id, _cost(candidate),
        values=values(plan.objectives, record["metrics"], lambda name: float(_price(candidate)[name])),
        rungs=list(trial.rungs) if same_rungs else [], seconds=trial.seconds,
    )
    return Found(trial, new, _record(record, new, plan, old))


def _origin_of(trial: Trial, label: str | None) -> str:
    if label is not None:
        return REFERENCE
    return PROPOSER if trial.origin == REFERENCE else trial.origin


def _architecture(file: Path, trial: Trial) -> Architecture:
    """What was trained. Raises UserError where its file is not to be read, or means another network by now."""
    architecture = read_space(file).closed()
    if architecture.id != trial.id:
        raise UserError(f"{file} describes {architecture.id} in this version of scalesearch, and {trial.id} was "
                        "trained")
    return architecture


def _price(candidate: Candidate) -> Any:
    assert candidate.cost is not None, "what was trained can be built"
    return candidate.cost


def _cost(candidate: Candidate) -> dict[str, Any]:
    return dict(_price(candidate).to_json())


def _record(record: Mapping[str, Any], new: Trial, plan: Plan, old: Store) -> dict[str, Any]:
    """The old record with what the new study says of the candidate; ``space`` stays the one that it was found in."""
    ours = {"trial": new.number, "origin": new.origin, "label": new.label, "in_space": new.in_space,
            "asked": new.params, "cost": new.cost, "slacks": new.slacks, "feasible": new.feasible,
            "values": new.values, **{key: plan.facts[key] for key in ("study", "protocol", "objectives")}}
    return {**record, **ours, "forked_from": {**_origin(old), "trial": record["trial"]}}


def _origin(old: Store) -> dict[str, Any]:
    return {"study": old.meta["name"], "id": old.meta["id"], "folder": str(old.folder.resolve()),
            "space": old.meta["space"]}


def describe(old: Store, found: list[Found]) -> list[str]:
    """What is taken over and what is not, with the reasons, for people."""
    taken = sum(one.new is not None for one in found)
    outside = sum(one.new is not None and not one.new.in_space for one in found)
    also = f" ({outside} of them no longer in the space, but within the limits)" if outside else ""
    return [f"From {old.folder}: {taken} of {len(found)} candidates are taken over{also}.",
            *(f"  not trial {one.old.number} ({one.old.id}): {one.reason}" for one in found if one.new is None)]


def write(old: Store, found: list[Found], folder: Path, meta: Mapping[str, Any], spec: StudySpec) -> None:
    """Makes the new study's folder; until its last file is there, it counts as never begun, and can be made again.

    Raises:
        UserError: nothing is taken over.
    """
    taken = [one for one in found if one.new is not None]
    if not taken:
        raise UserError("\n".join([f"--fork {folder}: nothing can be taken over, so start anew with --out",
                                   *describe(old, found)]))
    store, events = Store(folder), []
    for one in taken:
        assert one.new is not None
        place = store.trial_folder(one.new)
        shutil.copytree(old.trial_folder(one.old), place, ignore=shutil.ignore_patterns(*NOT_COPIED),
                        dirs_exist_ok=True)
        write_json(place / "record.json", one.record)
        facts = {key: value for key, value in asdict(one.new).items() if key != "number"}
        said = {"event": PROPOSED, "trial": one.new.number, "time": now(), **facts}
        events.append(json.dumps(said | {"forked_from": one.record["forked_from"]}, ensure_ascii=False) + "\n")
    if (old.folder / "teacher").is_dir():
        shutil.copytree(old.folder / "teacher", folder / "teacher", ignore=shutil.ignore_patterns(".*", "progress.*"),
                        dirs_exist_ok=True)
    write_text(store.events, "".join(events))
    store.create({**meta, "forked_from": {**_origin(old), "trials": len(taken)}}, spec.text, spec.space.to_yaml())


def look(spec: StudySpec, folder: Path) -> list[str]:
    """What a fork would take over; writes nothing.

    Raises:
        UserError: there is nothing to fork.
    """
    old, new = open_old(spec, folder)
    corpus = setup.load_data(new.data)
    plan = setup.make_plan(new, setup.make_bill(new, corpus), corpus)
    from scalesearch.study.engine.distillation import find_teacher

    teacher = find_teacher(new, corpus)
    return describe(old, carried(old, plan, setup.meta_of(new, plan, corpus, teacher and teacher.to_json())))
