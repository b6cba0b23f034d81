"""``scalesearch study run``: run a study from its file, and write its results."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import OutputPath, json_option, print_json
from scalesearch.cli.study.shared import (
    print_ablation,
    print_front,
    print_proxies,
    print_scaling,
    print_written_files,
    results_to_json,
)
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.signals import SignalInterrupt, interrupt_on_signal
from scalesearch.terminal import open_console, print_text

if TYPE_CHECKING:
    from rich.console import Console

    from scalesearch.studies.config.spec import StudySpec
    from scalesearch.studies.results.results import Results


@click.command()
@click.argument("study")
@click.option("--trials", type=click.IntRange(1),
              help="Number of candidates to train (overrides the file).")
@click.option("--workers", type=click.IntRange(1),
              help="Number of parallel workers.")
@click.option("--backend", type=click.Choice(["pool", "ray", "inprocess"]),
              help="Execution backend: a pool of processes on this machine, Ray, or this process "
              "(for debugging).")
@click.option("--address", help="Address of a running Ray cluster: HOST:PORT, or auto.")
@click.option("--out", type=OutputPath(is_folder=True),
              help="Folder of the study (default: runs/NAME).")
@click.option("--resume", is_flag=True, help="Resume a study that was started.")
@click.option("--dry-run", is_flag=True,
              help="Print the plan without training or writing files.")
@click.option("--measure", type=click.FloatRange(0, 600), default=20.0, show_default=True,
              metavar="SECONDS", envvar="SCALESEARCH_MEASURE", show_envvar=True,
              help="Seconds to measure training speed, for the forecast; 0 disables it.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE",
              help="Change a key, for example --set recipe.steps=500. Can be repeated.")
@json_option
def run(study: str, resume: bool, dry_run: bool, out: Path | None, as_json: bool,
        sets: tuple[str, ...], measure: float, **flags: Any) -> None:
    """Run a study from its file: a search, a grid, an ablation or a scaling study.

    After Ctrl-C (exit status 130) or SIGTERM (143), workers save and stop; resume with --resume.
    STUDY may also be the folder of a started study, which runs with its last file and options.

    \b
    Example: scalesearch study run quick --trials 20
    """
    from scalesearch.library import find_file
    from scalesearch.studies.config.command import read_started_study, started_study_folder
    from scalesearch.studies.config.reader import limit_to_one_worker, read_study, with_position

    console = open_console(stderr=as_json)
    names = {"address": "ray.address"}
    if flags["address"] is not None and flags["backend"] is None:
        flags["backend"] = "ray"
    flagged = tuple(f"{names.get(key, key)}={value}"
                    for key, value in flags.items() if value is not None)
    changes = (*sets, *flagged)
    if started_folder := started_study_folder(study):
        spec = read_started_study(started_folder, changes, out)
    else:
        spec = read_study(find_file(study, "studies"), changes, out)
    changed_keys = {change.partition("=")[0].strip() for change in changes}
    if spec.backend == "ray":
        require_packages("ray")
    spec = limit_to_one_worker(spec, changed_keys, partial(print_text, console=console))
    try:
        if dry_run:
            from scalesearch.studies.engine.dry_run import dry_run as plan_study

            plan = plan_study(spec, measure)
            if as_json:
                print_json(plan.to_json())
            else:
                plan.show(console)
            return
        _run(spec, resume, console, measure)
    except UserError as error:
        raise with_position(error, spec) from None
    from scalesearch.studies.trials.study_dir import resumable

    with resumable(spec.out):
        _report(spec.out, console, as_json)


def _run(spec: StudySpec, resume: bool, console: Console, measure: float) -> None:
    from scalesearch.studies.config.command import started_study_folder
    from scalesearch.studies.engine.run import launch

    try:
        with interrupt_on_signal():
            reason = launch(spec, resume, console, measure)
    except SignalInterrupt as interrupt:
        folder = str(spec.out)
        command = "the same command"
        if started_study_folder(folder):
            command = shlex.join(["scalesearch", "study", "run", folder, "--resume"])
        print_text(f"Stopped. Finished trials are saved. Resume with: {command}", console)
        raise SystemExit(interrupt.status) from None
    print_text(f"The study ended: {reason}.", console)


def _report(folder: Path, console: Console, as_json: bool) -> None:
    from scalesearch.studies.results.publish import write_outputs
    from scalesearch.studies.results.results import load_results

    results = load_results(folder)
    files = write_outputs(results)
    record = results_to_json(results)
    if results.study.meta.architectures is not None:
        tables, tables_record = _report_architectures(results, None if as_json else console)
        files = tables + files
        record |= tables_record
    elif not as_json:
        print_front(results, console)
        print_proxies(results, console)
    if as_json:
        print_json(record | {"files": [str(file) for file in files]})
    else:
        print_written_files(files, console)


def _report_architectures(results: Results, console: Console | None) -> tuple[
        list[Path], dict[str, Any]]:
    """Write the table or the scaling laws of fixed architectures, and print them.

    Returns:
        The files, and the content as JSON.
    """
    if results.study.meta.type == "scaling":
        from scalesearch.report.scaling.tables import to_json
        from scalesearch.studies.results.publish import scaling_of, write_scaling

        study = scaling_of(results)
        if console is not None:
            print_scaling(study, console)
        return write_scaling(study, results.study.folder), {"scaling": to_json(study)}
    from scalesearch.studies.results.publish import table_of, write_table

    table = table_of(results, results.main_metric)
    if console is not None:
        print_ablation(results, table, console)
    return write_table(table, results.study.folder), {"table": table.to_json()}
