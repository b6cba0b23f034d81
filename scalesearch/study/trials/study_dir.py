"""A study's folder, the record of everything: Optuna's storage can be made again from it.

::

    runs/edge/
      study.json        what the study is: objectives, protocol, space hash, recipe, data, versions; only `seeds`
                        may change later
      study.yaml        the study file as it was run, without passwords        space.yaml   the space, in canonical form
      events.jsonl      every event, appended and synced before anything acts on it
      owner.json        who runs it, with a sign of life, and how it ended; for whoever watches
      optuna.journal    the embedded storage of the proposer; may be deleted
      teacher/          its training, and under corpus/ its translations, where candidates have one
      trials/0007-3f…/  architecture.yaml  job.json  checkpoint…  result.json  record.json
      front.csv  all.csv  seeds.csv  bleu-vs-params.svg …
"""

import errno
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from scalesearch.errors import UserError
from scalesearch.files import room_for, write_json, write_text
from scalesearch.study.config.storage_url import hide
from scalesearch.study.trials.trials import Ledger, Trial

FORMAT = 1


class Store:
    """Reads and writes one study's folder. Only the process that holds :meth:`owned` may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.meta: dict[str, Any] = {}
        self.ledger = Ledger()

    @property
    def events(self) -> Path:
        """The append-only log."""
        return self.folder / "events.jsonl"

    def exists(self) -> bool:
        """Whether there is a study here."""
        return (self.folder / "study.json").is_file()

    def begun(self) -> bool:
        """Whether anything has happened in it yet; a start that was refused leaves nothing to go on with."""
        happened = self.events.exists() and self.events.stat().st_size > 0
        return self.exists() and (happened or (self.folder / "teacher").is_dir())

    def create(self, meta: Mapping[str, Any], study: str, space: str) -> None:
        """Starts a study: ``meta`` (JSON values) last, so that a study without it was never started."""
        write_text(self.folder / "study.yaml", hide(study))
        write_text(self.folder / "space.yaml", space)
        self.meta = {"format": FORMAT, **meta}
        write_json(self.folder / "study.json", self.meta)

    def revise(self, key: str, value: Any) -> None:
        """Has ``study.json`` say something else of ``key``, or with None nothing any more."""
        rest = {name: said for name, said in self.meta.items() if name != key}
        self.meta = rest if value is None else {**rest, key: value}
        write_json(self.folder / "study.json", self.meta)

    def load(self) -> "Store":
        """Reads what is there, without changing anything.

        Raises:
            UserError: no study is here, it is of another format, or its log is damaged before its end.
        """
        self.look()
        self.ledger = Ledger()
        for event in self._read():
            self.ledger.apply(event)
        return self

    def look(self) -> "Store":
        """Reads what the study is, and nothing of what has happened in it.

        Raises:
            UserError: no study is here, or it is of another format.
        """
        if not self.exists():
            raise UserError(f"{self.folder}: there is no study here (no study.json); start one with "
                            "`scalesearch study run STUDY.yaml`")
        self.meta = json.loads((self.folder / "study.json").read_text())
        if self.meta["format"] != FORMAT:
            raise UserError(f"{self.folder}: a study of format {self.meta['format']}; this version reads {FORMAT}")
        return self

    def history(self) -> Iterator[dict[str, Any]]:
        """Every event, in order, as it was written."""
        return self._read()

    def append(self, event: str, trial: int, **facts: Any) -> Trial:
        """Writes one event, synced to the disk, and returns the trial as it now is.

        Raises:
            OSError: the disk is gone; the log is left as it was.
            DiskFull: there is no room; likewise.
        """
        facts = {"event": event, "trial": trial, "time": now(), **facts}
        line = json.dumps(facts, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with room_for(self.events), self.events.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.events, size)  # half a line must not be glued to the next one
                raise
        return self.ledger.apply(facts)

    def mend(self) -> None:
        """Removes a last line that a crash cut off, and keeps it beside the log."""
        data = self.events.read_bytes() if self.events.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            (self.folder / "events.torn").write_bytes(data[whole:])
            os.truncate(self.events, whole)

    def trial_folder(self, trial: Trial) -> Path:
        """Where everything of one trained candidate lies."""
        return self.folder / "trials" / trial.name

    def record(self, trial: Trial) -> dict[str, Any] | None:
        """The record of a finished candidate, or None where it has none."""
        path = self.trial_folder(trial) / "record.json"
        return json.loads(path.read_text()) if path.is_file() else None

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Makes this process the study's only owner while inside.

        Raises:
            UserError: another process owns it, or the folder cannot be written.
        """
        lock = FileLock(self.folder / ".owner.lock")
        note = self.folder / ".owner"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            owner = note.read_text() if note.is_file() else "another process"
            raise UserError(f"{self.folder}: {owner} is running this study; only one may at a time") from None
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be written ({error.strerror}); choose another --out") from None
        try:
            write_text(note, f"process {os.getpid()} on {platform.node()}")
            yield
        finally:
            lock.release()

    def _read(self) -> Iterator[dict[str, Any]]:
        if not self.events.exists():
            return
        lines = self.events.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], 1):  # what follows the last line end is torn, or nothing
            try:
                yield json.loads(line)
            except ValueError:
                raise UserError(f"{self.events}:{number}: not a JSON line; the log was changed or the disk damaged "
                                "it. Restore the file, or delete this line to lose that one event") from None


def now() -> str:
    """The time, in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
