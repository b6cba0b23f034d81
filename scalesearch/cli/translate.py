"""``scalesearch translate``: translate lines of standard input or of a file."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from scalesearch.cli.options import COUNT, OutputPath, option, search_options
from scalesearch.errors import UserError
from scalesearch.files import write_atomic
from scalesearch.terminal import format_count, open_console, print_data, print_text

if TYPE_CHECKING:
    from scalesearch.export.translator import Translator
    from scalesearch.training.scoring.evaluate import TranslatedLine

MAX_LISTED_LINES = 20
PAUSE_SECONDS = 0.05  # lines are translated together if they arrive without a pause
READ_BYTES = 1 << 16


@click.command(name="translate")
@click.argument("models", nargs=-1, required=True, type=click.Path(), metavar="MODEL...")
@click.option("--input", "input_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Text to translate instead of standard input; may be compressed (.gz, .xz or "
              ".zst), or a pipe such as <(command).")
@click.option("--format", "input_format", type=click.Choice(("lines", "tsv", "jsonl")),
              help="Format of the input (default: by the ending of --input, or lines). The source "
              "is the column `source` of a TSV file, or the first without a header; or the key "
              "`source` of JSON objects.")
@search_options
@option("threads", help="Number of threads.")
@click.option("--nbest", default=1, show_default=True, type=click.IntRange(1),
              help="Number of translations per line (at most --beam), as NUMBER, SCORE and "
              "TRANSLATION separated by tabs.")
@option("shortlist", type=COUNT,
        help="Only use tokens of a shortlist: N target tokens per token of the source, by "
        "co-occurrence in the training text, and the N most frequent ones.")
@click.option("--output", type=OutputPath(), help="Output file, written atomically.")
@option("json", help="Print one JSON object per line.")
def command(models: tuple[str, ...], input_file: Path | None, input_format: str | None,
            search: dict[str, Any], threads: int, nbest: int, shortlist: int | None,
            output: Path | None, as_json: bool) -> None:
    """Translate each line of standard input with the model in the folder MODEL.

    The model is trained or exported. Output lines are in the order of the input lines; the
    translation of a blank line is empty. The translation of a classifier is the most probable
    class, and its score the log-probability. Lines from a pipe or a terminal are translated as they
    arrive. With --json, each line is an object with source, translation and score (null if it is
    unknown); cropped and reached_limit if they are true; and nbest if --nbest is above 1. After an
    error, the last object has problems. Several trained models form an ensemble: they must share a
    vocabulary, and their probabilities are averaged. Trained models run in the precision of their
    recipe: bf16 on processors with fast bf16, unless `precision: fp32` is set.

    \b
    Example: scalesearch translate runs/model < input.txt > output.txt
    """
    from scalesearch.data.files import read_column, read_lines, table_format
    from scalesearch.export.translator import Translator

    input_format = input_format or (table_format(input_file) if input_file else None)
    lines: Iterable[str | None] = read_lines(input_file) if input_file else _standard_input_lines()
    if input_format in ("tsv", "jsonl"):
        lines = read_column(lines, input_format, "source", str(input_file or "standard input"))
    translator = Translator(models, **search, n_best=nbest, threads=threads, shortlist=shortlist)
    for note in translator.notes:
        print_text(f"note: {note}", open_console(stderr=True), style="dim")

    cropped: list[int] = []
    reached_limit: list[int] = []

    def texts() -> Iterator[str]:
        results = translate_with_progress(translator, lines)
        for number, line in enumerate(results, 1):
            best = line.translations[0]
            if line.is_cropped:
                cropped.append(number)
            if best.reached_limit:
                reached_limit.append(number)
            if as_json:
                record: dict[str, Any] = {"source": line.source, "translation": best.text,
                                          "score": best.score}
                record |= {"cropped": True} if line.is_cropped else {}
                record |= {"reached_limit": True} if best.reached_limit else {}
                if nbest > 1:
                    record["nbest"] = [{"translation": translation.text, "score": translation.score}
                                       for translation in line.translations]
                yield json.dumps(record, ensure_ascii=False)
            elif nbest == 1:
                yield best.text
            else:
                for translation in line.translations:
                    score = "" if translation.score is None else f"{translation.score:.4f}"
                    yield f"{number}\t{score}\t{translation.text}"

    if output is not None:
        write_atomic(output, lambda file: file.writelines(f"{text}\n".encode() for text in texts()))
    else:
        for text in texts():
            print_data(text)
    for note in length_notes(translator, cropped, reached_limit):
        print_text(f"note: {note}", open_console(stderr=True), style="dim")


def length_notes(translator: Translator, cropped: Sequence[int],
                 reached_limit: Sequence[int]) -> Iterator[str]:
    """Describe the lines whose source was cropped, or whose translation reached its limit."""
    from scalesearch.training.scoring.evaluate import max_source_tokens

    if cropped:
        yield (f"{format_count(len(cropped), 'source')} cropped to "
               f"{max_source_tokens(translator.checkpoint)} tokens: {_list_lines(cropped)}")
    if reached_limit:
        yield (f"{format_count(len(reached_limit), 'translation')} ended at the length limit "
               f"({translator.decoding.length_limit} tokens): {_list_lines(reached_limit)}. "
               "For longer translations, raise --max-length-a or --max-length-b")


def _list_lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:MAX_LISTED_LINES]))
    noun = "line" if len(numbers) == 1 else "lines"
    return f"{noun} {shown}" + (", …" if len(numbers) > MAX_LISTED_LINES else "")


def translate_with_progress(translator: Translator, lines: Iterable[str | None],
                            total: int | None = None
            ) -> Iterator[TranslatedLine]:
    """Yield lines with their translations, with a progress bar on standard error.

    The bar is shown if standard error is a terminal and standard output is not.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    hidden = not sys.stderr.isatty() or sys.stdout.isatty()
    columns = TextColumn("{task.description}",
                         markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("lines")
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as progress:
        task = progress.add_task(f"{translator.folder}: {translator.description}",
                                 total=total)
        for chunk in translator.translate_chunks(lines):
            yield from chunk
            sys.stdout.flush()
            progress.advance(task, len(chunk))


def _standard_input_lines() -> Iterator[str | None]:
    """Yield the lines of standard input; only a newline ends a line. None is a pause.

    Raises:
        UserError: a line is not UTF-8, or is too long.
    """
    from scalesearch.data.files import BYTE_ORDER_MARK, MAX_LINE_BYTES

    number = 0
    for line in _read_lines(sys.stdin.buffer, MAX_LINE_BYTES):
        if line is None:
            yield None
            continue
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"standard input, line {number}: more than {MAX_LINE_BYTES:,} bytes, "
                            "too long for a sentence", code="line-too-long")
        try:
            text = line.decode().rstrip("\r\n")
            yield text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
        except UnicodeDecodeError as error:
            raise UserError(f"standard input, line {number}: not UTF-8 at byte {error.start + 1}",
                            code="not-utf8") from None


def _read_lines(stream: BinaryIO, max_bytes: int) -> Iterator[bytes | None]:
    """Yield lines with their ends, and None if no input arrives for ``PAUSE_SECONDS``.

    More than ``max_bytes`` without a line end are one line.
    """
    try:
        descriptor = stream.fileno()
    except OSError:  # not a file: pauses cannot be measured
        yield from iter(partial(stream.readline, max_bytes + 1), b"")
        return
    incomplete = b""
    while True:
        if not select.select([descriptor], [], [], PAUSE_SECONDS)[0]:
            yield None
            continue
        block = os.read(descriptor, READ_BYTES)
        *lines, incomplete = (incomplete + block).split(b"\n")
        yield from (line + b"\n" for line in lines)
        if incomplete and (not block or len(incomplete) > max_bytes):
            yield incomplete
            incomplete = b""
        if not block:
            return
