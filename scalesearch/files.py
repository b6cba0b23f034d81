"""Writes that either happen whole or not at all, so a crash never leaves half a file."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write_atomic(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write ``path`` through ``write(handle)``: to a temporary file beside it, synced, then renamed over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's mask: temporary files are private, what replaces a file should be as readable as any other."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Atomically write ``text`` as UTF-8."""
    write_atomic(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """Atomically write ``value`` as indented JSON; NaN is refused, since no other reader takes it."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
