"""Where Optuna keeps its study: an embedded journal file, or any storage URL of Optuna's.

Either is a working copy. The truth is the study folder's event log, and what Optuna lost or never heard is put back
from it. That is why the embedded file needs no sync to the disk and no lock of its own: a power cut may damage it,
and then it is made again. It is an ordinary Optuna journal that Optuna's dashboard reads.
"""

import errno
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from sqlalchemy.engine import make_url

from scalesearch.errors import UserError
from scalesearch.files import room_for
from scalesearch.study.config.objectives import Objective
from scalesearch.study.config.storage_url import hide
from scalesearch.study.optuna_sync.mirror import Mirror
from scalesearch.study.optuna_sync.retrying import FAULTS, SteadyMirror, reason
from scalesearch.study.trials.trials import Ledger

OWNER = "scalesearch"  # the attribute of an Optuna study that says which of our studies it belongs to
DIRECTIONS = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}

# Seconds to connect, milliseconds for what was sent to arrive, seconds of silence before the other side is asked.
LIBPQ = {"connect_timeout": 10, "tcp_user_timeout": 10_000, "keepalives_idle": 10, "keepalives_interval": 5,
         "keepalives_count": 3}

MakeMirror = Callable[[optuna.Study], Mirror]


def open_mirror(
    url: str | None,
    folder: Path,
    name: str,
    identity: str,
    objectives: tuple[Objective, ...],
    ledger: Ledger,
    make: MakeMirror,
) -> SteadyMirror:
    """Optuna's copy, brought to what ``ledger`` says.

    Args:
        url: an Optuna storage URL, or None for the embedded one in ``folder``.
        name: of the Optuna study.
        identity: of our study; another study of the same name in the same storage is refused.
        make: builds the mirror around an Optuna study.

    Raises:
        UserError: the storage cannot be reached or holds another study of that name.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = folder / "optuna.journal"

    def connect() -> Mirror:
        if url is None:
            return _embedded(file, name, identity, objectives, ledger, make)
        mirror = make(_study(_database(url), name, identity, objectives))
        mirror.reconcile(ledger)
        return mirror

    where = hide(url) if url else str(file)
    with _refusing(where):
        return SteadyMirror(connect, where)


def reach(url: str) -> None:
    """Raises UserError where the storage behind ``url`` cannot be used."""
    with _refusing(hide(url)):
        _database(url).remove_session()


@contextmanager
def _refusing(where: str) -> Iterator[None]:
    """A stretch whose faults are said of the storage ``where``."""
    try:
        yield
    except ImportError as error:
        raise UserError(f"storage: {where} needs {_driver(where, error)}", key="storage") from None
    except FAULTS as error:
        raise UserError(f"storage: {where} cannot be used: {hide(reason(error))}. Start or correct it, or keep "
                        "Optuna's copy in the study's folder with --set storage=embedded", key="storage") from None


def _database(url: str) -> BaseStorage:
    """Optuna's storage behind ``url``. PostgreSQL is spoken to by psycopg unless the URL says otherwise, and its
    silence ends after seconds: unless told, the operating system waits for a quarter of an hour.
    """
    made = make_url(url)
    if made.get_backend_name() != "postgresql":
        return optuna.storages.get_storage(url)
    if "+" not in made.drivername:
        made = made.set(drivername="postgresql+psycopg")
    waits = {key: value for key, value in LIBPQ.items() if key not in made.query}
    address = made.render_as_string(hide_password=False)
    return optuna.storages.get_storage(RDBStorage(address, engine_kwargs={"connect_args": waits}))


def _driver(url: str, error: ImportError) -> str:
    if url.startswith("postgresql"):
        return "a driver for PostgreSQL: pip install 'scalesearch[postgres]'"
    package = getattr(error.__cause__ or error, "name", None)
    return f"a driver for its database, the package {package}, which is not installed"


class OwnedJournal(JournalFileBackend):
    """Optuna's journal for a file that one process owns; a last line that a crash cut off is dropped."""

    def __init__(self, file: Path) -> None:
        data = file.read_bytes() if file.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(file, whole)
        super().__init__(str(file))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds lines without waiting for the disk. Raises DiskFull where there is no room for all of them."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with room_for(Path(self._file_path)), open(self._file_path, "ab", buffering=0) as file:
            if file.write(lines) < len(lines):  # the rest of a line goes when the file is next opened
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _embedded(
    file: Path, name: str, identity: str, objectives: tuple[Objective, ...], ledger: Ledger, make: MakeMirror
) -> Mirror:
    if file.exists():
        try:
            mirror = make(_study(JournalStorage(OwnedJournal(file)), name, identity, objectives))
            if mirror.reconcile(ledger):
                return mirror
        except (UserError, LookupError, ValueError, TypeError, AssertionError):
            pass  # damaged, or of another study: made again from the log below
        file.replace(file.with_suffix(".old"))
    mirror = make(_study(JournalStorage(OwnedJournal(file)), name, identity, objectives))
    mirror.reconcile(ledger)
    return mirror


def _study(storage: BaseStorage, name: str, identity: str, objectives: tuple[Objective, ...]) -> optuna.Study:
    wanted = [DIRECTIONS[objective.direction] for objective in objectives]
    study = optuna.create_study(storage=storage, study_name=name, directions=wanted, load_if_exists=True)
    owner = study.user_attrs.get(OWNER)
    if not study.get_trials(deepcopy=False):
        study.set_user_attr(OWNER, identity)
    elif owner != identity:
        raise UserError(f"storage: it already holds another study named {name}; give this one another name under "
                        "`study:`, or delete that one with `optuna delete-study`", key="storage")
    if study.directions != wanted:
        raise UserError(f"storage: its study {name} has other objectives; give this one another name", key="storage")
    names = [objective.name for objective in objectives]
    if study.metric_names != names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(names)
    return study
