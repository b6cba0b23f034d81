"""``scalesearch export``: export a trained model for another runtime."""

from __future__ import annotations

from pathlib import Path

import click

from scalesearch.api.files import load_data_spec
from scalesearch.cli.options import (
    THREAD_COUNT,
    OutputPath,
    RenamedOption,
    json_option,
    print_json,
)
from scalesearch.errors import UserError
from scalesearch.export.base import FORMAT_CLASSES, get_format
from scalesearch.library import require_packages
from scalesearch.terminal import print_text

QUANTIZATIONS = ("none", "int8", "int16", "bf16")


@click.command(name="export")
@click.argument("model", metavar="STUDY_OR_MODEL")
@click.argument("trial", type=int, required=False)
@click.option("--best", metavar="OBJECTIVE",
              help="Export the best trial of the front by this objective (default: the first "
                   "objective).")
@click.option("--constraint", "constraint", cls=RenamedOption, earlier=("--under",),
              metavar="CONDITIONS",
              help="Export the best trial that meets these conditions on costs, parameters and "
                   "validation scores, e.g. 'bleu >= 30'.")
@click.option("--to", "format", required=True, type=click.Choice(list(FORMAT_CLASSES)),
              help="Export format.")
@click.option("--quantize", "quantize", type=click.Choice(QUANTIZATIONS),
              help="Weight type (default: that of the format; none is float32).")
@click.option("--out", type=OutputPath(is_folder=True),
              help="Output folder (default: export-NAME-FORMAT).")
@click.option("--data", metavar="FILE",
              help="Data file, or `builtin`, to verify on (default: the data that the model was "
                   "trained on).")
@click.option("--sentences", default=1000, show_default=True, type=click.IntRange(1),
              help="Number of validation sentences for verification.")
@click.option("--threads", default=1, show_default=True, type=THREAD_COUNT,
              help="Number of threads for verification.")
@json_option
def command(model: str, trial: int | None, best: str | None, constraint: str | None, format: str,
            quantize: str | None, out: Path | None, data: str | None, sentences: int, threads: int,
            as_json: bool) -> None:
    """Export the best trial of a study, its trial TRIAL, or a trained model.

    The export is verified before the folder appears: its greedy translations of validation
    sentences are compared with those of the model. `artifact.json` in the folder describes the
    format, the provenance and the verification.

    \b
    Example: scalesearch export runs/model --to ctranslate2 --quantize int8
    """
    from scalesearch.export.export import export_training

    source, label, reason = _select_training(model, trial, best, constraint)
    folder = out or Path(f"export-{label}-{format}")
    if data is not None and not get_format(format).has_decoder:
        raise UserError(f"--to {format} copies the files of the training, so nothing is verified: "
                        "remove --data", code="options-conflict")
    spec = None if data is None else load_data_spec(data)
    artifact = export_training(source, folder, format, quantize, spec, sentences, threads, reason)
    if as_json:
        print_json({**vars(artifact), "folder": str(folder)})
        return
    print_text(f"{reason} -> {folder}")
    for line in artifact.summary_lines():
        print_text(line)


def _select_training(model: str, trial: int | None, best: str | None,
                     constraint: str | None) -> tuple[Path, str, str]:
    """Return the folder of the training, its label and the reason of its selection."""
    from scalesearch.training.checkpoint import ARCHITECTURE_FILE

    if (Path(model) / ARCHITECTURE_FILE).is_file():
        if (trial, best, constraint) != (None, None, None):
            raise UserError(f"{model} is a single training; TRIAL, --best and --constraint select "
                            "among the trials of a study", code="options-conflict")
        return Path(model), Path(model).resolve().name, model
    require_packages("optuna", "pandas")
    from scalesearch.cli.study.shared import load_study
    from scalesearch.studies.results.results import select_trial

    if trial is not None and (best, constraint) != (None, None):
        raise UserError("use only one of TRIAL, --best and --constraint",
                        code="options-conflict")
    results = load_study(model)
    number, reason = select_trial(results, best, trial, constraint)
    folder = results.study.trial_folder(results.study.trials[number])
    return folder, str(number), f"trial {number}, {reason}"
