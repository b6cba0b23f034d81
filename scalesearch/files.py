"""Writes that either happen whole or not at all, so a crash never leaves half a file."""

import errno
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from scalesearch.errors import UserError

T = TypeVar("T")
MAX_NAME_BYTES = 200  # bytes; file systems take 255, and some names get an ending
# handles of this process, with their own place in a file
STANDARD_STREAM_HANDLES = {"/dev/stdout": 1, "/dev/stderr": 2}
# disk full, quota used up, larger than a file may be
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFullError(UserError):
    """There is no room for a file; what stood in its place before is untouched.

    Passes once there is room.
    """

    code = "disk-full"


def is_valid_file_name(text: str) -> bool:
    """Whether ``text`` can name a file or a folder, and none elsewhere: it is no path."""
    return (text.strip() not in ("", ".", "..") and text.isprintable()
            and not set(text) & set("/\\") and len(text.encode()) <= MAX_NAME_BYTES)


def write_atomic(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write ``path`` through ``write(handle)``: to a temporary file beside it, synced, then renamed over it.

    A link stays one, and its target is written; pipes and character devices are written to, not
    replaced.

    Raises:
        DiskFull: there is no room; ``path`` is as it was, and nothing else is left.
        UserError: it is a pipe that nobody reads, a socket or a disk.
    """
    with disk_full_guard(path):
        if _is_stream(path):
            _write_to_stream(path, write)
        else:
            _write(Path(os.path.realpath(path)), write)


def _is_stream(path: Path) -> bool:
    """Whether there is something else than a file or a folder, or a name of an open file, such as /dev/stdout."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        opened = path.absolute().parts[1:2] in (("dev",), ("proc",)) and path.is_symlink()
        return opened or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


def _write_to_stream(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    mode = path.stat().st_mode
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise UserError(f"{path}: is a {'disk' if stat.S_ISBLK(mode) else 'socket'}, not a file; "
                        "name a file", code="not-a-file")
    whole = BytesIO()
    write(whole)
    own = STANDARD_STREAM_HANDLES.get(str(path))
    try:  # without blocking, opening fails where nobody reads a pipe
        handle = os.open(path,
                         os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK) if own is None else os.dup(own)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise UserError(f"{path}: is a pipe that nobody reads; name a file, or start its reader "
                        "first", code="not-a-file") from None
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as file:
        file.write(whole.getvalue())


@contextmanager
def disk_full_guard(path: Path) -> Iterator[None]:
    """A stretch in which ``path`` is written, whole or not at all; raises DiskFull where there is no room for it."""
    try:
        yield
    except Exception as error:
        full = _find_disk_full_error(error)
        if full is None:
            raise
        kept = "what was there is untouched" if path.exists() else "nothing was left there"
        raise DiskFullError(f"{path}: cannot be written: {full.strerror}; {kept}. "
                       f"Make room where {path.parent} is, then run the command again") from error


def _write(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    make_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        os.replace(name, path)
        sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_partial_files(folder: Path, is_owned: Callable[[str], bool]) -> None:
    """Removes what writes to files of ``folder`` have left that a kill cut off; ``is_owned``: who alone writes them calls.
    """
    for part in folder.glob(".?*.????????"):  # as mkstemp names it
        if is_owned(part.name[1:-9]):
            part.unlink(missing_ok=True)


def why_not_writable(path: Path, is_folder: bool = False) -> str | None:
    """Why no file, or ``is_folder``, can be written there; None where one can, as far as can be seen without trying."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if path.lstat() and not is_folder and path.is_dir():
            return os.strerror(errno.EISDIR)
    inside = path if is_folder else path.parent
    above = next(one for one in (inside, *inside.parents) if os.path.lexists(one))
    if not above.is_dir():
        return f"{above} is no folder"
    writable = os.access(path if path.exists() and not path.is_file() else above, os.W_OK)
    return None if writable else os.strerror(errno.EACCES)


def make_folder(folder: Path) -> None:
    """Makes ``folder`` and those above it that are missing, to survive a power cut."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes new and renamed entries of ``folder`` survive a power cut; a no-op where folders cannot be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _find_disk_full_error(error: BaseException | None) -> OSError | None:
    """The error that says so, if that is why; torch.save hides it behind one of its own."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
            return error
        error = error.__cause__ or error.__context__
    return None


def _umask() -> int:
    """The process's mask: temporary files are private, what replaces a file should be as readable as any other."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Atomically write ``text`` as UTF-8; halves of characters, which it cannot hold, become question marks."""
    write_atomic(path, lambda file: file.write(text.encode(errors="replace")))


def write_json(path: Path, value: Any) -> None:
    """Atomically write ``value`` as indented JSON; NaN is refused, since no other reader takes it."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def replace_non_finite(value: Any) -> Any:
    """``value`` with None for every number that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def regular_size(path: Path) -> int:
    """Bytes of a regular file; OSError of anything else, a device or a pipe, which may have no end."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return state.st_size


def read_regular(path: Path) -> bytes:
    """Content of a regular file; OSError of anything else."""
    regular_size(path)
    return path.read_bytes()


def resolve_relative(file: str | Path, name: str) -> str:
    """The absolute path of what ``file`` calls ``name``, from its own folder."""
    return str((Path(file).parent / name).resolve())


def read_json(path: Path, type_: type[T]) -> T:
    """Reads the JSON file ``path`` as a ``type_``: a dataclass, a TypedDict, or any type of plain values.

    Numbers that JSON does not know, such as NaN, are None.

    Raises:
        FileNotFoundError: there is none.
        OSError: it is no regular file.
        UserError: it is no JSON, or a value has another type than ``type_`` says.
    """
    try:
        return msgspec.convert(json.loads(read_regular(path), parse_constant=lambda _: None), type_)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: {error}; the file was changed, or the disk damaged it. Restore it",
            code="file-damaged") from None


def try_read_json(path: Path, type_: type[T]) -> T | None:
    """As :func:`read_json`, of a file that another process may be writing; None where it cannot be read."""
    try:
        return read_json(path, type_)
    except (OSError, UserError):
        return None
