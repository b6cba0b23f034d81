"""``scalesearch train``: train one architecture, and score it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from scalesearch.cli.options import (
    check_keys_differ,
    complete_space,
    load_architecture,
    option,
    print_json,
)
from scalesearch.errors import UserError
from scalesearch.signals import SignalInterrupt
from scalesearch.terminal import escape_control_characters, open_console, print_text

TRAINING_FILES = ("result.json", "checkpoint.pt")  # identify the folder of a training run
# Files that a training run writes before its first checkpoint.
DESCRIPTION_FILES = ("architecture.yaml", "tokenizer.model", "recipe.json", "data.json",
                     "snapshots", "model.safetensors")


@click.command(name="train")
@click.argument("architecture", required=False, shell_complete=complete_space)
@click.option("--from", "initial_folder", type=click.Path(path_type=Path), metavar="MODEL",
              help="Fine-tune the trained model in this folder: start from its weights, with its "
              "vocabulary and a new optimizer.")
@option("data", default="builtin")
@option("set")
@click.option("--recipe", default="quick", show_default=True, metavar="NAME|FILE",
              help="Preset (quick, short, base, transformer-tiny, partialformer, edgeformer, "
              "anthe) or YAML file. Change a key with --set recipe.lr=1e-3; see "
              "docs/reference/recipe.md.")
@option("out", required=True)
@option("seed", default=1, help="Random seed for initialization, batch order and dropout.")
@click.option("--resume", is_flag=True, help="Resume the training run in the output folder.")
@option("json")
def command(architecture: str | None, initial_folder: Path | None, data: str,
            settings: tuple[str, ...], recipe: str, out: Path, seed: int, resume: bool,
            as_json: bool) -> None:
    """Train the architecture in the file ARCHITECTURE, and score it.

    ARCHITECTURE is a file or a built-in architecture, such as transformer. With --from it is that
    of the model. Ctrl-C (exit status 130) and SIGTERM (143) save a checkpoint. The same command
    with --resume continues from it, with the same result as an uninterrupted run.

    \b
    Example: scalesearch train transformer --data data.yaml --recipe short --out runs/model
    """
    from scalesearch.training.input_files import load_data, load_recipe

    if architecture is None:
        if initial_folder is None:
            raise click.UsageError("Missing argument 'ARCHITECTURE'.")
        architecture = str(initial_folder)
    check_keys_differ(settings, "--set")
    recipe_settings = tuple(setting for setting in settings
                            if setting.partition("=")[0].strip().split(".")[0] == "recipe")
    architecture_settings = tuple(setting for setting in settings if setting not in recipe_settings)
    training_recipe = load_recipe(recipe, recipe_settings)
    _, model_spec = load_architecture(architecture, architecture_settings)
    _check_folder(out, resume)
    from scalesearch.export.base import artifact_decoder, check_decoder
    from scalesearch.training import checkpoint, train
    from scalesearch.training.display import protocol_lines, score_table, training_bar
    from scalesearch.training.hardware import check_device, describe_busy_cores

    if initial_folder is None:
        checkpoint.check_initial_model(architecture, out)
    check_decoder(training_recipe, model_spec.block)
    check_device(training_recipe)
    console = open_console(stderr=as_json)
    initial_model = None if initial_folder is None else checkpoint.read_checkpoint(initial_folder)
    corpus = load_data(data, training_recipe, model_spec.vocab_sizes,
                       initial_folder and initial_folder / checkpoint.TOKENIZER_FILE,
                       model_spec.config["model"])
    synthetic = " (synthetic: only for comparisons of architectures)" if corpus.is_synthetic else ""
    unit = ("texts" if corpus.train.has_classes else
            "pairs" if corpus.train.window_overlap is None else "windows")
    tokenizer = corpus.tokenizer
    vocabulary = f"{tokenizer.vocab_size:,}" + (
        f" and {tokenizer.target.vocab_size:,}" if tokenizer.is_pair else "")
    print_text(f"architecture {model_spec.id} · {corpus.name}{synthetic}: {len(corpus.train):,} "
               f"{unit}, vocabulary {vocabulary}", console)
    for note in corpus.notes:
        print_text(f"  {note}", console, "dim")
    start = f" · from the weights in {initial_folder}" if initial_folder else ""
    print_text(f"{training_recipe.describe()}{start} · into {out}", console)
    if warning := describe_busy_cores(training_recipe):
        print_text(warning, console)
    try:
        with training_bar(console) as report:
            result = train(model_spec, corpus, training_recipe, out, seed=seed, report=report,
                           resume=resume, open_artifact=artifact_decoder,
                           initial_model=initial_model)
    except SignalInterrupt as interrupt:
        click.echo(escape_control_characters(interrupt), err=True)
        raise SystemExit(interrupt.status) from None
    for note in result.notes:
        print_text(note, console, "yellow")
    if result.state == "complete":
        print_text(score_table(result.metrics), console)
        for line in protocol_lines(result):
            print_text(line, console, "dim")
    else:
        print_text(f"failed: {result.reason}", console, "bold red")
    if as_json:
        print_json(asdict(result))
    if result.state != "complete":
        raise SystemExit(1)


def _check_folder(out: Path, resume: bool) -> None:
    """Check the output folder: empty, or with a training run and ``--resume``."""
    training_files = [name for name in TRAINING_FILES if (out / name).exists()]
    if training_files and not resume:
        raise UserError(f"{out}: contains a training run already ({', '.join(training_files)}). "
                        "Resume it with --resume, or choose another folder with --out",
                        code="training-exists")
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    others = [name for name in names if not name.startswith(".") and name not in DESCRIPTION_FILES]
    if others and not training_files:
        shown = ", ".join(others[:4]) + (", …" if len(others) > 4 else "")
        raise UserError(f"{out}: contains other files ({shown}). Choose an empty or a new folder "
                        "with --out", code="folder-not-empty")
    if resume and not training_files:
        click.echo(f"nothing to resume in {escape_control_characters(out)}; starting from the "
                   "beginning", err=True)
