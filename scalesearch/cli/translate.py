"""``scalesearch translate CHECKPOINT``: lines in, lines out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice

import click

from scalesearch.cli.options import json_option
from scalesearch.errors import UserError

AT_ONCE = 1000  # lines that are sorted by length together, and how long the first answer takes


@click.command(name="translate")
@click.argument("checkpoint")
@click.option("--beam", default=5, show_default=True, type=click.IntRange(1), help="Width of the search; 1 is greedy.")
@click.option("--length-penalty", default=1.0, show_default=True, type=click.FloatRange(0),
              help="α in log-probability / length^α.")
@click.option("--batch", default=6144, show_default=True, type=click.IntRange(1), help="Source tokens in a batch.")
@json_option
def command(checkpoint: str, beam: int, length_penalty: float, batch: int, as_json: bool) -> None:
    """Translate each line of standard input with the training in the folder CHECKPOINT.

    One line comes out for each that goes in, in the same order; an empty one stays empty. With --json, a line is an
    object with source, translation and score.
    """
    from scalesearch.tasks import TASKS
    from scalesearch.train import Recipe, read_checkpoint
    from scalesearch.train.hardware import Hardware
    from scalesearch.train.scoring.evaluate import Search, translate_lines

    found = read_checkpoint(checkpoint)
    if TASKS[found.task].score is None:
        raise UserError(f"{checkpoint}: trained for the task {found.task}, which turns no line into another",
                        code="other-task")
    hardware = Hardware.of(Recipe(steps=1))
    found.model.to(hardware.device).set_attention(hardware.attention)
    lines, search = _lines(), Search(beam, length_penalty, batch)
    while some := list(islice(lines, AT_ONCE)):
        for source, said, score in translate_lines(found, some, search, hardware):
            click.echo(_object(source, said, score) if as_json else said)
        sys.stdout.flush()


def _lines() -> Iterator[str]:
    """Standard input's lines, which only a newline ends.

    Raises:
        UserError: one of them is not UTF-8.
    """
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"standard input, line {number}: not UTF-8 at byte {error.start + 1}",
                            code="not-utf8") from None


def _object(source: str, said: str, score: float | None) -> str:
    import json

    return json.dumps({"source": source, "translation": said, "score": score}, ensure_ascii=False)
