"""Event log of a study: JSON lines, synced before anything acts on them."""

import errno
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scalesearch.errors import UserError
from scalesearch.files import room_for, sync_folder
from scalesearch.study.trials.trial import Kind

Event = dict[str, Any]


class EventLog:
    """The log in ``file``; only the process that owns the study may append."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def append(self, kind: Kind, trial: int, **facts: Any) -> Event:
        """Writes one event, synced to the disk, and returns it.

        Raises:
            OSError: the disk is gone; the log is left as it was.
            DiskFull: there is no room; likewise.
        """
        event = {"event": kind, "trial": trial, "time": now(), **facts}
        line = json.dumps(event, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with room_for(self.file), self.file.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.file, size)  # half a line must not be glued to the next one
                raise
            if not size:
                sync_folder(self.file.parent)  # a new file's name is durable once its folder is
        return json.loads(line)  # as it will be read again: what happens live is what is folded later

    def __iter__(self) -> Iterator[Event]:
        """Every event, in order.

        Raises:
            UserError: a line before the last is damaged.
        """
        for number, line in enumerate(self.lines(), 1):
            try:
                yield json.loads(line)
            except ValueError:
                raise UserError(f"{self.file}:{number}: not a JSON line; the log was changed or the disk damaged "
                                "it. Restore the file, or delete this line to lose that one event",
                                code="log-damaged") from None

    def lines(self, start: int = 0) -> list[bytes]:
        """Whole lines from byte ``start`` on, with their ends. A last one that is cut off is left out."""
        if not self.file.exists():
            return []
        with self.file.open("rb") as file:
            file.seek(start)
            data = file.read()
        return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)

    def repair(self) -> None:
        """Removes a last line that a crash cut off, and keeps it beside the log."""
        data = self.file.read_bytes() if self.file.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self.file.with_suffix(".torn").write_bytes(data[whole:])
            os.truncate(self.file, whole)


def now() -> str:
    """The time, in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
