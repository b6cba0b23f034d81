"""Trains in this process, one job after the other: for tests, tiny studies, and debugging."""

from collections import deque

from scalesearch.errors import UserError
from scalesearch.study.executors.base import JobDone, JobEvent, Runner, TrainingJob, Work, crash_of_error

# What training may raise on its own account; anything else (an interrupt, an exit) is for the
# caller.
TRAINING_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
                   OSError, RuntimeError, TypeError, ValueError)


class InProcessRunner(Runner):
    """Runs one job inside each :meth:`poll`. An interrupt from the keyboard goes to the caller."""

    slots = 1

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting: deque[TrainingJob] = deque()

    def submit(self, job: TrainingJob) -> None:
        """Queues ``job``."""
        self._waiting.append(job)

    def poll(self, timeout: float) -> list[JobEvent]:
        """Trains the oldest job to its end, however long that takes."""
        return [self._run(self._waiting.popleft())] if self._waiting else []

    def stop(self, grace: float = 10.0) -> None:
        """Forgets what waits; nothing runs between polls."""
        self._waiting.clear()

    def describe(self) -> str:
        """Describes in a line where jobs run."""
        return "in this process, one at a time"

    def _run(self, job: TrainingJob) -> JobEvent:
        try:
            self._work(str(job.folder))
        except (UserError, *TRAINING_ERRORS) as error:
            return crash_of_error(job, error)
        return JobDone(job)
