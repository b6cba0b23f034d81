"""Event log of a study: JSON lines, synced before anything acts on them.

Each line says its number and ends with a checksum of what stands before it, so that a line that was
changed, lost, moved or doubled is noticed.
"""

import errno
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scalesearch.errors import UserError
from scalesearch.files import disk_full_guard, sync_folder
from scalesearch.study.trials.trial import EventType, TrialEvent

CHECKSUM_SUFFIX = b', "crc": "'


class EventLog:
    """The log in ``file``; only the process that owns the study may append."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._end = (0, 0)  # bytes and lines of the file when it was last appended to

    def append(self, event_type: EventType, trial: int, **facts: Any) -> TrialEvent:
        """Writes one event, synced to the disk, and returns it.

        Raises:
            OSError: the disk is gone; the log is left as it was.
            DiskFull: there is no room; likewise.
        """
        with disk_full_guard(self.file), self.file.open("ab", buffering=0) as file:
            size = file.tell()
            number = 1 + (self._end[1] if size == self._end[0] else len(self.lines()))
            line = encode_event({"line": number, "type": event_type, "trial": trial,
                                 "time": utc_now(), **facts})
            # as it will be read again: what happens live is what is folded later
            event = TrialEvent.from_json(line)
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.file, size)  # half a line must not be glued to the next one
                raise
            if not size:
                sync_folder(self.file.parent)  # a new file's name is durable once its folder is
        self._end = size + len(line), number
        return event

    def __iter__(self) -> Iterator[TrialEvent]:
        """Every event, in order. Raises UserError at a line that is damaged."""
        return (self.read(line, number) for number, line in enumerate(self.lines(), 1))

    def read(self, line: bytes, number: int) -> TrialEvent:
        """The event in line ``number``.

        Raises UserError where it is damaged, or another is due there.
        """
        try:
            event = decode_event(line)
            if event.line != number:
                raise ValueError(f"it is numbered {event.line}, so lines were lost, moved or "
                                 "doubled")
        except ValueError as error:
            raise self.damaged_line_error(number, error) from None
        return event

    def damaged_line_error(self, number: int, why: Exception) -> UserError:
        """The error that names a damaged line, and how to save the rest."""
        return UserError(f"{self.file}:{number}: a damaged line ({why}). Restore the file, or have "
                         f"`scalesearch study repair {self.file.parent}` copy what is whole into "
                         "another folder", code="log-damaged")

    def lines(self, start: int = 0) -> list[bytes]:
        """Whole lines from byte ``start`` on, with their ends.

        A last one that is cut off is left out.
        """
        return list(self.iterate_lines(start))

    def iterate_lines(self, start: int = 0) -> Iterator[bytes]:
        """Goes over :meth:`lines`, of which a long log has more than need to be in memory at once."""
        if not self.file.exists():
            return
        with self.file.open("rb") as file:
            file.seek(start)
            yield from (line for line in file if line.endswith(b"\n"))

    def repair(self) -> None:
        """Removes a last line that a crash cut off, and keeps it beside the log."""
        data = self.file.read_bytes() if self.file.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self.file.with_suffix(".torn").write_bytes(data[whole:])
            os.truncate(self.file, whole)


def encode_event(event: Mapping[str, object]) -> bytes:
    """The line of an event, with its checksum."""
    text = json.dumps(event, ensure_ascii=False, allow_nan=False).encode(errors="replace")
    return text[:-1] + CHECKSUM_SUFFIX + b'%08x"}\n' % zlib.crc32(text)


def decode_event(line: bytes) -> TrialEvent:
    """The event of a line. Raises ValueError where it is not as it was written."""
    text, seal, checksum = line.rpartition(CHECKSUM_SUFFIX)
    if not seal or checksum != b'%08x"}\n' % zlib.crc32(text + b"}"):
        raise ValueError("its checksum is wrong")
    return TrialEvent.from_json(line)


def utc_now() -> str:
    """The time, in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
