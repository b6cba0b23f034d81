"""Text files of a data spec: find, hash and read UTF-8 files, plain or compressed.

A table (``.tsv`` or ``.jsonl``) holds the sentences of a pair in columns.
"""

import difflib
import gzip
import hashlib
import importlib
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from scalesearch.errors import UserError
from scalesearch.files import regular_size
from scalesearch.library import missing_package_error
from scalesearch.terminal import format_count

Line = TypeVar("Line", str, str | None)  # None is a pause of the input

# Removed from text; the codec utf-8-sig would be loaded from a file when it is first used.
BYTE_ORDER_MARK = "\ufeff"
MAX_LINE_BYTES = 1 << 20  # characters; a longer line is not a sentence
MAX_COMPRESSION_RATIO = 200  # unpacked to packed bytes; text has 3 to 30
UNCHECKED_BYTES = 1 << 26  # up to this unpacked size the compression ratio is not checked
MEMORY_BYTES_PER_TEXT_BYTE = 20  # upper bound while a corpus is prepared
COMPRESSED_SUFFIXES = (".gz", ".xz", ".zst")
TABLE_FORMATS = ("tsv", "jsonl")
COLUMNS = {"source": 0, "target": 1, "text": 0}  # indices in a table without a header
_CHUNK = 1 << 20
_DESCRIPTOR_FOLDERS = (Path("/dev/fd"), Path("/proc/self/fd"))
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def expand_path(path: str, where: str, base: Path | None = None) -> Path:
    """Expand ``$VARIABLES`` and ``~`` and return an absolute path.

    Args:
        where: key of the data spec that holds the path, for the error message.
        base: folder of relative paths; default: the working directory.

    Raises:
        UserError: a variable is not set.
    """
    for braced, bare in _VARIABLE.findall(path):
        name = braced or bare
        if not os.environ.get(name):
            raise UserError(f"data: {where}: {path} needs the environment variable {name}, which "
                            "is not set. Set it to the folder of the data: export "
                            f"{name}=/path/to/data", key=f"data.{where}", code="variable-not-set")
    expanded = _VARIABLE.sub(lambda match: os.environ[match[1] or match[2]], path)
    return Path(os.path.abspath((base or Path()) / os.path.expanduser(expanded)))


def find_text_file(path: str, where: str, help: str | None = None) -> Path:
    """Find the file at ``path``, or a compressed one (``path.gz``, .xz or .zst).

    Args:
        where: key of the data spec that holds the path, for the error message.
        help: what to write instead, if it is known.

    Raises:
        UserError: neither is a file; the message lists files with similar names.
    """
    for candidate in (Path(path + suffix) for suffix in ("", *COMPRESSED_SUFFIXES)):
        if candidate.is_file():
            return candidate
    missing = Path(path)
    folder = missing.parent
    if missing.is_dir():
        hint = "It is a folder; name the files in it."
    elif missing.is_fifo():
        hint = "It is a pipe, and training text is read more than once; write it to a file."
    elif not folder.is_dir():
        parent = next(parent for parent in folder.parents if parent.is_dir())
        hint = f"The folder {folder} does not exist either; its last existing parent is {parent}."
    else:
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
        similar = difflib.get_close_matches(missing.name, names, n=4, cutoff=0.5)
        names.sort(key=lambda name: difflib.SequenceMatcher(None, missing.name, name).ratio(),
                   reverse=True)
        hint = f"Similar names in {folder}: {', '.join(similar)}." if similar else (
            f"Files in {folder}: {', '.join(names[:8]) or 'none'}{' …' if len(names) > 8 else ''}.")
    raise UserError(f"data: {where}: no such file: {path} (nor with "
                    f"{', '.join(COMPRESSED_SUFFIXES)}). {hint}", help=help,
                    key=f"data.{where}", code="no-such-file")


def default_cache() -> Path:
    """Return the default cache folder, in ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Raises:
        UserError: the variable is not set and the user has no home folder, as in some containers.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise UserError("corpora cannot be cached: the user has no home folder; set XDG_CACHE_HOME "
                        "to a folder", code="no-home") from None
    return home / "scalesearch" / "corpora"


def hash_content(path: Path) -> str:
    """Hash the unpacked content: compression changes neither the corpus nor its cache.

    Raises:
        UserError: the file cannot be read or unpacked.
    """
    state = hashlib.blake2b(digest_size=16, person=(table_format(path) or "").encode())
    for chunk in _read_chunks(path):
        state.update(chunk)
    return state.hexdigest()


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file, plain or compressed.

    Line ends (LF, CRLF) and the byte-order mark are removed.

    Only a line feed ends a line. U+2028, form feeds and similar characters belong to a sentence:
    splitting at them would shift one language against the other.

    Raises:
        UserError: the file cannot be read or unpacked, is too large, or is not UTF-8 (with line
        and byte).
    """
    content = b"".join(_read_chunks(path))
    try:
        text = content.decode().removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        start = error.start
        line_number = content.count(b"\n", 0, start) + 1
        column = start - (content.rfind(b"\n", 0, start) + 1) + 1
        hint = "Convert the file; if it is Latin-1, iconv -f LATIN1 -t UTF-8 FILE converts it"
        if not content.decode(errors="ignore").isascii():
            hint = ("Other characters of the file are UTF-8, so do not convert it: correct the "
                    "line, or remove it, from both files of a pair")
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            hint = "The file looks like UTF-16: iconv -f UTF-16 -t UTF-8 FILE converts it"
        raise UserError(f"{path}:{line_number}: byte {column} of the line (0x{content[start]:02x}) "
                        f"is not UTF-8. {hint}", code="not-utf8") from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    too_long = next((number for number, line in enumerate(lines, 1) if len(line) > MAX_LINE_BYTES),
                    None)
    if too_long:
        raise UserError(f"{path}:{too_long}: the line has {len(lines[too_long - 1]):,} characters, "
                        f"and the maximum is {MAX_LINE_BYTES:,}: write one sentence per line",
                        code="line-too-long")
    return [line.removesuffix("\r") for line in lines]


def table_format(path: Path | str) -> str | None:
    """Return ``tsv`` or ``jsonl`` if the name of a file ends so, maybe before .gz; or None."""
    name = Path(path)
    suffix = (name.with_suffix("") if name.suffix in COMPRESSED_SUFFIXES else name).suffix[1:]
    return suffix if suffix in TABLE_FORMATS else None


def select_column(lines: list[str], path: Path, column: str) -> list[str]:
    """Return a column of the lines of a table, without a header, or the lines of other files."""
    file_format = table_format(path)
    return lines if file_format is None else list(
        read_column(lines, file_format, column, str(path)))


def read_column(lines: Iterable[Line], file_format: str, column: str, name: str) -> Iterator[Line]:
    """Yield a column of a table; it is empty in blank lines.

    The column has its name in the header, or in each JSON object. A TSV file without a header has
    source and target, or the text, first. Line breaks within JSON strings become blanks. TSV has no
    quotes, and each line has as many columns as the first.

    Args:
        column: source, target or text.
        name: name of the table in error messages.

    Raises:
        UserError: a line does not have the column, or has another number of columns.
    """
    index: int | None = None
    first_line = n_columns = 0
    for number, line in enumerate(lines, 1):
        if line is None or not line.strip():
            yield line and ""
            continue
        if file_format == "jsonl":
            try:
                record = json.loads(line)
                text = record[column]
                text.encode()  # half of a surrogate pair is not text
                yield text.replace("\r\n", " ").replace("\n", " ")
            except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
                raise UserError(f"{name}:{number}: expected a JSON object with the string "
                                f"{column!r}", code="bad-row") from None
            continue
        cells = line.split("\t")
        if index is None:
            first_line = number
            n_columns = len(cells)
            names = [cell.strip().lower() for cell in cells]
            has_header = not COLUMNS.keys().isdisjoint(names)
            index = COLUMNS[column]
            if has_header and column in names:
                index = names.index(column)
                continue
            if has_header:
                raise UserError(f"{name}:{number}: the header has no column {column}",
                                help=f"rename one of its columns ({', '.join(cells)}) to {column}",
                                code="bad-row")
        if index >= len(cells):
            raise UserError(f"{name}:{number}: expected at least {index + 1} columns, separated by "
                            f"tabs, found {len(cells)}", code="bad-row")
        if len(cells) != n_columns:
            advice = ("Remove tabs within sentences" if len(cells) > n_columns else
                      "Add the missing columns, or remove the line")
            raise UserError(f"{name}:{number}: expected {format_count(n_columns, 'column')}, "
                            f"separated by tabs, as in line {first_line:,}, found {len(cells)}. "
                            f"{advice}", code="bad-row")
        yield cells[index]


def _import_zstd() -> Any:
    """Return the module ``zstd`` of Python 3.14, or that of the package backports.zstd."""
    for package in ("compression", "backports"):
        try:
            return importlib.import_module(f"{package}.zstd")
        except ImportError:
            pass
    raise missing_package_error("backports.zstd")


def _read_chunks(path: Path) -> Iterator[bytes]:
    unpackers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    damage: tuple[type[Exception], ...] = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError)
    if path.suffix == ".zst":
        zstd = _import_zstd()
        unpackers[".zst"] = zstd.open
        damage += (zstd.ZstdError,)
    try:
        # a pipe of this process, such as that of `<(command)`, ends with its writer
        is_own_pipe = path.parent in _DESCRIPTOR_FOLDERS and path.is_fifo()
        size = 0 if is_own_pipe else regular_size(path)
        remaining = (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
                     // MEMORY_BYTES_PER_TEXT_BYTE)
        reason = (f"each byte of text needs up to {MEMORY_BYTES_PER_TEXT_BYTE} bytes of memory, "
                  "more than this machine has. Use a part of the file")
        unpacked = max(UNCHECKED_BYTES, MAX_COMPRESSION_RATIO * size)
        if path.suffix in COMPRESSED_SUFFIXES and unpacked < remaining:
            remaining = unpacked
            reason = (f"it unpacks to more than {MAX_COMPRESSION_RATIO} times its size, which does "
                      "not happen with text")
        with unpackers.get(path.suffix, open)(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                remaining -= len(chunk)
                if remaining < 0:
                    raise UserError(f"{path}: too large: {reason}", code="text-too-large")
                yield chunk
    except damage as error:
        raise UserError(f"{path}: incomplete or damaged {path.suffix} file: {error}",
                        code="damaged-gzip") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}",
                        code="cannot-read") from None
