"""``scalesearch distill``: translations or soft targets of teachers for students."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from scalesearch.cli.options import OutputPath, option, print_json, progress_bars, search_options
from scalesearch.errors import UserError
from scalesearch.files import write_text
from scalesearch.terminal import format_count, print_text


@click.command(name="distill")
@click.argument("teachers", nargs=-1, required=True, type=click.Path(), metavar="TEACHER...")
@option("data", required=True, help="Data file. The teacher processes its training split.")
@option("out", required=True, type=OutputPath(), metavar="PREFIX",
        help="Output: PREFIX.yaml, the data file of the students; translations PREFIX.SOURCE and "
        "PREFIX.TARGET, or soft targets PREFIX and PREFIX.json.")
@click.option("--targets", type=click.Choice(("text", "soft")), default="text", show_default=True,
              help="text: translations (sequence level); soft: token probabilities (word level).")
@click.option("--top-k", default=8, show_default=True, metavar="N",
              help="Number of probabilities per target token, with --targets soft.")
@search_options
@option("json")
def command(teachers: tuple[str, ...], data: str, out: Path, targets: str, top_k: int,
            search: dict[str, Any], as_json: bool) -> None:
    """Distill trained models in the folders TEACHER into training data for students.

    With --targets text, the teacher translates the training split (Kim and Rush 2016). With
    --targets soft, its probabilities of the target tokens are stored; `distillation_weight` of the
    recipe is their share of the loss. Several teachers share a vocabulary; their probabilities are
    averaged. Vocabulary, validation set and test set of the data stay the same. Run the same
    command again to resume an interrupted run.

    \b
    Example: scalesearch distill runs/teacher --data data.yaml --out kd/train
    """
    decoding_options = [f"--{name.replace('_', '-')}" for name, value in search.items()
                        if value not in (None, False) and name != "batch_tokens"]
    if targets == "soft" and decoding_options:
        raise UserError("--targets soft does not decode",
                        help=f"remove {' and '.join(decoding_options)}", code="options-conflict")
    import yaml

    from scalesearch.training.hardware import describe_busy_cores
    from scalesearch.training.input_files import load_data_spec
    from scalesearch.training.recipe import Recipe
    from scalesearch.training.scoring.distill import write_distilled_data
    from scalesearch.training.scoring.soft_targets import write_soft_targets

    spec = load_data_spec(data)
    key = "soft_targets" if targets == "soft" else "distilled"
    student_file = out.with_name(f"{out.name}.yaml")
    student_data = yaml.safe_dump(spec.model_dump() | {key: str(out.resolve())}, sort_keys=False)
    if student_file.exists() and student_file.read_text("utf-8", errors="replace") != student_data:
        raise UserError(f"{student_file} already exists with another content; choose another --out",
                        code="already-exists")
    folders = list(map(Path, teachers))
    if warning := describe_busy_cores(Recipe(steps=1)):
        click.echo(warning, err=True)
    with progress_bars("Run the same command again to resume.") as update_bar:
        if targets == "soft":
            description = write_soft_targets(folders, spec, out, top_k,
                                             partial(update_bar, "computing soft targets"))
            files = [str(out)]
            summary = (f"{format_count(description['tokens'], 'target token')} of "
                       f"{format_count(description['pairs'], 'pair')}, top {top_k} "
                       "probabilities each")
        else:
            description = write_distilled_data(folders, spec, out, search,
                                               partial(update_bar, "translating"))
            files = [f"{out}.{suffix}" for suffix in spec.suffixes]
            summary = f"{format_count(description['pairs'], 'pair')} ({description['decoding']})"
            if description["left_out"]:
                summary += (f", without {description['left_out']:,} whose source is too long for "
                            "the teacher")
    write_text(student_file, student_data)
    files.append(str(student_file))
    if as_json:
        print_json({**description, "files": files})
    else:
        print_text(f"{summary}: {', '.join(files)}")


@click.command(name="soften", hidden=True)
@click.argument("teachers", nargs=-1, required=True, type=click.Path(), metavar="TEACHER...")
@option("data", required=True)
@option("out", required=True, type=OutputPath(), metavar="FILE", help="Output file.")
@click.option("--top", "top_k", default=8, show_default=True, metavar="N",
              help="Number of probabilities per target token.")
@option("json")
@click.pass_context
def soften(ctx: click.Context, **options: Any) -> None:
    """Earlier name of `distill --targets soft`."""
    ctx.invoke(command, **options, targets="soft")
