"""``scalesearch export``: export a trained model for another runtime."""

from __future__ import annotations

from pathlib import Path

import click

from scalesearch.cli.options import option, print_json
from scalesearch.errors import UserError
from scalesearch.export.base import FORMAT_CLASSES, get_format
from scalesearch.library import require_packages
from scalesearch.terminal import print_text


@click.command(name="export")
@click.argument("model", type=click.Path(), metavar="STUDY_OR_MODEL")
@click.argument("trial", type=int, required=False)
@click.option("--best", metavar="OBJECTIVE",
              help="Export the best trial of the front by this objective (default: the first "
                   "objective).")
@option("constraint", help="Export the best trial that meets these conditions on costs, parameters "
        "and validation scores, e.g. 'bleu >= 30'.")
@option("to", required=True, type=click.Choice(list(FORMAT_CLASSES)), help="Export format.")
@option("quantize")
@click.option("--opset", type=int, metavar="N", help="Operator set of ONNX graphs: 18 to 22 "
              "(default: 20).")
@option("out", help="Output folder (default: export-NAME-FORMAT).")
@option("data", help="Data file, or `builtin`, to verify on (default: the data that the model was "
        "trained on).")
@option("sentences", default=1000, help="Number of validation sentences for verification.")
@option("threads", help="Number of threads for verification.")
@option("json")
def command(model: str, trial: int | None, best: str | None, constraint: str | None,
            format_name: str, quantize: str | None, opset: int | None, out: Path | None,
            data: str | None, sentences: int, threads: int, as_json: bool) -> None:
    """Export the best trial of a study, its trial TRIAL, or a trained model.

    The export is verified before the folder appears: its greedy translations of validation
    sentences are compared with those of the model, both in float32. (`translate` and `score` run a
    trained model in bf16 on processors with fast bf16, unless its recipe has `precision: fp32`, so
    a few more sentences can differ.) `artifact.json` in the folder describes the format, the
    provenance and the verification.

    \b
    Example: scalesearch export runs/model --to ctranslate2 --quantize int8
    """
    from scalesearch.export.export import export_training
    from scalesearch.library import ARCHITECTURE_FILE
    from scalesearch.training.input_files import load_data_spec

    selection = (trial, best, constraint)
    if (Path(model) / ARCHITECTURE_FILE).is_file():
        if selection != (None, None, None):
            raise UserError(f"{model} is a single training run; TRIAL, --best and --constraint "
                            "select among the trials of a study", code="options-conflict")
        source = Path(model)
        label = source.resolve().name
        reason = model
    else:
        require_packages("optuna", "pandas")
        from scalesearch.cli.study.shared import load_study
        from scalesearch.studies.results.results import select_best, select_by_number

        if trial is not None and selection[1:] != (None, None):
            raise UserError(f"TRIAL {trial} cannot be combined with --best and --constraint, which "
                            "select a trial", help="remove one of the two",
                            code="options-conflict")
        results = load_study(model)
        number, criterion = (select_best(results, best, constraint) if trial is None
                             else select_by_number(results, trial))
        source = results.study.trial_folder(results.study.trials[number])
        label = str(number)
        reason = f"trial {number}, {criterion}"
    folder = out or Path(f"export-{label}-{format_name}")
    if data is not None and not get_format(format_name, opset).has_decoder:
        raise UserError(f"--to {format_name} copies the files of the training, so nothing is "
                        "verified: remove --data", code="options-conflict")
    spec = None if data is None else load_data_spec(data)
    artifact = export_training(source, folder, format_name, quantize, spec, sentences, threads,
                               reason, opset)
    if as_json:
        print_json({**vars(artifact), "folder": str(folder)})
        return
    print_text(f"{reason} -> {folder}")
    for line in artifact.summary_lines():
        print_text(line)
