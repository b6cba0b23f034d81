"""Reads text files: UTF-8, plain or .gz, with lines that end at a line feed and nowhere else."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from scalesearch.errors import UserError

_CHUNK = 1 << 20


def digest(path: Path) -> str:
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

    Only a line feed ends a line: U+2028, form feeds and the like are characters of a sentence, and splitting
    at them would shift one language against the other.

    Raises:
        UserError: the file cannot be read or unpacked, or is not UTF-8 (with line and byte).
    """
    content = b"".join(_chunks(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The codec counts from behind a byte-order mark where there is one.
        mark = len(content) - len(error.object)
        raise UserError(_not_utf8(path, content, error.start + mark), code="not-utf8") from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file: {error}", code="damaged-gzip") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}", code="cannot-read") from None


def _not_utf8(path: Path, content: bytes, position: int) -> str:
    line = content.count(b"\n", 0, position) + 1
    column = position - (content.rfind(b"\n", 0, position) + 1) + 1
    place = f"{path}:{line}: byte {column} of the line (0x{content[position]:02x}) is not UTF-8."
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return f"{place} The file looks like UTF-16: iconv -f UTF-16 -t UTF-8 FILE converts it"
    return (f"{place} Convert the file (iconv -f LATIN1 -t UTF-8 FILE, if it is Latin-1), or remove the line "
            "on both sides")
