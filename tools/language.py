"""Check the house style: words, prose patterns and variable names that must not occur.

Usage::

    python tools/language.py [PATH …]     # list violations (default: in the clean files); exit status 1 if any
    python tools/language.py --counts     # count per pattern, for the package, tests and docs
    python tools/language.py --counts --at REVISION
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
RULES = tomllib.loads((ROOT / "tools" / "language.toml").read_text())
MAX_LENGTH = 100
Violation = tuple[str, int, str, str]  # path, line, rule, text


def violations(path: str, text: str) -> Iterator[Violation]:
    """Words, patterns and variables in a file that the rules forbid."""
    lines = text.split("\n")
    spaced = re.sub(r"(?<=\w)_(?=\w)", " ", text) if path.endswith(".py") else text
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", spaced)
    lowered = spaced.lower()
    broken_rules = {rule for word in set(WORD.findall(lowered)) for rule in rules_of(word)}
    single = {rule: SINGLE_WORDS[rule] for rule in SINGLE_WORDS if rule in broken_rules}
    phrases = PHRASES if ANY_PHRASE.search(lowered) else {}
    prose = PROSE if ANY_PROSE.search(text) else SENTENCE_OPENINGS
    for rules, searched in ((single, lowered), (phrases, lowered), (prose, text)):
        for rule, pattern in rules.items():
            for match in pattern.finditer(searched):
                number = searched.count("\n", 0, match.end()) + 1
                if not any(allow.search(f"{path}: {lines[number - 1]}") for allow in ALLOWED):
                    yield path, number, rule, match[0].strip()
    if path.endswith(".py") and ASSIGNED_NAME.search(text):
        for number, name in variables(ast.parse(text)):
            if name in VARIABLES and not any(allow.search(f"{path}: {lines[number - 1]}")
                                             for allow in ALLOWED):
                yield path, number, "variables are named after what they hold", name


def variables(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each variable and parameter of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def shape_counts(files: Mapping[str, str]) -> Counter[str]:
    """Counts of the rules on code: tuple assignments, long lines, class names, untyped tensors."""
    counts: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    for path, text in files.items():
        if not path.endswith(".py") or not path.startswith("scalesearch/"):
            continue
        counts["lines over 100 characters"] += sum(
            len(line) > MAX_LENGTH for line in text.split("\n"))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
                  and isinstance(node.targets[0], ast.Tuple)):
                counts["tuple assignments"] += 1
            elif isinstance(node, ast.FunctionDef) and "forward" in node.name:
                counts["`Any` parameters of forward functions"] += sum(
                    isinstance(arg.annotation, ast.Name) and arg.annotation.id == "Any"
                    for arg in node.args.args)
    counts["class names defined more than once"] = sum(count > 1 for count in classes.values())
    return counts


def files_at(revision: str | None) -> dict[str, str]:
    """Path to text of the tracked Python and Markdown files, now or at a revision."""
    if revision is None:
        listing = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True,
                                 text=True).stdout
        names = [name
                 for name in listing.split("\n")
                 if name.endswith((".py", ".md", ".yaml")) and (ROOT / name).exists()]
        return {name: (ROOT / name).read_text() for name in names}
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True,
                             capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        return {member.name: members.extractfile(member).read().decode()  # type: ignore[union-attr]
                for member in members if member.isfile() and member.name.endswith((".py", ".md"))}


def compiled(section: str, flags: int = 0) -> dict[str, re.Pattern[str]]:
    """Rule to regular expression of a section of the rules."""
    return {rule: re.compile(pattern, flags) for rule, pattern in RULES[section].items()}


@cache
def rules_of(word: str) -> list[str]:
    """Rules on single words that a word breaks."""
    return [rule for rule, pattern in SINGLE_WORDS.items() if pattern.fullmatch(word)]


ALLOWED = [re.compile(pattern) for pattern in RULES["allow"]]
WORD = re.compile(r"[a-z]+")
WORDS = compiled("words")
PHRASES = {rule: pattern for rule, pattern in WORDS.items() if " " in pattern.pattern}
SINGLE_WORDS = {rule: pattern for rule, pattern in WORDS.items() if " " not in pattern.pattern}
PROSE = compiled("prose")
SENTENCE_OPENINGS = {rule: pattern for rule, pattern in PROSE.items()
                     if not pattern.pattern.startswith(r"\b")}
# One search at the start of each word is faster than a search per rule.
ANY_PHRASE = re.compile(rf"\b(?:{'|'.join(rule.pattern for rule in PHRASES.values())})")
ANY_PROSE = re.compile(r"\b(?:" + "|".join(
    rule.pattern for name, rule in PROSE.items() if name not in SENTENCE_OPENINGS) + ")")
VARIABLES = frozenset(RULES["variables"]["names"])
# A quick search for files that may assign one of the names: parsing takes most of the time.
ASSIGNED_NAME = re.compile(rf"\b({'|'.join(VARIABLES)})\b\s*(=|:|,|\)|in\b)")


def main() -> int:
    """Print violations or counts."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", action="store_true", help="print a table of counts")
    parser.add_argument("--at", metavar="REVISION", help="count in a git revision")
    parser.add_argument("paths", nargs="*", help="only files whose path starts with one of these")
    options = parser.parse_args()
    files = files_at(options.at)
    if options.counts:
        areas = {"package": ("scalesearch/",), "tests": ("tests/",), "docs": ("docs/", "README.md")}
        counts = {area: Counter(rule for path, text in files.items() if path.startswith(prefixes)
                                for _, _, rule, _ in violations(path, text))
                  for area, prefixes in areas.items()}
        rules = [*WORDS, *PROSE, "variables are named after what they hold"]
        rows = [[rule, *(counts[area][rule] for area in areas)] for rule in rules]
        rows.append(["sum", *(counts[area].total() for area in areas)])
        rows += [[name, count] for name, count in shape_counts(files).items()]
        print(tabulate(rows, headers=["rule", *areas], tablefmt="github"))
        return 0
    prefixes = tuple(options.paths or RULES["clean"])
    checked = sorted(item for item in files.items() if item[0].startswith(prefixes))
    listed = [row for path, text in checked for row in violations(path, text)]
    for path, number, rule, text in listed:
        print(f"{path}:{number}: {text!r}: {rule}")
    return bool(listed)


if __name__ == "__main__":
    sys.exit(main())
