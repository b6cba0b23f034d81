"""A study's ledger, brought up to date from what was appended to its log since; only reads."""

import json
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scalesearch.study.monitor.console import Lines
from scalesearch.study.trials import trials as kinds
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import Ledger, Trial

KEPT = 200  # events that are kept in words


@dataclass(frozen=True)
class Told:
    """An event in words; ``time`` in seconds since the epoch, ``number`` counts the events of the log from 0."""

    number: int
    time: float
    text: str


class Tail:
    """Follows the log of ``store``.

    Attributes:
        told: the latest events that people want to hear of: starts, ends, crashes, pauses.
        ends: trial to the time of its end, in seconds since the epoch, in the order of the ends.
        passed: trial to (share, training seconds) at its last rung.
        problem: why the log cannot be read on; empty where it can.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._forget()

    def _forget(self) -> None:
        self.store.ledger = self.ledger = Ledger()
        self.told: deque[Told] = deque(maxlen=KEPT)
        self.ends: dict[int, float] = {}
        self.passed: dict[int, tuple[float, float]] = {}
        self.problem, self.events = "", 0
        self._at, self._file = 0, (0, 0)

    def update(self) -> bool:
        """Takes in what was appended; returns whether anything was. A last line without its end waits for the rest.

        A log that became shorter than what was read, or another file, is read from its beginning.
        """
        before = (self._file, self.events)
        try:
            with self.store.events.open("rb") as file:
                found = os.fstat(file.fileno())
                if (found.st_dev, found.st_ino) != self._file or found.st_size < self._at:
                    self._forget()
                    self._file = (found.st_dev, found.st_ino)
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:  # nothing has happened yet
            return False
        except OSError as error:  # a storage that is away for a while
            self.problem = f"{self.store.events}: {error.strerror or error}"
            return False
        self._take(data[: data.rfind(b"\n") + 1])
        return (self._file, self.events) != before

    def _take(self, data: bytes) -> None:
        self.problem = ""
        for line in data.splitlines(keepends=True):
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError):  # may be read whole the next time, where a storage is slow
                self.problem = f"{self.store.events}:{self.events + 1}: not an event; the log cannot be read on"
                return
            self._at += len(line)
            self.events += 1

    def _apply(self, event: Mapping[str, Any]) -> None:
        when = datetime.fromisoformat(event["time"]).timestamp()
        trial = self.ledger.apply(event)
        if event["event"] == kinds.ENDED:
            self.ends[trial.number] = when
        if event["event"] == kinds.RUNG and event.get("share") and event.get("seconds"):
            self.passed[trial.number] = event["share"], event["seconds"]
        if text := describe_event(event, trial):
            self.told.append(Told(self.events, when, text))


class _Words(Lines):
    """What :class:`Lines` says, without the time."""

    def __init__(self) -> None:
        super().__init__(str)
        self.text = ""

    def say(self, text: str) -> None:
        """Keeps it."""
        self.text = text


def describe_event(event: Mapping[str, Any], trial: Trial) -> str:
    """An event in words, right after ``trial`` has taken it in; empty where it is nothing to be told one by one."""
    words, kind = _Words(), event["event"]
    if kind == kinds.CRASHED:
        return f"trial {trial.number}: its worker died ({trial.reason})"
    tell = {kinds.STARTED: words.started, kinds.RUNG: words.paused, kinds.ENDED: words.ended}.get(kind)
    if tell is not None:
        tell(trial)
    return words.text
