"""A questionnaire, an objective and a study that take milliseconds; everything between them is the real thing."""

import hashlib
import json
import math
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

from scalesearch.blocks.leaves import Linear
from scalesearch.cost import find_protocol
from scalesearch.errors import UserError
from scalesearch.samplers import make_proposer
from scalesearch.samplers.base import Settings
from scalesearch.space.assembly.architecture import Architecture
from scalesearch.space.syntax.diagnostics import Unbuildable
from scalesearch.space.syntax.parameters import Choice, FloatRange, IntRange
from scalesearch.study.config.objectives import Objective
from scalesearch.study.engine.driver import Driver
from scalesearch.study.executors.local import InProcessRunner
from scalesearch.study.executors.worker import finish
from scalesearch.study.monitor.console import View
from scalesearch.study.optuna_sync.mirror import Mirror
from scalesearch.study.optuna_sync.storage import open_mirror
from scalesearch.study.trials.evaluator import Bill
from scalesearch.study.trials.history import goals_of
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.study_dir import Store
from tests.study.slow_work import wait_for_leave

OBJECTIVES = (Objective("bleu", "max"), Objective("params.total", "min"))
WIDTH, DEPTH = IntRange(8, 64, 8), Choice((4, 1, 2, 8))
KIND, SLOPE = Choice(("plain", "gated")), FloatRange(0.5, 2.0)


META = {
    "name": "fake", "id": "fake-1", "trials": 6, "seed": 1, "synthetic": True,
    "objectives": {objective.name: objective.direction for objective in OBJECTIVES},
    "protocol": {"name": "forward", "source": 10, "target": 10, "vocab": 100, "counts": {"mac": 1}},
    "bounds": {"params.total": 6000}, "data": {"name": "toy", "hash": "abc"},
}


@dataclass(frozen=True)
class FakeArchitecture(Architecture):
    """An architecture whose file is JSON."""

    def to_yaml(self, name=None):
        return json.dumps(dict(self.answers))


def architecture_of(answers):
    if answers["depth"] == 8 and answers["width"] == 64:
        raise Unbuildable("depth", "8 layers of 64 do not fit")
    # The slope decides nothing of the network, so different answers may describe one architecture.
    key = json.dumps([answers["width"], answers["depth"], answers["kind"]])
    block = Linear(answers["width"], answers["width"] * answers["depth"], ("tgt",), bias=answers["kind"] == "gated")
    return FakeArchitecture(dict(answers), block, hashlib.sha256(key.encode()).hexdigest()[:12])


class FakeSpace:
    """Width, depth, kind; and a slope, which only gated ones are asked for."""

    def dimensions(self):
        return [("width", WIDTH), ("depth", DEPTH), ("kind", KIND), ("slope", SLOPE)]

    def answer(self, ask):
        answers = {"width": ask("width", WIDTH), "depth": ask("depth", DEPTH), "kind": ask("kind", KIND)}
        return answers | ({"slope": ask("slope", SLOPE)} if answers["kind"] == "gated" else {})

    def architecture(self, answers):
        return architecture_of(answers)

    def replay(self, answers):
        def ask(path, question):
            if path not in answers:
                raise UserError(f"{path}: nothing is said of it")
            return question.settle(answers[path])

        return ask


def limit(name="params.total", most=6000):
    """A budget, as a space's Constraint is one."""
    return SimpleNamespace(text=f"{name} <= {most}", slack=lambda lookup: math.log(lookup(name) / most))


def score(answers):
    """Grows with size, and a little with the slope; the same for the same architecture."""
    size = answers["width"] * math.sqrt(answers["depth"]) * (1.2 if answers["kind"] == "gated" else 1.0)
    return 40 * (1 - math.exp(-size / 60))


def fake_result(folder, job):
    """What training would leave."""
    answers = json.loads((folder / "architecture.yaml").read_text())
    with (folder / "trained").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if job.get("held"):
        wait_for_leave(folder.parent.parent)
    metrics = {"bleu": score(answers), "loss": 1.0, "bleu_signature": "sig|v:1"}
    return {"state": "complete", "metrics": metrics, "seconds": 0.01, "curve": [[1, 2]]}


def fake_work(folder):
    """Trains in no time."""
    finish(Path(folder), fake_result)


def breaking_work(folder):
    """As a worker that breaks until its third attempt."""
    attempts = Path(folder) / "attempts"
    attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
    if attempts.read_text() != "xxx":
        raise RuntimeError("the worker broke")
    fake_work(folder)


def make_plan(trials=6, most=6000, **changes):
    """A plan over the fake space."""
    bill = Bill(FakeSpace(), find_protocol("forward", 10, 10, 100), (limit(most=most),))
    plan = Plan(bill, OBJECTIVES, trials, job={"threads": 1}, facts={"seed": 1}, asks=300)
    return replace(plan, **changes)


def make_driver(folder, plan=None, work=fake_work, kind="tpe", seed=1, runner=None, view=None, storage=None):
    """A driver over ``folder``, as ``study run`` makes one."""
    plan, store = plan or make_plan(), Store(Path(folder))
    if not store.exists():
        store.create(META, "study: fake\n", "width: 8\n")
    store.mend()
    store.load()

    def make(study):
        return Mirror(plan.bill.space, plan.bill.names, OBJECTIVES, study)

    mirror = open_mirror(storage, store.folder, store.meta["name"], store.meta["id"], OBJECTIVES, store.ledger, make)
    settings = Settings(kind, seed, 4, 6)
    proposer = make_proposer(plan.bill.space, plan.bill.names, goals_of(OBJECTIVES), settings)
    return Driver(plan, store, proposer, mirror, runner or InProcessRunner(work), view or View())


if __name__ == "__main__":  # a driver in a process of its own, to be killed
    where, trials = sys.argv[1:3]
    print(make_driver(where, make_plan(int(trials), job={"held": True, "threads": 1})).run(), flush=True)
