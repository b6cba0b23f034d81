"""From a study file to its end: data, checks, folder, sampler, workers, screen, driver."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from scalesearch.study.config.spec import StudySpec
from scalesearch.study.engine import setup
from scalesearch.study.engine.distillation import distilled, find_teacher, teach
from scalesearch.study.engine.driver import Driver
from scalesearch.study.engine.forecasting import keep_forecast
from scalesearch.study.executors.factory import make_runner
from scalesearch.study.executors.shared_fs import sight
from scalesearch.study.monitor.console import make_console
from scalesearch.study.monitor.forecast import describe_forecast
from scalesearch.study.monitor.heartbeat import Heartbeat
from scalesearch.study.monitor.loggers import make_loggers
from scalesearch.study.optuna_sync.attributes import Exported
from scalesearch.study.optuna_sync.export import open_export
from scalesearch.study.transfer.fork import carried, describe, open_old, write
from scalesearch.study.transfer.warm_start import begin, choose
from scalesearch.study.trials.callback import Callback, Callbacks
from scalesearch.study.trials.record import describe_taught
from scalesearch.study.trials.study_dir import StudyDir, resumable
from scalesearch.terminal import print_text


def launch(spec: StudySpec, resume: bool, console: Console, fork: Path | None = None, measure: float = 0.0,
           callbacks: Sequence[Callback] = ()) -> str:
    """Runs the study and returns why it ended.

    Args:
        fork: the folder in which it goes on with what still counts of the study in its own folder.
        measure: seconds to measure the speed of models for, for the forecast.
        callbacks: told of progress, after the screen, the export and the loggers.

    Raises:
        UserError: anything that is wrong with the study, its folder, storage or workers, before anything starts; later
            a full disk, or workers that are gone: the study can be resumed.
        KeyboardInterrupt: after everything was stopped; likewise.
    """
    with resumable(fork or spec.out):
        return _launch(spec, resume, console, fork, measure, callbacks)


def _launch(spec: StudySpec, resume: bool, console: Console, fork: Path | None, measure: float,
            callbacks: Sequence[Callback]) -> str:
    tell = partial(print_text, console=console)
    old, spec = (None, spec) if fork is None else open_old(spec, fork)
    if resume and not StudyDir(spec.out).begun():
        tell(f"nothing to resume in {spec.out}; starting from the beginning")
    spec = setup.as_begun(spec, resume and old is None)
    setup.refuse_the_unreachable(spec)
    corpora = setup.load_data(spec, tell)
    teacher = find_teacher(spec, corpora.first)
    ready = setup.set_up(spec, corpora, teacher and teacher.meta)
    spec, plan, sampler = ready.spec, ready.plan, setup.sampler_of(spec, ready.evaluator)
    most = getattr(sampler, "n_startup_trials", 10)  # architectures of other studies to train first
    with ExitStack() as stack:
        stack.enter_context(StudyDir(spec.out).owned())
        runner = make_runner(spec.backend, spec.workers, spec.resources)
        stack.callback(runner.stop)
        if old is not None:
            trials = carried(old, plan, ready.meta)
            if spec.warm:
                choose(spec.warm, plan, most)  # before anything is written, since folders may be gone
            for line in describe(old, trials):
                tell(line)
            write(old, trials, spec.out, ready.meta, spec)
        study = setup.open_study(ready)
        facts = {"workers": runner.slots, "where": runner.describe(), "candidates": spec.trials,
                 "references": len(plan.references)}
        heartbeat = stack.enter_context(Heartbeat(study.folder, facts).kept())
        runner.check(partial(sight, str(spec.out.absolute()), spec.data.with_absolute_paths().to_json()))
        if teacher is not None:
            tell(f"Teacher: {teacher.describe()}")
            taught = teach(teacher, spec, runner, console)
            corpora = setup.load_data(replace(spec, data=distilled(spec)), tell)
            tell(describe_taught(taught))
            plan = setup.learning_from(plan, corpora.first, taught)
            setup.refuse_other_data(study, corpora.first.content_hash)
        plan = begin(study, spec.warm, plan, most, tell)
        count = spec.amount if spec.rows is None else \
            f"{len(spec.rows.rows)} rows, seeds each: {spec.seeds.references}"
        tell(f"{count}, {runner.describe()}")
        for name, why in (spec.rows.left_out if spec.rows else {}).items():
            tell(f"not trained: {name} ({why})")
        tell(f"Recipe: {spec.recipe.describe()}")
        for line in describe_forecast(keep_forecast(study, spec, ready.evaluator, plan, corpora, measure)):
            tell(line)
        screen = stack.enter_context(make_console(console, study))
        export = open_export(spec.storage, study, Exported(plan.evaluator.searched, spec.objectives), spec.objectives,
                             screen.message)
        told = Callbacks(screen, export, *make_loggers(spec.loggers, study, screen.message), *callbacks)
        return heartbeat.finish(Driver(plan, study, sampler, runner, told).run())
