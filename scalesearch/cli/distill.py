"""``scalesearch distill TEACHER --data FILE --out PREFIX``: a teacher's translations as a corpus for students."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scalesearch.cli.options import json_option, print_json

if TYPE_CHECKING:
    from scalesearch.data import DataSpec

BUILTIN_SUFFIXES = ("en", "de")


@click.command(name="distill")
@click.argument("teacher")
@click.option("--data", required=True, metavar="FILE", help="The data file whose training text is translated.")
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="PREFIX",
              help="Writes PREFIX.SOURCE and PREFIX.TARGET, and PREFIX.yaml to train on for data in files.")
@click.option("--beam", default=5, show_default=True, type=click.IntRange(1), help="Width of the search; 1 is greedy.")
@click.option("--length-penalty", default=1.0, show_default=True, type=click.FloatRange(0))
@click.option("--batch", default=6144, show_default=True, type=click.IntRange(1), help="Source tokens in a batch.")
@json_option
def command(teacher: str, data: str, out: Path, beam: int, length_penalty: float, batch: int, as_json: bool) -> None:
    """Sequence-level distillation: translate the training text with the training in the folder TEACHER.

    Students are then trained on PREFIX.yaml, whose validation and test text stay real. Run again, it goes on where it
    was stopped; where teacher, text or search have changed, it refuses.
    """
    from rich.console import Console
    from rich.progress import Progress

    from scalesearch.cli.translate import translate_lines
    from scalesearch.data.sources import read
    from scalesearch.train import Recipe, checkpoint, read_checkpoint
    from scalesearch.train.distill import distill
    from scalesearch.train.evaluate import Search
    from scalesearch.train.hardware import Hardware

    spec = _spec(data)
    texts = read(spec)["train"].source
    found, hardware = read_checkpoint(teacher), Hardware.of(Recipe(steps=1))
    search = Search(beam, length_penalty, batch)
    found.model.to(hardware.device).set_attention(hardware.attention)
    weights = hashlib.sha256((Path(teacher) / checkpoint.WEIGHTS).read_bytes()).hexdigest()[:16]
    content = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    said = {"teacher": weights, "text": content, "decode": search.protocol, "dtype": hardware.dtype}
    suffixes = (spec.source or BUILTIN_SUFFIXES[0], spec.target or BUILTIN_SUFFIXES[1])

    def translate(lines: list[str]) -> list[str]:
        return [translation for _, translation, _ in translate_lines(found, lines, search, hardware)]

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("translating", total=len(texts))

        def tell(done: int, total: int) -> None:
            progress.update(task, completed=done)

        count = distill(texts, out, suffixes, translate, said, tell)
    files = [f"{out}.{suffix}" for suffix in suffixes] + ([] if spec.builtin else [_data_file(spec, out)])
    if as_json:
        print_json({"pairs": count, "files": files, **said})
    else:
        click.echo(f"{count:,} pairs ({search.protocol}): {', '.join(files)}")


def _spec(name: str) -> DataSpec:
    """The data, with paths that mean the same everywhere."""
    from scalesearch.cli.sections import read_section
    from scalesearch.data import DataSpec

    if name == "builtin":
        return DataSpec(builtin="grammar")
    section = read_section(Path(name), "data", "--data: `builtin` or a file")
    with section.naming():
        return DataSpec.from_mapping(section.value).resolve(section.file.parent)


def _data_file(spec: DataSpec, out: Path) -> str:
    """Writes the data file of the distilled corpus: its training text is new, everything else as it was."""
    import yaml

    from scalesearch.files import write_text

    file = out.with_name(f"{out.name}.yaml")
    write_text(file, yaml.safe_dump(spec.to_json() | {"train": str(out.resolve())}, sort_keys=False))
    return str(file)
