"""What the README and the pages after it say to type works, and prints what they show.

All blocks of these pages are walked through once, in order, in one empty folder: files are written
under their names, commands run there by bash, each by the interpreter that runs the tests, or on
the short walk within this process where it is one of ours alone.

So that this takes well under a minute, the walk is a short one: in the study file of the tour,
SHORT puts fewer pairs and a handful of updates in place of the page's, and `study run` is given
FEWER trials. `pytest -m slow tests/docs` walks at full length, with the blocks marked slow as well,
and holds the tour to its five minutes of CPU time.
"""

import os
import resource
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import pytest
import yaml

from scalesearch.data import DataSpec
from scalesearch.study.config.reader import read_study
from tests.docs.blocks import DOCUMENTS, ROOT, WALK, Block, blocks, commands, missing, same
from tests.processes import within

SHORT = {"tour.yaml": {"pairs: 30000": "pairs: 2000", "steps: 1500": "steps: 12",
                       "beam: 1": "score_splits: validation, beam: 1"}}
FEWER = " --trials 2"
PAGES = [block for page in WALK for block in blocks(page)]
WALKED = [block for block in PAGES if block.mark.startswith(("file:", "run"))]
STUDY = {"space": "transformer", "data": "{builtin: grammar}", "recipe": "quick",
         "objectives": "{bleu: max}"}
FIVE_MINUTES = 300.0


@dataclass
class Walk:
    """A walk through the pages: what each command came to, by the place of its block."""

    folder: Path
    full: bool
    seconds: dict[str, float] = field(default_factory=dict)
    came_to: dict[str, list[tuple[str, list[str], subprocess.CompletedProcess[str]]]] = field(
        default_factory=dict)

    def go(self) -> "Walk":
        """Through every block."""
        (self.folder / "bin").mkdir()
        entry = self.folder / "bin" / "scalesearch"
        entry.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m scalesearch "$@"\n')
        entry.chmod(0o755)
        for block in WALKED:
            if block.mark.startswith("file:"):
                self.write(block)
            elif self.full or block.mark != "run: slow":
                before = _children()
                self.came_to[block.where] = [(command, shown, self.run(command))
                                             for command, shown in _steps(block)]
                self.seconds[block.where] = _children() - before
        return self

    def write(self, block: Block) -> None:
        """The file that a block is."""
        name = block.mark.removeprefix("file:").strip()
        text = block.text
        for long, short in ({} if self.full else SHORT.get(name, {})).items():
            assert text.count(long) == 1, f"{name} holds no `{long}` any more: correct SHORT"
            text = text.replace(long, short)
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """One command, in the folder of the walk."""
        if not self.full and "study run" in command and "--dry-run" not in command:
            command += FEWER
        ours, *others = commands(command)
        if not self.full and ours[0] == "scalesearch" and not others:
            return within(self.folder, *ours[1:], XDG_CACHE_HOME=str(self.folder), COLUMNS="80")
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        names = {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
                 "XDG_CACHE_HOME": str(self.folder), "MPLCONFIGDIR": matplotlib.get_cachedir(),
                 "MPLBACKEND": "agg"}
        return subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=self.folder,
                              env=os.environ | names, capture_output=True, text=True, timeout=900)


def _steps(block: Block) -> list[tuple[str, list[str]]]:
    if block.shell:
        return block.steps
    return [(f"'{sys.executable}' - <<'END'\n{block.text}END\n", [])]


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _check(walk: Walk, block: Block) -> None:
    for command, shown, done in walk.came_to[block.where]:
        assert done.returncode == 0, f"{block.where}: {command}\n{done.stdout}\n{done.stderr}"
        if "vary" in block.mark:
            lost = missing(shown, done.stdout)
            assert not lost, f"{block.where}: {command} does not print {lost}, but\n{done.stdout}"
        elif shown and block.mark == "run":
            assert same(shown, done.stdout), f"{block.where}: {command} prints\n{done.stdout}"


def _runs(slow: bool) -> list[Block]:
    return [block
            for block in WALKED
            if block.mark.startswith("run") and (slow or block.mark != "run: slow")]


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return Walk(tmp_path_factory.mktemp("readme"), full=False).go()


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return Walk(tmp_path_factory.mktemp("readme"), full=True).go()


@pytest.mark.parametrize("block", _runs(slow=False), ids=lambda block: block.where)
def test_what_the_pages_say_to_type_works(short, block):
    _check(short, block)


@pytest.mark.slow
@pytest.mark.parametrize("block", _runs(slow=True), ids=lambda block: block.where)
def test_it_works_at_full_length(full, block):
    _check(full, block)


@pytest.mark.slow
def test_the_tour_takes_five_minutes_of_one_core(full):
    tour = [seconds
            for where, seconds in full.seconds.items()
            if where.startswith("docs/tutorials/first-search.md")]
    assert len(tour) > 8 and sum(tour) < FIVE_MINUTES


def test_the_tour_leaves_what_it_says(short):
    for name in ("figures/bleu-vs-params.png", "report.html", "best/architecture.yaml",
                 "best/record.json"):
        assert (short.folder / name).stat().st_size > 100, name


def test_every_space_of_the_pages_is_sound(short):
    names = [block.mark.removeprefix("file:").strip()
             for block in WALKED if block.mark.startswith("file:")]
    spaces = [
        name for name in names if "study:" not in (short.folder / name).read_text(encoding="utf-8")]
    assert len(spaces) >= 3
    for name in spaces:
        done = short.run(f"scalesearch check {name} --samples 100 --json")
        assert done.returncode == 0, f"{name}: {done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_says_what_is_to_be_done_with_it(document):
    for block in blocks(document):
        kind, _, reason = block.mark.partition(":")
        where = f"{document}:{block.line}"
        assert kind in ("file", "run", "no run",
                        "check"), f"{where}: not marked (see tests/docs/blocks.py)"
        assert kind != "no run" or len(reason.split()) > 2, f"{where}: not run, for no reason"
        assert kind != "run" or reason.strip() in (
            "", "results vary", "any output", "slow"), f"{where}: {reason}"


def test_files_of_data_are_read(monkeypatch):
    monkeypatch.setenv("CORPUS", "text")
    found = [block.text for block in PAGES if block.mark == "check: data"]
    assert found
    for text in found:
        for part in _apart(text, "data:"):
            given = yaml.safe_load(part)
            DataSpec.from_mapping(given.get("data", given))


def test_parts_of_studies_are_read(tmp_path):
    found = [block.text for block in PAGES if block.mark == "check: study"]
    assert len(found) > 1
    for text in found:
        for part in _apart(text, "teacher:"):
            given = {key: value for key, value in STUDY.items() if f"\n{key}:" not in f"\n{part}"}
            file = tmp_path / "study.yaml"
            file.write_text("".join(f"{key}: {value}\n" for key, value in given.items()) + part,
                            encoding="utf-8")
            read_study(file)


def _apart(text: str, key: str) -> list[str]:
    """``text`` cut before each line that begins with ``key``, where there are several."""
    starts = [at
              for at in range(len(text))
              if text.startswith(key, at) and text[at - 1 : at] in ("", "\n")]
    return [text[at:to]
            for at, to in zip(starts, [*starts[1:], len(text)])] if len(starts) > 1 else [text]
