"""Commands of ``scalesearch study`` that read a study, and their group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from scalesearch.cli.options import OutputPath, RenamedOption, option, print_json
from scalesearch.cli.study import audit, further, run, tables, watch
from scalesearch.cli.study.shared import (
    add_lost_column,
    find_study_folder,
    print_front,
    print_proxies,
    print_trial,
    print_written_files,
    results_to_json,
    snapshot_console,
    study_argument,
    trials_to_json,
    with_results,
)
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.terminal import format_count, open_console, print_data, print_text

if TYPE_CHECKING:
    from scalesearch.studies.results.results import Results


MAX_PREDICTED_ROWS = 12  # of the printed table


class StudyGroup(click.Group):
    """Lists commands with full summaries, and checks that the packages are installed."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if not ctx.resilient_parsing and not {*ctx.help_option_names} & {*args}:
            require_packages("matplotlib", "moocore", "optuna", "pandas", "scipy")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=200))
                                for name in self.list_commands(ctx)])


@click.group(name="study", cls=StudyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run searches, ablations and scaling studies; inspect their results."""


for _command in (run.run, audit.audit, further.confirm, further.train, tables.compare, tables.table,
                 tables.scaling, watch.watch):
    command.add_command(_command)


@command.command()
@study_argument
@option("json")
def status(study: str, out: Path | None, as_json: bool) -> None:
    """Print the progress of a study and its best trials so far.

    \b
    Example: scalesearch study status runs/my-study
    """
    from scalesearch.studies.monitor.render import render_snapshot
    from scalesearch.studies.monitor.snapshot import StudyWatcher
    from scalesearch.studies.results.results import load_results, make_results
    from scalesearch.studies.trials.trial import State

    watcher = StudyWatcher(find_study_folder(study, out))
    snapshot = watcher.snapshot()
    results = (load_results(watcher.study.folder) if snapshot.problem
               else make_results(watcher.study))
    if as_json:
        progress = msgspec.to_builtins(snapshot)
        print_json({**progress, **results_to_json(results),
                    "teacher_progress": progress["teacher"]})
        return
    console = snapshot_console()
    console.print(render_snapshot(snapshot, console.width))
    for line in results.warnings():
        print_text(line, console)
    print_proxies(results, console)
    for trial in results.study.trials.with_state(State.FAILED):
        print_text(f"trial {trial.number} failed: {trial.reason}", console)


@command.command()
@with_results
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--all", "all_trials", is_flag=True, help="Print all trials with their states.")
@click.option("--latex", "as_latex", is_flag=True, help="Print a LaTeX table (booktabs) "
              "without the training time.")
@click.option("--predicted", is_flag=True, help="Print the predicted front of a compression study, "
              "which needs no training.")
@option("budget", help="With --predicted: print combinations within these limits on costs.")
@option("json")
def front(results: Results, as_csv: bool, all_trials: bool, as_latex: bool, predicted: bool,
          budgets: tuple[str, ...], as_json: bool) -> None:
    """Print the Pareto front.

    \b
    Example: scalesearch study front runs/my-study
    """
    if predicted:
        _print_predicted_front(results, budgets, as_json)
        return
    if budgets:
        raise UserError("--budget needs --predicted; for trained models use `scalesearch study "
                        "best --constraint`", code="options-conflict")
    from scalesearch.report.table import drop_empty_columns, format_for_paper, format_trials
    from scalesearch.report.text_tables import frame_to_table, one_line, to_csv, to_latex

    if as_csv + as_json + as_latex > 1:
        raise UserError("--csv, --json and --latex cannot be combined: use one of them",
                        code="options-conflict")
    rows = results.table if all_trials else results.front
    if as_csv or as_json:
        for line in results.warnings():
            print_text(line, open_console(stderr=True))
    if as_csv:
        table = to_csv(drop_empty_columns(add_lost_column(results, rows)))
        print_data(table.removesuffix("\n"))
    elif as_json:
        print_json(trials_to_json(results, rows))
    elif as_latex:
        notes = "".join(f"% {one_line(note)}\n" for note in results.notes())
        table = to_latex(format_for_paper(rows, results.objectives, *["state"] * all_trials,
                                          protocol=results.study.meta.protocol))
        print_data((table + notes).removesuffix("\n"))
    elif all_trials:
        print_text(frame_to_table(format_trials(rows, results.objectives, "state"), has_box=True))
    else:
        print_front(results, open_console())


def _print_predicted_front(results: Results, budgets: tuple[str, ...], as_json: bool) -> None:
    """Print combinations of replacements at geometric steps of the first cost."""
    from rich.table import Table

    from scalesearch.compression.front import geometric_rows

    prediction, rows = results.predict(budgets)
    if as_json:
        print_json({"parent_loss": prediction.parent_loss,
                    "parent_costs": dict(zip(prediction.costs.names, prediction.costs.parent)),
                    "combinations": [prediction.to_dict(row) for row in rows]})
        return
    table = Table(title=f"{format_count(len(rows), 'combination')} on the predicted front")
    for name in ("loss_per_char", *prediction.costs.names, "changes"):
        is_text = name == "changes"
        table.add_column(name, justify="left" if is_text else "right",
                         min_width=34 if is_text else None)
    for row in geometric_rows(prediction, rows, MAX_PREDICTED_ROWS):
        costs = prediction.costs_of(row).values()
        table.add_row(f"{prediction.loss_of(row):.4f}", *(f"{cost:,.0f}" for cost in costs),
                      prediction.parent.describe(prediction.front.combination(row)))
    open_console().print(table)


@command.command()
@with_results
@click.argument("trial", type=int)
@option("json")
def show(results: Results, trial: int, as_json: bool) -> None:
    """Print one trial: scores, costs, rungs, hyperparameters and files.

    \b
    Example: scalesearch study show runs/my-study 12
    """
    if as_json:
        selected = results.trial(trial)
        print_json({**msgspec.to_builtins(selected), "record": results.study.record(selected)})
    else:
        print_trial(results, trial, open_console())


@command.command()
@with_results
@click.option("--objective", metavar="NAME",
              help="Metric or cost by which the trial is selected (default: the first objective).")
@option("constraint", help="Select the best trial that meets these conditions on costs, parameters "
        "and validation scores, e.g. 'params.total <= 1M'.")
@option("json")
def best(results: Results, objective: str | None, constraint: str | None, as_json: bool) -> None:
    """Print the best trial, of the front or within constraints.

    \b
    Example: scalesearch study best runs/my-study --constraint 'params.total <= 1M'
    """
    from scalesearch.studies.results.results import select_best

    number, criterion = select_best(results, objective, constraint)
    if as_json:
        trial = results.trial(number)
        print_json({**msgspec.to_builtins(trial), "record": results.study.record(trial),
                    "selected_by": criterion})
        return
    console = open_console()
    print_text(f"Trial {number}, {criterion}", console)
    print_trial(results, number, console)


@command.command()
@with_results
@option("to-folder", help="Output folder (default: the study's).")
@option("style")
@option("format")
@option("json")
def plot(results: Results, to: Path | None, as_json: bool) -> None:
    """Plot quality against cost.

    \b
    Example: scalesearch study plot runs/my-study
    """
    from scalesearch.studies.results.publish import write_figures

    files = write_figures(results, to or results.study.folder)
    if not files:
        raise UserError(f"{results.study.folder}: nothing to plot, because no trial is finished",
                        code="nothing-finished")
    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    print_written_files(files)


@command.command()
@with_results
@option("to-folder", type=OutputPath(), help="Output file (default: report.html of the study).")
@click.option("--standalone", cls=RenamedOption, earlier=("--alone",), is_flag=True,
              help="Omit links to the study's files, to share the page.")
@option("json")
def report(results: Results, to: Path | None, standalone: bool, as_json: bool) -> None:
    """Write an HTML report of the results so far. The page needs no network.

    \b
    Example: scalesearch study report runs/my-study --to report.html
    """
    from scalesearch.studies.results.page.render import write_page

    file = write_page(results, to or results.study.folder / "report.html", standalone)
    if as_json:
        print_json({"files": [str(file)]})
    else:
        print_written_files([file])


@command.command()
@study_argument
@option("to-folder", help="Output folder (default: the study's with the suffix -repaired).")
@option("json")
def repair(study: str, out: Path | None, to: Path | None, as_json: bool) -> None:
    """Copy the intact parts of a damaged study to another folder.

    The study is not changed.

    \b
    Example: scalesearch study repair runs/my-study --to runs/my-study-repaired
    """
    from scalesearch.studies.results.repair import repair as repair_study

    folder = find_study_folder(study, out)
    repaired = repair_study(folder, to or folder.with_name(f"{folder.resolve().name}-repaired"))
    if as_json:
        print_json(msgspec.to_builtins(repaired))
        return
    for line in (*(f"lost: {name}" for name in repaired.lost),
                 *(f"saved: {name}" for name in repaired.saved),
                 *(f"not copied: {name}" for name in repaired.left)):
        print_text(line)
    print_text(f"{repaired.kept_events} events -> {repaired.folder}")
