"""``scalesearch analyze CHECKPOINT``: heads, tokens, activations, load and gradients of a trained model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.api.files import read_data_spec
from scalesearch.cli.options import OutputPath, json_option, print_json
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.terminal import make_table, print_text, wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.analysis import Analysis
    from scalesearch.data import Corpus
    from scalesearch.train.checkpoint import Checkpoint

SPLITS = ("train", "validation", "test")
HEAD_COLUMNS = {"stack": "", "layer": "d", "part": "", "heads": "d", "diversity": ".4f",
                "diversity_sentence": ".4f", "silent_share": ".1%"}
TOKEN_COLUMNS = {"stack": "", "layer": "d", "uniformity": "+.4f", "uniformity_absolute": ".4f"}
FFN_COLUMNS = {"stack": "", "layer": "d", "part": "", "hidden": ",d", "n_act": ",.1f",
               "r_act": ".1%", "params": ",d", "eta_ffn": ".3g", "params_with_gate": ",d",
               "eta_ffn_with_gate": ".3g"}
LOAD_COLUMNS = {"group": "", "params": ",d", "load": "d", "use_share": ".1%"}
GRADIENT_COLUMNS = {"group": "", "params": ",d", "norm": ".3g", "relative_norm": ".3g", "rms_gradient": ".3g"}


@click.command(name="analyze")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--data", required=True, metavar="FILE",
              help="A YAML file that says what to read, or `builtin`.")
@click.option("--split", "split_name", default="validation", show_default=True,
              type=click.Choice(SPLITS))
@click.option("--sentences", default=500, show_default=True, type=click.IntRange(1),
              help="The first so many.")
@click.option("--to", "folder", type=OutputPath(is_folder=True),
              help="Write CSV files, figures (PNG and SVG) and analysis.json there.")
@json_option
def command(checkpoint: Path, data: str, split_name: str, sentences: int, folder: Path | None,
            as_json: bool) -> None:
    """What goes on inside the finished training in the folder CHECKPOINT (or a study's trial), on some sentences.

    How different heads are, how alike tokens become, how many hidden units are active, how often
    shared weights are used, how strong the gradient of each group of parameters is.
    """
    if folder is not None:
        require_packages("matplotlib")

    from scalesearch.analysis import analyze_model, take_sentences
    from scalesearch.train import read_checkpoint

    found = read_checkpoint(checkpoint)
    corpus = _corpus(data, found, checkpoint)
    split = take_sentences(getattr(corpus, split_name), sentences)
    if not len(split):
        raise UserError(f"--split {split_name}: {corpus.name} has no such sentences. Choose "
                        "another split", code="no-such-sentences")
    result = analyze_model(found.model, found.architecture.block, split, found.recipe)
    if not math.isfinite(result.gradients.norm):
        raise UserError(f"{checkpoint}: the model's loss or its gradient is not a finite number "
                        f"(loss {result.gradients.loss}); its training has diverged, and cannot be "
                        "analyzed", code="diverged")
    about = {"checkpoint": checkpoint.name, "architecture": found.architecture.id,
             "data": corpus.to_json(), "split": split_name, "sentences": len(split),
             "label_smoothing": found.recipe.label_smoothing}
    written = [] if folder is None else _written(result, about, folder)
    if as_json:
        print_json({**about, **result.to_json()})
    else:
        what = (f"{corpus.name}{' (synthetic)' * corpus.is_synthetic}, first {len(split)} of "
                f"{split_name}")
        _show(result, f"architecture {found.architecture.id} · {what}",
              found.recipe.label_smoothing)
        for path in written:
            print_text(f"wrote {path}")


def _corpus(name: str, found: Checkpoint, folder: Path) -> Corpus:
    """The corpus ``name``, cut into the tokens of the checkpoint.

    Raises:
        UserError: it is not one, or it is for another task.
    """
    from scalesearch.data import load_corpus
    from scalesearch.train.checkpoint import TOKENIZER_FILE

    spec, section = read_data_spec(name)
    if spec.task != found.task:
        raise UserError(f"{name}: is for the task {spec.task}, the checkpoint was trained for "
                        f"{found.task}. Name data with `task: {found.task}`", code="other-task")
    own = replace(spec, tokenizer=str((folder / TOKENIZER_FILE).resolve()), vocab=None,
                  lowercase=found.is_lowercase)
    with section.locate_errors():
        return load_corpus(own, base=section.file.parent)


def _written(result: Analysis, about: dict[str, Any], folder: Path) -> list[Path]:
    from scalesearch.analysis.write import write_analysis

    try:
        return write_analysis(result, about, folder)
    except OSError as error:
        raise UserError(f"--to {folder}: {error.strerror or error}", code="cannot-write") from None


def _show(result: Analysis, subject: str, smoothing: float) -> None:
    console = wide_console()
    pull = result.gradients
    load = ", ".join(f"{name.removeprefix('load.')} {value:.3f}"
                     for name, value in result.load.items())
    tables = (("Head diversity: e⁻¹ = 0.368 if all heads are alike, e^(-1/H) if orthogonal",
               result.heads, HEAD_COLUMNS),
              ("Token uniformity: mean correlation of a sentence's " "tokens, 1 if all are alike",
               result.tokens, TOKEN_COLUMNS),
              ("Active units of feed-forward networks: a token, of " "hidden ones, per parameter",
               result.ffn, FFN_COLUMNS),
              (f"Uses of parameter groups a pass: {load}", result.loads, LOAD_COLUMNS),
              ("Gradient of " "the mean loss " f"({pull.loss:.4f} nats a token, label smoothing "
               f"{smoothing:g}), norm {pull.norm:.4g}", pull.rows, GRADIENT_COLUMNS))
    for title, rows, columns in tables:
        if rows:
            print_text(title, style="bold")
            print_text(_table(rows, columns), console)
    print_text(subject)


def _table(rows: list[Any], columns: dict[str, str]) -> Table:
    """``columns``: field to format."""
    cells = [["-" if (value := getattr(row, name)) is None else f"{value:{shape}}"
              for name, shape in columns.items()] for row in rows]
    words = [at for at, shape in enumerate(columns.values()) if not shape]
    return make_table((name.replace("_", " ") for name in columns), cells, words)
