"""Event log of a study.

JSON lines are synced to disk before they have any effect.

Each line contains its number and ends with a checksum, so that changed, lost, moved or duplicated
lines are detected.
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
from scalesearch.files import disk_full_guard, regular_size, sync_folder
from scalesearch.studies.trials.trial import EventType, TrialEvent, parse_event

CHECKSUM_SUFFIX = b', "crc": "'


class EventLog:
    """Log in ``file``; only the process that owns the study may append."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._end = (0, 0)  # bytes and lines of the file when it was last appended to

    def append(self, event_type: EventType, trial: int, **facts: Any) -> TrialEvent:
        """Append an event, sync it to disk, and return it.

        Raises:
            OSError: the disk failed; the log is unchanged.
            DiskFullError: the disk is full; the log is unchanged.
        """
        with disk_full_guard(self.file), self.file.open("ab", buffering=0) as file:
            size = file.tell()
            number = 1 + (self._end[1] if size == self._end[0] else sum(1 for _ in self.lines()))
            line = encode_event({"line": number, "type": event_type, "trial": trial,
                                 "time": utc_now(), **facts})
            # parsed from the line, so that live events equal those that are read later
            event = parse_event(line)
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.file, size)  # the next line must not follow a partial one
                raise
            if not size:
                sync_folder(self.file.parent)  # so that the name of a new file is durable
        self._end = size + len(line), number
        return event

    def __iter__(self) -> Iterator[TrialEvent]:
        """Iterate over all events. Raises UserError at a damaged line."""
        return (self.read(line, number) for number, line in enumerate(self.lines(), 1))

    def read(self, line: bytes, number: int) -> TrialEvent:
        """Return the event in line ``number``.

        Raises:
            UserError: it is damaged, or has another number.
        """
        try:
            event = decode_event(line)
            if event.line != number:
                raise ValueError(f"its number is {event.line}: lines were lost, moved or "
                                 "duplicated")
        except ValueError as error:
            raise self.damaged_line_error(number, error) from None
        return event

    def damaged_line_error(self, number: int, why: Exception) -> UserError:
        """Return the error for a damaged line, with the command that saves the others."""
        return self.damaged_error(f":{number}: a damaged line ({why})")

    def damaged_error(self, damage: str) -> UserError:
        """Return the error for a damaged log, with the command that saves the intact part."""
        return UserError(f"{self.file}{damage}. Restore the file, or copy the intact part into "
                         f"another folder with `scalesearch study repair {self.file.parent}`",
                         code="log-damaged")

    def lines(self, start: int = 0) -> Iterator[bytes]:
        """Iterate over the complete lines from byte ``start``, with line ends.

        A partial line at the end is left out.
        """
        if not self.file.exists():
            return
        regular_size(self.file)
        with self.file.open("rb") as file:
            file.seek(start)
            yield from (line for line in file if line.endswith(b"\n"))

    def repair(self) -> None:
        """Move a last line that a crash truncated to a ``.torn`` file."""
        data = self.file.read_bytes() if self.file.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self.file.with_suffix(".torn").write_bytes(data[whole:])
            os.truncate(self.file, whole)


def encode_event(event: Mapping[str, object]) -> bytes:
    """Return the line of an event, with its checksum."""
    text = json.dumps(event, ensure_ascii=False, allow_nan=False).encode(errors="replace")
    return text[:-1] + CHECKSUM_SUFFIX + b'%08x"}\n' % zlib.crc32(text)


def decode_event(line: bytes) -> TrialEvent:
    """Return the event of a line. Raises ValueError if the line was changed."""
    text, seal, checksum = line.rpartition(CHECKSUM_SUFFIX)
    if not seal or checksum != b'%08x"}\n' % zlib.crc32(text + b"}"):
        raise ValueError("its checksum is wrong")
    return parse_event(line)


def utc_now() -> str:
    """Return the UTC time, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
