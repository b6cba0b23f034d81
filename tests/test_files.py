"""Writes happen whole or not at all."""

import os
import resource
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scalesearch.files import write_atomic, write_json, write_text
from tests.errors import refuses


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write_text(path, "old")

    full = OSError("disk full")

    def breaks(file):
        file.write(b"half of the n")
        raise full

    with pytest.raises(OSError) as caught:
        write_atomic(path, breaks)
    assert caught.value is full
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept"]


def test_files_are_as_readable_as_the_mask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_json_that_no_reader_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x", {"loss": float("nan")})
    assert os.listdir(tmp_path) == []


def test_no_room_is_said_as_that_and_leaves_what_was_there(tmp_path: Path) -> None:
    """The limit on a file's size stands in for a full disk; torch.save buries its error under another."""
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


def test_a_link_stays_one_and_its_target_is_written(tmp_path: Path) -> None:
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


def test_what_is_written_survives_a_power_cut_with_the_folders_made_for_it(
        tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "new" / "newer" / "file"
    synced = []
    sync = os.fsync

    def noted(handle: int) -> None:
        sync(handle)
        synced.append((Path(f"/proc/self/fd/{handle}").resolve(), file.exists()))

    monkeypatch.setattr(os, "fsync", noted)
    write_text(file, "text")
    *folders, (part, before), last = synced
    assert folders == [(tmp_path, False), (tmp_path / "new", False)] and last == (file.parent, True)
    assert part.parent == file.parent and not before  # the content, then its name


def test_a_pipe_is_written_to_where_somebody_reads_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with refuses("not-a-file", pipe):
        write_text(pipe, "text")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and os.listdir(tmp_path) == ["pipe"]


def test_a_device_stays_one(tmp_path: Path) -> None:
    null = Path("/dev/null")
    before = null.stat()
    write_text(null, "text")
    assert stat.S_ISCHR(null.stat().st_mode) and null.stat().st_ino == before.st_ino
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
        with refuses("not-a-file", tmp_path / "door"):
            write_text(tmp_path / "door", "text")
        assert stat.S_ISSOCK((tmp_path / "door").stat().st_mode)


def test_standard_output_is_written_to_even_where_it_is_a_file(tmp_path: Path) -> None:
    code = ("print('one', flush=True); from scalesearch.files import *; "
            "write_text(Path('/dev/stdout'), 'two'); print()")
    with (tmp_path / "out").open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "out").read_text().split() == ["one", "two"]
