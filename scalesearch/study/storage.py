"""Where Optuna keeps its study: an embedded journal file, or any storage URL of Optuna's.

Either is a working copy. The truth is the study folder's event log, and what Optuna lost or never heard is put back
from it. That is why the embedded file needs no sync to the disk and no lock of its own: a power cut may damage it,
and then it is made again. It is an ordinary Optuna journal that Optuna's dashboard reads.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection

from scalesearch.errors import UserError
from scalesearch.study.ledger import Ledger
from scalesearch.study.mirror import Mirror
from scalesearch.study.objectives import Objective

OWNER = "scalesearch"  # the attribute of an Optuna study that says which of our studies it belongs to
DIRECTIONS = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}

MakeMirror = Callable[[optuna.Study], Mirror]


def open_mirror(
    url: str | None,
    folder: Path,
    name: str,
    identity: str,
    objectives: tuple[Objective, ...],
    ledger: Ledger,
    make: MakeMirror,
) -> Mirror:
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
    if url is None:
        return _embedded(folder / "optuna.journal", name, identity, objectives, ledger, make)
    from sqlalchemy.exc import SQLAlchemyError

    try:
        mirror = make(_study(optuna.storages.get_storage(url), name, identity, objectives))
        mirror.reconcile(ledger)
    except (SQLAlchemyError, ImportError, OSError, ValueError) as error:
        raise UserError(f"storage: {_hide(url)} cannot be used: {_first_line(error)}") from None
    return mirror


class OwnedJournal(JournalFileBackend):
    """Optuna's journal for a file that one process owns; a last line that a crash cut off is dropped."""

    def __init__(self, file: Path) -> None:
        data = file.read_bytes() if file.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(file, whole)
        super().__init__(str(file))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds lines without waiting for the disk."""
        with open(self._file_path, "ab") as file:
            file.write("".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode())


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
        raise UserError(f"storage: it already holds another study named {name}; give this one another name")
    if study.directions != wanted:
        raise UserError(f"storage: its study {name} has other objectives; give this one another name")
    return study


def _hide(url: str) -> str:
    """The URL without a password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
