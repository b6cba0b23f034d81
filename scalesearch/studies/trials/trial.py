"""A trial: one candidate of a study, or a replicate of one; its events, and their callbacks.

Events, records and table rows contain its fields as JSON. Its state is a fold of events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
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


class Rung(msgspec.Struct, frozen=True):
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


class TrialEvent(msgspec.Struct, frozen=True):
    """Event of a study's log; each type has some of the fields.

    Attributes:
        trial: number of the trial.
        time: UTC time.
        line: number of the line in the log, from 1.
        proposed_trial: the trial, if it is proposed.
        rung_result: the rung, if one was reached.
        is_own_fault: whether the trial itself caused a crash.
        efforts: efforts of the training so far, at a rung or at the end.
        phases: wall-clock seconds of the phases of the training so far, likewise.
        state, values, reason, wall_seconds: result at the end.
    """

    type: EventType
    trial: int
    time: str = ""
    line: int = 0
    proposed_trial: Trial | None = None
    rung_result: Rung | None = None
    efforts: Mapping[str, Effort] = {}
    phases: Mapping[str, float] = {}
    is_own_fault: bool = True
    state: State | None = None
    values: Numbers | None = None
    reason: str = ""
    wall_seconds: float | None = None


class Trial(msgspec.Struct, frozen=True, rename={"number": "trial"}):
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
        phases: wall-clock seconds of each phase, likewise.
        ended_at: UTC time of its end; None if it was trained by another study.
        source: study, trial and folder of an imported trial.
        is_feasible: whether it meets every constraint; references are trained even if they do not.
    """

    number: int
    state: State
    origin: Origin = Origin.SAMPLER
    params: Params = {}
    is_in_space: bool = True
    architecture: str | None = None
    config: Params = {}
    recipe_params: Params = {}
    costs: Numbers = {}
    constraints: Mapping[str, float] = {}
    values: Numbers | None = None
    reason: str = ""
    label: str | None = None
    original: int | None = None
    seed: int | None = None
    rungs: tuple[Rung, ...] = ()
    attempts: int = 0
    crashes: int = 0
    wall_seconds: float | None = None
    efforts: Efforts = {}
    phases: Mapping[str, float] = {}
    ended_at: str | None = None
    source: Mapping[str, str | int] | None = None
    is_feasible: bool = True

    def __post_init__(self) -> None:
        is_feasible = max(self.constraints.values(), default=0.0) <= 0
        msgspec.structs.force_setattr(self, "is_feasible", is_feasible)

    def replace(self, **changes: Any) -> Trial:
        """Return a copy with other values."""
        return msgspec.structs.replace(self, **changes)

    def apply(self, event: TrialEvent) -> Trial:
        """Return the trial after ``event``."""
        match event.type:
            case EventType.STARTED:
                return self.replace(attempts=self.attempts + 1, state=State.PENDING)
            case EventType.RUNG if event.rung_result:
                return self.replace(state=State.PAUSED, rungs=(*self.rungs, event.rung_result),
                                    efforts=event.efforts, phases=event.phases)
            case EventType.CRASHED:
                return self.replace(crashes=self.crashes + event.is_own_fault, reason=event.reason)
            case EventType.ENDED if event.state:
                return self.replace(state=event.state, values=event.values, reason=event.reason,
                                    wall_seconds=event.wall_seconds,
                                    ended_at=event.time or None,
                                    efforts=event.efforts or self.efforts,
                                    phases=event.phases or self.phases)
        raise ValueError(f"event {event.type} is not possible here")

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
        recipe = msgspec.json.encode(self.recipe_params, order="sorted").decode()
        return f"{self.architecture} {recipe}"

    @property
    def name(self) -> str:
        """Name in output: label or number, and the seed of a replicate."""
        if self.origin == Origin.REPLICATE:
            return f"{self.label or self.original}, seed {self.seed}"
        return self.label or str(self.number)

    @property
    def is_eligible(self) -> bool:
        """Whether it may be on the front: complete, feasible, in the space, no replicate."""
        return (self.state == State.COMPLETE and self.origin != Origin.REPLICATE
                and self.is_feasible and self.is_in_space)

    @property
    def losses(self) -> tuple[float, ...]:
        """Validation loss at each rung that was reached."""
        return tuple(rung.loss for rung in self.rungs)


def parse_event(line: bytes) -> TrialEvent:
    """Parse a line of the log.

    Raises:
        ValueError: it is not an event, or a field is missing.
    """
    event = msgspec.json.decode(line, type=TrialEvent)
    match event.type:
        case EventType.PROPOSED:
            trial = msgspec.json.decode(line, type=Trial)
            if b" #" in line:  # earlier versions wrote `KEY #2` for the size of a layer
                params = {re.sub(r" #(\d+)", r"[\1]", name): value
                          for name, value in trial.params.items()}
                trial = msgspec.structs.replace(trial, params=params)
            return TrialEvent(event.type, event.trial, event.time, event.line, proposed_trial=trial)
        case EventType.RUNG:
            return msgspec.structs.replace(event, rung_result=msgspec.json.decode(line, type=Rung))
        case EventType.ENDED if event.state is None:
            raise ValueError("the state is missing")
    return event


class Callback:
    """Base class of study callbacks; every hook is a no-op.

    Hooks run in the driver's thread and must be quick.
    """

    def message(self, text: str) -> None:
        """Print a line of text."""

    def proposed(self, trial: Trial) -> None:
        """A trial was proposed, and its costs were evaluated."""

    def started(self, trial: Trial) -> None:
        """Training of a trial starts or continues."""

    def paused(self, trial: Trial) -> None:
        """A trial is paused at a rung."""

    def ended(self, trial: Trial) -> None:
        """A trial is complete or failed; its result is on disk."""

    def update(self) -> None:
        """Refresh displays; called about twice per second."""

    def close(self) -> None:
        """The study has ended, or was stopped."""


class Callbacks(Callback):
    """Call the hooks of several callbacks, in their order."""

    def __init__(self, *callbacks: Callback) -> None:
        self._callbacks = callbacks
        for hook in ("message", "proposed", "started", "paused", "ended", "update", "close"):
            setattr(self, hook, partial(self.call_hooks, hook))

    def call_hooks(self, hook: str, *arguments: str | Trial) -> None:
        """Call a hook of each callback."""
        for callback in self._callbacks:
            getattr(callback, hook)(*arguments)
