"""From a study file to its end: data, checks, folder, sampler, workers, screen, driver."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console

from scalesearch.study.config.sections import describe_taught
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.engine import setup
from scalesearch.study.engine.distillation import Teacher, distilled, find_teacher, teach
from scalesearch.study.engine.driver import Driver
from scalesearch.study.executors.base import Runner
from scalesearch.study.executors.factory import make_runner
from scalesearch.study.executors.shared_fs import sight
from scalesearch.study.monitor.console import make_console
from scalesearch.study.monitor.heartbeat import Heartbeat
from scalesearch.study.optuna_sync.attributes import Exported
from scalesearch.study.optuna_sync.export import open_export
from scalesearch.study.transfer.fork import carried, describe, open_old, write
from scalesearch.study.transfer.warm_start import begin
from scalesearch.study.trials.callback import Callbacks
from scalesearch.study.trials.evaluator import Evaluator
from scalesearch.study.trials.interruptions import resumable
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.study_meta import StudyMeta


def launch(spec: StudySpec, resume: bool, console: Console, fork: Path | None = None) -> str:
    """Runs the study and returns why it ended.

    Args:
        fork: the folder in which it goes on with what still counts of the study in its own folder.

    Raises:
        UserError: anything that is wrong with the study, its folder, storage or workers, before anything starts; later
            a full disk, or workers that are gone: the study can be resumed.
        KeyboardInterrupt: after everything was stopped; likewise.
    """
    with resumable(fork or spec.out):
        return _launch(spec, resume, console, fork)


def _launch(spec: StudySpec, resume: bool, console: Console, fork: Path | None) -> str:
    tell = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    old, spec = (None, spec) if fork is None else open_old(spec, fork)
    resume = resume and old is None
    setup.refuse_a_second_start(spec, resume)
    spec = setup.as_begun(spec)
    setup.refuse_the_unreachable(spec)
    corpus = setup.load_data(spec.data)
    for note in corpus.notes:
        tell(note)
    teacher = find_teacher(spec, corpus)
    evaluator = setup.make_evaluator(spec, corpus)
    spec = setup.drop_infeasible_rows(spec, evaluator)
    meta = setup.meta_of(spec, evaluator, corpus, teacher and teacher.to_json())
    plan, sampler = setup.make_plan(spec, evaluator, meta.shared, corpus), setup.sampler_of(spec, evaluator)
    with ExitStack() as stack:
        stack.enter_context(StudyDir(spec.out).owned())
        runner = make_runner(spec)
        stack.callback(runner.stop)
        if old is not None:
            _take_over(old, spec, plan, meta, console)
        study = setup.open_study(spec, meta, resume or old is not None)
        facts = {"workers": runner.slots, "where": runner.describe(), "candidates": spec.trials,
                 "references": len(plan.references)}
        heartbeat = stack.enter_context(Heartbeat(study.folder, facts).kept())
        runner.check(partial(sight, str(spec.out.absolute()), spec.data.resolve().to_json()))
        if teacher is not None:
            plan = _taught(spec, teacher, evaluator, meta, runner, console)
            setup.refuse_other_data(study, plan.shared["data"])
        plan = begin(study, spec.warm, plan, getattr(sampler, "n_startup_trials", 10), tell)
        for line in _opening(spec, runner):
            tell(line)
        screen = stack.enter_context(make_console(console, study))
        export = open_export(spec.storage, study, Exported(spec.space, spec.objectives), spec.objectives,
                             screen.message)
        return heartbeat.finish(Driver(plan, study, sampler, runner, Callbacks(screen, export)).run())


def _opening(spec: StudySpec, runner: Runner) -> list[str]:
    """Lines before the first training."""
    count = f"{spec.trials} candidates" if spec.rows is None else \
        f"{len(spec.rows.rows)} rows, seeds each: {spec.seeds.references}"
    left_out = spec.rows.left_out if spec.rows else {}
    return [f"{count}, {runner.describe()}", *(f"not trained: {name} ({why})" for name, why in left_out.items()),
            f"Recipe: {spec.recipe.describe()}"]


def _take_over(old: StudyDir, spec: StudySpec, plan: Plan, meta: StudyMeta, console: Console) -> None:
    trials = carried(old, plan, meta)
    for line in describe(old, trials):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    write(old, trials, spec.out, meta, spec)


def _taught(spec: StudySpec, teacher: Teacher, evaluator: Evaluator, meta: StudyMeta, runner: Runner,
            console: Console) -> Plan:
    """The plan of trials that learn from ``teacher``, whose work is done by then."""
    tell = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    tell(f"Teacher: {teacher.describe()}")
    facts = teach(teacher, spec, runner, console)
    corpus = setup.load_data(distilled(spec))
    for note in corpus.notes:
        tell(note)
    tell(describe_taught(facts))
    shared = {**meta.shared, "data": setup.data_facts(corpus), "teacher": dict(facts)}
    return setup.make_plan(spec, evaluator, shared, corpus)
