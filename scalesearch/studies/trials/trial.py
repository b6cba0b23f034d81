"""A trial: one candidate of a study, or a replicate of one.

Events, records and table rows contain its JSON. Its state is a fold of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import msgspec

from scalesearch.training.effort import Effort, Efforts

# JSON value of a parameter
Value = bool | int | float | str | list[object] | dict[str, object] | None
Params = Mapping[str, Value]
Numbers = Mapping[str, int | float]


class State(StrEnum):
    """State of a trial."""

    PENDING = "pending"  # waits for training, or is in training
    PAUSED = "paused"  # at a rung
    COMPLETE = "complete"
    FAILED = "failed"
    INFEASIBLE = "infeasible"
    # another trial has the same architecture and recipe
    DUPLICATE = "duplicate"


class Origin(StrEnum):
    """Origin of a trial."""

    SAMPLER = "sampler"
    REFERENCE = "reference"  # listed in the study file
    REPLICATE = "replicate"  # another run of a trial with a further seed; not a candidate
    IMPORTED = "imported"  # trained by another study (warm start)
    ENQUEUED = "enqueued"  # on the front of another study, trained here (warm start)

    @property
    def charged(self) -> bool:
        """Whether its run counts toward the ``trials`` of the study."""
        return self in (Origin.SAMPLER, Origin.ENQUEUED)


class EventType(StrEnum):
    """Type of an event in the log."""

    PROPOSED = "proposed"
    STARTED = "started"
    CRASHED = "crashed"
    RUNG = "rung"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Rung:
    """Loss of a trial at a rung, and its training so far.

    Attributes:
        loss: in nats per token; per character if candidates have their own vocabularies.
        share: share of a full-budget run.
        cpu_seconds, seconds: CPU time and wall time of the updates.
    """

    loss: float
    step: int | None = None
    tokens: int | None = None
    share: float | None = None
    cpu_seconds: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """Event of a study's log; each type has some of the fields.

    Attributes:
        trial: number of the trial.
        time: UTC time.
        line: number of the line in the log, from 1.
        proposed_trial: the trial, if it is proposed.
        rung_result: the rung, if one was reached.
        is_own_fault: whether the trial itself caused a crash.
        efforts: efforts of the training so far, at a rung or at the end.
        state, values, reason, wall_seconds: result at the end.
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
        """Parse a line of the log.

        Raises:
            ValueError: it is not an event, or a field is missing.
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
                raise ValueError("the state is missing")
        return event


@dataclass(frozen=True, slots=True)
class Trial:
    """Candidate of a study, or a replicate of one.

    Attributes:
        number: number in the order of proposal, from 0.
        params: values of the parameters; those of the recipe are named ``recipe.lr`` and so on.
            Empty for a reference outside the space.
        is_in_space: whether the space contains the candidate.
        architecture: id of the architecture; None if it cannot be built.
        config: canonical configuration, with constants.
        recipe_params: values of the searched keys of the recipe, such as ``lr``.
        costs: exact costs by name, such as ``params.total``; empty if it cannot be built.
        constraints: violation per constraint; 0 or less if it is met; log(cost / budget) for a
            budget.
        values: values of the objectives, once complete.
        reason: reason why it is infeasible or failed.
        label: name of a reference in plots.
        original: for a duplicate or a replicate, the number of the trial with the same architecture
            and recipe.
        seed: training seed of a replicate; other trials have the seed of the study.
        attempts: number of starts.
        crashes: number of times that its worker died by its own fault (not by a full disk or a
            failure of Ray).
        wall_seconds: seconds from the start to the result: training, validation and decoding.
        efforts: efforts of each part of its training, up to the last rung or the end; see
            :class:`scalesearch.training.effort.TrainingTimer`.
        ended_at: UTC time of its end; None if it was trained by another study.
        source: study, trial and folder of an imported trial.
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
        """Return the trial after ``event``."""
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
        raise ValueError(f"event {event.type} is not possible here")

    def to_json(self) -> dict[str, object]:
        """Return JSON of all fields; ``trial`` is the number."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"trial": data.pop("number"), **data, "is_feasible": self.is_feasible,
                "rungs": msgspec.to_builtins(list(self.rungs)),
                "efforts": msgspec.to_builtins(self.efforts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trial:
        """Read the JSON of :meth:`to_json`, or of a ``proposed`` event.

        Raises:
            ValueError: it is not the JSON of a trial.
        """
        return msgspec.convert({**data, "number": data.get("trial")}, cls)

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return f"{self.number:04d}-{self.architecture}"

    @property
    def identity(self) -> str | None:
        """Id of architecture and searched recipe.

        The result is None if the architecture cannot be built.
        """
        if self.architecture is None or not self.recipe_params:
            return self.architecture
        return (f"{self.architecture} "
                f"{msgspec.json.encode(self.recipe_params, order='sorted').decode()}")

    @property
    def name(self) -> str:
        """Name in output: label or number, and the seed of a replicate."""
        if self.origin == Origin.REPLICATE:
            return f"{self.label or self.original}, seed {self.seed}"
        return self.label or str(self.number)

    @property
    def is_feasible(self) -> bool:
        """Whether it meets every constraint; references are trained even if they do not."""
        return all(violation <= 0 for violation in self.constraints.values())

    @property
    def is_eligible(self) -> bool:
        """Whether it may be on the front: complete, feasible, in the space, no replicate."""
        return (self.state == State.COMPLETE and self.origin != Origin.REPLICATE
                and self.is_feasible and self.is_in_space)

    @property
    def losses(self) -> tuple[float, ...]:
        """Validation loss at each rung that was reached."""
        return tuple(rung.loss for rung in self.rungs)
