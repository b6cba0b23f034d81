"""Sequence-level distillation: a teacher's translations as a corpus (Kim & Rush 2016)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.files import read_json, write_text

if TYPE_CHECKING:
    from scalesearch.data import DataSpec
    from scalesearch.train.scoring.evaluate import DecodingOptions

SAVE_INTERVAL = 2000  # sources between saves

TranslateFunction = Callable[[list[str]], list[str]]
ProgressFunction = Callable[[int, int], None]


def write_distilled_data(
        teachers: Sequence[Path], data: DataSpec, out: Path, decoding: DecodingOptions,
        report_progress: ProgressFunction = lambda done, total: None) -> dict[str, Any]:
    """Translates the training text of ``data`` with a finished training, or several as one, into ``out``.*; resumable.

    Returns:
        the number of ``pairs``, and what decides them: hashes of ``teacher`` and ``text``,
        ``decode``, ``dtype``.

    Raises:
        UserError: one of ``teachers`` is no finished training, or not of the first's vocabulary, or
            ``out`` holds other
            translations, or the data have no pairs.
    """
    if data.file_format == "text":
        raise UserError(f"data: task: {data.task} has no pairs", key="data.task", code="no-pairs",
                        help="distillation is for tasks that translate or correct")
    if len(set(data.suffixes)) == 1:
        raise UserError(f"data: source and target are both called {data.suffixes[0]}, so that "
                        "source and translations would go to one file", key="data.target",
                        code="data-conflict",
                        help="give `source` and `target` endings of their own")
    from scalesearch.data.sources import read_sentences
    from scalesearch.train.checkpoint import read_ensemble
    from scalesearch.train.hardware import Hardware
    from scalesearch.train.recipe import Recipe
    from scalesearch.train.scoring.evaluate import translate as decoded
    from scalesearch.train.scoring.evaluate import translate_lines

    texts = read_sentences(data)["train"].source[: data.max_pairs]
    model = read_ensemble(teachers)
    hardware = Hardware.from_recipe(Recipe(steps=1))
    model.model.to(hardware.device).set_attention(hardware.attention_kernel)
    settings = {"teacher": hash_teachers(teachers),
                "text": _hash("\n".join(texts).encode()),
                "decoding": decoding.description, "dtype": hardware.dtype}

    def translate(lines: list[str]) -> list[str]:
        found = translate_lines(
            model, lines,
            lambda split: decoded(model.model, split, model.tokenizer, hardware, decoding))
        return [best[0] for _, (best, *_) in found]

    return {"pairs": write_translations(texts, out, data.suffixes, translate, settings,
                                        report_progress), **settings}


def hash_teachers(folders: Sequence[Path]) -> str:
    """Hash of the weights of finished trainings."""
    from scalesearch.train.checkpoint import WEIGHTS_FILE

    return "+".join(_hash((folder / WEIGHTS_FILE).read_bytes()) for folder in folders)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def write_translations(texts: list[str], out: Path, suffixes: tuple[str, str],
                       translate: TranslateFunction, settings: dict[str, Any],
                       report_progress: ProgressFunction = lambda done, total: None) -> int:
    """Writes ``out``.SOURCE and ``out``.TARGET: every source line and its translation.

    Goes on where an earlier run stopped: lines that are there are kept, a line that was cut off is
    made again.

    Args:
        texts: the training data's source side.
        suffixes: of the two sides, such as ("en", "de").
        translate: lines to lines, one each.
        settings: what decides the translations; a run with others is refused.

    Returns:
        the number of lines.

    Raises:
        UserError: ``out`` holds another teacher's translations, or other text.
    """
    files = [out.with_name(f"{out.name}.{suffix}") for suffix in suffixes]
    check_settings(out.with_name(f"{out.name}.json"), settings, files, "translations")
    written = [file.read_bytes().split(b"\n")[:-1] if file.exists() else [] for file in files]
    whole = min(map(len, written))
    out.parent.mkdir(parents=True, exist_ok=True)
    with files[0].open("ab") as source, files[1].open("ab") as target:
        # one may end in half a line, or be ahead of the other
        for file, lines in zip((source, target), written):
            file.truncate(sum(len(line) + 1 for line in lines[:whole]))
        for start in range(whole, len(texts), SAVE_INTERVAL):
            some = texts[start : start + SAVE_INTERVAL]
            for file, lines in ((source, some), (target, translate(some))):
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
            report_progress(start + len(some), len(texts))
    return len(texts)


def check_settings(file: Path, settings: dict[str, Any], files: list[Path],
                   description: str) -> None:
    """Writes the settings of ``description`` in ``files`` to ``file``, or checks them with those there. Raises UserError."""
    if not file.exists():
        others = [str(path) for path in files if path.exists()]
        if others:
            raise UserError(f"{', '.join(others)}: there already, and not from here ({file.name} "
                            f"is missing); write the {description} elsewhere",
                            code="other-settings")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(settings, indent=1, sort_keys=True) + "\n")
        return
    before = read_json(file, dict[str, Any])
    differing = sorted(key for key in {*before, *settings} if before.get(key) != settings.get(key))
    if differing:
        raise UserError(f"{file}: the {description} there were made with another "
                        f"{', '.join(differing)}; delete them or write elsewhere",
                        code="other-settings")
