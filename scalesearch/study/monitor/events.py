"""Events of a study in words, and a follower of its log, which reads only what was appended since."""

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from scalesearch.errors import UserError
from scalesearch.report.records import validation_loss_name
from scalesearch.study.monitor.format import format_clock, format_number
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import EventType, Origin, State, Trial, TrialEvent
from scalesearch.study.trials.trials import Trials

MAX_KEPT = 200  # events that are kept


@dataclass(frozen=True)
class LoggedEvent:
    """Event in words.

    ``time`` is in seconds since the epoch, ``number`` counts the events of the log from 0.
    """

    number: int
    time: float
    text: str

    def __str__(self) -> str:
        return f"{format_clock(self.time)} {self.text}"


class LogFollower:
    """Follows the log of ``study``.

    Attributes:
        problem: why the log cannot be read on; empty where it can.
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
        """Takes in what was appended.

        A log that became shorter, or another file, is read from its beginning.
        """
        log = self.study.log
        try:
            there = os.stat(log.file)
            if (there.st_dev, there.st_ino) != self._file or there.st_size < self._offset:
                self._reset()
                self._file = (there.st_dev, there.st_ino)
            self.problem = ""
            self._read_lines(log.iterate_lines(self._offset))
        except FileNotFoundError:  # nothing has happened yet
            return
        except OSError as error:  # a storage that is away for a while
            self.problem = f"{log.file}: {error.strerror or error}"

    def _read_lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            try:
                event, trial = self.study.read_event(line)
            except UserError as error:  # may be read whole the next time, where a storage is slow
                self.problem = error.message
                return
            self._offset += len(line)
            if event.type != EventType.PROPOSED:
                self._latest.append((event, trial))

    @property
    def events(self) -> list[LoggedEvent]:
        """The latest events that people want to see: starts, ends, crashes, pauses."""
        return [LoggedEvent(event.line - 1, datetime.fromisoformat(event.time).timestamp(),
                            describe_event(event.type, trial)) for event, trial in self._latest]


def describe_event(event_type: EventType, trial: Trial) -> str:
    """Describes an event that ``trial`` has taken in; empty for a proposal."""
    match event_type:
        case EventType.STARTED:
            again = f", attempt {trial.attempts}" if trial.attempts > 1 else ""
            again = f", on from rung {len(trial.rungs)}" if trial.rungs else again
            label = f" [{trial.label}]" if trial.label else ""
            label += (f" [seed {trial.seed} of trial {trial.original}]"
                      if trial.origin == Origin.REPLICATE else "")
            return f"trial {trial.number}{label} ({trial.architecture}) in training{again}"
        case EventType.RUNG:
            per = "token" if validation_loss_name(trial.config) == "validation_loss" else "character"
            return (f"trial {trial.number} is paused at rung {len(trial.rungs)}: validation loss "
                    f"{trial.losses[-1]:.3f} nats per {per}")
        case EventType.CRASHED:
            return f"trial {trial.number}: its worker died ({trial.reason})"
        case EventType.ENDED if trial.state == State.FAILED:
            return f"trial {trial.number} failed: {trial.reason}"
        case EventType.ENDED:
            values = ", ".join(f"{name} {format_number(value)}"
                               for name, value in (trial.values or {}).items())
            seconds = (f" after {trial.wall_seconds:.0f} wall seconds"
                       if trial.wall_seconds is not None else "")
            return f"trial {trial.number} complete{seconds}: {values}"
    return ""
