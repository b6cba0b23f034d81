"""Text files: lines, encoding, compression, and errors."""

import gzip
import importlib
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.data import Tokenizer
from scalesearch.data.files import (
    MAX_COMPRESSION_RATIO,
    MAX_LINE_BYTES,
    UNCHECKED_BYTES,
    find_text_file,
    hash_content,
    read_lines,
    select_column,
)
from tests.data.conftest import Write
from tests.errors import refuses

line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=20)


@given(lines=st.lists(line), crlf=st.booleans(), closed=st.booleans())
def test_lines_end_at_line_feeds(tmp_path_factory, lines: list[str], crlf: bool,
                                                  closed: bool) -> None:
    end = "\r\n" if crlf else "\n"
    # An empty last line without a line feed does not count.
    closed = closed or not lines or lines[-1] == ""
    text = end.join(lines) + (end if closed and lines else "")
    path = tmp_path_factory.mktemp("lines") / "t.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_lines(path) == lines


def test_unicode_separators_do_not_end_lines(write: Write) -> None:
    odd = "a\u2028b\u2029c\x85d\x0ce\x1cf\rg"
    assert read_lines(write("odd.txt", [odd, "next"])) == [odd, "next"]


def test_gzip_does_not_change_content(write: Write) -> None:
    plain = write("t.txt", ["eins", "zwei"])
    packed = write("t.txt.gz", ["eins", "zwei"])
    assert read_lines(plain) == read_lines(packed) == ["eins", "zwei"]
    assert hash_content(plain) == hash_content(packed) != hash_content(
        write("u.txt", ["eins", "drei"]))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_invalid_utf8_is_reported_with_position(write: Write, mark: bytes) -> None:
    path = write("bad.txt", mark + b"gut\nneu\nsch\xf6n\n")
    with refuses("not-utf8", "bad.txt:3:", "byte 4", "0xf6"):
        read_lines(path)


@pytest.mark.parametrize(("text", "hint"), [
    (b"sch\xf6n\nsch\xf6n\n", "LATIN1"), ("schön\n".encode() + b"sch\xf6n\n", "do not convert")])
def test_conversion_is_advised_only_if_no_other_character_is_utf8(write: Write, text: bytes,
                                                                  hint: str) -> None:
    with refuses("not-utf8", hint):
        read_lines(write("bad.txt", text))


def test_invalid_utf8_after_the_byte_order_mark(write: Write) -> None:
    with refuses("not-utf8", "bad.txt:1:", "byte 5", "0xff"):
        read_lines(write("bad.txt", b"\xef\xbb\xbfa\xff\n"))


def test_reading_imports_no_further_codec(write: Write) -> None:
    """A process that has changed its user may no longer be able to read Python's own files."""
    text = write("text.txt", b"\xef\xbb\xbfgut\n")
    space = write("space.yaml", b"\xef\xbb\xbfwidth: 16\n")
    code = (f"import sys, pathlib; from scalesearch.data.files import read_lines; "
            f"from scalesearch.spaces.syntax.yaml_reader import read_text; "
            f"before = set(sys.modules); assert read_lines(pathlib.Path({str(text)!r})) == "
            f"['gut']; assert read_text(pathlib.Path({str(space)!r})) == 'width: 16\\n'; "
            "print([name for name in set(sys.modules) - before if name.startswith('encodings')])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_utf16_is_recognized(write: Write) -> None:
    with refuses("not-utf8", "UTF-16"):
        read_lines(write("wide.txt", "hallo\n".encode("utf-16")))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_compressed_files_are_read_and_found(write: Write, tmp_path: Path, suffix: str) -> None:
    plain = write("t.txt", ["eins", "zwei"])
    content = plain.read_bytes() * 1000
    compress = {".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    packed = tmp_path / f"packed{suffix}"
    packed.write_bytes(compress(content))
    assert read_lines(packed) == ["eins", "zwei"] * 1000
    assert find_text_file(str(tmp_path / "packed"), "train") == packed
    for damaged in (b"not compressed", packed.read_bytes()[:-5]):
        packed.write_bytes(damaged)
        with refuses("damaged-gzip", packed.name):
            read_lines(packed)


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_pipe_of_a_substituted_command_is_read(folder: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"eins\nzwei\n")
    os.close(writer)
    assert read_lines(Path(folder, str(reader))) == ["eins", "zwei"]
    os.close(reader)


def test_damaged_gzip_file_is_refused(write: Write) -> None:
    whole = write("t.gz", ["eins"] * 50).read_bytes()
    for content in (b"no gzip at all", whole[:-12]):
        path = write("broken", content).rename(write("t.gz", []))
        with refuses("damaged-gzip", "t.gz"):
            read_lines(path)


def test_too_long_line_is_refused(write: Write) -> None:
    assert len(read_lines(write("long.txt", ["a", "x" * MAX_LINE_BYTES]))) == 2
    with refuses("line-too-long", "long.txt:2:", f"{MAX_LINE_BYTES + 1:,}"):
        read_lines(write("long.txt", ["a", "x" * (MAX_LINE_BYTES + 1)]))


def test_decompression_bomb_is_refused(write: Write) -> None:
    bomb = write("bomb.gz", b"a\n" * (UNCHECKED_BYTES // 2 + 1))
    assert bomb.stat().st_size * MAX_COMPRESSION_RATIO < UNCHECKED_BYTES
    for read in (read_lines, hash_content):
        with refuses("text-too-large", "bomb.gz"):
            read(bomb)


def test_text_beyond_memory_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 64)  # number of pages, and bytes per page
    assert read_lines(write("t.txt", ["x" * 200])) == ["x" * 200]
    with refuses("text-too-large", "t.txt"):
        read_lines(write("t.txt", ["x" * 205]))


def test_devices_and_pipes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with refuses("cannot-read", path):
            read_lines(path)
        with refuses("cannot-read", path, key="data.tokenizer"):
            Tokenizer.from_file(path)
    with refuses("no-such-file", "pipe", "write it to a file"):
        find_text_file(str(tmp_path / "pipe"), "train")


def test_error_lists_similar_files(write: Write, tmp_path: Path) -> None:
    write("d/train.en", [])
    write("d/train.de", [])
    with refuses("no-such-file", "/d/train.fr", "train.de", "train.en", key="data.validation"):
        find_text_file(str(tmp_path / "d/train.fr"), "validation")
    with refuses("no-such-file", "train.de, train.en"):
        find_text_file(str(tmp_path / "d/xyz"), "validation")
    with refuses("no-such-file", f"{tmp_path}/e/f", f"is {tmp_path}"):
        find_text_file(str(tmp_path / "e/f/train.en"), "validation")
    with refuses("no-such-file", "folder"):
        find_text_file(str(tmp_path / "d"), "validation")


def test_gzip_file_is_found_without_suffix(write: Write, tmp_path: Path) -> None:
    packed = write("train.en.gz", ["one"])
    assert find_text_file(str(tmp_path / "train.en"), "train") == packed
    plain = write("train.en", ["one"])
    assert find_text_file(str(tmp_path / "train.en"), "train") == plain


TABLES = {
    "named.tsv": ["ID\tTarget\tsource", "1\tein Hund\ta dog", "", "2\t\"x\" \ty"],
    "plain.tsv": ["a dog\tein Hund\tmore", "", "y\t\"x\" \t"],
    "objects.jsonl": ['{"target": "ein\\nHund", "id": 1, "source": "a dog"}', "",
                      '{"source": "y", "target": "\\"x\\" "}'],
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_columns_of_tables(write: Write, name: str, suffix: str) -> None:
    path = write(name + suffix, TABLES[name])
    lines = read_lines(path)
    assert select_column(lines, path, "source") == ["a dog", "", "y"]
    assert select_column(lines, path, "target") == ["ein Hund", "", '"x" ']
    assert select_column(lines, path.with_name("other.txt"), "source") == lines


@pytest.mark.parametrize(("name", "lines", "line"), [
    ("a.tsv", ["one\teins", "two"], 2), ("a.tsv", ["one\teins", "", "t\two\tzwei"], 3),
    ("a.tsv", ["o\tne\teins", "two\tzwei"], 2),
    ("a.tsv", ["target\tsource", "eins\to\tne"], 2),
    ("a.tsv", ["source\ttranslation", "one\teins"], 1),
    ("a.jsonl", ['{"target": "a"}', '{"source": "a"}'], 2), ("a.jsonl", ["[1]"], 1),
    ("a.jsonl", ['{"target": 1}'], 1), ("a.jsonl", ['{"target": "\\ud800"}'], 1),
    ("a.jsonl", ["{"], 1), ("a.jsonl", ["[" * 100_000], 1)])
def test_rows_without_the_columns_are_refused(name: str, lines: list[str], line: int) -> None:
    with refuses("bad-row", f"{name}:{line}:"):
        select_column(lines, Path(name), "target")


@pytest.mark.parametrize(("lines", "advice"), [
    (["text\tlabel", "one\teins"], "(text, label) to source"),
    (["one\teins", "two"], "Add the missing columns"),
    (["one\teins", "t\two\tzwei"], "Remove tabs")])
def test_errors_of_tables_contain_the_fix(lines: list[str], advice: str) -> None:
    with refuses("bad-row", advice):
        select_column(lines, Path("a.tsv"), "source")


def test_tables_have_hashes_of_their_own(write: Write) -> None:
    hashes = {hash_content(write(name, ["a\tb"])) for name in ("a.txt", "a.tsv", "a.tsv.gz")}
    assert len(hashes) == 2


def test_zstandard_files_are_read_or_name_the_extra(write: Write, tmp_path: Path) -> None:
    try:
        zstd = importlib.import_module("backports.zstd")
    except ImportError:
        with refuses("package-missing", "[zstd]"):
            read_lines(write("t.zst", b""))
        return
    packed = tmp_path / "t.zst"
    content = zstd.compress(b"eins\nzwei\n" * 1000)
    packed.write_bytes(content)
    assert read_lines(packed) == ["eins", "zwei"] * 1000
    assert find_text_file(str(tmp_path / "t"), "train") == packed
    for damaged in (b"not compressed", content[:-5]):
        packed.write_bytes(damaged)
        with refuses("damaged-gzip", packed.name):
            read_lines(packed)
