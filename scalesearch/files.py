"""Atomic writes: a file is written completely or not at all, also after a crash."""

import errno
import hashlib
import json
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from scalesearch.errors import UserError

T = TypeVar("T")
MAX_SOCKET_PATH_BYTES = 103  # on macOS; Linux allows 107
MAX_NAME_BYTES = 200  # file systems allow 255 bytes; some names get a suffix
# file descriptors of this process; a new descriptor would have another position
STANDARD_STREAM_HANDLES = {"/dev/stdout": 1, "/dev/stderr": 2}
# errors of a disk without space for a file, and what to do
DISK_FULL_ADVICE = {
    errno.ENOSPC: "Free space in {folder}", errno.EDQUOT: "Free space in your quota for {folder}",
    errno.EFBIG: "Raise the limit of the file size (ulimit -f), or use another file system"}


class DiskFullError(UserError):
    """The disk is too full to write a file; the existing file is unchanged."""

    code = "disk-full"


def is_valid_file_name(text: str) -> bool:
    """Whether ``text`` is a legal name of a file or folder, not a path."""
    return (text.strip() not in ("", ".", "..") and text.isprintable()
            and not set(text) & set("/\\") and len(text.encode()) <= MAX_NAME_BYTES)


def write_atomic(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write ``path`` atomically with ``write(handle)``.

    A temporary file is written, synced and then renamed. The target of a link is replaced, not
    the link. Pipes and character devices are written to, not replaced.

    Raises:
        DiskFullError: the disk is full; ``path`` is unchanged.
        UserError: ``path`` is a pipe without a reader, a socket or a disk.
    """
    with disk_full_guard(path):
        if _is_stream(path):
            _write_to_stream(path, write)
        else:
            _write(Path(os.path.realpath(path)), write)


def _is_stream(path: Path) -> bool:
    """Return whether ``path`` is a device, a pipe or an open stream."""
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
    try:  # non-blocking: opening fails if the pipe has no reader
        handle = os.open(path,
                         os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK) if own is None else os.dup(own)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise UserError(f"{path}: is a pipe without a reader; name a file, or start the reader "
                        "first", code="not-a-file") from None
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as file:
        file.write(whole.getvalue())


@contextmanager
def disk_full_guard(path: Path) -> Iterator[None]:
    """Context in which ``path`` is written; raises DiskFullError if the disk is full."""
    try:
        yield
    except Exception as error:
        full: BaseException | None = error
        while full and not (isinstance(full, OSError) and full.errno in DISK_FULL_ADVICE):
            full = full.__cause__ or full.__context__  # torch.save wraps it in another error
        if not isinstance(full, OSError):
            raise
        state = "the existing file is unchanged" if path.exists() else "no file was created"
        advice = DISK_FULL_ADVICE[full.errno or 0].format(folder=path.parent)
        raise DiskFullError(f"{path}: cannot be written: {full.strerror}; {state}. {advice}, then "
                            "run the command again") from error


def _write(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    make_folder(path.parent)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)  # not the temporary name, which the user did not choose
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            mask = os.umask(0o022)  # temporary files are private; the final file should not be
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
            os.fsync(file.fileno())
        os.replace(name, path)
        sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def socket_root(longest_path: str, *preferred_roots: str) -> str:
    """Return a folder for temporary files in which a socket may have the path ``longest_path``.

    It is the first writable one of ``preferred_roots``, the system's folder (``TMPDIR``), ``/tmp``
    and ``/var/tmp`` that is short enough.

    Raises:
        UserError: such a folder does not exist.
    """
    roots = (*preferred_roots, tempfile.gettempdir(), "/tmp", "/var/tmp")
    longest_root = MAX_SOCKET_PATH_BYTES - len(longest_path) - 1
    for root in map(os.path.abspath, roots):
        if len(os.fsencode(root)) <= longest_root and os.access(root, os.W_OK | os.X_OK):
            return root
    raise UserError(f"{', '.join(dict.fromkeys(roots))}: none of these folders is writable and has "
                    f"a path of at most {longest_root} bytes, as sockets need. Set TMPDIR to such "
                    "a folder", code="tmpdir-too-long")


def remove_partial_files(folder: Path, is_owned: Callable[[str], bool]) -> None:
    """Remove temporary files in ``folder`` that killed processes left.

    Args:
        is_owned: whether only this process writes the file of this name.
    """
    for part in folder.glob(".?*.????????"):  # the names of mkstemp
        if is_owned(part.name[1:-9]):
            part.unlink(missing_ok=True)


def why_not_writable(path: Path, is_folder: bool = False) -> str | None:
    """Return why a file or folder cannot be written, or None."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if path.lstat() and not is_folder and path.is_dir():
            return os.strerror(errno.EISDIR)
    inside = path if is_folder else path.parent
    above = next(parent for parent in (inside, *inside.parents) if os.path.lexists(parent))
    if not above.is_dir():
        return f"{above} is not a folder"
    target = path if path.exists() and not path.is_file() else above
    if not os.access(target, os.W_OK):
        return os.strerror(errno.EACCES)
    if target.is_dir():
        try:  # root has access to folders of the kernel, which refuse new files
            tempfile.TemporaryFile(dir=target).close()
        except OSError as error:
            return error.strerror
    return None


def make_folder(folder: Path) -> None:
    """Create ``folder`` and missing parents, and sync them to disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Sync new and renamed entries of ``folder`` to disk, if the system supports it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Atomically write ``text`` as UTF-8; lone surrogates become question marks."""
    write_atomic(path, lambda file: file.write(text.encode(errors="replace")))


def write_json(path: Path, value: Any) -> None:
    """Atomically write ``value`` as indented JSON.

    NaN is an error, because it is not legal JSON.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def replace_non_finite(value: Any) -> Any:
    """``value`` with None for NaN and infinite numbers, which JSON does not support."""
    if isinstance(value, Mapping):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def regular_size(path: Path) -> int:
    """Return the size of a regular file in bytes.

    Raises OSError for devices and pipes, which may be endless.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return state.st_size


def read_regular(path: Path) -> bytes:
    """Content of a regular file. Raises OSError for anything else."""
    regular_size(path)
    return path.read_bytes()


def copy_files(source: Path, target: Path, include: Iterable[str] = ("*",),
               exclude: Iterable[str] = ()) -> list[str]:
    """Copy the regular files of a folder and of its subfolders to ``target``.

    Links are followed. Pipes, devices, links to nothing, unreadable files and links to a folder
    around them are not copied.

    Args:
        include, exclude: patterns of names of files and folders.

    Returns:
        Relative path of each included entry that was not copied, with the reason.

    Raises:
        DiskFullError: the disk is full; a ``target`` that did not exist is removed.
    """
    existed = target.exists()
    left = list[str]()
    folders = [Path()]
    try:
        while folders:
            folder = folders.pop()
            with disk_full_guard(target):
                (target / folder).mkdir(parents=True, exist_ok=True)
            try:
                names = sorted(os.listdir(source / folder))
            except OSError as error:
                left.append(f"{folder}: {error.strerror}")
                continue
            for name in names:
                if not any(fnmatchcase(name, pattern) for pattern in include) or any(
                        fnmatchcase(name, pattern) for pattern in exclude):
                    continue
                path = source / folder / name
                try:
                    if path.is_dir():
                        if path.resolve() in (source / folder / "file").resolve().parents:
                            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                        if path.resolve() != target.resolve():  # it may be inside the source
                            folders.append(folder / name)
                        continue
                    content = read_regular(path)
                    state = path.stat()
                except OSError as error:
                    left.append(f"{folder / name}: {error.strerror}")
                    continue
                with disk_full_guard(target):
                    (target / folder / name).write_bytes(content)
                os.utime(target / folder / name, ns=(state.st_atime_ns, state.st_mtime_ns))
    except BaseException:
        if not existed:
            shutil.rmtree(target, ignore_errors=True)
        raise
    return left


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a regular file. Raises OSError for anything else."""
    regular_size(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def resolve_relative(file: str | Path, name: str) -> str:
    """The absolute path of ``name``, relative to the folder of ``file``."""
    return str((Path(file).parent / name).resolve())


def read_json(path: Path, type_: type[T]) -> T:
    """Read a JSON file as a ``type_``.

    This is a dataclass, a TypedDict, or another type of plain values. NaN and infinite numbers
    become None.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: it is not a regular file.
        UserError: it is not JSON, or a value does not have the type in ``type_``.
    """
    try:
        return msgspec.convert(json.loads(read_regular(path), parse_constant=lambda _: None), type_)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: {error}; the file was changed, or the disk damaged it. Restore it",
            code="file-damaged") from None


def try_read_json(path: Path, type_: type[T]) -> T | None:
    """Read a JSON file; return None if it cannot be read, e.g. while it is written."""
    try:
        return read_json(path, type_)
    except (OSError, UserError):
        return None


def flatten(mapping: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its dotted path, as in ``--set``."""
    for key, value in mapping.items():
        inner = f"{path}.{key}" if path else key
        yield from flatten(value, inner) if isinstance(value, Mapping) else [(inner, value)]
