"""``scalesearch translate MODEL...``: lines in, lines out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import OutputPath
from scalesearch.errors import UserError
from scalesearch.files import write_atomic
from scalesearch.terminal import open_console, print_text

if TYPE_CHECKING:
    from scalesearch.export.translator import Translator
    from scalesearch.train.scoring.evaluate import Translations


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--beam``, ``--length-penalty`` and ``--batch``; without the first two, as the model was scored."""
    for option in (
        click.option("--batch", default=6144, show_default=True, type=click.IntRange(1),
                     help="Source tokens in a batch."),
        click.option("--length-penalty", type=click.FloatRange(0), show_default="the model's",
                     help="α in log-probability / length^α."),
        click.option("--beam", type=click.IntRange(1), show_default="the model's",
                     help="Width of the search; 1 is greedy."),
    ):
        command = option(command)
    return command


@click.command(name="translate")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@search_options
@click.option("--nbest", default=1, show_default=True, type=click.IntRange(1),
              help="So many translations a line, at most --beam: NUMBER, SCORE and TRANSLATION "
              "with tabs between.")
@click.option("--output", type=OutputPath(), help="File to write, whole or not at all.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line instead.")
def command(models: tuple[str, ...], beam: int | None, length_penalty: float | None, batch: int,
            nbest: int, output: Path | None, as_json: bool) -> None:
    """Translate each line of standard input with the training, or the exported artifact, in the folder MODEL.

    One line comes out for each that goes in, in the same order; an empty one stays empty. With
    --json, a line is an object with source, translation and score, and of several translations all
    of them under nbest. Several trainings translate together, each next token by the mean of their
    probabilities; they share a vocabulary.
    """
    from scalesearch.export.translator import Translator

    translator = Translator(models, beam, length_penalty, batch, nbest)
    if translator.accuracy_note:
        print_text(f"note: {translator.accuracy_note}", open_console(stderr=True), style="dim")

    def texts() -> Iterator[str]:
        for number, (source, found) in enumerate(translate_with_progress(translator, _lines()), 1):
            yield _object(source, found, nbest) if as_json else _plain(number, found, nbest)

    if output is not None:
        write_atomic(output, lambda file: file.writelines(f"{text}\n".encode() for text in texts()))
        return
    for text in texts():
        click.echo(text)


def translate_with_progress(translator: Translator, lines: Iterable[str], total: int | None = None
            ) -> Iterator[tuple[str, Translations]]:
    """Lines with their translations; a bar counts them on standard error.

    The bar is there where that is a terminal and standard output is another place.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    hidden = not sys.stderr.isatty() or sys.stdout.isatty()
    columns = TextColumn("{task.description}",
                         markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("lines")
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as progress:
        task = progress.add_task(f"{translator.folder}: {translator.decoding.description}",
                                 total=total)
        for some in translator.translate_chunks(lines):
            yield from some
            sys.stdout.flush()
            progress.advance(task, len(some))


def _lines() -> Iterator[str]:
    """Standard input's lines, which only a newline ends.

    Raises:
        UserError: one of them is not UTF-8, or has no end.
    """
    from scalesearch.data.files import MAX_LINE_BYTES

    for number, line in enumerate(iter(lambda: sys.stdin.buffer.readline(MAX_LINE_BYTES + 1), b""),
                                  1):
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"standard input, line {number}: more than {MAX_LINE_BYTES:,} bytes, "
                            "which are no sentence", code="line-too-long")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"standard input, line {number}: not UTF-8 at byte {error.start + 1}",
                            code="not-utf8") from None


def _plain(number: int, found: Translations, nbest: int) -> str:
    if nbest == 1:
        return found[0][0]
    return "\n".join(f"{number}\t{'' if score is None else f'{score:.4f}'}\t{text}"
                     for text, score in found)


def _object(source: str, found: Translations, nbest: int) -> str:
    (text, score), *_ = found
    several = {"nbest": [{"translation": text, "score": score}
                         for text, score in found]} if nbest > 1 else {}
    return json.dumps({"source": source, "translation": text, "score": score, **several},
                      ensure_ascii=False)
