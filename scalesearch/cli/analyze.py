"""``scalesearch analyze``: heads, tokens, activations and gradients of a model."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import option, print_json, write_errors_named
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.terminal import make_table, print_text, wide_console

if TYPE_CHECKING:
    from scalesearch.analysis import Analysis

SPLITS = ("train", "validation", "test")
HEAD_COLUMNS = {"stack": "", "layer": "d", "part": "", "heads": "d", "diversity": ".4f",
                "diversity_sentence": ".4f", "silent_share": "%"}
TOKEN_COLUMNS = {"stack": "", "layer": "d", "uniformity": "+.4f", "uniformity_absolute": ".4f"}
FFN_COLUMNS = {"stack": "", "layer": "d", "part": "", "hidden": ",d", "n_act": ",.1f",
               "r_act": "%", "params": ",d", "eta_ffn": ".3g", "params_with_gate": ",d",
               "eta_ffn_with_gate": ".3g"}
LOAD_COLUMNS = {"group": "", "params": ",d", "load": "d", "use_share": "%"}
GRADIENT_COLUMNS = {"group": "", "params": ",d", "norm": ".3g", "relative_norm": ".3g",
                    "rms_gradient": ".3g"}


class SplitName(click.Choice):
    """A split; ``valid`` is accepted for ``validation``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert("validation" if value == "valid" else value, param, ctx)


@click.command(name="analyze")
@click.argument("model", type=click.Path(path_type=Path))
@option("data", required=True)
@click.option("--split", "split_name", default="validation", show_default=True,
              type=SplitName(SPLITS), help="Split of the data.")
@option("sentences", default=500, help="Number of sentences, from the start of the split.")
@option("to-folder", name="folder",
        help="Output folder for CSV files, figures and analysis.json.")
@option("format")
@option("json")
def command(model: Path, data: str, split_name: str, sentences: int, folder: Path | None,
            as_json: bool) -> None:
    """Analyze the trained model in the folder MODEL on some sentences.

    The folder is a finished training run or a trial of a study. Results: diversity of heads,
    uniformity of tokens, active hidden units, uses of shared weights, and gradient norms per group
    of parameters.

    \b
    Example: scalesearch analyze runs/model --data builtin
    """
    if folder is not None:
        require_packages("matplotlib")

    from scalesearch.analysis import analyze_model, take_sentences
    from scalesearch.data import load_corpus
    from scalesearch.training import read_checkpoint
    from scalesearch.training.checkpoint import TOKENIZER_FILE
    from scalesearch.training.input_files import read_data_spec

    trained = read_checkpoint(model)
    spec, section = read_data_spec(data)
    if spec.task != trained.task:
        raise UserError(f"{data} is for the task {spec.task}, but the model was trained for "
                        f"{trained.task}. Use data with `task: {trained.task}`",
                        code="other-task")
    spec = spec.use_tokenizer(model / TOKENIZER_FILE).replace(lowercase=trained.is_lowercase)
    with section.locate_errors():
        corpus = load_corpus(spec, base=section.file.parent)
    split = take_sentences(getattr(corpus, split_name), sentences)
    if not len(split):
        raise UserError(f"--split {split_name}: {corpus.name} has no sentences in this split. "
                        "Choose another split", code="no-such-sentences")
    result = analyze_model(trained.model, trained.architecture.block, split, trained.recipe)
    if not math.isfinite(result.gradients.norm):
        raise UserError(f"{model}: the model's loss or its gradient is not a finite number "
                        f"(loss {result.gradients.loss}). The training diverged, and the model "
                        "cannot be analyzed", code="diverged")
    about = {"checkpoint": model.name, "architecture": trained.architecture.id,
             "data": asdict(corpus.facts), "split": split_name, "sentences": len(split),
             "label_smoothing": trained.recipe.label_smoothing}
    written = []
    if folder is not None:
        from scalesearch.analysis.write import write_analysis

        with write_errors_named("--to", folder):
            written = write_analysis(result, about, folder)
    if as_json:
        print_json({**about, **asdict(result)})
    else:
        subject = (f"architecture {trained.architecture.id} · {corpus.name}"
                   f"{' (synthetic)' * corpus.is_synthetic}, first {len(split)} sentences of "
                   f"{split_name}")
        _show(result, subject, trained.recipe.label_smoothing)
        for path in written:
            print_text(f"wrote {path}")


def _show(result: Analysis, subject: str, smoothing: float) -> None:
    console = wide_console()
    gradients = result.gradients
    load = ", ".join(f"{name} {getattr(result.load, name):.3f}"
                     for name in ("mean", "balance", "min", "max"))
    tables = (("Head diversity: e⁻¹ = 0.368 if all heads are equal, e^(-1/H) if orthogonal",
               result.heads, HEAD_COLUMNS),
              ("Token uniformity: mean correlation of the tokens of a sentence, 1 if all are equal",
               result.tokens, TOKEN_COLUMNS),
              ("Active FFN units: per token, as a share of hidden units, per parameter",
               result.ffn, FFN_COLUMNS),
              (f"Uses of parameter groups per forward pass: {load}", result.load.groups,
               LOAD_COLUMNS),
              (f"Gradient of the mean loss ({gradients.loss:.4f} nats per token, label smoothing "
               f"{smoothing:g}), norm {gradients.norm:.4g}", gradients.groups, GRADIENT_COLUMNS))
    for title, rows, columns in tables:
        if rows:
            cells = [[_format(getattr(row, name), spec) for name, spec in columns.items()]
                     for row in rows]
            text_columns = [index for index, spec in enumerate(columns.values()) if not spec]
            print_text(title, style="bold")
            print_text(make_table((name.replace("_", " ") for name in columns), cells,
                                  text_columns), console)
    print_text(subject)


def _format(value: Any, spec: str) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if spec == "%" else f"{value:{spec}}"
