"""Sequence-level distillation: a teacher's translations as a corpus (Kim & Rush 2016; EdgeFormer's default)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from scalesearch.errors import UserError
from scalesearch.files import write_text

AT_ONCE = 2000  # sources between saves

Translate = Callable[[list[str]], list[str]]


def distill(texts: list[str], out: Path, suffixes: tuple[str, str], translate: Translate, said: dict[str, Any],
            tell: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Writes ``out``.SOURCE and ``out``.TARGET: every source line, and what the teacher makes of it.

    Goes on where an earlier run stopped: lines that are there are kept, a line that was cut off is made again.

    Args:
        texts: the training data's source side.
        suffixes: of the two sides, such as ("en", "de").
        translate: lines to lines, one each.
        said: what decides the translations; a run with other settings is refused.

    Returns:
        how many lines there are.

    Raises:
        UserError: ``out`` holds another teacher's translations.
    """
    files = [out.with_name(f"{out.name}.{suffix}") for suffix in suffixes]
    _same(out.with_name(f"{out.name}.json"), said)
    done = min(_whole_lines(file) for file in files)
    for file in files:
        _keep(file, done)
    out.parent.mkdir(parents=True, exist_ok=True)
    with files[0].open("a", encoding="utf-8") as source, files[1].open("a", encoding="utf-8") as target:
        for some in _batches(texts[done:]):
            for file, lines in ((source, some), (target, translate(some))):
                file.write("".join(f"{line}\n" for line in lines))
                file.flush()
            done += len(some)
            tell(done, len(texts))
    return done


def _batches(texts: list[str]) -> Iterator[list[str]]:
    lines = iter(texts)
    while some := list(islice(lines, AT_ONCE)):
        yield some


def _same(file: Path, said: dict[str, Any]) -> None:
    """Notes what decides the translations, or checks that it is what it was."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(said, indent=1, sort_keys=True) + "\n")
        return
    before = json.loads(file.read_text())
    differing = sorted(key for key in {*before, *said} if before.get(key) != said.get(key))
    if differing:
        raise UserError(f"{file}: the translations there were made with another {', '.join(differing)}; "
                        "delete them or write elsewhere")


def _whole_lines(file: Path) -> int:
    """Lines that end with a newline."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _keep(file: Path, lines: int) -> None:
    """Cuts off what comes after the first ``lines``: half a line, or lines that the other file does not have."""
    if file.exists():
        kept = b"".join(part + b"\n" for part in file.read_bytes().split(b"\n")[:lines])
        with file.open("r+b") as opened:
            opened.truncate(len(kept))
