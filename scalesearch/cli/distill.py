"""``scalesearch distill``: translations or soft targets of teachers for students."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scalesearch.api.files import load_data_spec
from scalesearch.cli.options import OutputPath, json_option, print_json, progress_bars
from scalesearch.cli.translate import search_options
from scalesearch.errors import UserError
from scalesearch.files import write_text
from scalesearch.terminal import print_text

if TYPE_CHECKING:
    from scalesearch.data import DataSpec

INTERRUPT_MESSAGE = "Progress is saved. Run the same command again to resume."


@click.command(name="distill")
@click.argument("teachers", nargs=-1, required=True, metavar="TEACHER...")
@click.option("--data", required=True, metavar="FILE",
              help="Data file. The teacher processes its training split.")
@click.option(
    "--out", required=True, type=OutputPath(), metavar="PREFIX",
    help="Output: PREFIX.yaml, the data file of the students; translations PREFIX.SOURCE and "
         "PREFIX.TARGET, or soft targets PREFIX and PREFIX.json.")
@click.option("--targets", type=click.Choice(("text", "soft")), default="text", show_default=True,
              help="text: translations (sequence level); soft: token probabilities (word level).")
@click.option("--top-k", default=8, show_default=True, metavar="N",
              help="Number of probabilities per target token, with --targets soft.")
@search_options
@json_option
def command(teachers: tuple[str, ...], data: str, out: Path, targets: str, top_k: int,
            beam: int | None, length_penalty: float | None, batch: int, as_json: bool) -> None:
    """Distill trained models in the folders TEACHER into training data for students.

    With --targets text, the teacher translates the training split (Kim and Rush 2016). With
    --targets soft, its probabilities of the target tokens are stored; `distillation_weight` of the
    recipe is their share of the loss. Several teachers share a vocabulary; their probabilities are
    averaged. Vocabulary, validation set and test set of the data stay the same. Run the same
    command again to resume an interrupted run.

    \b
    Example: scalesearch distill runs/teacher --data data.yaml --out kd/train
    """
    if targets == "soft":
        if beam is not None or length_penalty is not None:
            raise UserError("--targets soft does not decode",
                            help="remove --beam and --length-penalty", code="options-conflict")
        _write_soft_targets(teachers, data, out, top_k, as_json)
        return
    from scalesearch.export.translator import Translator
    from scalesearch.training.scoring.distill import write_distilled_data

    spec = load_data_spec(data)
    student_file = student_data_file(spec, out, distilled=str(out.resolve()))
    search = Translator(teachers, beam, length_penalty, batch).decoding
    with progress_bars(INTERRUPT_MESSAGE) as update_bar:
        description = write_distilled_data(list(map(Path, teachers)), spec, out, search,
                                           partial(update_bar, "translating"))
    write_text(*student_file)
    files = [*(f"{out}.{suffix}" for suffix in spec.suffixes), str(student_file[0])]
    if as_json:
        print_json({**description, "files": files})
    else:
        print_text(f"{description['pairs']:,} pairs ({search.description}): {', '.join(files)}")


@click.command(name="soften", hidden=True)
@click.argument("teachers", nargs=-1, required=True, metavar="TEACHER...")
@click.option("--data", required=True, metavar="FILE", help="Data file.")
@click.option("--out", required=True, type=OutputPath(), metavar="FILE", help="Output file.")
@click.option("--top", "top_k", default=8, show_default=True, metavar="N",
              help="Number of probabilities per target token.")
@json_option
def soften(teachers: tuple[str, ...], data: str, out: Path, top_k: int, as_json: bool) -> None:
    """Earlier name of `distill --targets soft`."""
    _write_soft_targets(teachers, data, out, top_k, as_json)


def _write_soft_targets(teachers: tuple[str, ...], data: str, out: Path, top_k: int,
                        as_json: bool) -> None:
    """Write soft targets to ``out``, and a data file that uses them to ``out``.yaml."""
    from scalesearch.training.scoring.soft_targets import write_soft_targets

    spec = load_data_spec(data)
    student_file = student_data_file(spec, out, soft_targets=str(out.resolve()))
    with progress_bars(INTERRUPT_MESSAGE) as update_bar:
        description = write_soft_targets(list(map(Path, teachers)), spec, out, top_k,
                                         partial(update_bar, "computing soft targets"))
    write_text(*student_file)
    files = [str(out), str(student_file[0])]
    if as_json:
        print_json({**description, "files": files})
    else:
        print_text(f"{description['tokens']:,} target tokens of {description['pairs']:,} pairs, "
                   f"top {top_k} probabilities each: {', '.join(files)}")


def student_data_file(spec: DataSpec, out: Path, **teacher_keys: str) -> tuple[Path, str]:
    """Return the path ``out``.yaml and its text, ``spec`` with ``teacher_keys``.

    Raises:
        UserError: the file exists with another content.
    """
    import yaml

    file = out.with_name(f"{out.name}.yaml")
    text: str = yaml.safe_dump(spec.to_json() | teacher_keys, sort_keys=False)
    if file.exists() and file.read_text("utf-8", errors="replace") != text:
        raise UserError(f"{file} already exists with another content; choose another --out",
                        code="already-exists")
    return file, text
