"""Executor in this process, one job at a time: for tests, tiny studies and debugging."""

from collections import deque

from scalesearch.errors import UserError
from scalesearch.study.executors.base import (
    JobDone,
    JobEvent,
    Runner,
    TrainingJob,
    Work,
    crash_of_error,
)

# Errors that training may raise. Others (interrupts, exits) reach the caller.
TRAINING_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
                   OSError, RuntimeError, TypeError, ValueError)


class InProcessRunner(Runner):
    """Runs one job in each :meth:`poll`. A keyboard interrupt reaches the caller."""

    slots = 1

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting: deque[TrainingJob] = deque()

    def submit(self, job: TrainingJob) -> None:
        """Queue ``job``."""
        self._waiting.append(job)

    def poll(self, timeout: float) -> list[JobEvent]:
        """Train the oldest job to its end; the timeout is ignored."""
        return [self._run(self._waiting.popleft())] if self._waiting else []

    def stop(self, grace: float = 10.0) -> None:
        """Drop the queued jobs; no job runs between polls."""
        self._waiting.clear()

    def describe(self) -> str:
        """Describe in one line where jobs run."""
        return "in this process, one at a time"

    def _run(self, job: TrainingJob) -> JobEvent:
        try:
            self._work(str(job.folder))
        except (UserError, *TRAINING_ERRORS) as error:
            return crash_of_error(job, error)
        return JobDone(job)
