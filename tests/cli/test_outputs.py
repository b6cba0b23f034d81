"""Unwritable and unreadable files: one message before any work."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from scalesearch.cli.main import app
from tests.errors import refuses

FILES = [["cost", "transformer", "--csv"], ["cost", "transformer", "--plot"],
         ["solve", "transformer", "--csv"],
         ["translate", "model", "--output"], ["distill", "model", "--data", "builtin", "--out"],
         ["distill", "--targets", "soft", "model", "--data", "builtin", "--out"],
         ["study", "report", "runs/x", "--to"]]  # fmt: skip
FOLDERS = [["feasible", "papers", "--plot"], ["feasible", "papers", "--csv"],
           ["train", "transformer", "--out"],
           ["analyze", "model", "--data", "builtin", "--to"], ["study", "table", "runs/x", "--to"],
           ["study", "scaling", "runs/x", "--to"], ["study", "compare", "runs/x", "runs/y", "--to"],
           ["study", "plot", "runs/x", "--to"], ["export", "runs/x", "--to", "torch", "--out"],
           ["study", "run", "quick", "--out"]]  # fmt: skip


def read_options(words: list[str]) -> None:
    """Parse a command line without running the command."""
    verb: click.Command = app
    context = click.Context(app)
    while isinstance(verb, click.Group):
        subcommand = verb.get_command(context, words.pop(0))
        assert subcommand is not None
        verb = subcommand
    verb.make_context("verb", words)


@pytest.mark.parametrize("words", FILES + FOLDERS, ids=" ".join)
def test_unwritable_output_is_refused_by_the_option(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bad = [tmp_path / "file" / "inside", tmp_path / ("x" * 300), tmp_path / "nul\0",
           tmp_path / "file" / "a" / "b"]
    for path in [*bad, *([tmp_path] if words in FILES else [])]:
        with refuses("cannot-write"):
            read_options([*words, str(path)])
    read_options([*words, str(tmp_path / "new" / "place")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_folder_of_the_kernel_is_refused_although_root_has_access(monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    for words in (*FILES, *FOLDERS):
        with refuses("cannot-write", "/proc/model"):
            read_options([*words, "/proc/model"])


@pytest.mark.full
@pytest.mark.parametrize("arguments",
                         [["cost", "x" * 300], ["check", "x" * 300], ["study", "front", "x" * 300],
                          ["train", "y" * 300, "--out", "new"], ["cost", "/"],
                          ["check", "/dev/null/x"]])
def test_unreadable_input_is_one_message(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "scalesearch", *arguments], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.strip(
        ), done.stderr[-500:]
