"""Interface of executors, which train the trials of a study.

A runner receives jobs and returns an event when a job ends. Job and result are files in the job's
folder: the worker reads ``job.json`` and writes ``result.json`` atomically. So a result survives
the death of the worker and of the driver.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scalesearch import __version__
from scalesearch.errors import UserError
from scalesearch.files import DiskFullError
from scalesearch.studies.executors.lease import LeaseHeldError

Work = Callable[[str], None]  # trains the job in a folder; returns after result.json is written

ORPHAN_SECONDS = 10.0  # for the workers of a dead driver to save their training runs

# Causes of the end of a worker without a result
CRASH_FAULT = "fault"
CRASH_LOST = "lost"
CRASH_DISK_FULL = "no room"
TRAINING_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
                   OSError, RuntimeError, TypeError, ValueError)


class NotSharedError(UserError):
    """A worker cannot read the study's folder. No trial is charged for it."""

    code = "not-shared"


@dataclass(frozen=True)
class TrainingJob:
    """One attempt to train one trial."""

    trial: int
    folder: Path


@dataclass(frozen=True)
class JobDone:
    """The worker of a job has returned: ``result.json`` is in its folder."""

    job: TrainingJob


@dataclass(frozen=True)
class JobCrashed:
    """The worker of a job has died or raised an error.

    Attributes:
        job: the attempt that crashed.
        reason: for the user.
        can_retry: whether another attempt may succeed.
        cause: only ``CRASH_FAULT`` counts as an attempt of the trial. ``CRASH_LOST``: the worker's
            machine or Ray died, or another worker holds the trial. ``CRASH_DISK_FULL``: the disk
            is full.
    """

    job: TrainingJob
    reason: str
    can_retry: bool = True
    cause: str = CRASH_FAULT


JobEvent = JobDone | JobCrashed


def run_job(work: Work, job: TrainingJob) -> JobEvent:
    """Train ``job`` in this process; return the event of its end.

    Every executor calls it in the process that trains. Errors that training cannot raise, such as
    interrupts, reach the caller.

    Raises:
        NotSharedError: this machine cannot read the folder of the job.
    """
    try:
        work(str(job.folder))
    except NotSharedError:
        raise
    except DiskFullError as error:
        return JobCrashed(job, str(error), cause=CRASH_DISK_FULL)
    except UserError as error:
        return JobCrashed(job, str(error), can_retry=False)
    except LeaseHeldError as error:
        return JobCrashed(job, str(error), cause=CRASH_LOST)
    except TRAINING_ERRORS as error:
        return JobCrashed(job, describe_error(error))
    return JobDone(job)


def describe_error(error: BaseException) -> str:
    """Return the class and the message of an error."""
    return f"{type(error).__name__}: {error}"


class Runner(ABC):
    """Trains jobs, at most ``slots`` at a time.

    Contract, which one test suite checks for every runner:

    - Each submitted job ends in exactly one event.
    - A job that raises, or whose process dies, ends as :class:`JobCrashed`. Other jobs continue.
    - Polling without jobs returns at once.
    - After ``stop``, no process of the runner is left.
    """

    slots: int
    shares_gpus = False  # several jobs train on one GPU at a time

    @abstractmethod
    def submit(self, job: TrainingJob) -> None:
        """Start a job, or queue it until a slot is free."""

    @abstractmethod
    def poll(self, timeout: float) -> list[JobEvent]:
        """Return the events since the last call.

        Wait up to ``timeout`` seconds for the first.

        Raises:
            UserError: the workers' cluster is gone and cannot be restarted.
        """

    @abstractmethod
    def stop(self, grace: float = 10.0) -> None:
        """Interrupt all jobs.

        Wait ``grace`` seconds for their checkpoints, then kill them.
        """

    def check(self, inspect_machine: Callable[[], Mapping[str, str]]) -> None:  # noqa: B027
        """Compare all machines with this one; a runner on one machine does nothing.

        Raises:
            UserError: ``inspect_machine`` returns something else on another machine.
        """

    def describe(self) -> str:
        """Describe in one line where jobs run."""
        return type(self).__name__


def machine_fingerprint(folder: str, data: Mapping[str, object]) -> dict[str, str]:
    """Return fingerprints of the package, the study and the text of ``data``.

    All machines that train the study must have the same.

    Args:
        folder: absolute path.
        data: a ``DataSpec`` as JSON, with absolute paths.
    """
    from scalesearch.data import DataSpec
    from scalesearch.data.sources import fingerprint_text

    try:
        facts = json.dumps(fingerprint_text(DataSpec.from_mapping(dict(data))), sort_keys=True)
        text = f"hash {hashlib.sha256(facts.encode()).hexdigest()[:12]}"
    except UserError as error:
        text = str(error)
    try:
        study = f"study {json.loads((Path(folder) / 'study.json').read_text('utf-8'))['id']}"
    except (OSError, ValueError, KeyError):
        study = "no study there"
    return {"scalesearch": __version__, f"the folder {folder}": study, "the data": text}
