"""Sequence-level distillation: a teacher's translations as a corpus (Kim & Rush 2016; EdgeFormer's default)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.files import write_text

if TYPE_CHECKING:
    from scalesearch.data import DataSpec
    from scalesearch.train.evaluate import Search

AT_ONCE = 2000  # sources between saves

Translate = Callable[[list[str]], list[str]]
Tell = Callable[[int, int], None]


def distill_data(teacher: Path, data: DataSpec, out: Path, search: Search,
                 tell: Tell = lambda done, total: None) -> dict[str, Any]:
    """Has the training in the folder ``teacher`` translate the training text of ``data`` into ``out``.*; resumable.

    Returns:
        how many ``pairs`` there are, and what decides them: hashes of ``teacher`` and ``text``, ``decode``, ``dtype``.

    Raises:
        UserError: ``teacher`` is no finished training, or ``out`` holds other translations.
    """
    from scalesearch.data.sources import read
    from scalesearch.train.checkpoint import WEIGHTS, read_checkpoint
    from scalesearch.train.hardware import Hardware
    from scalesearch.train.lines import translate_lines
    from scalesearch.train.recipe import Recipe

    texts = read(data)["train"].source[: data.limit]
    found, hardware = read_checkpoint(teacher), Hardware.of(Recipe(steps=1))
    found.model.to(hardware.device).set_attention(hardware.attention)
    said = {"teacher": _hash((teacher / WEIGHTS).read_bytes()), "text": _hash("\n".join(texts).encode()),
            "decode": search.protocol, "dtype": hardware.dtype}

    def translate(lines: list[str]) -> list[str]:
        return [translation for _, translation, _ in translate_lines(found, lines, search, hardware)]

    return {"pairs": distill(texts, out, data.suffixes, translate, said, tell), **said}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def distill(texts: list[str], out: Path, suffixes: tuple[str, str], translate: Translate, said: dict[str, Any],
            tell: Tell = lambda done, total: None) -> int:
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
        UserError: ``out`` holds another teacher's translations, or other text.
    """
    files = [out.with_name(f"{out.name}.{suffix}") for suffix in suffixes]
    _same(out.with_name(f"{out.name}.json"), said, files)
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


def _same(file: Path, said: dict[str, Any], files: list[Path]) -> None:
    """Notes what decides the translations, or checks that it is what it was."""
    if not file.exists():
        others = [str(path) for path in files if path.exists()]
        if others:
            raise UserError(f"{', '.join(others)}: there already, and not from here ({file.name} is missing); "
                            "write the translations elsewhere")
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
