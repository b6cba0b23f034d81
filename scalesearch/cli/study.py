"""The ``scalesearch study`` verbs: search a space for its front, and read what was found."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli import study_compare, study_table
from scalesearch.cli.options import json_option, need, print_json
from scalesearch.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from scalesearch.study.results import Results
    from scalesearch.study.spec import StudySpec


@click.group(name="study", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Search a space for its Pareto front; show, plot and export it."""


command.add_command(study_compare.compare)
command.add_command(study_table.table)

@command.command()
@click.argument("study")
@click.option("--trials", type=click.IntRange(1), help="Candidates to train, in place of the file's.")
@click.option("--workers", type=click.IntRange(1), help="Candidates to train at a time; more than one needs Ray.")
@click.option("--backend", type=click.Choice(["inprocess", "ray"]), help="Where to train.")
@click.option("--address", help="Of a running Ray cluster to train on: HOST:PORT, or auto.")
@click.option("--out", type=click.Path(path_type=Path), help="The study's folder, in place of runs/NAME.")
@click.option("--resume", is_flag=True, help="Go on with a study that was begun.")
@click.option("--fork", type=click.Path(path_type=Path), help="Go on in this folder, with what still counts of a study "
              "whose space, budget or objectives have changed.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; train and write nothing.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change a key: --set recipe.steps=500.")
@json_option
def run(study: str, resume: bool, dry_run: bool, out: Path | None, fork: Path | None, as_json: bool,
        sets: tuple[str, ...], **flags: Any) -> None:
    """Run the search that the file STUDY describes, to its end."""
    from rich.console import Console

    from scalesearch.library import find_file
    from scalesearch.study.blame import at_its_place
    from scalesearch.study.changed import Changed
    from scalesearch.study.file import read_study

    console = Console(stderr=as_json)
    names = {"address": "ray.address"}
    if flags["address"] is not None and flags["backend"] is None:
        flags["backend"] = "ray"
    flagged = tuple(f"{names.get(key, key)}={value}" for key, value in flags.items() if value is not None)
    spec = read_study(find_file(study, "studies"), (*sets, *flagged), out)
    spec = _one_at_a_time(spec, {change.partition("=")[0].strip() for change in (*sets, *flagged)}, console)
    for package in ("optuna", "pandas", "matplotlib", *([spec.backend] if spec.backend == "ray" else [])):
        need(package)
    try:
        if dry_run:
            from scalesearch.study.preview import preview

            found = preview(spec)
            print_json(found.to_json()) if as_json else found.show(console)
            _show_fork(spec, fork, console)
            return
        _run(spec, resume, console, fork)
    except Changed as error:
        raise UserError(f"{error}\n  {_command_of(fork_folder(spec.out))}" if error.fork else str(error)) from None
    except UserError as error:
        raise at_its_place(error, spec) from None
    from scalesearch.study.stopped import resumable

    with resumable(fork or spec.out):
        _report(fork or spec.out, console, as_json)


def _show_fork(spec: StudySpec, fork: Path | None, console: Console) -> None:
    """What a fork would take over, for a dry run."""
    from scalesearch.study.fork import look

    for line in look(spec, fork) if fork else ():
        console.print(line, highlight=False, soft_wrap=True)


def fork_folder(folder: Path) -> Path:
    """The first of ``folder-2``, ``folder-3``, … that is free."""
    return next(place for number in itertools.count(2) if not (place := Path(f"{folder}-{number}")).exists())


def _command_of(fork: Path) -> str:
    """The command that was given, as it would be for a fork."""
    given = click.get_current_context().params
    flags = [(f"--{key}", str(given[key])) for key in ("trials", "workers", "backend", "address", "out") if given[key]]
    words = [given["study"], *itertools.chain(*flags), *itertools.chain(*(("--set", one) for one in given["sets"]))]
    return shlex.join(["scalesearch", "study", "run", *words, "--fork", str(fork)])


def _one_at_a_time(spec: StudySpec, said: set[str], console: Console) -> StudySpec:
    """``spec`` with one worker where it trains in this process; ``said``: the keys that the command line gives.

    Raises:
        UserError: more workers were asked for in the same place as this backend.
    """
    from dataclasses import replace

    if spec.backend != "inprocess" or spec.workers == 1:
        return spec
    if "workers" in said or "backend" not in said:
        raise UserError(f"workers: {spec.workers} with the backend inprocess, which trains one candidate at a time; "
                        "take the backend ray (--backend ray), or one worker (--workers 1)")
    console.print(f"The backend inprocess trains one candidate at a time, not the file's {spec.workers}.",
                  highlight=False, soft_wrap=True)
    return replace(spec, workers=1)


def _run(spec: StudySpec, resume: bool, console: Console, fork: Path | None) -> None:
    from scalesearch.study.launch import launch

    try:
        reason = launch(spec, resume, console, fork)
    except KeyboardInterrupt:
        how = f"--out {fork} --resume in place of --fork" if fork else "the same command and --resume"
        console.print(f"Stopped; nothing finished is lost. Go on in {fork or spec.out} with {how}.",
                      highlight=False, soft_wrap=True)
        raise SystemExit(130) from None
    console.print(f"The study ended: {reason}.", highlight=False)


def _report(folder: Path, console: Console, as_json: bool) -> None:
    from scalesearch.study.results import load, publish

    results = load(folder)
    files = publish(results)
    if as_json:
        print_json(_as_json(results) | {"files": [str(file) for file in files]})
        return
    _show_front(results, console)
    _show_signs(results, console)
    console.print("Written: " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)


def _show_front(results: Results, console: Console) -> None:
    from scalesearch.report.table import to_rich

    finished = int((results.table["state"] == "complete").sum())
    title = f"Front of {results.store.meta['name']}: {len(results.front)} of {finished} trained candidates"
    console.print(to_rich(results.front, results.objectives, title, results.asked, console.width))
    for line in [*results.notes(), *results.verdict.sentences()]:
        console.print(line, highlight=False, soft_wrap=True)
    found = results.hypervolume()
    if found:
        corner = ", ".join(f"{name} {value:,.6g}" for name, value in zip(results.objectives, found[1]))
        console.print(f"Hypervolume {found[0]:.6g} against the reference point {corner}.", highlight=False)


def _show_signs(results: Results, console: Console) -> None:
    for line in results.signs().lines():
        console.print(line, highlight=False, soft_wrap=True)


def _as_json(results: Results) -> dict[str, Any]:
    import json

    found = results.hypervolume()
    return {
        "study": results.store.meta["name"],
        "folder": str(results.store.folder),
        "objectives": results.objectives,
        "protocol": results.store.meta["protocol"],
        "data": results.store.meta["data"],
        "synthetic": results.store.meta["synthetic"],
        "bleu_signature": results.signature,
        "seed": results.store.meta["seed"],
        "seeds": results.verdict.to_json(),
        "teacher": results.teacher,
        "counts": results.table["state"].value_counts().to_dict(),
        "front": json.loads(results.front.to_json(orient="records")),
        "proxies": results.signs().to_json(),
        "hypervolume": None if found is None else {"value": found[0], "reference": found[1]},
    }


def _load(study: str, out: Path | None) -> Results:
    """The results of a study's folder, or of a study file's."""
    from scalesearch.study.results import load

    folder = Path(study)
    if folder.is_file() or not folder.exists():
        from scalesearch.library import find_file
        from scalesearch.study.file import read_study

        folder = out or read_study(find_file(study, "studies")).out
    return load(folder)


def _reading(verb: Any) -> Any:
    """The arguments of the verbs that read."""
    verb = click.option("--out", type=click.Path(path_type=Path), help="The study's folder, if not runs/NAME.")(verb)
    return click.argument("study", metavar="STUDY_OR_FOLDER")(verb)


@command.command()
@_reading
@json_option
def status(study: str, out: Path | None, as_json: bool) -> None:
    """How far a study is: done, running, failed, refused; the best so far."""
    results = _load(study, out)
    if as_json:
        print_json(_as_json(results))
        return
    from rich.console import Console

    from scalesearch.study.launch import screen_of

    console = Console()
    console.print(screen_of(results.store, console).render())
    _show_signs(results, console)
    for trial in results.store.ledger.having("failed"):
        console.print(f"trial {trial.number} failed: {trial.reason}", highlight=False)


@command.command()
@_reading
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead.")
@click.option("--all", "everything", is_flag=True, help="Every proposal, not only the front (CSV and JSON).")
@json_option
def front(study: str, out: Path | None, as_csv: bool, everything: bool, as_json: bool) -> None:
    """The candidates that no other dominates."""
    results = _load(study, out)
    rows = results.table if everything else results.front
    if as_csv:
        from scalesearch.report.table import filled

        click.echo(filled(rows).to_csv(index=False), nl=False)
    elif as_json:
        click.echo(rows.to_json(orient="records", indent=2))
    else:
        from rich.console import Console

        _show_front(results, Console())


@command.command()
@_reading
@click.option("--to", type=click.Path(path_type=Path), help="Folder for the figures, if not the study's.")
@json_option
def plot(study: str, out: Path | None, to: Path | None, as_json: bool) -> None:
    """Figures of quality against cost, as PNG and SVG."""
    from scalesearch.study.results import plots

    results = _load(study, out)
    files = plots(results, to or results.store.folder)
    if not files:
        raise UserError(f"{results.store.folder}: no candidate is finished yet, so there is nothing to plot")
    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        click.echo(file)


@command.command()
@_reading
@click.option("--to", type=click.Path(path_type=Path), help="The page's file, if not the study's report.html.")
@click.option("--alone", is_flag=True, help="Without links to the study's files: for a page that is sent elsewhere.")
@json_option
def report(study: str, out: Path | None, to: Path | None, alone: bool, as_json: bool) -> None:
    """One HTML page of everything found so far; it needs no network."""
    for package in ("optuna", "pandas", "matplotlib"):
        need(package)
    from scalesearch.study.page import write_page

    results = _load(study, out)
    file = write_page(results, to or results.store.folder / "report.html", alone)
    print_json({"files": [str(file)]}) if as_json else click.echo(file)


@command.command()
@_reading
@click.option("--best", metavar="OBJECTIVE", help="Of the front, the best by this objective (the first, if not given).")
@click.option("--trial", type=int, help="This trial.")
@click.option("--to", type=click.Path(path_type=Path), help="Folder to write (export-TRIAL, if not given).")
@json_option
def export(study: str, out: Path | None, best: str | None, trial: int | None, to: Path | None, as_json: bool) -> None:
    """Copy a candidate out of a study: its architecture file, its record and its checkpoint."""
    import shutil

    from scalesearch.study.results import choose

    results = _load(study, out)
    number, why = choose(results, best, trial)
    target = to or Path(f"export-{number}")
    if target.exists():
        raise UserError(f"{target} is there already; choose another folder with --to")
    source = results.store.trial_folder(results.store.ledger.trials[number])
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*", "progress.*"))
    if as_json:
        files = sorted(str(file) for file in target.rglob("*") if file.is_file())
        print_json({"trial": number, "why": why, "folder": str(target), "files": files})
        return
    click.echo(f"trial {number}, {why} -> {target}")
