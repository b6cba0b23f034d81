"""Sequence-level distillation: translations as a corpus (Kim & Rush 2016)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalesearch.data import DataSpec
from scalesearch.data.sources import read_sentences
from scalesearch.errors import UserError
from scalesearch.files import read_json, write_text
from scalesearch.tasks import TASKS
from scalesearch.training.checkpoint import hash_weights, read_ensemble
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.scoring.evaluate import (
    ProgressFunction,
    check_beam,
    encode_sources,
    max_source_tokens,
    resolve_decoding,
    translate,
    translate_lines,
)

SAVE_INTERVAL = 2000  # sources between saves

TranslateFunction = Callable[[list[str]], list[str]]


def write_distilled_data(
        teachers: Sequence[Path], data: DataSpec, out: Path, search: Mapping[str, Any],
        report_progress: ProgressFunction = lambda done, total: None) -> dict[str, Any]:
    """Translate the training text of ``data`` into files ``out``.*; resumable.

    Args:
        teachers: folders of finished training runs; several form an ensemble.
        search: options of :func:`.evaluate.resolve_decoding`.

    Returns:
        The number of ``pairs``, of those ``left_out`` because their source is too long for a
        teacher, and everything that determines them: hashes of ``teacher`` and ``text``,
        ``decoding``, ``dtype``.

    Raises:
        UserError: a teacher is not a finished training run or has another vocabulary than the
            first, ``out`` holds other translations, or the data have no pairs.
    """
    if TASKS[data.task].score is None:
        raise UserError(f"data: task: {data.task} has no pairs", key="data.task", code="no-pairs",
                        help="distillation is for tasks that translate or correct")
    if len(set(data.suffixes)) == 1:
        raise UserError(f"data: source and target have the same suffix {data.suffixes[0]}, so "
                        "source and translations would be written to the same file",
                        key="data.target", code="data-conflict",
                        help="give `source` and `target` different suffixes")
    sources = read_sentences(data)["train"].source[: data.max_pairs]
    teacher = read_ensemble(teachers)
    decoding = resolve_decoding(teacher.recipe, teacher.max_length_a, **search)
    check_beam(decoding.beam, teacher.tokenizer.target.vocab_size)
    max_length = max_source_tokens(teacher)
    texts = []
    for start in range(0, len(sources), SAVE_INTERVAL):
        chunk = sources[start : start + SAVE_INTERVAL]
        texts += [text for text, ids in zip(chunk, encode_sources(teacher, chunk))
                  if len(ids) <= max_length]
    hardware = Hardware.from_recipe(Recipe(steps=1))
    teacher.model.to(hardware.device).set_attention(hardware.attention_kernel)
    settings = {"teacher": hash_teachers(teachers),
                "text": hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16],
                "decoding": decoding.description, "dtype": hardware.dtype}

    def translate_texts(lines: list[str]) -> list[str]:
        translations = translate_lines(
            teacher, lines,
            lambda split: translate(teacher.model, split, teacher.tokenizer, hardware, decoding))
        return [line.translations[0].text for line in translations]

    count = write_translations(texts, out, data.suffixes, translate_texts, settings,
                               report_progress)
    return {"pairs": count, "left_out": len(sources) - len(texts), **settings}


def hash_teachers(folders: Sequence[Path]) -> str:
    """Hash the weights of finished training runs."""
    return "+".join(map(hash_weights, folders))


def write_translations(texts: list[str], out: Path, suffixes: tuple[str, str],
                       translate: TranslateFunction, settings: dict[str, Any],
                       report_progress: ProgressFunction = lambda done, total: None) -> int:
    """Write ``out``.SOURCE and ``out``.TARGET: every source line and its translation.

    An earlier run is continued: complete lines are kept, a truncated line is translated again.

    Args:
        texts: the source side of the training data.
        suffixes: of both sides, such as ("en", "de").
        translate: maps lines to the same number of lines.
        settings: everything that determines the translations; other settings are refused.

    Returns:
        The number of lines.

    Raises:
        UserError: ``out`` holds the translations of another teacher, or other text.
    """
    files = [out.with_name(f"{out.name}.{suffix}") for suffix in suffixes]
    check_settings(out.with_name(f"{out.name}.json"), settings, files, "translations")
    written = [file.read_bytes().split(b"\n")[:-1] if file.exists() else [] for file in files]
    n_complete = min(map(len, written))
    out.parent.mkdir(parents=True, exist_ok=True)
    with files[0].open("ab") as source, files[1].open("ab") as target:
        # A file may end with half a line, or have more lines than the other.
        for file, lines in zip((source, target), written):
            file.truncate(sum(len(line) + 1 for line in lines[:n_complete]))
        report_progress(n_complete, len(texts))
        for start in range(n_complete, len(texts), SAVE_INTERVAL):
            chunk = texts[start : start + SAVE_INTERVAL]
            for file, texts_of_side in ((source, chunk), (target, translate(chunk))):
                file.write("".join(f"{text}\n" for text in texts_of_side).encode())
                file.flush()
            report_progress(start + len(chunk), len(texts))
    return len(texts)


def check_settings(file: Path, settings: dict[str, Any], files: list[Path],
                   description: str) -> None:
    """Write ``settings`` to ``file``, or compare them with an existing file.

    Args:
        files: files that the settings determine.
        description: of the content of ``files``, for messages.

    Raises:
        UserError: the settings differ, or ``files`` exist without settings.
    """
    if not file.exists():
        existing = [str(path) for path in files if path.exists()]
        if existing:
            raise UserError(f"{', '.join(existing)}: the file exists but was not written by this "
                            f"command ({file.name} is missing); write the {description} elsewhere",
                            code="other-settings")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(settings, indent=1, sort_keys=True) + "\n")
        return
    before = read_json(file, dict[str, Any])
    differences = [f"{key} {before.get(key)}, now {settings.get(key)}"
                   for key in sorted({*before, *settings}) if before.get(key) != settings.get(key)]
    if differences:
        raise UserError(f"{', '.join(map(str, files))}: the existing {description} have other "
                        f"settings: {'; '.join(differences)}", code="other-settings",
                        help=f"delete them and {file}, or write elsewhere")
