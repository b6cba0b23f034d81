"""``scalesearch translate``: translate lines of standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import OutputPath, option, search_options
from scalesearch.errors import UserError
from scalesearch.files import write_atomic
from scalesearch.terminal import open_console, print_data, print_text

if TYPE_CHECKING:
    from scalesearch.export.translator import Translator
    from scalesearch.training.scoring.evaluate import Translations


@click.command(name="translate")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@search_options
@click.option("--nbest", default=1, show_default=True, type=click.IntRange(1),
              help="Number of translations per line (at most --beam), as NUMBER, SCORE and "
              "TRANSLATION separated by tabs.")
@click.option("--output", type=OutputPath(), help="Output file, written atomically.")
@option("json", help="Print one JSON object per line.")
def command(models: tuple[str, ...], search: dict[str, Any], nbest: int, output: Path | None,
            as_json: bool) -> None:
    """Translate each line of standard input with the model in the folder MODEL.

    The model is trained or exported. Output lines are in the order of the input lines; the
    translation of an empty line is empty. With --json, each line is an object with source,
    translation and score, and with nbest if --nbest is above 1. Several trained models form an
    ensemble: they must share a vocabulary, and their probabilities are averaged.

    \b
    Example: scalesearch translate runs/model < input.txt > output.txt
    """
    from scalesearch.export.translator import Translator

    translator = Translator(models, **search, n_best=nbest)
    for note in translator.notes:
        print_text(f"note: {note}", open_console(stderr=True), style="dim")

    def texts() -> Iterator[str]:
        results = translate_with_progress(translator, _standard_input_lines())
        for number, (source, translations) in enumerate(results, 1):
            best_text, best_score = translations[0]
            if as_json:
                record: dict[str, Any] = {"source": source, "translation": best_text,
                                          "score": best_score}
                if nbest > 1:
                    record["nbest"] = [{"translation": text, "score": score}
                                       for text, score in translations]
                yield json.dumps(record, ensure_ascii=False)
            elif nbest == 1:
                yield best_text
            else:
                yield "\n".join(f"{number}\t{'' if score is None else f'{score:.4f}'}\t{text}"
                                for text, score in translations)

    if output is not None:
        write_atomic(output, lambda file: file.writelines(f"{text}\n".encode() for text in texts()))
        return
    for text in texts():
        print_data(text)


def translate_with_progress(translator: Translator, lines: Iterable[str], total: int | None = None
            ) -> Iterator[tuple[str, Translations]]:
    """Yield lines with their translations, with a progress bar on standard error.

    The bar is shown if standard error is a terminal and standard output is not.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    hidden = not sys.stderr.isatty() or sys.stdout.isatty()
    columns = TextColumn("{task.description}",
                         markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("lines")
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as progress:
        task = progress.add_task(f"{translator.folder}: {translator.decoding.description}",
                                 total=total)
        for chunk in translator.translate_chunks(lines):
            yield from chunk
            sys.stdout.flush()
            progress.advance(task, len(chunk))


def _standard_input_lines() -> Iterator[str]:
    """Yield the lines of standard input; only a newline ends a line.

    Raises:
        UserError: a line is not UTF-8, or is too long.
    """
    from scalesearch.data.files import MAX_LINE_BYTES

    for number, line in enumerate(iter(lambda: sys.stdin.buffer.readline(MAX_LINE_BYTES + 1), b""),
                                  1):
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"standard input, line {number}: more than {MAX_LINE_BYTES:,} bytes, "
                            "too long for a sentence", code="line-too-long")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"standard input, line {number}: not UTF-8 at byte {error.start + 1}",
                            code="not-utf8") from None
