"""``scalesearch study run``: run a study from its file, and write its results."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from scalesearch.cli.options import check_keys_differ, complete_study, option, print_json
from scalesearch.cli.study.shared import (
    ablation_to_json,
    print_ablation,
    print_front,
    print_proxies,
    print_scaling,
    print_written_files,
    results_to_json,
    seeds_to_json,
)
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.signals import SignalInterrupt, interrupt_on_signal
from scalesearch.terminal import open_console, print_text

if TYPE_CHECKING:
    from rich.console import Console

    from scalesearch.studies.engine.dry_run import DryRun
    from scalesearch.studies.trials.study_meta import StudyMeta

# Fields of a proposal in the JSON of a dry run.
PROPOSAL_KEYS = ("label", "architecture", "recipe_params", "params", "costs", "is_feasible",
                 "state", "reason")

@click.command()
@click.argument("study", shell_complete=complete_study)
@click.option("--trials", type=click.IntRange(1),
              help="Full-budget runs, or the same compute with rungs (overrides the file).")
@option("workers")
@click.option("--backend", type=click.Choice(["pool", "ray", "inprocess"]),
              help="Execution backend: a pool of processes on this machine, Ray, or this process "
              "(for debugging).")
@option("address")
@option("out", help="Folder of the study (default: runs/NAME).")
@click.option("--resume", is_flag=True, help="Resume a study that was started.")
@click.option("--dry-run", is_flag=True, help="Print the plan without training or writing files.")
@click.option("--measure", type=click.FloatRange(0, 600), default=20.0, show_default=True,
              metavar="SECONDS", envvar="SCALESEARCH_MEASURE", show_envvar=True,
              help="Seconds to measure training speed, for the forecast; 0 disables it.")
@option("set", help="Change a key, for example --set recipe.steps=500. Can be repeated.")
@option("json")
def run(study: str, resume: bool, dry_run: bool, out: Path | None, as_json: bool,
        settings: tuple[str, ...], measure: float, **flags: Any) -> None:
    """Run a study: a search, grid, ablation, scaling study or compression.

    After Ctrl-C (exit status 130) or SIGTERM (143), workers save and stop; resume with --resume.
    STUDY may also be the folder of a started study, which runs with its last file and options.

    \b
    Example: scalesearch study run quick --trials 20
    """
    from scalesearch.library import find_file
    from scalesearch.studies.config.command import read_started_study, started_study_folder
    from scalesearch.studies.config.reader import limit_to_one_worker, read_study, with_position

    console = open_console(stderr=as_json)
    check_keys_differ(settings, "--set")
    flags["ray.address"] = flags.pop("address")
    set_keys = {setting.partition("=")[0].strip() for setting in settings}
    for key, value in (*flags.items(), ("out", out)):
        if value is not None and key in set_keys:
            name = "address" if key == "ray.address" else key
            raise UserError(f"--{name} and --set {key}=… set the same key",
                            help="remove one of the two", code="given-twice")
    if flags["ray.address"] is not None and flags["backend"] is None and "backend" not in set_keys:
        flags["backend"] = "ray"
    changes = (*settings, *(f"{key}={value}" for key, value in flags.items() if value is not None))
    if started_folder := started_study_folder(study):
        spec = read_started_study(started_folder, changes, out)
    else:
        spec = read_study(find_file(study, "studies"), changes, out)
    changed_keys = {change.partition("=")[0].strip() for change in changes}
    if spec.backend == "ray":
        require_packages("ray")
    spec = limit_to_one_worker(spec, changed_keys, partial(print_text, console=console))
    from scalesearch.studies.engine.dry_run import dry_run as plan_study
    from scalesearch.studies.engine.run import launch
    from scalesearch.studies.trials.study_dir import resumable

    try:
        if dry_run:
            with open_console(stderr=True).status("loading data, measuring the speed of models …"):
                plan = plan_study(spec, measure)
            if as_json:
                print_json(dry_run_to_json(plan))
            else:
                plan.show(console)
            return
        try:
            with interrupt_on_signal():
                reason = launch(spec, resume, console, measure)
        except SignalInterrupt as interrupt:
            folder = str(spec.out)
            resuming = "the same command"
            if started_study_folder(folder):
                resuming = shlex.join(["scalesearch", "study", "run", folder, "--resume"])
            print_text("Stopped. Finished trials are saved; the others continue from their last "
                       f"checkpoints. Resume with: {resuming}", console)
            raise SystemExit(interrupt.status) from None
    except UserError as error:
        raise with_position(error, spec) from None
    print_text(f"The study ended: {reason}.", console)
    with resumable(spec.out):
        _report(spec.out, console, as_json)


def dry_run_to_json(plan: DryRun) -> dict[str, Any]:
    """Convert the findings of a dry run to JSON values."""
    spec = plan.spec
    trials, fixed = ([{key: values[key] for key in PROPOSAL_KEYS}
                      for values in map(to_builtins, group)] for group in (plan.trials, plan.fixed))
    record = {"study": spec.name, "protocol": plan.evaluator.protocol.facts,
              "seeds": seeds_to_json(spec.seeds), "out": str(spec.out),
              "forecast": None if isinstance(plan.forecast, str) else to_builtins(plan.forecast),
              "teacher": plan.teacher and to_builtins(plan.teacher.meta),
              "learning_rates": plan.learning_rates, "notes": plan.notes}
    if rows := spec.architectures:
        optional = {"scaling": rows.scaling, "excluded": rows.excluded}
        return {**record, "type": rows.type, "base": rows.base, "runs": plan.planned_runs,
                "architectures": trials,
                **{name: value for name, value in optional.items() if value}}
    assert plan.feasibility is not None, "a search has an estimate"
    return {**record, "recipe": spec.recipe_space.distribution_texts,
            "space": {"hash": spec.space.hash, "size": plan.size,
                      "parameters": len(spec.space.parameters())},
            "sampled": plan.feasibility.samples, "feasible": plan.feasibility.feasible,
            "violations": dict(plan.feasibility.violations), "trials": spec.trials,
            "proposals": trials, "references": fixed,
            "warm_start": plan.warm_start and to_builtins(plan.warm_start)}


def _report(folder: Path, console: Console, as_json: bool) -> None:
    """Write and print the results of a study."""
    from scalesearch.report.scaling.tables import scaling_to_json
    from scalesearch.studies.results.publish import (
        scaling_of,
        table_of,
        write_outputs,
        write_scaling,
        write_table,
    )
    from scalesearch.studies.results.results import load_results

    results = load_results(folder)
    files = write_outputs(results)
    record = results_to_json(results)
    if results.study.meta.architectures is None:
        if not as_json:
            print_front(results, console)
            print_proxies(results, console)
    elif results.study.meta.type == "scaling":
        study = scaling_of(results)
        files = write_scaling(study, folder) + files
        record["scaling"] = scaling_to_json(study)
        if not as_json:
            print_scaling(study, console)
    else:
        table = table_of(results, results.main_metric)
        files = write_table(table, folder) + files
        record["table"] = ablation_to_json(table)
        if not as_json:
            print_ablation(results, table, console)
    if as_json:
        print_json(record | {"files": [str(file) for file in files]})
    else:
        print_written_files(files, console)
        if len(results.view.completed):
            name = shlex.quote(str(folder))
            print_text(f"Next: scalesearch study report {name} (HTML page)", console)
            print_text(f"      scalesearch export {name} {export_options(results.study.meta)} "
                       "(best model)", console)


def export_options(meta: StudyMeta) -> str:
    """Return options of ``export``: the format that the study measures, or another that fits."""
    from scalesearch.export.base import FORMAT_CLASSES
    from scalesearch.training.recipe import DECODE_WITH_MODEL

    decoder = meta.recipe.get("decode_with", DECODE_WITH_MODEL)
    format = meta.protocol.get("artifact", "") if decoder == DECODE_WITH_MODEL else decoder
    name, _, quantization = str(format).partition("-")
    if name not in FORMAT_CLASSES:
        return f"--to {proposed_format(meta.task)}"
    return f"--to {name}" + f" --quantize {quantization}" * bool(quantization)


def proposed_format(task: str) -> str:
    """Return an export format that holds the models of a task."""
    from scalesearch.tasks import TASKS

    return "onnx" if TASKS[task].generates_text else "torch"
