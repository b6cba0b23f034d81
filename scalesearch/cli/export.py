"""``scalesearch export STUDY_OR_MODEL --to FORMAT``: a trained model as an artefact that other runtimes load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.files import read_data
from scalesearch.cli.options import THREADS, Output, json_option, need, print_json
from scalesearch.errors import UserError
from scalesearch.export.formats import FORMATS
from scalesearch.terminal import say

if TYPE_CHECKING:
    from scalesearch.data import DataSpec
    from scalesearch.export.export import Artefact

QUANTISATIONS = ("none", "int8", "int16", "bf16")


@click.command(name="export")
@click.argument("model", metavar="STUDY_OR_MODEL")
@click.argument("trial", type=int, required=False)
@click.option("--best", metavar="OBJECTIVE", help="Of the front, the best by this objective (the first, if not given).")
@click.option("--to", "name", required=True, type=click.Choice(list(FORMATS)), help="Format of the artefact.")
@click.option("--quantize", "quantise", type=click.Choice(QUANTISATIONS),
              help="The format's own, if not given; none is float32.")
@click.option("--out", type=Output(folder=True), help="Folder to write (export-NAME-FORMAT, if not given).")
@click.option("--data", metavar="FILE", help="A data file, or `builtin`, to verify on, if not the training's own.")
@click.option("--sentences", default=1000, show_default=True, type=click.IntRange(1),
              help="Validation sentences to verify on.")
@click.option("--threads", default=1, show_default=True, type=THREADS, help="To verify with.")
@json_option
def command(model: str, trial: int | None, best: str | None, name: str, quantise: str | None, out: Path | None,
            data: str | None, sentences: int, threads: int, as_json: bool) -> None:
    """Write a study's best candidate, its trial TRIAL, or a finished training as an artefact of a format.

    It is verified before the folder appears: greedy translations of validation text against the model's own. What it
    is, where it comes from and what was verified is in its artefact.json.
    """
    from scalesearch.export.export import Sample, export
    from scalesearch.export.formats import format_of
    from scalesearch.train import read_checkpoint

    source, label, why = _chosen(model, trial, best)
    trained, format = read_checkpoint(source), format_of(name)
    target = out or Path(f"export-{label}-{name}")
    sample = Sample.of(trained, _data(source, data), sentences) if format.decodes else None
    found = export(trained, target, format, quantise or format.quantisations[0], sample, {"chosen": why}, threads)
    if as_json:
        print_json({**vars(found), "folder": str(target)})
        return
    say(f"{why} -> {target}")
    for line in summary(found):
        say(line)


def _chosen(model: str, trial: int | None, best: str | None) -> tuple[Path, str, str]:
    """Folder of the training to export, what to call it, and why it is this one."""
    from scalesearch.train.checkpoint import WEIGHTS

    if (Path(model) / WEIGHTS).is_file():
        if trial is not None or best is not None:
            raise UserError(f"{model} is one training; TRIAL and --best choose among a study's",
                            code="options-conflict")
        return Path(model), Path(model).resolve().name, model
    need("optuna", "pandas")
    from scalesearch.cli.study.show import load_study
    from scalesearch.study.results.results import choose

    if trial is not None and best is not None:
        raise UserError("TRIAL and --best both choose; give one", code="options-conflict")
    results = load_study(model)
    number, why = choose(results, best, trial)
    return results.study.trial_folder(results.study.trials[number]), str(number), f"trial {number}, {why}"


def _data(folder: Path, name: str | None) -> DataSpec:
    """Data whose validation text is read: the given, or the training's own."""
    from scalesearch.data import DataSpec
    from scalesearch.files import read_json
    from scalesearch.train.checkpoint import DATA

    if name is not None:
        spec, section = read_data(name)
        return spec.resolve(section.file.parent)
    return DataSpec.from_mapping(read_json(folder / DATA, dict[str, Any])["spec"]).resolve()


def summary(found: Artefact) -> list[str]:
    """What was written and verified, for people."""
    lines = [f"{found.format}, {found.quantisation}: {sum(found.bytes.values()):,} bytes in {len(found.bytes)} files"]
    checked = found.verification
    for name in [name for name in ("model", "float", "quantised") if name in checked]:
        scores = ", ".join(f"{key} {value:.2f}" for key, value in checked[name].items() if isinstance(value, float))
        different = checked[name].get("different")
        words = "" if different is None else f"; {different} of {checked['sentences']:,} sentences differ"
        lines.append(f"{name}: {scores or 'no metric'}{words}")
    return lines
