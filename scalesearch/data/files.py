"""Text files that a data spec names: found, or explained; UTF-8, plain or .gz."""

import difflib
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import regular_size

MAX_LINE_BYTES = 1 << 20  # characters; text of 20 MB without an end of line is no sentence
MAX_COMPRESSION_RATIO = 200
# unpacked to packed bytes, beyond so many unpacked ones; text has 3 to 30
UNCHECKED_BYTES = 1 << 26
MEMORY_BYTES_PER_TEXT_BYTE = 20  # bytes a byte of text, at most, while a corpus is made of it
_CHUNK = 1 << 20
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def expand_path(path: str, where: str, base: Path | None = None) -> Path:
    """Absolute path with ``$VARIABLES`` and ``~`` expanded; relative ones start at ``base`` or the working directory.

    ``where`` is the key that holds the path, for the message.

    Raises:
        UserError: a variable is not set.
    """
    for braced, bare in _VARIABLE.findall(path):
        name = braced or bare
        if not os.environ.get(name):
            raise UserError(f"data: {where}: {path} needs the environment variable {name}, which "
                            "is not set. Set it to where the data lies: export "
                            f"{name}=/path/to/data", key=f"data.{where}", code="variable-not-set")
    filled = _VARIABLE.sub(lambda match: os.environ[match[1] or match[2]], path)
    return Path(os.path.abspath((base or Path()) / os.path.expanduser(filled)))


def find_text_file(path: str, where: str) -> Path:
    """Finds the file at ``path``, or ``path.gz`` where only that exists.

    Raises:
        UserError: neither is a file; the message names the nearest that are.
    """
    for candidate in (Path(path), Path(path + ".gz")):
        if candidate.is_file():
            return candidate
    raise UserError(f"data: {where}: no such file: {path} (nor {Path(path).name}.gz). "
                    f"{_nearest_file(Path(path))}", key=f"data.{where}", code="no-such-file")


def _nearest_file(path: Path) -> str:
    if path.is_dir():
        return "It is a folder; name the files in it."
    folder = path.parent
    if not folder.is_dir():
        exists = next(parent for parent in folder.parents if parent.is_dir())
        return (f"The folder {folder} does not exist either; the last part of it that does is "
                f"{exists}.")
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    if near := difflib.get_close_matches(path.name, names, n=4, cutoff=0.5):
        return f"Near it in {folder}: {', '.join(near)}."
    names.sort(key=lambda name: difflib.SequenceMatcher(None, path.name, name).ratio(),
               reverse=True)
    return (f"In {folder} there is "
            f"{', '.join(names[:8]) or 'no file'}{' …' if len(names) > 8 else ''}.")


def default_cache() -> Path:
    """Default folder of binarised corpora, under ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Raises:
        UserError: the variable is not set and the user has no home folder, as in some containers.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise UserError(
            "no home folder to keep corpora in: set XDG_CACHE_HOME to a folder for them",
            code="no-home") from None
    return home / "scalesearch" / "corpora"


def hash_content(path: Path) -> str:
    """Hash of the unpacked content: compressing a file changes neither its corpus nor its cache.

    Raises:
        UserError: the file cannot be read or unpacked.
    """
    state = hashlib.blake2b(digest_size=16)
    for chunk in _chunks(path):
        state.update(chunk)
    return state.hexdigest()


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file, plain or .gz, without line ends (LF, CRLF) and byte-order mark.

    Only a line feed ends a line: U+2028, form feeds and the like are characters of a sentence, and
    splitting at them would shift one language against the other.

    Raises:
        UserError: the file cannot be read or unpacked, is too large, or is not UTF-8 (with line and
            byte).
    """
    content = b"".join(_chunks(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The codec counts from behind a byte-order mark where there is one.
        mark = len(content) - len(error.object)
        raise UserError(_utf8_error(path, content, error.start + mark), code="not-utf8") from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if long := next((number for number, line in enumerate(lines, 1) if len(line) > MAX_LINE_BYTES),
                    None):
        raise UserError(f"{path}:{long}: the line has {len(lines[long - 1]):,} characters, and at "
                        f"most {MAX_LINE_BYTES:,} are read as one: put each sentence on a line of "
                        "its own", code="line-too-long")
    return [line.removesuffix("\r") for line in lines]


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        most, why = _max_bytes(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                most -= len(chunk)
                if most < 0:
                    raise UserError(f"{path}: too large: {why}", code="text-too-large")
                yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file: {error}", code="damaged-gzip") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}",
                        code="cannot-read") from None


def _max_bytes(path: Path) -> tuple[int, str]:
    """Bytes of text that are read of a file, and why no more."""
    size = regular_size(path)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEMORY_BYTES_PER_TEXT_BYTE
    if path.suffix == ".gz" and (
            unpacked := max(UNCHECKED_BYTES, MAX_COMPRESSION_RATIO * size)) < memory:
        return (unpacked,
                f"it unpacks to more than {MAX_COMPRESSION_RATIO} times its size, which no text "
                "does")
    return (memory,
            f"a byte of text takes up to {MEMORY_BYTES_PER_TEXT_BYTE} of memory, which this "
            "machine has not. Take a part of it")


def _utf8_error(path: Path, content: bytes, position: int) -> str:
    line = content.count(b"\n", 0, position) + 1
    column = position - (content.rfind(b"\n", 0, position) + 1) + 1
    place = f"{path}:{line}: byte {column} of the line (0x{content[position]:02x}) is not UTF-8."
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return f"{place} The file looks like UTF-16: iconv -f UTF-16 -t UTF-8 FILE converts it"
    return (f"{place} Convert the file (iconv -f LATIN1 -t UTF-8 FILE, if it is Latin-1), or "
            "remove the line on both sides")
