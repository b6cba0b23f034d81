"""``scalesearch soften TEACHER... --data FILE --out FILE``: a teacher's probabilities, for students to learn from."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from scalesearch.api.files import load_data_spec
from scalesearch.cli.distill import student_data_file
from scalesearch.cli.options import OutputPath, json_option, print_json, progress_bars
from scalesearch.files import write_text
from scalesearch.terminal import print_text


@click.command(name="soften")
@click.argument("teachers", nargs=-1, required=True, metavar="TEACHER...")
@click.option("--data", required=True, metavar="FILE",
              help="The data file whose training pairs are softened.")
@click.option("--out", required=True, type=OutputPath(), metavar="FILE",
              help="Writes FILE, FILE.json, and FILE.yaml, the data file to train on.")
@click.option("--top", "top_k", default=8, show_default=True, metavar="N",
              help="Tokens kept at every place.")
@json_option
def command(teachers: tuple[str, ...], data: str, out: Path, top_k: int, as_json: bool) -> None:
    """Word-level distillation: what the training in the folder TEACHER finds probable at every place of the training
    pairs.

    Several teachers give the mean of their probabilities; they share a vocabulary, which the
    student has too. The pairs may be a teacher's translations, real ones or both. Students are then
    trained on FILE.yaml; their recipe's `distillation_weight` says how much the teacher counts. Run again,
    it goes on where it was stopped.
    """
    soften(teachers, data, out, top_k, as_json)


def soften(teachers: tuple[str, ...], data: str, out: Path, top_k: int, as_json: bool) -> None:
    """Write soft targets and the data file that uses them."""
    from scalesearch.train.scoring.soft_targets import write_soft_targets

    spec = load_data_spec(data)
    learned = student_data_file(spec, out, soft_targets=str(out.resolve()))
    with progress_bars("What is done is kept; the same command goes on from there.") as tell:
        said = write_soft_targets(list(map(Path, teachers)), spec, out, top_k,
                                  partial(tell, "softening"))
    write_text(*learned)
    files = [str(out), str(learned[0])]
    if as_json:
        print_json({**said, "files": files})
    else:
        print_text(f"{said['tokens']:,} tokens of {said['pairs']:,} pairs, {top_k} tokens each: "
                   f"{', '.join(files)}")
