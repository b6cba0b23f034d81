"""Main loop of all training runs: of a study, its teacher, and an audit.

The end of a worker has the same consequence for all of them:

==========================  ====================================================================
end of the worker           consequence
==========================  ====================================================================
done                        the subclass collects the result
its own fault               the job is repeated, until ``max_attempts`` attempts have crashed
machine or lease lost       the job is repeated; no attempt is charged
an invalid job              the job has failed
full disk                   the loop ends with :class:`DiskFullError`; everything can be resumed
result that is unreadable   the file is renamed to ``*.damaged``; this counts as its own fault
==========================  ====================================================================
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import DiskFullError, read_json
from scalesearch.studies.executors.base import (
    CRASH_DISK_FULL,
    CRASH_FAULT,
    JobCrashed,
    JobDone,
    Runner,
    TrainingJob,
)
from scalesearch.training.result import RESULT_FILE


class DamagedResultError(Exception):
    """The result of a job cannot be read."""


class JobLoop(ABC):
    """Submits jobs to a runner until no job is due, and handles their ends.

    Args:
        runner: trains the jobs.
        max_attempts: maximum number of attempts of a job that crash by its own fault.
    """

    def __init__(self, runner: Runner, max_attempts: int) -> None:
        self.runner = runner
        self.max_attempts = max_attempts
        self.running: dict[int, TrainingJob] = {}
        self._crashes: Counter[int] = Counter()

    @abstractmethod
    def next_job(self) -> TrainingJob | None:
        """Return a job that is due and not running; None if no job is due now."""

    @abstractmethod
    def collect(self, job: TrainingJob) -> None:
        """Read the result of a job whose worker is done.

        Raises:
            DamagedResultError: the result cannot be read.
        """

    @abstractmethod
    def fail(self, job: TrainingJob, reason: str) -> None:
        """Record that a job has failed for good."""

    def log_crash(self, crash: JobCrashed) -> int:
        """Record a crash.

        Returns the number of crashes so far that are the job's own fault.
        """
        self._crashes[crash.job.trial] += crash.cause == CRASH_FAULT
        return self._crashes[crash.job.trial]

    def repeat(self, crash: JobCrashed) -> None:
        """Submit the next attempt of a job."""
        self.submit(crash.job)

    def update(self) -> None:  # noqa: B027
        """Do what is due after each poll, such as refreshing a display."""

    def run_jobs(self) -> None:
        """Train until no job is due.

        Raises:
            DiskFullError: the disk of this machine or of a worker is full.
            UserError: the workers are gone.
        """
        while self.submit_due() or self.running:
            for event in self.runner.poll(0.5):
                del self.running[event.job.trial]
                if isinstance(event, JobCrashed):
                    self.handle_crash(event)
                else:
                    self.handle_done(event)
            self.update()

    def submit(self, job: TrainingJob) -> None:
        """Submit a job."""
        self.running[job.trial] = job
        self.runner.submit(job)

    def handle_done(self, event: JobDone) -> None:
        """Collect the result; a damaged result counts as a crash."""
        try:
            self.collect(event.job)
        except DamagedResultError as error:
            self.handle_crash(JobCrashed(event.job, str(error)))

    def handle_crash(self, crash: JobCrashed) -> None:
        """Record a crash; repeat the job unless it was its last attempt.

        Raises:
            DiskFullError: the disk is full.
        """
        crashes = self.log_crash(crash)
        if crash.cause == CRASH_DISK_FULL:
            raise DiskFullError(crash.reason)
        if crash.can_retry and crashes < self.max_attempts:
            self.repeat(crash)
        else:
            self.fail(crash.job, crash.reason)

    def submit_due(self) -> bool:
        """Submit due jobs to idle workers; return whether any was submitted."""
        n_before = len(self.running)
        while len(self.running) < self.runner.slots:
            job = self.next_job()
            if job is None:
                break
            self.submit(job)
        return len(self.running) > n_before


class FolderJobs(JobLoop):
    """Runs one job per folder, until each has a result.

    Args:
        folders: of the jobs.
        result_type: type of their results.
    """

    def __init__(self, folders: Sequence[Path], runner: Runner, max_attempts: int,
                 result_type: type) -> None:
        super().__init__(runner, max_attempts)
        self.folders = folders
        self.result_type = result_type

    def next_job(self) -> TrainingJob | None:
        """Return a job without a result that is not running."""
        for index, folder in enumerate(self.folders):
            number = -1 - index  # not the number of a trial
            if number not in self.running and not (folder / RESULT_FILE).exists():
                return TrainingJob(number, folder)
        return None

    def collect(self, job: TrainingJob) -> None:
        """Check that the result can be read."""
        with reading_result(job.folder / RESULT_FILE):
            read_json(job.folder / RESULT_FILE, self.result_type)


@contextmanager
def reading_result(file: Path) -> Iterator[None]:
    """Context that reads a result file.

    A damaged file, or a folder or pipe in its place, is renamed to ``*.damaged``.

    Raises:
        DamagedResultError: the file is damaged.
    """
    try:
        yield
    except (UserError, ValueError, OSError) as error:
        if isinstance(error, OSError) and file.is_file():
            raise  # it may be readable later
        file.replace(file.with_suffix(".damaged"))
        raise DamagedResultError(f"its result cannot be read: {error}") from None
