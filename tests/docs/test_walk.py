"""Commands of the README and the tutorial work and print the shown output.

All blocks run once, in order, in one empty folder. Files are written under their names. Commands
run in bash with the interpreter of the tests, or in this process if only this package is called.

The default is a short run: in the study file of the tour, SHORT replaces the numbers of pairs and
updates, and `study run` gets FEWER trials. `pytest -m slow tests/docs` also runs slow blocks, and
checks that the tour takes at most fifteen minutes of CPU time.
"""

import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import pytest
import yaml
from click.testing import CliRunner

from scalesearch.cli.study.run import run as run_study
from scalesearch.data import DataSpec
from scalesearch.studies.config.reader import read_study
from tests.docs.blocks import DOCUMENTS, ROOT, WALK, Block, blocks, commands, missing, same
from tests.processes import within

SHORT = {"tour.yaml": {"pairs: 30000": "pairs: 2000", "steps: 1500": "steps: 12",
                       "beam: 1": "score_splits: validation, beam: 1"}}
FEWER = " --trials 2"
PAGES = [block for page in WALK for block in blocks(page)]
WALKED = [block for block in PAGES if block.mark.startswith(("file:", "run"))]
STUDY = {"space": "transformer", "data": "{builtin: grammar}", "recipe": "quick",
         "objectives": "{bleu: max}"}
TOUR_CPU_SECONDS = 900.0  # updates take 430 on a Xeon that other processes share
HANG = 3600  # wall-clock seconds; a busy machine needs a quarter of an hour for the tour


@dataclass
class Walk:
    """A run of all blocks: results of commands by the position of their block."""

    folder: Path
    full: bool
    seconds: dict[str, float] = field(default_factory=dict)
    came_to: dict[str, list[tuple[str, list[str], subprocess.CompletedProcess[str]]]] = field(
        default_factory=dict)

    def go(self) -> "Walk":
        """Run all blocks."""
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
        """Write the file of a block."""
        name = block.mark.removeprefix("file:").strip()
        text = block.text
        for long, short in ({} if self.full else SHORT.get(name, {})).items():
            assert text.count(long) == 1, f"{name} holds no `{long}` any more: correct SHORT"
            text = text.replace(long, short)
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run one command in the folder of the run."""
        if not self.full and "study run" in command and "--dry-run" not in command:
            command += FEWER
        arguments, *others = commands(command)
        if not self.full and arguments[0] == "scalesearch" and not others:
            return within(
                self.folder, *arguments[1:], XDG_CACHE_HOME=str(self.folder), COLUMNS="80"
            )
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        names = {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
                 "XDG_CACHE_HOME": str(self.folder), "MPLCONFIGDIR": matplotlib.get_cachedir(),
                 "MPLBACKEND": "agg"}
        return subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=self.folder,
                              env=os.environ | names, capture_output=True, text=True, timeout=HANG)


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


@pytest.mark.full
@pytest.mark.all_instances
@pytest.mark.parametrize("block", _runs(slow=False), ids=lambda block: block.where)
def test_commands_of_pages_work(short, block):
    _check(short, block)


@pytest.mark.slow
@pytest.mark.parametrize("block", _runs(slow=True), ids=lambda block: block.where)
def test_commands_work_at_full_length(full, block):
    _check(full, block)


@pytest.mark.slow
def test_tour_takes_a_quarter_of_a_cpu_hour(full):
    tour = [seconds
            for where, seconds in full.seconds.items()
            if where.startswith("docs/tutorials/first-search.md")]
    assert len(tour) > 8 and sum(tour) < TOUR_CPU_SECONDS


@pytest.mark.full
def test_tour_writes_its_files(short):
    for name in ("figures/bleu-vs-params.png", "report.html", "best/architecture.yaml",
                 "best/record.json"):
        assert (short.folder / name).stat().st_size > 100, name


@pytest.mark.full
def test_spaces_of_pages_are_valid(short):
    names = [block.mark.removeprefix("file:").strip()
             for block in WALKED if block.mark.startswith("file:")]
    spaces = [
        name for name in names if "study:" not in (short.folder / name).read_text(encoding="utf-8")]
    assert len(spaces) >= 3
    for name in spaces:
        done = short.run(f"scalesearch check {name} --samples 100 --json")
        assert done.returncode == 0, f"{name}: {done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_all_blocks_have_marks(document):
    for block in blocks(document):
        kind, _, reason = block.mark.partition(":")
        where = f"{document}:{block.line}"
        assert kind in ("file", "run", "no run",
                        "check"), f"{where}: not marked (see tests/docs/blocks.py)"
        assert kind != "no run" or len(reason.split()) > 2, f"{where}: not run, for no reason"
        assert kind != "run" or reason.strip() in (
            "", "results vary", "any output", "slow"), f"{where}: {reason}"


def test_data_files_of_pages_are_valid(monkeypatch):
    monkeypatch.setenv("CORPUS", "text")
    blocks_found = [block.text for block in PAGES if block.mark == "check: data"]
    assert blocks_found
    for text in blocks_found:
        for part in _apart(text, "data:"):
            keys = yaml.safe_load(part)
            DataSpec.from_mapping(keys.get("data", keys))


def test_parts_of_studies_are_valid(tmp_path):
    blocks_found = [block.text for block in PAGES if block.mark == "check: study"]
    assert len(blocks_found) > 1
    for text in blocks_found:
        for part in _apart(text, "teacher:"):
            keys = {key: value for key, value in STUDY.items() if f"\n{key}:" not in f"\n{part}"}
            file = tmp_path / "study.yaml"
            file.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()) + part,
                            encoding="utf-8")
            read_study(file)


@pytest.mark.parametrize("text", [block.text for block in PAGES if block.mark == "check: study"
                                  and re.search(r"^space:", block.text, re.M)
                                  and not re.search(r"^data: (?!.*builtin)", block.text, re.M)])
def test_studies_of_pages_have_feasible_candidates(text, tmp_path):
    keys = {key: value for key, value in STUDY.items() if not re.search(rf"^{key}:", text, re.M)}
    file = tmp_path / "study.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()) + text,
                    encoding="utf-8")
    result = CliRunner().invoke(run_study, [str(file), "--dry-run", "--measure", "0"],
                                catch_exceptions=False)
    assert result.exit_code == 0, result.output


def _apart(text: str, key: str) -> list[str]:
    """Parts of ``text`` before each line that begins with ``key``."""
    starts = [position
              for position in range(len(text))
              if text.startswith(key, position) and text[position - 1 : position] in ("", "\n")]
    return (
        [text[position:to] for position, to in zip(starts, [*starts[1:], len(text)])]
        if len(starts) > 1
        else [text]
    )
