"""Run of a study from its file to its end: data, checks, folder, sampler, workers, driver."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from scalesearch.study.config.spec import StudySpec
from scalesearch.study.engine import setup
from scalesearch.study.engine.distillation import distilled_data, find_teacher, run_teacher
from scalesearch.study.engine.driver import Driver
from scalesearch.study.engine.forecasting import load_or_make_forecast
from scalesearch.study.executors.base import machine_fingerprint
from scalesearch.study.executors.local import make_runner
from scalesearch.study.monitor.console import make_console
from scalesearch.study.monitor.forecast import describe_forecast
from scalesearch.study.monitor.heartbeat import Heartbeat
from scalesearch.study.monitor.loggers import make_loggers
from scalesearch.study.optuna_sync.attributes import TrialExporter
from scalesearch.study.optuna_sync.export import open_export
from scalesearch.study.transfer.fork import carry_over, describe_carried, open_studies, write_fork
from scalesearch.study.transfer.warm_start import apply_warm_start, choose_warm_start
from scalesearch.study.trials.callback import Callback, Callbacks
from scalesearch.study.trials.record import describe_teacher_facts
from scalesearch.study.trials.study_dir import StudyDir, resumable
from scalesearch.terminal import print_text


def launch(spec: StudySpec, resume: bool, console: Console, fork: Path | None = None,
           measure_seconds: float = 0.0, callbacks: Sequence[Callback] = ()) -> str:
    """Run the study and return why it ended.

    Args:
        spec: the study.
        resume: continue the study in the folder.
        console: for messages and progress.
        fork: folder of a new study, which takes over the valid trials of the study in ``spec.out``.
        measure_seconds: time to measure the speed of models for the forecast; 0 measures nothing.
        callbacks: called after the screen, the export and the loggers.

    Raises:
        UserError: the study, its folder, storage or workers are invalid; nothing has started. Also
            a full disk or lost workers later: the study can be resumed.
        KeyboardInterrupt: after the workers were stopped; the study can be resumed.
    """
    with resumable(fork or spec.out):
        return _launch(spec, resume, console, fork, measure_seconds, callbacks)


def _launch(spec: StudySpec, resume: bool, console: Console, fork: Path | None,
            measure_seconds: float, callbacks: Sequence[Callback]) -> str:
    report = partial(print_text, console=console)
    old, spec = (None, spec) if fork is None else open_studies(spec, fork)
    if resume and not StudyDir(spec.out).has_started():
        report(f"nothing to resume in {spec.out}; starting from the beginning")
    spec = setup.with_original_name(spec, resume and old is None)
    setup.check_reachable(spec)
    corpora = setup.load_data(spec, report)
    teacher = find_teacher(spec, corpora.first)
    ready = setup.prepare_study(spec, corpora, teacher and teacher.meta)
    sampler = setup.build_sampler(spec, ready.evaluator)
    spec = ready.spec
    plan = ready.plan
    # Default number of architectures of other studies to train first.
    max_enqueued = getattr(sampler, "n_startup_trials", 10)
    with ExitStack() as stack:
        stack.enter_context(StudyDir(spec.out).exclusive())
        runner = make_runner(spec.backend, spec.workers, spec.resources)
        stack.callback(runner.stop)
        if old is not None:
            trials = carry_over(old, plan, ready.meta)
            if spec.warm_start:
                # Reports missing folders before a file is written.
                choose_warm_start(spec.warm_start, plan, max_enqueued)
            for line in describe_carried(old, trials):
                report(line)
            write_fork(old, trials, spec.out, ready.meta, spec)
        study = setup.open_study(ready)
        facts = {"workers": runner.slots, "executor": runner.describe(), "candidates": spec.trials,
                 "references": len(plan.references)}
        heartbeat = stack.enter_context(Heartbeat(study.folder, facts).running_study())
        runner.check(partial(machine_fingerprint, str(spec.out.absolute()),
                             spec.data.with_absolute_paths().to_json()))
        if teacher is not None:
            report(f"Teacher: {teacher.describe()}")
            teacher_facts = run_teacher(teacher, spec, runner, console)
            corpora = setup.load_data(replace(spec, data=distilled_data(spec)), report)
            report(describe_teacher_facts(teacher_facts))
            plan = setup.plan_with_teacher(plan, corpora.first, teacher_facts)
            setup.check_same_translations(study, corpora.first.content_hash)
        plan = apply_warm_start(study, spec.warm_start, plan, max_enqueued, report)
        count = spec.trials_text if spec.architectures is None else (
            f"{len(spec.architectures.architectures)} architectures, "
            f"{spec.seeds.references} seeds each")
        report(f"{count}, {runner.describe()}")
        excluded = spec.architectures.excluded if spec.architectures else {}
        for name, reason in excluded.items():
            report(f"not trained: {name} ({reason})")
        report(f"Recipe: {spec.recipe.describe()}")
        for line in describe_forecast(load_or_make_forecast(study, spec, ready.evaluator, plan,
                                                            corpora, measure_seconds)):
            report(line)
        screen = stack.enter_context(make_console(console, study))
        export = open_export(spec.storage, study,
                             TrialExporter(plan.evaluator.joint_space, spec.objectives),
                             spec.objectives, screen.message)
        loggers = make_loggers(spec.loggers, study, screen.message)
        callback = Callbacks(screen, export, *loggers, *callbacks)
        return heartbeat.finish(Driver(plan, study, sampler, runner, callback).run())
