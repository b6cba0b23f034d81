"""What has happened in a study, folded from its events; the same fold runs live and after a crash."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PENDING, COMPLETE, FAILED, INFEASIBLE, DUPLICATE = "pending", "complete", "failed", "infeasible", "duplicate"
PAUSED = "paused"
PROPOSER, REFERENCE, SEED, WARM, ENQUEUED = "proposer", "reference", "seed", "warm", "enqueued"  # origins
CHARGED = (PROPOSER, ENQUEUED)  # those of what the study's compute is for
PROPOSED, STARTED, CRASHED, RUNG, ENDED = "proposed", "started", "crashed", "rung", "ended"


@dataclass
class Trial:
    """One candidate that was looked at.

    Attributes:
        number: counts from 0 in the order of proposal.
        state: pending (to be trained, or in training), paused at a rung, complete, failed,
            infeasible or duplicate.
        origin: ``proposer``; ``reference`` for one that the study file names; ``warm`` for one that another study has
            trained, ``enqueued`` for one of another's front that is trained here; ``seed`` for another training of a
            candidate, which is no candidate itself.
        label: what plots call a reference.
        in_space: whether the space could have proposed it; a reference may come from elsewhere.
        params: question to value; empty for a reference from elsewhere.
        answers: canonical, constants included: what the architecture file would say.
        slacks: limit to how far it is missed.
        id: of the architecture; None where nothing could be built.
        cost: its bill as JSON, or None.
        of: for a duplicate or a further seed, the number of the trial that has the same architecture.
        seed: of a training with a further seed; others have the study's.
        values: objective to value, once complete.
        reason: why it is infeasible or failed.
        rungs: the validation loss at each rung that it has reached.
        attempts, crashes: how often training was started, and how often its worker died of itself; that Ray died or
            the disk was full is no fault of the candidate's.
        seconds: wall time from its start to its result: training, validation, decoding.
    """

    number: int
    state: str
    origin: str = PROPOSER
    label: str | None = None
    in_space: bool = True
    params: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    slacks: dict[str, float] = field(default_factory=dict)
    id: str | None = None
    cost: dict[str, Any] | None = None
    of: int | None = None
    seed: int | None = None
    values: dict[str, float] | None = None
    reason: str = ""
    rungs: list[float] = field(default_factory=list)
    attempts: int = 0
    crashes: int = 0
    seconds: float | None = None

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.number:04d}-{self.id}"

    @property
    def feasible(self) -> bool:
        """Whether it meets every limit (a reference is trained even where it does not)."""
        return all(slack <= 0 for slack in self.slacks.values())


class Ledger:
    """All trials of a study, by number; knows which architectures have been seen."""

    def __init__(self) -> None:
        self.trials: dict[int, Trial] = {}
        self._first: dict[str, int] = {}

    def apply(self, event: Mapping[str, Any]) -> Trial:
        """Takes in one event and returns the trial it is about.

        Raises:
            KeyError: an event about a trial that was never proposed.
        """
        kind, number = event["event"], event["trial"]
        if kind == PROPOSED:
            known = {key: event[key] for key in Trial.__dataclass_fields__ if key in event}
            trial = self.trials[number] = Trial(number=number, **known)
            if trial.state in (PENDING, COMPLETE, FAILED) and trial.id and trial.origin != SEED:
                self._first.setdefault(trial.id, number)
            return trial
        trial = self.trials[number]
        if kind == STARTED:
            trial.attempts, trial.state = trial.attempts + 1, PENDING
        elif kind == RUNG:
            trial.state, trial.rungs = PAUSED, [*trial.rungs, event["loss"]]
        elif kind == CRASHED:
            trial.crashes, trial.reason = trial.crashes + event.get("counts", True), event["reason"]
        elif kind == ENDED:
            trial.state, trial.values = event["state"], event.get("values")
            trial.reason, trial.seconds = event.get("reason", ""), event.get("seconds")
        return trial

    def first(self, identity: str) -> Trial | None:
        """The trial that trains, or trained, this architecture."""
        number = self._first.get(identity)
        return None if number is None else self.trials[number]

    def next_number(self) -> int:
        """The number of the next proposal."""
        return len(self.trials)

    def having(self, *states: str) -> list[Trial]:
        """The trials in any of ``states``, in order."""
        return [trial for trial in self._all() if trial.state in states]

    def searched(self) -> list[Trial]:
        """The candidates, as the search has come by them: all trials but those with further seeds."""
        return [trial for trial in self._all() if trial.origin != SEED]

    def replicated(self) -> list[Trial]:
        """The trainings with further seeds, in order."""
        return [trial for trial in self._all() if trial.origin == SEED]

    def _all(self) -> list[Trial]:
        """A copy, since a screen reads while its thread's owner adds."""
        return list(self.trials.values())

    def twins(self, number: int) -> list[Trial]:
        """The duplicates of trial ``number``."""
        return [trial for trial in self.having(DUPLICATE) if trial.of == number]

    def outcome(self, trial: Trial) -> Trial:
        """The trial whose result counts for ``trial``: itself, or the one it repeats."""
        return self.trials[trial.of] if trial.state == DUPLICATE and trial.of is not None else trial
