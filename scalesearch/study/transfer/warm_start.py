"""A study's warm start: what it takes over from other studies, and what of their fronts it trains first.

A finished candidate of another study counts here as it is where it was trained on the same data, by the same recipe,
with the same seed and as many processes: the same training would give the same numbers. Its costs are billed anew. It
stands on no rung: others would otherwise wait for it to make room.
Elsewhere scores are on another scale; then the architectures of that study's front are proposed first.

What was chosen is written to ``warm.json`` before anything acts on it, so that an interrupted study goes on alike,
whatever has become of the others.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.errors import UserError
from scalesearch.files import write_json
from scalesearch.pareto.front import pareto_front
from scalesearch.schedule.rungs import spread
from scalesearch.study.config.objectives import values
from scalesearch.study.config.warm_start import FILE, WarmSpec, place_of
from scalesearch.study.trials import trials as states
from scalesearch.study.trials.evaluator import Bill
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import COMPLETE, WARM, Trial

LEFT_BEHIND = (".*", "progress.*", "job.json", "record.json", "crash.txt", "*.part")
NO_SHEET, OVER, TWICE, LOST = ("do not fit this space", "miss a limit of this study", "are known already",
                               "have no record")


@dataclass(frozen=True)
class Known:
    """A finished candidate of another study, as this space asks for it.

    Attributes:
        folder: of its training. study: the other study's name. trial: its number there.
        values: of this study's objectives; empty for one that is to be trained here.
    """

    folder: str
    study: str
    trial: int
    id: str
    params: dict[str, Any]
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Warm:
    """What a study begins with.

    Attributes:
        taken: taken over as finished. first: trained here before anything else.
        left: reason to how many were left out for it.
        other: what is different of the studies whose scores do not count here.
    """

    taken: tuple[Known, ...] = ()
    first: tuple[Known, ...] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    other: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Warm":
        """What ``to_json`` wrote."""
        taken, first = (tuple(Known(**known) for known in found[key]) for key in ("taken", "first"))
        return cls(taken, first, found["left"], tuple(found["other"]))

    def describe(self) -> str:
        """One line for a person."""
        why = f" (theirs had {', '.join(self.other)})" if self.other else ""
        left = f"; left out: {', '.join(f'{n} that {why}' for why, n in self.left.items())}" if self.left else ""
        return (f"Warm start: {len(self.taken)} finished candidates taken over, {len(self.first)} architectures of "
                f"other fronts to be trained here first{why}{left}.")


def choose(spec: WarmSpec, plan: Plan, most: int) -> Warm:
    """What of the studies in ``spec`` this one begins with; nothing is written.

    Args:
        plan: of this study, with the facts that its records will say.
        most: architectures to train first, where ``spec`` does not say.

    Raises:
        UserError: a folder holds no study, or a damaged one.
    """
    left: Counter[str] = Counter()
    other: dict[str, None] = {}
    stores = [Store(place_of(folder)).load() for folder in spec.folders]
    found = [list(_known(store, plan, left, other)) for store in stores]
    taken = _once((known for one in found for known in one if known.values), set(), left)
    here = {known.id for known in taken}
    queues = [_spread(store, one) for store, one in zip(stores, found)]
    in_turn = (known for known in chain.from_iterable(zip_longest(*queues)) if known is not None)
    first = _once(in_turn, here, Counter())[: most if spec.most is None else spec.most]
    return Warm(taken, first, dict(left), tuple(other) if first else ())


def _known(store: Store, plan: Plan, left: Counter[str], other: dict[str, None]) -> Iterable[Known]:
    """The finished candidates that fit this study's space and limits."""
    for trial in store.ledger.having(COMPLETE):
        record = store.record(trial)
        params = record and _asked(plan.bill, record["architecture"])
        if record is None or params is None:
            left[LOST if record is None else NO_SHEET] += 1
            continue
        candidate = plan.bill.judge(params)
        if not candidate.feasible or candidate.cost is None:
            left[OVER] += 1
            continue
        differs = differences(record, plan)
        scored = {} if differs else _scored(record, plan, candidate.cost)
        other |= dict.fromkeys(differs or ([] if scored else ["other metrics"]))
        yield Known(str(store.trial_folder(trial).resolve()), str(store.meta["name"]), trial.number, str(trial.id),
                    dict(params), scored)


def _asked(bill: Bill, architecture: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What this space would have to be answered to give that network; None where it never does."""
    replay, params = bill.space.replay(architecture["answers"]), dict[str, Any]()

    def ask(name: str, question: Any) -> Any:
        params[name] = question.settle(replay(name, question))
        return params[name]

    try:
        same = bill.space.architecture(bill.space.answer(ask)).id == architecture["id"]
    except UserError:
        return None
    return params if same else None


def differences(record: Mapping[str, Any], plan: Plan) -> list[str]:
    """What was other in the training of ``record`` than it is in this study; its scores count where nothing is."""
    from scalesearch.train.checkpoint import FREE

    mine = plan.facts

    def recipe(facts: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in facts.get("recipe", {}).items() if key not in (*FREE, "measure")}

    pairs = {
        "other data": (record.get("data", {}).get("hash"), mine.get("data", {}).get("hash")),
        "another recipe": (recipe(record), recipe(mine)),
        "another seed": (record.get("seed"), mine.get("seed")),
        "another teacher": (bool(record.get("teacher")), bool(mine.get("teacher"))),
        "another number of processes": (record.get("processes", 1), plan.job.get("processes", 1)),
    }
    return [words for words, (theirs, ours) in pairs.items() if theirs != ours]


def _scored(record: Mapping[str, Any], plan: Plan, cost: Any) -> dict[str, float]:
    """This study's objectives; empty where the record lacks one of the metrics."""
    try:
        return values(plan.objectives, record.get("metrics") or {}, lambda name: float(cost[name]))
    except UserError:
        return {}


def _once(found: Iterable[Known], here: set[str], left: Counter[str]) -> tuple[Known, ...]:
    """Each network once, and none that is ``here``."""
    kept: dict[str, Known] = {}
    for known in found:
        if known.id in kept or known.id in here:
            left[TWICE] += 1
        else:
            kept[known.id] = known
    return tuple(kept.values())


def _spread(store: Store, found: list[Known]) -> list[Known]:
    """Of those whose scores do not count here, the ones on their study's front: far apart ones first."""
    ways: Mapping[str, str] = store.meta["objectives"]
    trials = [trial for trial in store.ledger.having(COMPLETE) if trial.values and trial.in_space]
    if not trials:
        return []
    table = np.array([[(trial.values or {})[name] for name in ways] for trial in trials], float)
    on_front = {trial.number for trial, on in zip(trials, pareto_front(table, list(ways.values()))) if on}
    able = [known for known in found if known.trial in on_front and not known.values]
    signs = np.array([1.0 if way == "min" else -1.0 for way in ways.values()])
    rows = {trial.number: row for trial, row in zip(trials, table * signs)}
    return [able[place] for place in spread(np.array([rows[known.trial] for known in able]), len(able))]


def begin(store: Store, spec: WarmSpec | None, plan: Plan, most: int, say: Callable[[str], object]) -> Plan:
    """Takes over what there is to take, as far as that was not done; returns the plan with what to train first.

    Only the process that owns ``store`` may call this, before it proposes anything.

    Raises:
        UserError: a folder holds no study, or what was chosen from it cannot be read any more.
    """
    if spec is None:
        return plan
    file = store.folder / FILE
    if file.is_file():
        warm = Warm.from_json(json.loads(file.read_text()))
    else:
        warm = choose(spec, plan, most)
        write_json(file, warm.to_json())
    say(warm.describe())
    done = sum(trial.origin == WARM for trial in store.ledger.trials.values())
    for known in warm.taken[done:]:
        _take(store, known, plan)
    return Plan(**{**vars(plan), "first": tuple(known.params for known in warm.first)})


def _take(store: Store, known: Known, plan: Plan) -> Trial:
    """Files, then record, then event: as a candidate that was trained here."""
    candidate = plan.bill.judge(known.params)
    assert candidate.architecture is not None and candidate.cost is not None, "what was chosen is feasible"
    label = next((r.label for r in plan.references if r.architecture.id == known.id), None)
    trial = Trial(store.ledger.next_number(), COMPLETE, WARM, label, True, dict(known.params), dict(candidate.answers),
                  dict(candidate.slacks), known.id, candidate.cost.to_json(), values=known.values)
    source, target = Path(known.folder), store.trial_folder(trial)
    if not (source / "record.json").is_file():
        raise UserError(f"{source}: the candidate to begin with is gone. Put it back, or start another study with "
                        "--out")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_BEHIND), dirs_exist_ok=True)
    record = json.loads((source / "record.json").read_text())
    mine = {"trial": trial.number, "origin": WARM, "label": label, "in_space": True, "asked": trial.params,
            "architecture": {"id": trial.id, "answers": dict(candidate.answers)}, "cost": trial.cost,
            "slacks": trial.slacks, "feasible": True, "values": trial.values,
            "taken_from": {"study": known.study, "trial": known.trial, "folder": known.folder}}
    here = {key: value for key, value in plan.facts.items() if key in ("study", "space", "protocol", "objectives")}
    write_json(target / "record.json", {**record, **mine, **here})
    facts = {key: value for key, value in vars(trial).items() if key not in ("number", "attempts", "crashes")}
    return store.append(states.PROPOSED, trial.number, **facts, taken_from=mine["taken_from"])
