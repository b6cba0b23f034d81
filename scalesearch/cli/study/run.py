"""``scalesearch study run``: from a study file to its end, and what is shown and written there."""

from __future__ import annotations

import itertools
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

    from scalesearch.study.config.spec import StudySpec
    from scalesearch.study.results.results import Results


@click.command()
@click.argument("study")
@click.option("--trials", type=click.IntRange(1),
              help="Candidates to train, in place of the file's.")
@click.option("--workers", type=click.IntRange(1),
              help="Candidates to train at a time; more than one needs Ray.")
@click.option("--backend", type=click.Choice(["inprocess", "ray"]), help="Where to train.")
@click.option("--address", help="Of a running Ray cluster to train on: HOST:PORT, or auto.")
@click.option("--out", type=OutputPath(is_folder=True),
              help="The study's folder, in place of runs/NAME.")
@click.option("--resume", is_flag=True, help="Go on with a study that was begun.")
@click.option("--fork", type=OutputPath(is_folder=True),
              help="Go on in this folder, with what "
              "still counts of a study whose space, budget or objectives have changed.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; train and write nothing.")
@click.option("--measure", type=click.FloatRange(0, 600), default=20.0, show_default=True,
              metavar="SECONDS", envvar="SCALESEARCH_MEASURE", show_envvar=True,
              help="How long to "
              "measure the speed of models on this machine, for the forecast; 0: no forecast.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE",
              help="Change a key: --set recipe.steps=500.")
@json_option
def run(study: str, resume: bool, dry_run: bool, out: Path | None, fork: Path | None, as_json: bool,
        sets: tuple[str, ...], measure: float, **flags: Any) -> None:
    """Run the study that the file STUDY describes, to its end: a search, a grid, an ablation or a scaling study.

    Ctrl-C (exit status 130) and SIGTERM (143) have the workers save and stop; --resume goes on from
    there. STUDY may be the folder of a study that was begun: it is then the file, with the options,
    that it was last run with.
    """
    from scalesearch.library import find_file
    from scalesearch.study.config.command import read_started_study, started_study_folder
    from scalesearch.study.config.reader import limit_to_one_worker, read_study, with_position
    from scalesearch.study.trials.compatibility import StudyChangedError

    console = open_console(stderr=as_json)
    names = {"address": "ray.address"}
    if flags["address"] is not None and flags["backend"] is None:
        flags["backend"] = "ray"
    flagged = tuple(f"{names.get(key, key)}={value}"
                    for key, value in flags.items() if value is not None)
    if begun := started_study_folder(study):
        fork = fork and fork.absolute()  # since reading it may change the working folder
        spec = read_started_study(begun, (*sets, *flagged), out)
    else:
        spec = read_study(find_file(study, "studies"), (*sets, *flagged), out)
    said = {change.partition("=")[0].strip() for change in (*sets, *flagged)}
    if spec.backend == "ray":
        require_packages("ray")
    spec = limit_to_one_worker(spec, said, partial(print_text, console=console))
    try:
        if dry_run:
            from scalesearch.study.engine.dry_run import describe_fork
            from scalesearch.study.engine.dry_run import dry_run as look

            plan = look(spec, measure)
            print_json(plan.to_json()) if as_json else plan.show(console)
            for line in describe_fork(spec, fork) if fork else ():
                print_text(line, console)
            return
        _run(spec, resume, console, fork, measure)
    except StudyChangedError as error:
        shown = f"{error}\n  {_command_of(free_fork_folder(spec.out))}" if error.can_fork else str(
            error)
        raise UserError(shown, code=error.code) from None
    except UserError as error:
        raise with_position(error, spec) from None
    from scalesearch.study.trials.study_dir import resumable

    with resumable(fork or spec.out):
        _report(fork or spec.out, console, as_json)


def free_fork_folder(folder: Path) -> Path:
    """The first of ``folder-2``, ``folder-3``, … that is free."""
    return next(place
                for number in itertools.count(2)
                if not (place := Path(f"{folder}-{number}")).exists())


def _command_of(fork: Path) -> str:
    """The command that was given, as it would be for a fork."""
    from scalesearch.study.config.storage_url import mask_passwords

    given = click.get_current_context().params
    flags = [(f"--{key}", str(given[key]))
             for key in ("trials", "workers", "backend", "address", "out") if given[key]]
    words = [given["study"], *itertools.chain(*flags),
             *itertools.chain(*(("--set", one) for one in given["sets"]))]
    return shlex.join(["scalesearch", "study", "run", *map(mask_passwords, words), "--fork",
                       str(fork)])


def _run(spec: StudySpec, resume: bool, console: Console, fork: Path | None,
         measure: float) -> None:
    from scalesearch.study.config.command import started_study_folder
    from scalesearch.study.engine.run import launch

    try:
        with interrupt_on_signal():
            reason = launch(spec, resume, console, fork, measure)
    except SignalInterrupt as stopped:
        folder = str(fork or spec.out)
        again = ("scalesearch", "study", "run", folder, "--resume")
        how = shlex.join(again) if started_study_folder(folder) else "the same command"
        print_text(f"Stopped; nothing finished is lost. Go on with: {how}", console)
        raise SystemExit(stopped.status) from None
    print_text(f"The study ended: {reason}.", console)


def _report(folder: Path, console: Console, as_json: bool) -> None:
    from scalesearch.study.results.publish import write_outputs
    from scalesearch.study.results.results import load_results

    results = load_results(folder)
    files = write_outputs(results)
    found = results_to_json(results)
    if results.study.meta.architectures is not None:
        more, own = _report_architectures(results, None if as_json else console)
        files = more + files
        found = found | own
    elif not as_json:
        print_front(results, console)
        print_proxies(results, console)
    if as_json:
        print_json(found | {"files": [str(file) for file in files]})
    else:
        print_written_files(files, console)


def _report_architectures(results: Results, console: Console | None) -> tuple[
        list[Path], dict[str, Any]]:
    """Writes what is made of a study's rows, and shows it on ``console``: their table, or how scores grow."""
    if results.study.meta.type == "scaling":
        from scalesearch.report.scaling.tables import to_json
        from scalesearch.study.results.tables import scaling_of, write_scaling

        study = scaling_of(results)
        if console is not None:
            print_scaling(study, console)
        return write_scaling(study, results.study.folder), {"scaling": to_json(study)}
    from scalesearch.study.results.tables import table_of, write_table

    table = table_of(results, results.main_metric)
    if console is not None:
        print_ablation(results, table, console)
    return write_table(table, results.study.folder), {"table": table.to_json()}
