"""Events of a study in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scalesearch.study.monitor.format import clock, short
from scalesearch.study.trials.trial import Kind, Origin, State, Trial


@dataclass(frozen=True)
class LoggedEvent:
    """Event in words. ``time`` is in seconds since the epoch, ``number`` counts the events of the log from 0."""

    number: int
    time: float
    text: str

    def __str__(self) -> str:
        return f"{clock(self.time)} {self.text}"


def logged(event: Mapping[str, Any], trial: Trial, number: int) -> LoggedEvent | None:
    """Describes an event that ``trial`` has taken in; None where it is not shown."""
    text = describe_event(Kind(event["event"]), trial)
    return LoggedEvent(number, datetime.fromisoformat(event["time"]).timestamp(), text) if text else None


def describe_event(kind: Kind, trial: Trial) -> str:
    """Describes an event of ``trial``; empty for a proposal."""
    match kind:
        case Kind.STARTED:
            return describe_start(trial)
        case Kind.RUNG:
            return f"trial {trial.number} is paused at rung {len(trial.rungs)}: validation loss {trial.losses[-1]:.3f}"
        case Kind.CRASHED:
            return f"trial {trial.number}: its worker died ({trial.reason})"
        case Kind.ENDED:
            return describe_end(trial)
    return ""


def describe_start(trial: Trial) -> str:
    """Describes the start of a training."""
    again = f", attempt {trial.attempts}" if trial.attempts > 1 else ""
    again = f", on from rung {len(trial.rungs)}" if trial.rungs else again
    label = f" [{trial.label}]" if trial.label else ""
    label += f" [seed {trial.seed} of trial {trial.of}]" if trial.origin == Origin.REPLICATE else ""
    return f"trial {trial.number}{label} ({trial.architecture}) in training{again}"


def describe_end(trial: Trial) -> str:
    """Describes the end of a training."""
    if trial.state == State.FAILED:
        return f"trial {trial.number} failed: {trial.reason}"
    values = ", ".join(f"{name} {short(value)}" for name, value in (trial.values or {}).items())
    seconds = f" after {trial.wall_seconds:.0f} wall seconds" if trial.wall_seconds is not None else ""
    return f"trial {trial.number} complete{seconds}: {values}"
