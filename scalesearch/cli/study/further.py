"""``study confirm`` and ``study train``: further runs of trials that a study has trained."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from scalesearch.cli.options import option, print_json
from scalesearch.cli.study.shared import (
    ablation_to_json,
    find_study_folder,
    load_study,
    print_ablation,
    study_argument,
    with_results,
)
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, open_console, print_text

if TYPE_CHECKING:
    from scalesearch.studies.results.results import Results


@click.command()
@study_argument
@click.option("--seeds", type=click.IntRange(2), default=3, show_default=True,
              help="Maximum number of seeds per trial, including the seed of the search.")
@click.option("--base", metavar="NAME",
              help="Reference to compare with (default: the best one within the budget).")
@option("workers")
@option("json")
def confirm(study: str, out: Path | None, seeds: int, base: str | None, workers: int | None,
            as_json: bool) -> None:
    """Compare the front of a finished search with a reference, with further seeds.

    The references are trained with all seeds; trials on the front, and trials within noise of it,
    until the comparisons on the front are significant. Run the same command again to resume.

    \b
    Example: scalesearch study confirm runs/my-study --seeds 5
    """
    from scalesearch.signals import interrupt_on_signal
    from scalesearch.studies.config.command import read_started_study
    from scalesearch.studies.engine.run import launch
    from scalesearch.studies.monitor.heartbeat import FINISHED, read_owner
    from scalesearch.studies.results.publish import table_of, write_outputs

    folder = find_study_folder(study, out)
    results = load_study(str(folder))
    if read_owner(folder).state != FINISHED:
        raise UserError(f"{folder}: the search has not finished; resume it with `scalesearch study "
                        f"run {folder} --resume`", code="study-unfinished")
    references = results.view.references
    if results.study.meta.architectures is not None or not references:
        raise UserError(f"{folder}: the study has no search, or no trained reference to compare "
                        "its front with: name one under `reference`", code="no-named-architecture")
    if base is None:
        main = results.study.meta.main_objective
        base = min(references, key=lambda reference: (
            not reference.first.is_eligible, reference.mean(main.name) * main.sign)).first.label
    members = {member.number for member in results.view.members}
    n_searched = len(members - {reference.number for reference in references})
    extra_runs = max(results.study.meta.seeds.extra_runs, (seeds - 1) * n_searched)
    changes = [f"seeds.max_per_candidate={seeds}", f"seeds.references={seeds}",
               f"seeds.extra_runs={extra_runs}"]
    console = open_console(stderr=as_json)
    with interrupt_on_signal():
        spec = read_started_study(folder, (*changes, *([f"workers={workers}"] if workers else [])))
        reason = launch(spec, True, console)
    print_text(f"The study ended: {reason}.", console)
    results = load_study(str(spec.out))
    write_outputs(results)
    table = table_of(results, results.main_metric, base)
    if as_json:
        print_json(ablation_to_json(table))
        return
    print_ablation(results, table, console)
    for line in results.seed_analysis.sentences():
        print_text(line, console)


@click.command()
@with_results
@click.argument("trial", type=int)
@click.option("--length", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True,
              help="Length of the run, in lengths of the study's runs.")
@option("to-folder", help="Output folder (default: the study's, under longer/).")
@option("json")
def train(results: Results, trial: int, length: float, to: Path | None, as_json: bool) -> None:
    """Train one trial longer, with the data and the recipe of the study.

    The run starts from the beginning, because the learning rates depend on its length. The study
    is not changed. Run the same command again to resume.

    \b
    Example: scalesearch study train runs/my-study 12 --length 4
    """
    from scalesearch.files import flatten, try_read_json, write_json
    from scalesearch.studies.executors.worker import train_job
    from scalesearch.studies.results.audit import scale_recipe
    from scalesearch.studies.trials.record import JobFile
    from scalesearch.training.result import RESULT_FILE, Result

    chosen = results.trial(trial)
    source = results.study.trial_folder(chosen)
    job: Any = try_read_json(source / "job.json", JobFile)
    if not job:
        raise UserError(f"trial {trial} was not trained in {results.study.folder} (no job.json)",
                        code="no-such-trial")
    folder = to or results.study.folder / "longer" / f"{source.name}-{length:g}"
    job = {key: value for key, value in job.items() if key not in ("rung", "until_share")}
    job["recipe"] = scale_recipe(job["recipe"], length)
    earlier = try_read_json(folder / "job.json", JobFile)
    if earlier and earlier["recipe"] != job["recipe"]:
        raise UserError(f"{folder}: contains another run; choose another folder with --to",
                        code="training-exists")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "architecture.yaml", folder / "architecture.yaml")
    write_json(folder / "job.json", {**job, "proxies": False})
    console = open_console(stderr=as_json)
    print_text(f"Training trial {trial}, {length:g} times the length of the study's runs, into "
               f"{folder}", console)
    train_job(str(folder))
    result = Result.read(folder)
    assert result is not None, f"a finished run has {RESULT_FILE}"
    if as_json:
        print_json(to_builtins(result))
        return
    record = results.study.record(chosen) or {}
    before = dict(flatten(record.get("metrics") or {}))
    rows = [(name, f"{before[name]:.4g}" if isinstance(before.get(name), float) else "",
             f"{value:.4g}")
            for name, value in flatten(result.metrics) if isinstance(value, float)]
    print_text(make_table(("score", f"trial {trial}", f"{length:g} times as long"), rows), console)
