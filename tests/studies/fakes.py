"""A space, an objective and a study that take milliseconds; all other parts are the real ones."""

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from scalesearch.blocks.leaves import Linear
from scalesearch.cost import find_protocol
from scalesearch.data import DataSpec
from scalesearch.errors import UserError
from scalesearch.samplers import SamplerSpec, make_sampler
from scalesearch.schedule import NO_RUNGS
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.syntax.diagnostics import UnbuildableError
from scalesearch.spaces.syntax.parameters import Choice, FloatRange, IntRange
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.config.sections import SINGLE_SEED
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.engine.driver import Driver
from scalesearch.studies.executors.base import CRASH_FAULT, JobCrashed
from scalesearch.studies.executors.local import InProcessRunner
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.optuna_sync.attributes import TrialExporter
from scalesearch.studies.optuna_sync.export import open_export
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import DataFacts, StudyMeta
from scalesearch.studies.trials.trial import Callback, Callbacks
from scalesearch.training.recipe import Recipe
from tests.studies.slow_work import score, wait_for_leave

OBJECTIVES = (parse_objective("bleu", "max"), parse_objective("params.total", "min"))
WIDTH = IntRange(8, 64, 8)
DEPTH = Choice((4, 1, 2, 8))
KIND = Choice(("plain", "gated"))
SLOPE = FloatRange(0.5, 2.0)


META = StudyMeta(id="fake-1", name="fake", created="2026-01-01T00:00:00.000+00:00",
                 space_hash="f00", objectives=OBJECTIVES, seed=1,
                 protocol={"name": "forward", "source": 10, "target": 10, "vocab": 100,
                           "counts": {"mac": 1}}, recipe={}, data=DataFacts("toy", "abc"),
                 synthetic=True, total_trials=6, limits=("params.total <= 6000",),
                 bounds={"params.total": 6000}, versions={})


# Keys of a study file that a driver reads.
SPEC_DEFAULTS = {"references": (), "architectures": None,
                 "data": DataSpec(builtin="grammar"), "recipe": Recipe(steps=9), "rungs": NO_RUNGS,
                 "seeds": SINGLE_SEED, "compute": None, "stop": None, "attempts": 3, "workers": 1,
                 "warm_start": None, "sampler": SamplerSpec("random", seed=1)}


class FakeConfig(dict):
    """A configuration and its sampled parameter values."""

    params = {}


@dataclass(frozen=True)
class FakeArchitecture(ModelSpec):
    """An architecture whose file is JSON."""

    def to_yaml(self, name=None):
        return json.dumps(dict(self.config))


def architecture_of(config):
    if config["depth"] == 8 and config["width"] == 64:
        raise UnbuildableError("depth", "8 layers of 64 do not fit")
    # The slope does not change the network, so several configurations describe one architecture.
    key = json.dumps([config["width"], config["depth"], config["kind"]])
    block = Linear(config["width"], config["width"] * config["depth"], ("tgt",),
                   bias=config["kind"] == "gated")
    return FakeArchitecture(dict(config), block, hashlib.sha256(key.encode()).hexdigest()[:12])


class FakeSpace:
    """Width, depth and type; and a slope if the type is gated."""

    def parameters(self):
        return [("width", WIDTH), ("depth", DEPTH), ("kind", KIND), ("slope", SLOPE)]

    def resolve(self, ask):
        config = FakeConfig(width=ask("width", WIDTH), depth=ask("depth", DEPTH),
                              kind=ask("kind", KIND))
        if config["kind"] == "gated":
            config["slope"] = ask("slope", SLOPE)
        config.params = dict(config)
        return config

    def architecture(self, config):
        return architecture_of(config)

    def replay_values(self, config):
        def ask(path, parameter):
            if path not in config:
                raise UserError(f"{path}: no value")
            return parameter.coerce(config[path])

        return ask


def state_of(trials):
    """The facts that a resumed study and an uninterrupted one have in common."""
    return [(t.number, t.params, t.state, t.rungs, t.values) for t in trials]


def limit(name="params.total", most=6000):
    """A budget with the interface of ``Constraint``."""
    return SimpleNamespace(text=f"{name} <= {most}",
                           violation=lambda lookup: math.log(lookup(name) / most))


def efforts_to(share):
    """Effort of each part of training up to a share of it; scoring happens at the end only."""
    cpu_seconds = {"updates": 60.0 * share, "validation": 6.0 * share,
                   "scoring": 30.0 * (share == 1.0), "other": 1.0}
    return {part: {"seconds": 2 * effort, "cpu_seconds": effort}
            for part, effort in cpu_seconds.items()}


def fake_result(folder, job):
    """The result that training would write."""
    config = json.loads((folder / "architecture.yaml").read_text())
    with (folder / "trained").open("a") as file:
        file.write(f"{os.getpid()}\n")
    metrics = {"bleu": score(config), "loss": 1.0, "bleu_signature": "sig|v:1"}
    return {"state": "complete", "metrics": metrics, "seconds": 0.01, "efforts": efforts_to(1.0),
            "curve": [{"step": 1, "validation_loss": 2.0}]}


def held_result(folder, job):
    """The result of training that waits for leave."""
    result = fake_result(folder, job)
    wait_for_leave(folder.parent.parent)
    return result


def fake_work(folder):
    """Finish a job without training."""
    finish_job(Path(folder), fake_result)


def breaking_work(folder):
    """Raise an error until the third attempt."""
    attempts = Path(folder) / "attempts"
    attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
    if attempts.read_text() != "xxx":
        raise RuntimeError("the worker broke")
    fake_work(folder)


class FaultyRunner(InProcessRunner):
    """Runner whose first polls end the oldest job by a crash of each cause of ``causes``."""

    def __init__(self, work, *causes):
        super().__init__(work)
        self.causes = list(causes)
        self.submitted = []

    def submit(self, job):
        self.submitted.append(job.folder.name)
        super().submit(job)

    def poll(self, timeout):
        if not self.causes or not self._waiting:
            return super().poll(timeout)
        cause = self.causes.pop(0)
        reason = "the worker broke" if cause == CRASH_FAULT else f"injected: {cause}"
        return [JobCrashed(self._waiting.popleft(), reason, cause=cause)]


@dataclass(frozen=True)
class FakePlan:
    """A study file and its evaluator, for a driver.

    ``record_fields`` differ from those of ``META``.
    """

    spec: StudySpec
    evaluator: Evaluator
    record_fields: Mapping[str, Any] = field(default_factory=dict)
    max_proposals: int = 300
    enqueued: tuple = ()


def make_plan(trials=6, most=6000, evaluator=None, record_fields=None, max_proposals=300,
              **settings):
    """A study over the fake space; ``settings`` are keys of a study file."""
    evaluator = evaluator or Evaluator(FakeSpace(), find_protocol("forward", 10, 10, 100),
                                       (limit(most=most),))
    spec = StudySpec.model_construct(
        **{**SPEC_DEFAULTS, "objectives": OBJECTIVES, "trials": trials, **settings})
    return FakePlan(spec, evaluator, record_fields or {}, max_proposals)


def make_sampler_of(plan, kind="tpe", seed=1):
    """The sampler of ``plan``, with four random trials before a model is used."""
    startup = {"population_size": 6} if kind == "nsga2" else {"n_startup_trials": 4}
    return make_sampler(SamplerSpec(kind, startup, seed), plan.evaluator.suggest_params,
                        partial(plan.evaluator.candidate_facts, objectives=OBJECTIVES),
                        plan.evaluator.feasible_region, OBJECTIVES, plan.spec.rungs.shares)


def make_driver(folder, plan=None, work=fake_work, kind="tpe", seed=1, runner=None, view=None,
                storage=None):
    """A driver over ``folder``, as in ``study run``; without an export if ``storage`` is False."""
    plan = plan or make_plan()
    study = StudyDir(Path(folder))
    view = view or Callback()
    if not study.exists():
        study.create(META, "width: 8\n")
    study.log.repair()
    study.load()
    if study.meta.seeds != plan.spec.seeds:
        study.update_meta(seeds=plan.spec.seeds)
    exported = TrialExporter(plan.evaluator.joint_space, OBJECTIVES)
    export = storage is not False and open_export(storage, study, exported, view.message)
    study.teacher_fields = plan.record_fields
    driver = Driver(plan.spec, study, plan.evaluator, make_sampler_of(plan, kind, seed),
                    runner or InProcessRunner(work), Callbacks(view, export) if export else view,
                    plan.enqueued)
    driver.proposals.max_proposals = plan.max_proposals
    driver.export = export
    return driver


def exported(driver):
    """The Optuna study in the driver's folder, once everything is in it."""
    driver.export.close()
    storage = JournalStorage(JournalFileBackend(str(driver.study.folder / "optuna.journal")))
    return optuna.load_study(study_name=META.name, storage=storage)


if __name__ == "__main__":  # a driver in a separate process, to be killed
    where, trials = sys.argv[1:3]
    driver = make_driver(where, make_plan(int(trials)),
                         work=lambda folder: finish_job(Path(folder), held_result))
    print(driver.run(), flush=True)
