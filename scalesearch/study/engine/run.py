"""From a study file to its end: data, checks, folder, proposer, workers, screen, driver."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from scalesearch.study.config.objectives import Objective
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.config.teacher import describe_taught
from scalesearch.study.engine import setup
from scalesearch.study.engine.distillation import Teacher, distilled, find_teacher, teach
from scalesearch.study.engine.driver import Driver
from scalesearch.study.executors.base import Runner
from scalesearch.study.executors.factory import make_runner
from scalesearch.study.executors.shared_fs import sight
from scalesearch.study.monitor.console import Lines, Screen, View
from scalesearch.study.monitor.heartbeat import FINISHED, STOPPED, Heartbeat, owner_of
from scalesearch.study.monitor.snapshot import wanted
from scalesearch.study.transfer.fork import carried, describe, open_old, write
from scalesearch.study.transfer.warm_start import begin
from scalesearch.study.trials.evaluator import Bill
from scalesearch.study.trials.interruptions import resumable
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import PENDING


def launch(spec: StudySpec, resume: bool, console: Console, fork: Path | None = None) -> str:
    """Runs the study and returns why it ended.

    Args:
        fork: where it goes on with what still counts of the one in its own folder, instead of there.

    Raises:
        UserError: anything that is wrong with the study, its folder, storage or workers, before anything starts; later
            a full disk, or workers that are gone: the study can be resumed.
        KeyboardInterrupt: after everything was stopped; likewise.
    """
    with resumable(fork or spec.out):
        return _launch(spec, resume, console, fork)


def _launch(spec: StudySpec, resume: bool, console: Console, fork: Path | None) -> str:
    old = None
    if fork is not None:
        old, spec = open_old(spec, fork)
        resume = False
    setup.refuse_a_second_start(spec, resume)
    spec = setup.as_begun(spec)
    setup.refuse_the_unreachable(spec)
    corpus = setup.load_data(spec.data)
    for note in corpus.notes:
        console.print(note, highlight=False, markup=False)
    teacher = find_teacher(spec, corpus)
    bill = setup.make_bill(spec, corpus)
    spec = setup.settled(spec, bill)
    plan = setup.make_plan(spec, bill, corpus)
    with ExitStack() as stack:
        stack.enter_context(Store(spec.out).owned())
        runner = make_runner(spec)
        stack.callback(runner.stop)
        taught = teacher and teacher.to_json()
        if old is not None:
            _take_over(old, spec, plan, setup.meta_of(spec, plan, corpus, taught), console)
        store = setup.open_store(spec, plan, corpus, resume or old is not None, taught)
        facts = {"workers": runner.slots, "where": runner.describe(), "candidates": spec.trials,
                 "references": len(plan.references)}
        heartbeat = stack.enter_context(Heartbeat(store.folder, facts).kept())
        runner.check(partial(sight, str(spec.out.absolute()), spec.data.resolve().to_json()))
        if teacher is not None:
            plan = _taught(spec, teacher, bill, runner, console)
            setup.refuse_other_data(store, plan)
        proposer = setup.searcher(spec, bill)
        plan = begin(store, spec.warm, plan, proposer.first, lambda text: console.print(text, highlight=False,
                                                                                        markup=False, soft_wrap=True))
        mirror = setup.make_mirror(spec, plan, store)
        console.print(f"{_describe(spec)}, {runner.describe()}", highlight=False, markup=False)
        for name, reason in (spec.rows.left_out if spec.rows else {}).items():
            console.print(f"not trained: {name} ({reason})", highlight=False, markup=False, soft_wrap=True)
        console.print(f"Recipe: {spec.recipe.describe()}", highlight=False, markup=False)
        view = _view(stack, console, store, spec, spec.trials + len(plan.references), runner.slots)
        mirror.say = view.say
        stack.callback(mirror.close)
        return heartbeat.finish(Driver(plan, store, proposer, mirror, runner, view).run())


def _describe(spec: StudySpec) -> str:
    if spec.rows is None:
        return f"{spec.trials} candidates"
    return f"{len(spec.rows.rows)} rows, seeds each: {spec.seeds.references}"


def _take_over(old: Store, spec: StudySpec, plan: Plan, meta: Mapping[str, Any], console: Console) -> None:
    found = carried(old, plan, meta)
    for line in describe(old, found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    write(old, found, spec.out, meta, spec)


def _taught(spec: StudySpec, teacher: Teacher, bill: Bill, runner: Runner, console: Console) -> Plan:
    """The plan of candidates that learn from ``teacher``, whose work is done by then."""
    console.print(f"Teacher: {teacher.describe()}", highlight=False, markup=False, soft_wrap=True)
    facts = teach(teacher, spec, runner, console)
    corpus = setup.load_data(distilled(spec))
    for note in corpus.notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    console.print(describe_taught(facts), highlight=False, markup=False, soft_wrap=True)
    return setup.make_plan(spec, bill, corpus, facts)


def _view(stack: ExitStack, console: Console, store: Store, spec: StudySpec, wanted: int, slots: int) -> View:
    if console.is_terminal:
        return stack.enter_context(Screen(console, store.ledger, spec.objectives, wanted, slots, store.folder,
                                          spec.seeds.references))
    return Lines(lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True))


def screen_of(store: Store, console: Console) -> Screen:
    """The screen of a study that this process does not run."""
    objectives = tuple(Objective(name, way) for name, way in store.meta["objectives"].items())
    owner = owner_of(store.folder)
    due = wanted(store.meta, store.ledger, owner)
    slots = owner.workers or max(1, len(store.ledger.having(PENDING)))
    seeds = int((store.meta.get("seeds") or {}).get("references", 1))
    return Screen(console, store.ledger, objectives, due.candidates + due.references, slots, Path(store.folder), seeds,
                  alive=owner.state not in (FINISHED, STOPPED))
