"""The ``scalesearch study`` verbs: search a space for its front, and read what was found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import OutputPath, json_option, print_json
from scalesearch.cli.study import audit, run, tables, watch
from scalesearch.cli.study.shared import (
    add_lost_column,
    find_study_folder,
    get_trial,
    print_front,
    print_proxies,
    print_trial,
    results_to_json,
    snapshot_console,
    study_argument,
    trials_to_json,
    with_results,
)
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.terminal import open_console, print_text

if TYPE_CHECKING:
    from scalesearch.study.results.results import Results


class StudyGroup(click.Group):
    """Lists its verbs with their first sentences whole (click cuts them to a line), and runs none without the extra."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if not ctx.resilient_parsing and not {*ctx.help_option_names} & {*args}:
            require_packages("matplotlib", "moocore", "optuna", "pandas", "scipy")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=200))
                                for name in self.list_commands(ctx)])


@click.group(name="study", cls=StudyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run studies, watch them, and read what they found."""


for _verb in (run.run, audit.audit, tables.compare, tables.table, tables.scaling, watch.watch):
    command.add_command(_verb)


@command.command()
@study_argument
@json_option
def status(study: str, out: Path | None, as_json: bool) -> None:
    """How far a study is: done, running, failed; the best so far."""
    from scalesearch.study.monitor.render import render_snapshot
    from scalesearch.study.monitor.snapshot import StudyWatcher
    from scalesearch.study.results.results import load_results, make_results
    from scalesearch.study.trials.trial import State

    watched = StudyWatcher(find_study_folder(study, out))
    shown = watched.snapshot()
    results = load_results(watched.study.folder) if shown.problem else make_results(watched.study)
    if as_json:
        found = shown.to_json()
        print_json({**found, **results_to_json(results), "teacher_progress": found["teacher"]})
        return
    console = snapshot_console()
    console.print(render_snapshot(shown, console.width))
    for line in results.warnings():
        print_text(line, console)
    print_proxies(results, console)
    for trial in results.study.trials.with_state(State.FAILED):
        print_text(f"trial {trial.number} failed: {trial.reason}", console)


@command.command()
@with_results
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead.")
@click.option("--all", "all_trials", is_flag=True,
              help="Every proposal with its state, not only the front.")
@click.option("--latex", "as_latex", is_flag=True, help="Print a LaTeX table (booktabs) instead.")
@json_option
def front(results: Results, as_csv: bool, all_trials: bool, as_latex: bool, as_json: bool) -> None:
    """The candidates that no other dominates."""
    from scalesearch.api.display import frame_to_table
    from scalesearch.report.table import drop_empty_columns, format_trials
    from scalesearch.report.text_tables import to_csv, to_latex

    if as_csv + as_json + as_latex > 1:
        raise UserError("--csv, --json and --latex each print the front in a form of its own: give "
                        "one of them", code="options-conflict")
    rows = results.table if all_trials else results.front
    if as_csv:
        click.echo(to_csv(drop_empty_columns(add_lost_column(results, rows))), nl=False)
    elif as_json:
        print_json(trials_to_json(results, rows))
    elif as_latex:
        notes = "".join(f"% {line}\n" for line in results.warnings())
        click.echo(to_latex(format_trials(rows, results.objectives, *["state"] * all_trials))
                   + notes, nl=False)
    elif all_trials:
        print_text(frame_to_table(format_trials(rows, results.objectives, "state"), has_box=True))
    else:
        print_front(results, open_console())


@command.command()
@with_results
@click.argument("trial", type=int)
@json_option
def show(results: Results, trial: int, as_json: bool) -> None:
    """Everything of the trial TRIAL: its scores, costs, rungs, hyperparameters and files."""
    if as_json:
        chosen = get_trial(results, trial)
        print_json({**chosen.to_json(), "record": results.study.record(chosen)})
    else:
        print_trial(results, trial, open_console())


@command.command()
@with_results
@click.option("--to", type=OutputPath(is_folder=True),
              help="Folder for the figures, if not the study's.")
@json_option
def plot(results: Results, to: Path | None, as_json: bool) -> None:
    """Figures of quality against cost, as PNG and SVG."""
    from scalesearch.study.results.publish import write_figures

    files = write_figures(results, to or results.study.folder)
    if not files:
        raise UserError(f"{results.study.folder}: no candidate is finished yet, so there is "
                        "nothing to plot", code="nothing-finished")
    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        print_text(file)


@command.command()
@with_results
@click.option("--to", type=OutputPath(), help="The page's file, if not the study's report.html.")
@click.option("--alone", "standalone", is_flag=True,
              help="Without links to the study's files: for a page that is sent elsewhere.")
@json_option
def report(results: Results, to: Path | None, standalone: bool, as_json: bool) -> None:
    """One HTML page of everything found so far; it needs no network."""
    from scalesearch.study.results.page.render import write_page

    file = write_page(results, to or results.study.folder / "report.html", standalone)
    print_json({"files": [str(file)]}) if as_json else print_text(file)


@command.command()
@study_argument
@click.option("--to", type=OutputPath(is_folder=True),
              help="Folder to write (the study's, with -repaired).")
@json_option
def repair(study: str, out: Path | None, to: Path | None, as_json: bool) -> None:
    """Copy what is whole of a damaged study into another folder; the study itself is not changed."""
    import msgspec

    from scalesearch.study.results.repair import repair as save

    folder = find_study_folder(study, out)
    repaired = save(folder, to or folder.with_name(f"{folder.resolve().name}-repaired"))
    if as_json:
        print_json(msgspec.to_builtins(repaired))
        return
    for line in (*(f"lost: {one}" for one in repaired.lost),
                 *(f"saved: {one}" for one in repaired.saved)):
        print_text(line)
    print_text(f"{repaired.kept_events} events -> {repaired.folder}")
