"""``scalesearch distill TEACHER... --data FILE --out PREFIX``: a teacher's translations as a corpus for students."""

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


@click.command(name="distill")
@click.argument("teachers", nargs=-1, required=True, metavar="TEACHER...")
@click.option("--data", required=True, metavar="FILE",
              help="The data file whose training text is translated.")
@click.option(
    "--out", required=True, type=OutputPath(), metavar="PREFIX",
    help="Writes PREFIX.SOURCE and PREFIX.TARGET, and PREFIX.yaml, the data file to train on.")
@click.option("--targets", type=click.Choice(("text", "soft")), default="text", show_default=True,
              help="text: translations (sequence level); soft: token probabilities (word level), "
                   "see --top-k.")
@click.option("--top-k", default=8, show_default=True, metavar="N",
              help="Tokens kept per position, with --targets soft.")
@search_options
@json_option
def command(teachers: tuple[str, ...], data: str, out: Path, targets: str, top_k: int,
            beam: int | None, length_penalty: float | None, batch: int, as_json: bool) -> None:
    """Sequence-level distillation: translate the training text with the training in the folder TEACHER.

    Several teachers translate together, each next token by the mean of their probabilities; they
    share a vocabulary. Students are then trained on PREFIX.yaml, whose vocabulary, validation and
    test text stay those of the real data. Run again, it goes on where it was stopped; where
    teacher, text or search have changed, it refuses.
    """
    if targets == "soft":
        from scalesearch.cli.soften import soften

        if beam is not None or length_penalty is not None:
            raise UserError("--targets soft does not decode",
                            help="remove --beam and --length-penalty", code="options-conflict")
        soften(teachers, data, out, top_k, as_json)
        return
    from scalesearch.export.translator import Translator
    from scalesearch.train.scoring.distill import write_distilled_data

    spec = load_data_spec(data)
    learned = student_data_file(spec, out, distilled=str(out.resolve()))
    search = Translator(teachers, beam, length_penalty, batch).decoding
    with progress_bars("What is done is kept; the same command goes on from there.") as tell:
        said = write_distilled_data(list(map(Path, teachers)), spec, out, search,
                                    partial(tell, "translating"))
    write_text(*learned)
    files = [*(f"{out}.{suffix}" for suffix in spec.suffixes), str(learned[0])]
    if as_json:
        print_json({**said, "files": files})
    else:
        print_text(f"{said['pairs']:,} pairs ({search.description}): {', '.join(files)}")


def student_data_file(spec: DataSpec, out: Path, **teacher_keys: str) -> tuple[Path, str]:
    """``out``.yaml and the text of a data file: what is ``learned`` from is new, everything else as it was.

    Raises:
        UserError: another file is there.
    """
    import yaml

    file = out.with_name(f"{out.name}.yaml")
    text: str = yaml.safe_dump(spec.to_json() | teacher_keys, sort_keys=False)
    if file.exists() and file.read_text("utf-8", errors="replace") != text:
        raise UserError(f"{file} is there already, and is another file than the one that would be "
                        "written; give another --out", code="already-exists")
    return file, text
