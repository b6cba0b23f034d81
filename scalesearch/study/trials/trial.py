"""A trial: one candidate of a study.

Its JSON is the event, the record and the row; its history is a fold of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import msgspec

from scalesearch.train.effort import Effort, Efforts

# of a parameter, as JSON holds it
Value = bool | int | float | str | list[object] | dict[str, object] | None
Params = Mapping[str, Value]
Numbers = Mapping[str, int | float]


class State(StrEnum):
    """State of a trial."""

    PENDING = "pending"  # to be trained, or in training
    PAUSED = "paused"  # at a rung
    COMPLETE = "complete"
    FAILED = "failed"
    INFEASIBLE = "infeasible"
    # another trial trains, or has trained, the same architecture by the same recipe
    DUPLICATE = "duplicate"


class Origin(StrEnum):
    """Origin of a trial."""

    SAMPLER = "sampler"
    REFERENCE = "reference"  # named by the study file
    REPLICATE = "replicate"  # another training of a trial with a further seed; no candidate itself
    IMPORTED = "imported"  # trained by another study (warm start)
    ENQUEUED = "enqueued"  # on another study's front, trained here (warm start)

    @property
    def charged(self) -> bool:
        """Whether its training is paid from the study's ``trials``."""
        return self in (Origin.SAMPLER, Origin.ENQUEUED)


class EventType(StrEnum):
    """Kind of an event of the log."""

    PROPOSED = "proposed"
    STARTED = "started"
    CRASHED = "crashed"
    RUNG = "rung"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Rung:
    """Loss of a trial at a rung, in nats a token (a character, if it has its own vocabulary), and its training so far.

    ``share`` is of a full training; ``seconds`` is wall time and ``cpu_seconds`` CPU time of the
    updates.
    """

    loss: float
    step: int | None = None
    tokens: int | None = None
    share: float | None = None
    cpu_seconds: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """Event of a study's log, of which each kind has some of the fields.

    Attributes:
        trial: its number. time: in UTC. line: number of its line in the log, from 1.
        proposed_trial: the trial as it was announced. reached: the rung.
        is_own_fault: of a crash, whether it is the trial's own fault.
        efforts: of a rung or an end, what the training has taken so far.
        state, values, reason, wall_seconds: of an end.
    """

    type: EventType
    trial: int
    time: str = ""
    line: int = 0
    proposed_trial: Trial | None = None
    rung_result: Rung | None = None
    efforts: Mapping[str, Effort] = field(default_factory=dict)
    is_own_fault: bool = True
    state: State | None = None
    values: Numbers | None = None
    reason: str = ""
    wall_seconds: float | None = None

    @classmethod
    def from_json(cls, line: bytes) -> TrialEvent:
        """Reads a line of the log.

        Raises ValueError where it is no event, or lacks what its kind has.
        """
        data = msgspec.json.decode(line)
        event = msgspec.convert(data, cls)
        match event.type:
            case EventType.PROPOSED:
                return cls(event.type, event.trial, event.time, event.line,
                           proposed_trial=Trial.from_json(data))
            case EventType.RUNG:
                return replace(event, rung_result=msgspec.convert(data, Rung))
            case EventType.ENDED if event.state is None:
                raise ValueError("it says no state")
        return event


@dataclass(frozen=True, slots=True)
class Trial:
    """Candidate of a study, or a replicate of one.

    Attributes:
        number: counts from 0 in the order of proposal.
        params: parameter to value; empty for a reference that the space could not propose. Those of
            the recipe are
            called ``recipe.lr`` and the like.
        is_in_space: whether the space could have proposed it.
        architecture: its id; None where nothing can be built.
        config: canonical, constants included: what the architecture file would say.
        recipe_params: value of each key of the recipe that the study asks, such as ``lr``.
        costs: ``params.total`` and the like to exact numbers; empty where nothing can be built.
        constraints: limit to how far it is missed (<= 0: met; log(cost / budget) for a budget).
        values: objective to value, once complete.
        reason: why it is infeasible or failed.
        label: what plots call a reference.
        original: for a duplicate or a replicate, the number of the trial with the same architecture
            and recipe.
        seed: of a replicate's training; others have the study's.
        attempts, crashes: how often training was started, and how often its worker died of itself;
            that Ray died or
            the disk was full is no fault of the trial's.
        wall_seconds: from its start to its result: training, validation, decoding.
        efforts: what each part of its training has taken
            (:class:`scalesearch.train.effort.TrainingTimer`), up to its last
            rung or its end.
        ended_at: UTC time of its end; None also where it was trained by another study.
        source: of an imported trial, or one taken over by a fork: study, trial, folder.
    """

    number: int
    state: State
    origin: Origin = Origin.SAMPLER
    params: Params = field(default_factory=dict)
    is_in_space: bool = True
    architecture: str | None = None
    config: Params = field(default_factory=dict)
    recipe_params: Params = field(default_factory=dict)
    costs: Numbers = field(default_factory=dict)
    constraints: Mapping[str, float] = field(default_factory=dict)
    values: Numbers | None = None
    reason: str = ""
    label: str | None = None
    original: int | None = None
    seed: int | None = None
    rungs: tuple[Rung, ...] = ()
    attempts: int = 0
    crashes: int = 0
    wall_seconds: float | None = None
    efforts: Efforts = field(default_factory=dict)
    ended_at: str | None = None
    source: Mapping[str, str | int] | None = None

    def apply(self, event: TrialEvent) -> Trial:
        """The trial once ``event`` has happened to it."""
        match event.type:
            case EventType.STARTED:
                return replace(self, attempts=self.attempts + 1, state=State.PENDING)
            case EventType.RUNG if event.rung_result:
                return replace(self, state=State.PAUSED, rungs=(*self.rungs, event.rung_result),
                               efforts=event.efforts)
            case EventType.CRASHED:
                return replace(self, crashes=self.crashes + event.is_own_fault, reason=event.reason)
            case EventType.ENDED if event.state:
                return replace(self, state=event.state, values=event.values, reason=event.reason,
                               wall_seconds=event.wall_seconds, ended_at=event.time or None,
                               efforts=event.efforts or self.efforts)
        raise ValueError(f"nothing is {event.type} twice")

    def to_json(self) -> dict[str, object]:
        """JSON of all fields; ``trial`` is its number."""
        data = {one.name: getattr(self, one.name) for one in fields(self)}
        return {"trial": data.pop("number"), **data, "is_feasible": self.is_feasible,
                "rungs": msgspec.to_builtins(list(self.rungs)),
                "efforts": msgspec.to_builtins(self.efforts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trial:
        """The trial that :meth:`to_json` wrote, or a ``proposed`` event that holds it.

        Raises ValueError.
        """
        return msgspec.convert({**data, "number": data.get("trial")}, cls)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.number:04d}-{self.architecture}"

    @property
    def identity(self) -> str | None:
        """What is trained: the architecture, and how where the study asks that; None where nothing can be built."""
        if self.architecture is None or not self.recipe_params:
            return self.architecture
        return (f"{self.architecture} "
                f"{msgspec.json.encode(self.recipe_params, order='sorted').decode()}")

    @property
    def name(self) -> str:
        """Name for people: its label, or its number; a replicate's seed."""
        if self.origin == Origin.REPLICATE:
            return f"{self.label or self.original}, seed {self.seed}"
        return self.label or str(self.number)

    @property
    def is_feasible(self) -> bool:
        """Whether it meets every limit (a reference is trained even where it does not)."""
        return all(miss <= 0 for miss in self.constraints.values())

    @property
    def is_eligible(self) -> bool:
        """Whether it may be on the front: complete, feasible, of the space, no replicate."""
        return (self.state == State.COMPLETE and self.origin != Origin.REPLICATE
                and self.is_feasible and self.is_in_space)

    @property
    def losses(self) -> tuple[float, ...]:
        """The validation loss at each rung that it has reached."""
        return tuple(rung.loss for rung in self.rungs)
