"""What a study is doing, gathered for whoever watches it from outside; reads its folder and writes nothing."""

import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import hypervolume, worst_corner
from scalesearch.study.config.objectives import Objective, directions, main_objective
from scalesearch.study.config.replication import Seeds
from scalesearch.study.monitor.eta import Done, Eta, Situation, Wanted, done_so_far, time_left
from scalesearch.study.monitor.heartbeat import RUNNING, Owner, owner_of
from scalesearch.study.monitor.log_follower import Tail, Told
from scalesearch.study.monitor.running import AtWork, TeacherAtWork, in_training, rungs_of, teacher_at_work
from scalesearch.study.replicates.allocation import Candidate
from scalesearch.study.replicates.summary import candidates_of
from scalesearch.study.trials.history import goals_of
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import (
    CHARGED,
    COMPLETE,
    DUPLICATE,
    FAILED,
    INFEASIBLE,
    PAUSED,
    PENDING,
    REFERENCE,
    Ledger,
    Trial,
)

ROWS, EVENTS = 6, 5  # of the front, and of what happened, that are shown


@dataclass(frozen=True)
class RungRow:
    """Who came to a rung: ``reached`` it, ``went_on`` from it, is ``waiting`` there, or ``failed`` after it.

    ``best`` is the lowest validation loss there. The last row is the end, where nobody waits and no loss is kept.
    """

    share: float
    reached: int
    went_on: int
    waiting: int
    failed: int
    best: float | None


@dataclass(frozen=True)
class FrontRow:
    """A finished candidate; its values are means over its ``seeds``."""

    trial: int
    label: str | None
    id: str | None
    seeds: int
    values: dict[str, float]


@dataclass(frozen=True)
class Volume:
    """The hypervolume of the front against ``corner``, and what its youngest member brought.

    Attributes:
        gain: by how much the volume grew with ``trial``, all finished before it counted against the same corner.
        when: it was finished, in seconds since the epoch; None for one that came from another study.
    """

    value: float
    corner: dict[str, float]
    gain: float
    trial: int
    when: float | None


@dataclass(frozen=True)
class Front:
    """The best so far.

    Attributes:
        size: members of the front; 0 where only references outside the space are finished, which then are the rows.
        main: the objective that rows are ordered by, from the best.
        rows: a few of them, the two ends included, evenly between.
    """

    objectives: dict[str, str]
    main: str
    size: int = 0
    rows: tuple[FrontRow, ...] = ()
    volume: Volume | None = None


@dataclass(frozen=True)
class Shown:
    """All that is shown of a study at a moment.

    Attributes:
        time: of the look, in seconds since the epoch.
        counts: state to number of candidates, further seeds left out.
        events: the latest, the last one last.
        problem: why the log cannot be read on; empty where it can.
    """

    study: str
    folder: str
    time: float
    owner: Owner
    done: Done
    eta: Eta
    counts: dict[str, int]
    training: tuple[AtWork, ...]
    teacher: TeacherAtWork | None
    rungs: tuple[RungRow, ...]
    front: Front
    events: tuple[Told, ...]
    problem: str

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


class Watch:
    """Looks at the study in ``folder``, again and again; of its log each look reads what was appended since the last.

    Raises:
        UserError: there is no study, also later where it was taken away.
    """

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.tail = Tail(self.store)
        self._read_meta()
        self._front: Front | None = None

    def look(self) -> Shown:
        """The study as it is now."""
        self._read_meta()
        if self.tail.update() or self._front is None:
            self._front = front_of(self.store.meta, self.tail)
        meta, ledger, owner = self.store.meta, self.tail.ledger, owner_of(self.store.folder)
        training, teacher = in_training(self.store), teacher_at_work(self.store)
        now = Situation(ledger, wanted(meta, ledger, owner), rungs_of(meta), Seeds(**(meta.get("seeds") or {})),
                        goals_of(_objectives(meta)), training, self.tail.passed)
        taught = teacher is None or teacher.stage == "done" or bool(ledger.trials)
        eta = time_left(now, owner.workers or max(1, len(training))) if taught and owner.state == RUNNING else Eta()
        return Shown(
            meta["name"], str(self.store.folder), time.time(), owner, done_so_far(now), eta, _counts(ledger),
            tuple(training), teacher, rung_rows(now), self._front, tuple(self.tail.told)[-EVENTS:], self.tail.problem,
        )

    def _read_meta(self) -> None:
        known = self.store.meta.get("id")
        try:
            self.store.look()
        except (ValueError, KeyError):
            raise UserError(f"{self.store.folder}/study.json: not a study's; the file was changed or damaged") from None
        if known not in (None, self.store.meta.get("id")):  # another study in the same place
            self.tail = Tail(self.store)


def wanted(meta: dict[str, Any], ledger: Ledger, owner: Owner) -> Wanted:
    """What the study is to train: as its last start says, else as it was begun."""
    if owner.candidates is not None and owner.references is not None:
        return Wanted(owner.candidates, owner.references)
    references = sum(trial.origin == REFERENCE for trial in ledger.trials.values())
    return Wanted(max(0, meta["trials"] - references), references)


def _objectives(meta: dict[str, Any]) -> tuple[Objective, ...]:
    return tuple(Objective(name, way) for name, way in meta["objectives"].items())


def _counts(ledger: Ledger) -> dict[str, int]:
    found = dict.fromkeys((COMPLETE, PENDING, PAUSED, FAILED, INFEASIBLE, DUPLICATE), 0)
    for trial in ledger.searched():
        found[trial.state] += 1
    return found


def rung_rows(now: Situation) -> tuple[RungRow, ...]:
    """One row a rung, the end last; none in a study without rungs."""
    if not now.rungs.pauses:
        return ()
    trials = [trial for trial in now.ledger.trials.values() if trial.origin in CHARGED]
    rows = [_rung_row(share, rung, [trial for trial in trials if len(trial.rungs) > rung])
            for rung, share in enumerate(now.rungs.shares[:-1])]
    ended = sum(trial.state == COMPLETE for trial in trials)
    return (*rows, RungRow(1.0, ended, 0, 0, 0, None))


def _rung_row(share: float, rung: int, there: list[Trial]) -> RungRow:
    last = [trial for trial in there if len(trial.rungs) == rung + 1]  # that have not come to the next rung
    waiting, failed = (sum(trial.state == state for trial in last) for state in (PAUSED, FAILED))
    best = min((trial.rungs[rung] for trial in there), default=None)
    return RungRow(share, len(there), len(there) - waiting - failed, waiting, failed, best)


def front_of(meta: dict[str, Any], tail: Tail) -> Front:
    """The front, its hypervolume, and a few of its members; or of the references, where nobody may stand on it."""
    objectives, main = _objectives(meta), main_objective(meta)
    done = candidates_of(tail.ledger, goals_of(objectives))
    order = -1 if meta["objectives"][main] == "max" else 1
    if not done:
        rows = _reference_rows(tail.ledger)
        rows.sort(key=lambda row: order * row.values[main])
        return Front(meta["objectives"], main, 0, _few(rows))
    values = np.array([[one.value(objective.name) for objective in objectives] for one in done], float)
    on = pareto_front(values, directions(objectives))
    members = sorted((one for one, is_on in zip(done, on) if is_on), key=lambda one: order * one.value(main))
    rows = [_row(one, tail.ledger.trials[one.number], objectives) for one in _few(members)]
    return Front(meta["objectives"], main, len(members), tuple(rows), _volume(done, values, on, objectives, tail.ends))


def _few(rows: list[Any]) -> tuple[Any, ...]:
    if len(rows) <= ROWS:
        return tuple(rows)
    return tuple(rows[round(place)] for place in np.linspace(0, len(rows) - 1, ROWS))


def _row(one: Candidate, trial: Trial, objectives: tuple[Objective, ...]) -> FrontRow:
    values = {objective.name: one.value(objective.name) for objective in objectives}
    return FrontRow(one.number, trial.label, trial.id, one.seeds, values)


def _reference_rows(ledger: Ledger) -> list[FrontRow]:
    """Every finished reference, with the means over its seeds."""
    trainings = {trial.number: [trial] for trial in ledger.having(COMPLETE) if trial.origin == REFERENCE}
    for trial in ledger.replicated():
        if trial.of in trainings and trial.state == COMPLETE:
            trainings[trial.of].append(trial)
    return [_reference_row(found) for found in trainings.values()]


def _reference_row(trainings: list[Trial]) -> FrontRow:
    first, values = trainings[0], [trial.values or {} for trial in trainings]
    means = {name: float(np.mean([one[name] for one in values])) for name in values[0]}
    return FrontRow(first.number, first.label, first.id, len(trainings), means)


def _volume(done: list[Candidate], values: NDArray[np.float64], on: NDArray[np.bool_],
            objectives: tuple[Objective, ...], ends: dict[int, float]) -> Volume:
    """Whoever was finished after the front's youngest member added nothing, so its gain is the latest change."""
    ways, order = directions(objectives), {number: place for place, number in enumerate(ends)}
    corner = worst_corner(values, ways)
    ended = np.array([order.get(one.number, -1) for one in done])
    youngest = int(np.flatnonzero(on)[ended[on].argmax()])
    before = values[ended < ended[youngest]]
    value = hypervolume(values[on], corner, ways)
    gain = value - hypervolume(before[pareto_front(before, ways)], corner, ways)
    number = done[youngest].number
    return Volume(value, dict(zip((one.name for one in objectives), corner)), gain, number, ends.get(number))
