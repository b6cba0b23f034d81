"""``scalesearch export STUDY_OR_MODEL --to FORMAT``: a trained model as an artifact that other runtimes load."""

from __future__ import annotations

from pathlib import Path

import click

from scalesearch.api.files import load_data_spec
from scalesearch.cli.options import THREAD_COUNT, OutputPath, json_option, print_json
from scalesearch.errors import UserError
from scalesearch.export.formats import FORMAT_CLASSES, get_format
from scalesearch.library import require_packages
from scalesearch.terminal import print_text

QUANTIZATIONS = ("none", "int8", "int16", "bf16")


@click.command(name="export")
@click.argument("model", metavar="STUDY_OR_MODEL")
@click.argument("trial", type=int, required=False)
@click.option("--best", metavar="OBJECTIVE",
              help="Of the front, the best by this objective (the first, if not given).")
@click.option("--under", metavar="LIMITS",
              help="The best of all that meet these, such as 'bleu >= "
              "30': costs, answers and scores on valid.")
@click.option("--to", "format", required=True, type=click.Choice(list(FORMAT_CLASSES)),
              help="Format of the artifact.")
@click.option("--quantize", "quantize", type=click.Choice(QUANTIZATIONS),
              help="The format's own, if not given; none is float32.")
@click.option("--out", type=OutputPath(is_folder=True),
              help="Folder to write (export-NAME-FORMAT, if not given).")
@click.option("--data", metavar="FILE",
              help="A data file, or `builtin`, to verify on, if not the training's own.")
@click.option("--sentences", default=1000, show_default=True, type=click.IntRange(1),
              help="Validation sentences to verify on.")
@click.option("--threads", default=1, show_default=True, type=THREAD_COUNT, help="To verify with.")
@json_option
def command(model: str, trial: int | None, best: str | None, under: str | None, format: str,
            quantize: str | None, out: Path | None, data: str | None, sentences: int, threads: int,
            as_json: bool) -> None:
    """Write a study's best candidate, its trial TRIAL, or a finished training as an artifact of a format.

    It is verified before the folder appears: greedy translations of validation text against the
    model's own. What it is, where it comes from and what was verified is in its artifact.json.
    """
    from scalesearch.export.export import export_training

    source, label, why = _chosen(model, trial, best, under)
    target = out or Path(f"export-{label}-{format}")
    if data is not None and not get_format(format).has_decoder:
        raise UserError(f"--to {format} holds the training's own files, so nothing is verified: "
                        "leave --data out", code="options-conflict")
    spec = None if data is None else load_data_spec(data)
    found = export_training(source, target, format, quantize, spec, sentences, threads, why)
    if as_json:
        print_json({**vars(found), "folder": str(target)})
        return
    print_text(f"{why} -> {target}")
    for line in found.summary_lines():
        print_text(line)


def _chosen(model: str, trial: int | None, best: str | None, under: str | None) -> tuple[
        Path, str, str]:
    """Folder of the training to export, what to call it, and why it is this one."""
    from scalesearch.train.checkpoint import ARCHITECTURE_FILE

    if (Path(model) / ARCHITECTURE_FILE).is_file():
        if (trial, best, under) != (None, None, None):
            raise UserError(f"{model} is one training; TRIAL, --best and --under choose among a "
                            "study's", code="options-conflict")
        return Path(model), Path(model).resolve().name, model
    require_packages("optuna", "pandas")
    from scalesearch.cli.study.shared import load_study
    from scalesearch.study.results.selection import select_trial

    if trial is not None and (best, under) != (None, None):
        raise UserError("TRIAL chooses, and so do --best and --under; give one",
                        code="options-conflict")
    results = load_study(model)
    number, why = select_trial(results, best, trial, under)
    return results.study.trial_folder(
        results.study.trials[number]), str(number), f"trial {number}, {why}"
