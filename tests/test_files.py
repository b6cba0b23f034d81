"""Atomic writes: a file is written completely or not at all."""

import errno
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from scalesearch import files
from scalesearch.files import (
    copy_files,
    disk_full_guard,
    read_regular,
    socket_root,
    write_atomic,
    write_json,
    write_text,
)
from tests.errors import refuses


def test_folder_of_sockets_is_the_first_writable_one_with_a_short_path(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert socket_root("server", "/var/tmp") == "/var/tmp"
    assert socket_root("server", str(long), "/tmp/missing") == socket_root("x" * 90) == "/tmp"
    with refuses("tmpdir-too-long", long, "TMPDIR"):
        socket_root("x" * 100)


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write_text(path, "old")

    disk_full = OSError("disk full")

    def write_half(file):
        file.write(b"half of the n")
        raise disk_full

    with pytest.raises(OSError) as caught:
        write_atomic(path, write_half)
    assert caught.value is disk_full
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept"]


def test_error_has_the_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkstemp(dir: Path, prefix: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{dir}/{prefix}x")

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    with pytest.raises(PermissionError) as caught:
        write_text(tmp_path / "page.html", "")
    assert caught.value.filename == str(tmp_path / "page.html")


def test_file_mode_follows_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_write_json_rejects_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x", {"loss": float("nan")})
    assert os.listdir(tmp_path) == []


def test_full_disk_is_reported_and_keeps_the_old_file(tmp_path: Path) -> None:
    """A limit on the file size simulates a full disk; torch.save hides the error behind another."""
    path = tmp_path / "kept"
    write_text(path, "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        for place, kept in ((path, "the existing file is unchanged"),
                            (tmp_path / "new", "no file was created")):
            for write in (lambda file: torch.save(torch.zeros(10_000), file),
                          lambda file: file.write(bytes(30_000))):
                with refuses("disk-full", place.name, kept):
                    write_atomic(place, write)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == ["kept"] and path.read_text() == "old"


def test_advice_on_a_full_disk_fits_its_cause(tmp_path: Path) -> None:
    for number, part in ((errno.ENOSPC, tmp_path), (errno.EDQUOT, f"quota for {tmp_path}"),
                         (errno.EFBIG, "ulimit -f")):
        with refuses("disk-full", part), disk_full_guard(tmp_path / "x"):
            raise OSError(number, os.strerror(number))


@pytest.fixture
def odd_folder(tmp_path: Path) -> Path:
    """A folder with files, links, pipes, sockets and devices."""
    folder = tmp_path / "source"
    (folder / "inner").mkdir(parents=True)
    (folder / "elsewhere").symlink_to(tmp_path / "other")
    (tmp_path / "other").mkdir()
    for path in (folder / "a", folder / "inner" / "b", tmp_path / "other" / "c", folder / "secret",
                 folder / ".hidden"):
        path.write_text(path.name)
    (folder / "link").symlink_to(folder / "a")
    (folder / "dangling").symlink_to(tmp_path / "missing")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "inner" / "loop").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")
    os.mkfifo(folder / "inner" / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    return folder


def test_only_regular_files_are_copied_and_the_others_are_named(
        odd_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> bytes:
        if path.name == "secret":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_regular(path)

    monkeypatch.setattr(files, "read_regular", read)
    os.utime(odd_folder / "a", (1, 2))
    for target in (tmp_path / "target", odd_folder / "target"):
        left = copy_files(odd_folder, target, exclude=[".*"])
        copied = {str(path.relative_to(target)): path.read_text()
                  for path in target.rglob("*") if path.is_file()}
        assert copied == {"a": "a", "link": "a", "inner/b": "b", "elsewhere/c": "c"}
        assert {line.partition(":")[0] for line in left} == {
            "dangling", "zero", "self", "socket", "secret", "inner/pipe", "inner/loop"}
        assert (target / "a").stat().st_mtime == 2
        shutil.rmtree(target)
    assert copy_files(odd_folder, tmp_path / "few", include=["a", "pipe"]) == []
    assert os.listdir(tmp_path / "few") == ["a"]
    assert copy_files(tmp_path / "missing", tmp_path / "none") == [
        f".: {os.strerror(errno.ENOENT)}"]


def test_copy_to_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(bytes(30_000))
    (tmp_path / "kept").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        for target in (tmp_path / "new" / "target", tmp_path / "kept"):
            with refuses("disk-full", target):
                copy_files(tmp_path / "source", target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "new" / "target").exists() and (tmp_path / "kept").is_dir()


def test_write_follows_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "target"
    link = tmp_path / "link"
    dangling = tmp_path / "dangling"
    target.write_text("old")
    link.symlink_to(target)
    dangling.symlink_to(Path("folder") / "new")
    write_text(link, "new")
    write_text(dangling, "there")
    assert link.is_symlink() and target.read_text() == "new"
    assert dangling.is_symlink() and (tmp_path / "folder" / "new").read_text() == "there"
    assert sorted(os.listdir(tmp_path / "folder")) == ["new", "target"]


def test_write_syncs_file_and_new_folders(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "new" / "newer" / "file"
    synced = []
    sync = os.fsync

    def recorded_sync(handle: int) -> None:
        sync(handle)
        synced.append((Path(f"/proc/self/fd/{handle}").resolve(), file.exists()))

    monkeypatch.setattr(os, "fsync", recorded_sync)
    write_text(file, "text")
    *folders, (part, before), last = synced
    assert folders == [(tmp_path, False), (tmp_path / "new", False)] and last == (file.parent, True)
    assert part.parent == file.parent and not before  # the content, then its name


def test_pipe_is_written_only_if_it_has_a_reader(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with refuses("not-a-file", pipe):
        write_text(pipe, "text")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and os.listdir(tmp_path) == ["pipe"]


def test_devices_and_sockets_are_not_replaced(tmp_path: Path) -> None:
    null = Path("/dev/null")
    before = null.stat()
    write_text(null, "text")
    assert stat.S_ISCHR(null.stat().st_mode) and null.stat().st_ino == before.st_ino
    with socket.socket(socket.AF_UNIX) as server:
        path = tmp_path / "socket"
        server.bind(str(path))
        with refuses("not-a-file", path):
            write_text(path, "text")
        assert stat.S_ISSOCK(path.stat().st_mode)


def test_redirected_standard_output_is_appended_to(tmp_path: Path) -> None:
    code = ("print('one', flush=True); from scalesearch.files import *; "
            "write_text(Path('/dev/stdout'), 'two'); print()")
    with (tmp_path / "out").open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "out").read_text().split() == ["one", "two"]
