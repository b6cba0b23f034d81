"""Export of a study to an Optuna storage, for dashboards.

Finished trials are added in the background. The export is never read back: the event log is the
source. So a storage that fails does not stop a running study. When it responds again, all missing
trials are added.
"""

import math
import os
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from scalesearch.errors import UserError, option
from scalesearch.library import install_command
from scalesearch.pareto import Objective
from scalesearch.studies.config.storage_url import mask_passwords
from scalesearch.studies.optuna_sync.attributes import TRIAL_NUMBER_ATTR, TrialExporter
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Callback, State, Trial

# User attribute of an Optuna study with the id of the study that owns it.
OWNER_ATTR = "scalesearch"
OPEN_STATES = (State.PENDING, State.PAUSED)
# Errors of a database, its driver, a file or a network; other errors are bugs of this package.
STORAGE_ERRORS = (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, OSError, LookupError,
                  RuntimeError, TypeError, ValueError)
# Seconds until a storage that failed is tried again.
MIN_WAIT = 5.0
MAX_WAIT = 300.0
NEVER = math.inf
CLOSE_TIMEOUT = 30.0  # seconds that a finished study waits for a storage
# Seconds to connect; milliseconds until sent data is acknowledged; keep-alive times in seconds.
LIBPQ_TIMEOUTS = {"connect_timeout": 10, "tcp_user_timeout": 10_000, "keepalives_idle": 10,
                  "keepalives_interval": 5, "keepalives_count": 3}


class OptunaExport(Callback):
    """Exporter of every finished trial of ``study`` to an Optuna storage.

    It is a callback of the driver.

    Args:
        study: loaded.
        exporter: converts the trials.
        connect: opens the storage and returns its Optuna study.
        storage_name: for messages, without a password.
        report: receives messages.
        clock: returns seconds.

    Raises:
        UserError, and any of ``STORAGE_ERRORS``: the storage cannot be used.
    """

    def __init__(self, study: StudyDir, exporter: TrialExporter,
                 connect: Callable[[], optuna.Study], storage_name: str,
                 report: Callable[[str], object],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._study = study
        self._exporter = exporter
        self._connect = connect
        self._storage_name = storage_name
        self._report = report
        self._clock = clock
        self._wait = MIN_WAIT
        self._retry_time = -math.inf
        self._failure = ""
        self._thread: Thread | None = None
        self._exported_numbers: set[int] = set()
        self._open()
        self._add_missing()

    def update(self) -> None:
        """Export finished trials in the background, unless a failed storage has to wait."""
        if not self._busy() and self._missing() and self._clock() >= self._retry_time:
            self._thread = Thread(target=self.export, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Export the remaining trials; report how to repeat the export if that fails."""
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT)
        if self._retry_time < NEVER and self._missing() and (self._busy() or not self.export()):
            self._report(f"the storage {self._storage_name} is still unavailable "
                         f"({self._failure or 'it does not respond'}). Nothing is lost: the "
                         "study's folder holds all trials. When the storage responds, the same "
                         f"command with {option('resume')} brings it up to date")

    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _missing(self) -> list[Trial]:
        """Return the finished trials that the storage lacks."""
        trials = self._study.trials
        return [trial for trial in trials.candidates()
                if trial.is_in_space and trial.number not in self._exported_numbers
                and {trial.state, trials.resolve_duplicate(trial).state}.isdisjoint(OPEN_STATES)]

    def export(self) -> bool:
        """Add the missing trials; return whether that succeeded."""
        try:
            if self._failure:
                self._open()
            self._add_missing()
        except (*STORAGE_ERRORS, UserError) as error:
            failure = describe_error(error)
            if not self._failure:
                self._report(f"the storage {self._storage_name} cannot be written ({failure}); the "
                             "study continues without it, and brings it up to date later")
            self._wait = min(2 * self._wait, MAX_WAIT) if self._failure else MIN_WAIT
            self._failure = failure
            self._retry_time = self._clock() + self._wait
            return False
        except Exception as error:  # a bug of this package, which would occur again
            self._retry_time = NEVER
            file = self._study.folder / "export-crash.txt"
            with suppress(OSError):
                file.write_text(traceback.format_exc(), "utf-8")
            self._report(f"the export to {self._storage_name} stops here, because of a bug "
                         f"in scalesearch ({error!r}, see {file}). The study continues: its "
                         "folder holds all trials")
            return False
        if self._failure:
            self._report(f"the storage {self._storage_name} responds again, and is up to date")
        self._failure = ""
        self._retry_time = -math.inf
        return True

    def _open(self) -> None:
        self._optuna_study = self._connect()
        exported = self._optuna_study.get_trials(deepcopy=False)
        self._exported_numbers = {trial.user_attrs[TRIAL_NUMBER_ATTR]
                                  for trial in exported if TRIAL_NUMBER_ATTR in trial.user_attrs}

    def _add_missing(self) -> None:
        for trial in self._missing():
            self._optuna_study.add_trial(self._exporter.to_frozen_trial(trial))
            self._exported_numbers.add(trial.number)


def open_export(url: str | None, study: StudyDir, exporter: TrialExporter,
                report: Callable[[str], object]) -> OptunaExport:
    """Open the export of ``study`` to ``url``, or to a journal in its folder.

    A damaged journal, or that of another study, is renamed and written again.

    Raises:
        UserError: the storage cannot be reached, or holds another study of that name.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Optuna waits indefinitely for a lock that is a relative link
    file = (study.folder / "optuna.journal").absolute()

    def open_journal() -> optuna.Study:
        return _open_owned_study(JournalStorage(JournalFileBackend(str(file))), study,
                                 exporter.objectives)

    def connect() -> optuna.Study:
        if url is not None:
            return _open_owned_study(open_database(url), study, exporter.objectives)
        if file.exists():
            # A process that was killed may have left a lock and an unfinished line.
            Path(f"{file}.lock").unlink(missing_ok=True)
            data = file.read_bytes()
            os.truncate(file, data.rfind(b"\n") + 1)
            try:
                return open_journal()
            except (UserError, LookupError, ValueError, TypeError, AssertionError):
                file.replace(file.with_suffix(".old"))
        return open_journal()

    storage_name = mask_passwords(url) if url else str(study.folder / file.name)
    with _storage_errors(storage_name):
        return OptunaExport(study, exporter, connect, storage_name, report)


def check_storage(url: str) -> None:
    """Check that the storage at ``url`` can be used.

    Raises:
        UserError: it cannot.
    """
    with _storage_errors(mask_passwords(url)):
        open_database(url).remove_session()


@contextmanager
def _storage_errors(where: str) -> Iterator[None]:
    """Convert errors of the storage ``where`` to ``UserError``."""
    try:
        yield
    except ImportError as error:
        package = getattr(error.__cause__ or error, "name", None)
        driver = (f"a driver for PostgreSQL: {install_command('postgres')}"
                  if where.startswith("postgresql") else
                  f"a driver for its database, the package {package}, which is not installed")
        raise UserError(f"storage: {where} needs {driver}", code="package-missing") from None
    except STORAGE_ERRORS as error:
        raise UserError(f"storage: {where} cannot be used: "
                        f"{mask_passwords(describe_error(error))}. Start or correct it, or keep "
                        "Optuna's copy in the study's folder with "
                        f"{option('set', 'storage=embedded')}",
                        code="storage-unreachable") from None


def open_database(url: str) -> BaseStorage:
    """Open Optuna's storage at ``url``.

    The default driver of PostgreSQL is psycopg. Time limits are set to seconds, because the default
    of the operating system is a quarter of an hour. No connection is kept between two trials, which
    may take hours.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql":
        return optuna.storages.get_storage(url)
    if "+" not in parsed.drivername:
        parsed = parsed.set(drivername="postgresql+psycopg")
    waits = {key: value for key, value in LIBPQ_TIMEOUTS.items() if key not in parsed.query}
    address = parsed.render_as_string(hide_password=False)
    options = {"connect_args": waits, "poolclass": NullPool}
    return optuna.storages.get_storage(RDBStorage(address, engine_kwargs=options))


def _open_owned_study(storage: BaseStorage, study: StudyDir,
                      objectives: tuple[Objective, ...]) -> optuna.Study:
    name = study.meta.name
    directions = [objective.optuna_direction for objective in objectives]
    optuna_study = optuna.create_study(storage=storage, study_name=name, directions=directions,
                                       load_if_exists=True)
    owner = optuna_study.user_attrs.get(OWNER_ATTR)
    if not optuna_study.get_trials(deepcopy=False):
        optuna_study.set_user_attr(OWNER_ATTR, study.meta.id)
    elif owner != study.meta.id:
        raise UserError(f"storage: it already holds another study named {name}; give this one "
                        "another name under `study:`, or delete that one with `optuna "
                        "delete-study`", code="storage-taken")
    if [direction.name.lower() for direction in optuna_study.directions] != directions:
        raise UserError(f"storage: its study {name} has other objectives; give this one another "
                        "name", code="other-objectives")
    names = [objective.name for objective in objectives]
    if optuna_study.metric_names != names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna_study.set_metric_names(names)
    return optuna_study


def describe_error(error: BaseException) -> str:
    """Describe an error in one line.

    Optuna reports a lost connection as invalid data, so its cause is described instead.
    """
    if isinstance(error, optuna.exceptions.StorageInternalError) and error.__cause__:
        error = error.__cause__
    lines = [line.strip()
             for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    words = re.sub(r"^\([\w.]+\) ", "", lines[0])
    return f"{words} {lines[1]}" if words.endswith(":") and len(lines) > 1 else words
