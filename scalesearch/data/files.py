"""Text files of a data spec: find, hash and read UTF-8 files, plain, .gz or .xz."""

import difflib
import gzip
import hashlib
import lzma
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import regular_size

# Removed from text; the codec utf-8-sig would be loaded from a file when it is first used.
BYTE_ORDER_MARK = "\ufeff"
MAX_LINE_BYTES = 1 << 20  # characters; a longer line is not a sentence
MAX_COMPRESSION_RATIO = 200  # unpacked to packed bytes; text has 3 to 30
UNCHECKED_BYTES = 1 << 26  # up to this unpacked size the compression ratio is not checked
MEMORY_BYTES_PER_TEXT_BYTE = 20  # upper bound while a corpus is prepared
COMPRESSED_SUFFIXES = (".gz", ".xz")
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


def find_text_file(path: str, where: str) -> Path:
    """Find the file at ``path``, or a compressed one (``path.gz`` or .xz) if only that exists.

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
                    f"{', '.join(COMPRESSED_SUFFIXES)}). {hint}",
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
    state = hashlib.blake2b(digest_size=16)
    for chunk in _read_chunks(path):
        state.update(chunk)
    return state.hexdigest()


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file, plain, .gz or .xz.

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
        hint = ("Convert the file (iconv -f LATIN1 -t UTF-8 FILE, if it is Latin-1), or remove the "
                "line on both sides")
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


def _read_chunks(path: Path) -> Iterator[bytes]:
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
        unpackers = {".gz": gzip.open, ".xz": lzma.open}
        with unpackers.get(path.suffix, open)(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                remaining -= len(chunk)
                if remaining < 0:
                    raise UserError(f"{path}: too large: {reason}", code="text-too-large")
                yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path}: incomplete or damaged {path.suffix} file: {error}",
                        code="damaged-gzip") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}",
                        code="cannot-read") from None
