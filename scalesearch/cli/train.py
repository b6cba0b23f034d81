"""``scalesearch train ARCHITECTURE``: trains one architecture on a parallel corpus, and scores it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from scalesearch.api.files import load_data, load_recipe
from scalesearch.api.progress import training_bar
from scalesearch.cli.options import OutputPath, json_option, load_architecture, print_json, seed_option, set_option
from scalesearch.errors import UserError
from scalesearch.signals import SignalInterrupt
from scalesearch.terminal import escape_control_characters, open_console, print_text

if TYPE_CHECKING:
    from rich.console import Console

    from scalesearch.data import Corpus
    from scalesearch.space.assembly.architecture import ModelSpec
    from scalesearch.train import Recipe, Result

TRAINING_FILES = ("result.json", "checkpoint.pt")  # that a training has been in a folder
DESCRIPTION_FILES = ("architecture.yaml", "tokenizer.model", "recipe.json", "data.json",
                     "snapshots", "model.safetensors")


@click.command(name="train")
@click.argument("architecture")
@click.option("--data", default="builtin", show_default=True, metavar="FILE",
              help="A YAML file that says what to learn from, or `builtin`.")
@set_option
@click.option("--recipe", default="quick", show_default=True, metavar="NAME|FILE",
              help="A preset (quick, short, base, transformer-tiny, partialformer, edgeformer, "
              "anthe) or a YAML file; --set recipe.lr=1e-3 changes a key, of which "
              "docs/reference/recipe.md has all.")
@click.option("--out", required=True, type=OutputPath(is_folder=True),
              help="Folder for the result.")
@seed_option(1, "Of first weights, order of batches and dropout.")
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1),
              help="That share each update: CPU processes, or with a GPU each. Cores are shared "
              "out among them.")
@click.option("--resume", is_flag=True, help="Go on with what is in the folder.")
@json_option
def command(architecture: str, data: str, settings: tuple[str, ...], recipe: str, out: Path,
            seed: int, processes: int, resume: bool, as_json: bool) -> None:
    """Train the architecture in the file ARCHITECTURE (or a shipped one, such as transformer) and score it.

    Ctrl-C (exit status 130) and SIGTERM (143) save; the same command with --resume goes on as if
    nothing had been.
    """
    of_recipe = tuple(
        one for one in settings if one.partition("=")[0].strip().split(".")[0] == "recipe")
    how = load_recipe(recipe, of_recipe)
    _, chosen = load_architecture(architecture,
                                  tuple(one for one in settings if one not in of_recipe))
    _check_folder(out, resume)
    from scalesearch.export.scoring import artifact_decoder, check_decoder
    from scalesearch.train import train
    from scalesearch.train.parallel.team import ProcessLostError

    check_decoder(how, chosen.block)
    console = open_console(stderr=as_json)
    corpus = load_data(data, how, chosen.vocab)
    if resume:
        _check_same(chosen, corpus, how, seed, processes, out)
    _print_header(console, chosen.id, corpus, how, out)
    try:
        with training_bar(console) as report:
            result = train(chosen, corpus, how, out, seed=seed, report=report, resume=resume,
                           processes=processes, open_artifact=artifact_decoder)
    except ProcessLostError as lost:
        click.echo(escape_control_characters(f"{lost}; go on with --resume"), err=True)
        raise SystemExit(1) from None
    except SignalInterrupt as stopped:
        click.echo(escape_control_characters(stopped), err=True)
        raise SystemExit(stopped.status) from None
    _show(console, result)
    if as_json:
        print_json(result.to_json())
    if result.state != "complete":
        raise SystemExit(1)


def _check_folder(out: Path, resume: bool) -> None:
    """A folder that holds a training is only used again on purpose, and one that holds something else not at all."""
    held = [name for name in TRAINING_FILES if (out / name).exists()]
    if held and not resume:
        raise UserError(f"{out}: holds a training already ({', '.join(held)}). Go on with "
                        "--resume, or give another folder with --out", code="training-exists")
    # What a training that was stopped before its first save may have left is no matter, nor are
    # hidden files.
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    others = [name for name in names if not name.startswith(".") and name not in DESCRIPTION_FILES]
    if others and not held:
        shown = ", ".join(others[:4]) + (", …" if len(others) > 4 else "")
        raise UserError(f"{out}: holds other files ({shown}). Choose an empty or a new folder with "
                        "--out", code="folder-not-empty")
    if resume and not held:
        click.echo(f"nothing to resume in {escape_control_characters(out)}; starting from the "
                   "beginning", err=True)


def _check_same(chosen: ModelSpec, corpus: Corpus, recipe: Recipe, seed: int, processes: int,
                out: Path) -> None:
    """Refuses early, before anything is written or shown, to go on with other settings.

    Raises UserError.
    """
    from scalesearch.train import Result, checkpoint

    done = Result.read(out)
    state = checkpoint.load_state(out) if done is None or done.state != "complete" else None
    if state is not None:
        wanted = checkpoint.run_identity(chosen, corpus, recipe, seed, processes)
        checkpoint.check_identity(state["identity"], wanted, out)


def _print_header(console: Console, identity: str, corpus: Corpus, recipe: Recipe,
                  out: Path) -> None:
    kind = (" (synthetic: its scores compare architectures, nothing else)" if corpus.is_synthetic
            else "")
    unit = "pairs" if corpus.train.window_overlap is None else "windows"
    print_text(f"architecture {identity} · {corpus.name}{kind}: {len(corpus.train):,} {unit}, "
        f"vocabulary {corpus.tokenizer.vocab_size:,}", console)
    for note in corpus.notes:
        print_text(f"  {note}", console, "dim")
    print_text(f"{recipe.describe()} · into {out}", console)


def _show(console: Console, result: Result) -> None:
    for note in result.notes:
        print_text(note, console, "yellow")
    if result.state != "complete":
        print_text(f"failed: {result.reason}", console, "bold red")
        return
    from scalesearch.train.score_tables import protocol_lines, score_table

    print_text(score_table(result.metrics), console)
    for line in protocol_lines(result):
        print_text(line, console, "dim")
