"""Descriptions of events, and an incremental reader of the event log."""

import os
from collections import deque
from dataclasses import dataclass
from datetime import datetime

from scalesearch.errors import UserError
from scalesearch.report.records import LOSS_UNITS, validation_loss_name
from scalesearch.studies.monitor.format import format_clock, format_value
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import EventType, Origin, State, Trial, TrialEvent
from scalesearch.studies.trials.trials import Trials

MAX_KEPT = 200  # number of latest events that are kept


@dataclass(frozen=True)
class LoggedEvent:
    """Description of an event.

    Attributes:
        number: number of the event in the log, from 0.
        time: seconds since the epoch.
    """

    number: int
    time: float
    text: str

    def __str__(self) -> str:
        return f"{format_clock(self.time)} {self.text}"


class LogFollower:
    """Reads the event log of a study as it grows.

    Attributes:
        problem: why the log cannot be read further; empty if it can.
    """

    def __init__(self, study: StudyDir) -> None:
        self.study = study
        self._reset()

    def _reset(self) -> None:
        self.study.trials = Trials()
        self._latest: deque[tuple[TrialEvent, Trial]] = deque(maxlen=MAX_KEPT)
        self.problem = ""
        self._offset = 0
        self._file = (0, 0)

    def update(self) -> None:
        """Read the events that were appended since the last call.

        If the log is shorter than before or is another file, it is read from its beginning.
        """
        log = self.study.log
        try:
            status = os.stat(log.file)
            if (status.st_dev, status.st_ino) != self._file or status.st_size < self._offset:
                self._reset()
                self._file = (status.st_dev, status.st_ino)
            self.problem = ""
            for line in log.lines(self._offset):
                event, trial = self.study.read_event(line)
                self._offset += len(line)
                if event.type != EventType.PROPOSED:
                    self._latest.append((event, trial))
        except FileNotFoundError:  # no event yet
            return
        except UserError as error:  # a slow storage may show the whole line later
            self.problem = error.message
        except OSError as error:  # the storage may be unavailable for a while
            self.problem = f"{log.file}: {error.strerror or error}"

    @property
    def events(self) -> list[LoggedEvent]:
        """Descriptions of the latest starts, crashes, pauses and ends."""
        return [LoggedEvent(event.line - 1, datetime.fromisoformat(event.time).timestamp(),
                            describe_event(event.type, trial)) for event, trial in self._latest]


def describe_event(event_type: EventType, trial: Trial) -> str:
    """Describe an event; ``trial`` is the trial after it. Empty for proposals."""
    match event_type:
        case EventType.STARTED:
            note = f", start {trial.attempts}" if trial.attempts > 1 else ""
            note = f", resumed from rung {len(trial.rungs)}" if trial.rungs else note
            label = f" [{trial.label}]" if trial.label else ""
            label += (f" [seed {trial.seed} of trial {trial.original}]"
                      if trial.origin == Origin.REPLICATE else "")
            if trial.architecture and trial.architecture not in label:
                label += f" ({trial.architecture})"
            return f"trial {trial.number}{label} in training{note}"
        case EventType.RUNG:
            return (f"trial {trial.number} is paused at rung {len(trial.rungs)}: validation loss "
                    f"{trial.losses[-1]:.3f} {LOSS_UNITS[validation_loss_name(trial.config)]}")
        case EventType.CRASHED:
            return f"trial {trial.number}: its worker died ({trial.reason})"
        case EventType.ENDED if trial.state == State.FAILED:
            return f"trial {trial.number} failed: {trial.reason}"
        case EventType.ENDED:
            values = ", ".join(f"{name} {format_value(value, name)}"
                               for name, value in (trial.values or {}).items())
            seconds = (f" after {trial.wall_seconds:.0f} wall seconds"
                       if trial.wall_seconds is not None else "")
            return f"trial {trial.number} complete{seconds}: {values}"
    return ""
