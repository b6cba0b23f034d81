"""Interface of executors, which train the candidates of a study.

A runner takes jobs and reports their ends. It carries nothing but a folder: the worker reads
``job.json`` there and leaves ``result.json``, whole or not at all, so that a result survives
whoever dies next.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import DiskFullError
from scalesearch.study.executors.lease import LeaseHeldError

Work = Callable[[str], None]  # trains the job in a folder; returns once its result.json is there
CRASH_FAULT = "fault"
CRASH_LOST = "lost"
CRASH_DISK_FULL = "no room"  # why a worker ended without a result


@dataclass(frozen=True)
class TrainingJob:
    """Attempt at training one trial."""

    trial: int
    folder: Path
    attempt: int


@dataclass(frozen=True)
class JobDone:
    """A job's worker returned: ``result.json`` is in its folder."""

    job: TrainingJob


@dataclass(frozen=True)
class JobCrashed:
    """A job's worker died or raised.

    Attributes:
        reason: in words, for people.
        can_retry: whether another attempt may help.
        cause: FAULT, which counts among the candidate's attempts. What is nobody's fault does not:
            LOST, where what the
            worker ran on is gone or another worker has the candidate, and NO_ROOM, where there is
            none on the disk.
    """

    job: TrainingJob
    reason: str
    can_retry: bool = True
    cause: str = CRASH_FAULT


JobEvent = JobDone | JobCrashed


def crash_of_error(job: TrainingJob, error: BaseException) -> JobCrashed:
    """The end of a job whose work raised ``error``."""
    if isinstance(error, DiskFullError):
        return JobCrashed(job, str(error), cause=CRASH_DISK_FULL)
    if isinstance(error, UserError):
        return JobCrashed(job, str(error), can_retry=False)
    if isinstance(error, LeaseHeldError):
        return JobCrashed(job, str(error), cause=CRASH_LOST)
    return JobCrashed(job, f"{type(error).__name__}: {error}")


class Runner(ABC):
    """Trains jobs, at most ``slots`` at a time.

    Contract, which one test suite puts to every runner: each submitted job ends in exactly one
    event; a job that raises or whose process dies ends as Crashed and disturbs no other; polling
    without jobs returns at once; after ``stop`` nothing of it is left running.
    """

    slots: int

    @abstractmethod
    def submit(self, job: TrainingJob) -> None:
        """Starts a job, or queues it until there is room."""

    @abstractmethod
    def poll(self, timeout: float) -> list[JobEvent]:
        """Returns the jobs that ended since the last call.

        Waits up to ``timeout`` seconds for the first.

        Raises:
            UserError: what the workers run on is gone, and cannot be had again.
        """

    @abstractmethod
    def stop(self, grace: float = 10.0) -> None:
        """Interrupts what runs, gives it ``grace`` seconds to write a checkpoint, and ends."""

    def check(self, inspect_machine: Callable[[], Mapping[str, str]]) -> None:  # noqa: B027 - where there is one machine
        """Refuses a machine that does not see what ``inspect_machine`` finds on this one.

        Raises UserError.
        """

    def describe(self) -> str:
        """Describes in a line where jobs run."""
        return type(self).__name__
