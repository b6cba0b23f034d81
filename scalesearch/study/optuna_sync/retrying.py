"""A storage that may go away: training goes on without it, and it is brought up to date when it is back.

Optuna's copy of a study is for whoever looks at it; the truth is the event log. So nothing that happens to a storage
ends a study that has begun. What it misses is not kept apart: once it answers, it is compared with the ledger.
"""

import re
import time
from collections.abc import Callable, Mapping

import optuna
from sqlalchemy.exc import SQLAlchemyError

from scalesearch.errors import UserError
from scalesearch.study.optuna_sync.mirror import Mirror
from scalesearch.study.trials.trials import Trial

# What may come of a database, its driver, a file or a network; a mistake of this package (AttributeError) may not.
FAULTS = (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, OSError, LookupError, RuntimeError, TypeError,
          ValueError)
SOONEST, LATEST = 5.0, 300.0  # seconds until a storage that was away is tried again


class SteadyMirror:
    """A mirror that never raises.

    Args:
        connect: opens the storage anew and returns a mirror that has all that the ledger says.
        where: the storage's name for people, without a password.
        clock: seconds.

    Attributes:
        say: takes a line for people; nobody hears it until it is set.

    Raises:
        UserError, and any of ``FAULTS``: the storage cannot be used now, before the study begins.
    """

    def __init__(self, connect: Callable[[], Mirror], where: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._connect, self._where, self._clock = connect, where, clock
        self._mirror = connect()
        self._away = ""  # why, while it is away
        self._wait, self._next = SOONEST, 0.0
        self.say: Callable[[str], object] = lambda text: None

    @property
    def study(self) -> optuna.Study:
        """Optuna's."""
        return self._mirror.study

    def add(self, trial: Trial, outcome: Trial) -> None:
        """As a mirror's, once the ledger has it."""
        self._do(lambda mirror: mirror.add(trial, outcome))

    def tell(self, number: int, values: Mapping[str, float] | None) -> None:
        """As a mirror's, once the ledger has it."""
        self._do(lambda mirror: mirror.tell(number, values))

    def update(self) -> None:
        """Tries again, if the storage is away and it is time."""
        if self._away and self._clock() >= self._next:
            self._again()

    def close(self) -> None:
        """Tries once more, if the storage is away; says what to do where that does not help."""
        if self._away and not self._again():
            self.say(f"the storage {self._where} is still away ({self._away}). Nothing is lost: the study's folder "
                     "holds everything. Once the storage is back, the same command with --resume brings it up to date")

    def _do(self, act: Callable[[Mirror], None]) -> None:
        if self._away:
            self.update()
            return
        try:
            act(self._mirror)
        except FAULTS as error:
            self._away, self._wait = reason(error), SOONEST
            self._next = self._clock() + self._wait
            self.say(f"the storage {self._where} cannot be written ({self._away}); the study goes on without it, and "
                     "brings it up to date when it is back")

    def _again(self) -> bool:
        try:
            self._mirror = self._connect()
        except (*FAULTS, UserError) as error:
            self._away, self._wait = reason(error), min(2 * self._wait, LATEST)
            self._next = self._clock() + self._wait
            return False
        self._away = ""
        self.say(f"the storage {self._where} is back, and up to date")
        return True


def reason(error: BaseException) -> str:
    """What went wrong, in one line; Optuna's own words for a lost connection are of invalid data."""
    if isinstance(error, optuna.exceptions.StorageInternalError) and error.__cause__:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    words = re.sub(r"^\([\w.]+\) ", "", lines[0])
    return f"{words} {lines[1]}" if words.endswith(":") and len(lines) > 1 else words
