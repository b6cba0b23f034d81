"""Writes happen whole or not at all."""

import os
import resource
import stat
from pathlib import Path

import pytest
import torch

from scalesearch.files import write_atomic, write_json, write_text
from tests.errors import refuses


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write_text(path, "old")

    def breaks(file):
        file.write(b"half of the n")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, breaks)
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
        for place, kept in ((path, "what was there is untouched"), (tmp_path / "new", "nothing was left there")):
            for write in (lambda file: torch.save(torch.zeros(10_000), file), lambda file: file.write(bytes(30_000))):
                with refuses("disk-full", place.name, kept):
                    write_atomic(place, write)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == ["kept"] and path.read_text() == "old"
