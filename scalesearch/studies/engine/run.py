"""Run of a study: data, checks, folder, sampler, workers, driver."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache, partial

from rich.console import Console

from scalesearch.studies.config.fixed_architectures import COMPRESS
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.engine import setup
from scalesearch.studies.engine.compression import Replacements, compress_parent
from scalesearch.studies.engine.corpora import load_corpora
from scalesearch.studies.engine.distillation import find_teacher, learn_from_teacher
from scalesearch.studies.engine.driver import Driver
from scalesearch.studies.executors.base import Runner, machine_fingerprint
from scalesearch.studies.executors.local import make_runner, start_forkserver
from scalesearch.studies.forecast import load_or_make_forecast, training_measurer
from scalesearch.studies.monitor.console import make_console
from scalesearch.studies.monitor.format import describe_forecast
from scalesearch.studies.monitor.heartbeat import Heartbeat
from scalesearch.studies.monitor.loggers import make_loggers
from scalesearch.studies.monitor.running import TEACHER_FOLDER
from scalesearch.studies.optuna_sync.attributes import TrialExporter
from scalesearch.studies.optuna_sync.export import open_export
from scalesearch.studies.trials.study_dir import StudyDir, resumable
from scalesearch.studies.trials.trial import Callback, Callbacks
from scalesearch.studies.warm_start import apply_warm_start
from scalesearch.terminal import format_count, print_text


def launch(spec: StudySpec, resume: bool, console: Console, measure_seconds: float = 0.0,
           callbacks: Sequence[Callback] = ()) -> str:
    """Run the study and return why it ended.

    Args:
        spec: the study.
        resume: continue the study in the folder.
        console: for messages and progress.
        measure_seconds: time to measure the speed of models for the forecast; 0 measures nothing.
        callbacks: called after the screen, the export and the loggers.

    Raises:
        UserError: the study, its folder, storage or workers are invalid; nothing has started. Also
            a full disk or lost workers later: the study can be resumed.
        KeyboardInterrupt: after the workers were stopped; the study can be resumed.
    """
    report = partial(print_text, console=console)
    report_once = cache(report)  # a teacher's translations are loaded with the same notes
    with resumable(spec.out), ExitStack() as stack:
        # 1. Checks: nothing is written
        setup.check_blocks(spec)
        if spec.backend == "pool":
            start_forkserver()  # it takes seconds, in which the data are loaded
        spec = setup.with_original_name(spec, resume, report)
        setup.check_reachable(spec)
        corpora = load_corpora(spec, report_once)
        teacher = find_teacher(spec, corpora.first)
        evaluator = setup.make_evaluator(spec, corpora)
        replacements = Replacements.of(spec, evaluator) if spec.type == COMPRESS else None
        setup.check_costs_of_blocks(spec, evaluator, report)
        spec = setup.drop_infeasible_architectures(spec, evaluator)
        meta = setup.study_facts(spec, corpora, evaluator, teacher.meta if teacher else None)
        sampler = setup.build_sampler(spec, evaluator)

        # 2. Workers and folder
        stack.enter_context(StudyDir(spec.out).exclusive())
        runner = make_runner(spec.backend, spec.workers, spec.resources, folder=spec.out)
        stack.callback(runner.stop)
        study = setup.open_study(spec, evaluator, meta)
        if len(study.trials):
            report("Resuming the study; complete so far: "
                   f"{study.trials.describe_complete(meta.architectures is None)}")
        facts = {"workers": runner.slots, "executor": runner.describe(),
                 "candidates": evaluator.count_feasible(spec.trials),
                 "references": len(spec.named_architectures) if replacements is None
                 else spec.trials}  # combinations are chosen after the start
        heartbeat = stack.enter_context(Heartbeat(study.folder, facts).running_study())
        runner.check(partial(machine_fingerprint, str(spec.out.absolute()),
                             spec.data.with_absolute_paths().model_dump()))

        # 3. Teacher, and trials of other studies
        if teacher is not None:
            spec, corpora = learn_from_teacher(teacher, spec, study, runner, console, report_once)
        if replacements is not None:
            assert teacher is not None, "the parent is the teacher"
            parent_folder = teacher.folders[0] if teacher.folders else spec.out / TEACHER_FOLDER
            spec = compress_parent(replacements, spec, study, evaluator.protocol, parent_folder,
                                   runner, console)
            heartbeat.update(candidates=0, references=len(spec.named_architectures))
            setup.check_references(spec, evaluator, study)
        max_enqueued = getattr(sampler, "n_startup_trials", 10)
        enqueued = apply_warm_start(study, spec, evaluator, max_enqueued, report)

        # 4. Forecast
        for line in describe_start(spec, runner):
            report(line)
        # A model that has a GPU to itself is faster than trials that share it.
        seconds = 0.0 if runner.shares_gpus else measure_seconds
        measure = training_measurer(spec, corpora.of_architecture)
        forecast = load_or_make_forecast(study, spec, evaluator, measure, seconds, report)
        title = "Forecast of the whole study" if len(study.trials) else "Forecast"
        for line in describe_forecast(forecast, title):
            report(line)

        # 5. Search
        screen = stack.enter_context(make_console(console, study))
        exporter = TrialExporter(evaluator.joint_space, spec.objectives)
        export = open_export(spec.storage, study, exporter, screen.message)
        loggers = make_loggers(spec.loggers, study, screen.message)
        callback = Callbacks(screen, export, *loggers, *callbacks)
        driver = Driver(spec, study, evaluator, sampler, runner, callback, enqueued)
        return heartbeat.finish(driver.run())


def describe_start(spec: StudySpec, runner: Runner) -> list[str]:
    """Describe how many trials are trained, where, and by which recipe."""
    if spec.architectures is None:
        lines = [f"{spec.trials_text}, {runner.describe()}"]
    else:
        lines = [f"{format_count(len(spec.architectures.architectures), 'architecture')}, "
                 f"{format_count(spec.seeds.references, 'seed')} each, {runner.describe()}",
                 *(f"not trained: {name} ({reason})"
                   for name, reason in spec.architectures.excluded.items())]
    lines += [f"Recipe: {spec.recipe_text}", *setup.study_warnings(spec)]
    if runner.shares_gpus and runner.slots > 1 and (spec.recipe.minutes or spec.recipe.cpu_minutes):
        lines.append("Warning: trials share a GPU, so a budget in minutes gives each trial another "
                     "number of updates; set `steps`, `tokens` or `epochs`, or "
                     "`resources: {gpus_per_trial: 1}`")
    return lines
