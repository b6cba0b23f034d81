"""Fenced blocks of a Markdown file and their marks.

A comment on the line above a block is its mark::

    <!-- file: small.yaml -->       the block is this file
    <!-- run -->                    shell lines or Python to run; lines after `$ command` are what
                                    it prints
    <!-- run: results vary -->      the same, but what it prints depends on a training: only words
                                    are compared
    <!-- run: any output -->        the same, and what it prints is the model's own words
    <!-- run: slow -->              run by `pytest -m slow` alone
    <!-- no run: why -->            not run
    <!-- check: data -->            a data file, or several `data:`
    <!-- check: study -->           a study file, or some of its keys
"""

import re
import shlex
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Read in this order, in one folder: what an earlier page wrote, a later one uses.
WALK = ("README.md", "docs/start/installation.md", "docs/tutorials/first-search.md",
        "docs/questions.md", "docs/guides/budgets.md", "docs/guides/inverse.md",
        "docs/guides/huggingface.md", "docs/guides/spaces.md", "docs/reference/space-syntax.md",
        "docs/guides/training.md",
        "docs/tutorials/own-data.md", "docs/guides/tasks.md", "docs/guides/distillation.md",
        "docs/guides/search.md", "docs/guides/choose.md", "docs/guides/early-stopping.md",
        "docs/guides/recipe-search.md", "docs/concepts/noise.md", "docs/guides/ablations.md",
        "docs/guides/report.md", "docs/guides/cluster.md",
        "docs/guides/resume.md", "docs/concepts/protocols.md", "docs/reference/study-file.md")
DOCUMENTS = (*WALK, *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")
                            if str(page.relative_to(ROOT)) not in WALK), "CONTRIBUTING.md")
FENCE = re.compile(r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
                   re.M | re.S)
REST = "…"  # any number of lines where it stands alone, any characters elsewhere
DRAWN = re.compile(r"[\d─-╿]|^\s*…\s*$")  # numbers, and the lines of tables that grow with them


@dataclass(frozen=True)
class Block:
    """A block: ``mark`` is the comment above it or empty, ``line`` the line of its fence."""

    document: str
    line: int
    mark: str
    language: str
    text: str

    @property
    def where(self) -> str:
        """Document and line, as in error messages."""
        return f"{self.document}:{self.line}"

    @property
    def shell(self) -> bool:
        """Whether the block contains commands."""
        return self.language in ("", "console", "sh", "bash")

    @property
    def steps(self) -> list[tuple[str, list[str]]]:
        """Commands with the output that the block shows."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language != "console":
            return [(line, []) for line in lines if line.strip() and not line.startswith("#")]
        commands_found: list[tuple[str, list[str]]] = []
        for line in lines:
            if line.startswith("$ "):
                commands_found.append((line[2:], []))
            else:
                commands_found[-1][1].append(line)
        return commands_found


def blocks(document: str) -> list[Block]:
    """The fenced blocks of ``document``, a path in the repository."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [
        Block(
            document,
            text.count("\n", 0, match.start()) + 1,
            match["mark"] or "",
            match["language"],
            match["text"],
        )
        # those are Sphinx's
        for match in FENCE.finditer(text)
        if not match["language"].startswith("{")
    ]


def commands(line: str) -> list[list[str]]:
    """The words of each command of a pipe.

    Without comments, redirections and variables that are set before it.
    """
    pipe: list[list[str]] = [[]]
    for word in shlex.split(line, comments=True):
        if word == "|":
            pipe.append([])
        elif pipe[-1] or not re.fullmatch(r"\w+=.*", word):
            pipe[-1].append(word)
    return [list(takewhile(lambda word: word not in ("<", ">"), words)) for words in pipe]


def same(shown: list[str], printed: str) -> bool:
    """Whether output equals the shown lines, up to trailing blanks and ``…``."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == REST
                      else ".*".join(map(re.escape, line.rstrip().split(REST))) + "\n"
                      for line in _trimmed(shown))
    return re.fullmatch(pattern,
                        "".join(f"{line.rstrip()}\n"
                                for line in _trimmed(printed.splitlines()))) is not None


def _trimmed(lines: list[str]) -> list[str]:
    """Lines without empty lines at the end."""
    return _trimmed(lines[:-1]) if lines and not lines[-1].strip() else lines


def missing(shown: list[str], printed: str) -> list[str]:
    """Shown lines without numbers that were not printed."""
    printed_lines = {" ".join(line.split()) for line in printed.splitlines()}
    return [
        line
        for line in shown
        if not DRAWN.search(line) and " ".join(line.split()) not in printed_lines
    ]
