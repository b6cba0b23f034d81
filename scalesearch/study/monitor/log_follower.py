"""Follower of a study's log; reads only what was appended since."""

import json
import os
from collections import deque

from scalesearch.study.monitor.events import LoggedEvent, logged
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trials import Trials

MAX_KEPT = 200  # events that are kept in words


class LogFollower:
    """Follows the log of ``study``.

    Attributes:
        events: the latest events that people want to see: starts, ends, crashes, pauses.
        problem: why the log cannot be read on; empty where it can.
    """

    def __init__(self, study: StudyDir) -> None:
        self.study = study
        self._forget()

    def _forget(self) -> None:
        self.study.trials = Trials()
        self.events: deque[LoggedEvent] = deque(maxlen=MAX_KEPT)
        self.problem = ""
        self._at, self._file = 0, (0, 0)

    def update(self) -> None:
        """Takes in what was appended. A log that became shorter, or another file, is read from its beginning."""
        log = self.study.log
        try:
            there = os.stat(log.file)
            if (there.st_dev, there.st_ino) != self._file or there.st_size < self._at:
                self._forget()
                self._file = (there.st_dev, there.st_ino)
            lines = log.lines(self._at)
        except FileNotFoundError:  # nothing has happened yet
            return
        except OSError as error:  # a storage that is away for a while
            self.problem = f"{log.file}: {error.strerror or error}"
            return
        self._take(lines)

    def _take(self, lines: list[bytes]) -> None:
        self.problem = ""
        for line in lines:
            number = self.study.trials.events
            try:
                event = json.loads(line)
                trial = self.study.trials.apply(event)
            except (ValueError, KeyError, TypeError):  # may be read whole the next time, where a storage is slow
                self.problem = f"{self.study.log.file}:{number + 1}: not an event; the log cannot be read on"
                return
            self._at += len(line)
            if words := logged(event, trial, number):
                self.events.append(words)
