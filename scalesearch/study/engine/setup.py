"""Setup of a study: from its file to a driver. What can be found wrong is found here, before anything starts."""

import math
import random
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from optuna.samplers import BaseSampler

from scalesearch.cost import protocol_of
from scalesearch.data import Corpus, DataSpec, default_cache, load_corpus
from scalesearch.errors import UserError, about
from scalesearch.feasible.limits import limits, upper_bounds
from scalesearch.library import find_file
from scalesearch.samplers import make_sampler
from scalesearch.space import Space, read_space
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.study.config.rows import Reference
from scalesearch.study.config.sections import ReferenceSpec
from scalesearch.study.config.spec import CORPUS, StudySpec
from scalesearch.study.optuna_sync.export import reach
from scalesearch.study.trials.compatibility import refuse_a_changed, refuse_other_references
from scalesearch.study.trials.evaluator import Evaluator
from scalesearch.study.trials.event_log import now
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.record import SEARCHERS
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import State
from scalesearch.train.result import versions

MAX_SAMPLES = 2000  # draws after which a budget that none of them met counts as one that nothing meets
REVISED = ("seeds", "rows", "scaling", "left_out")  # what a study may have more of when it goes on


@dataclass(frozen=True)
class Feasibility:
    """Feasible share of a random sample of the space."""

    samples: int
    feasible: int
    missed: Mapping[str, int]  # limit to how many miss it
    nearest: Mapping[str, float]  # limit to the least slack of any; log(cost / budget) for a budget


def make_evaluator(spec: StudySpec, corpus: Corpus | None) -> Evaluator:
    """The evaluator of the study's trials. It costs the model that is trained: the vocabulary is the corpus's, unless
    the study file itself gives one; the one in the space's ``cost:`` does not count.

    Raises:
        UserError: the protocol is wrong.
    """
    given: dict[str, Any] = dict(spec.protocol)
    if spec.vocab == CORPUS:
        assert corpus is not None, "the caller loads the corpus for this"
        given["vocab"] = corpus.tokenizer.vocab_size
    return Evaluator(spec.space, protocol_of({**spec.space.protocol, **given}), limits(spec.space, spec.budget))


def estimate_feasibility(evaluator: Evaluator, seed: int, samples: int = MAX_SAMPLES, enough: int | None = None
                         ) -> Feasibility:
    """Counts the feasible among random ``samples``; stops at ``enough``, where given."""
    rng = random.Random(seed)
    feasible, drawn = 0, 0
    missed, nearest = dict.fromkeys(evaluator.names, 0), dict.fromkeys(evaluator.names, math.inf)
    while drawn < samples and (enough is None or feasible < enough):
        trial = evaluator.evaluate(evaluator.space.sample(rng).params)
        drawn, feasible = drawn + 1, feasible + trial.feasible
        for name, slack in trial.constraints.items():
            missed[name] += slack > 0
            if trial.costs:  # of what cannot be built, no limit is known
                nearest[name] = min(nearest[name], slack)
    return Feasibility(drawn, feasible, missed, nearest)


def refuse_the_impossible(evaluator: Evaluator, seed: int) -> None:
    """Raises UserError where nothing meets the limits, naming the limit that stops most samples.

    Where none of many samples does, the space is counted, or sheets are changed until they do.
    """
    sample = estimate_feasibility(evaluator, seed, enough=1)
    if not sample.feasible and evaluator.region.sample_feasible(random.Random(seed)) is None:
        counted = "; counted, nothing in the space does" if evaluator.region.share == 0 else ""
        worst = max(sample.missed, key=lambda name: sample.missed[name])
        raise UserError(f"budget: none of {sample.samples} random candidates meets it{counted}; {sample.missed[worst]} "
                        f"of them miss `{worst}`{_nearest(worst, sample)}. Costs are of protocol {evaluator.protocol}. "
                        "Raise the budget, or let the space hold smaller models", key="budget", code="budget-unmet")


def _nearest(limit: str, feasibility: Feasibility) -> str:
    """Describes by how much the nearest missed. It is said of costs alone, whose slack is the logarithm of a ratio."""
    slack = feasibility.nearest[limit]
    if not any(name in limit for name in COST_NAMES) or not 0 < slack < math.inf:
        return ""
    return f", the nearest by {math.expm1(slack):,.1%}"


def drop_infeasible_rows(spec: StudySpec, evaluator: Evaluator) -> StudySpec:
    """Drops the rows of ``spec`` that the limits forbid; a search stays as it is.

    Raises:
        UserError: nothing meets the limits.
    """
    if spec.rows is None:
        refuse_the_impossible(evaluator, spec.proposer.seed)
        return spec
    return replace(spec, rows=spec.rows.within(lambda one: evaluator.evaluate_architecture(one).reason))


def references(spec: StudySpec) -> tuple[Reference, ...]:
    """References of a search, or the rows of a study that has them.

    Raises:
        UserError: one of them leaves something open or cannot be built.
    """
    if spec.rows is not None:
        return spec.rows.rows
    with about("reference"):
        return tuple(_reference(reference, spec) for reference in spec.references)


def reference_space(reference: ReferenceSpec, spec: StudySpec) -> Space:
    """The study's space, or the file that ``reference`` names, with its ``set``."""
    space = spec.space
    if reference.file is not None:
        beside = spec.file.parent / reference.file
        space = read_space(beside if beside.is_file() else find_file(reference.file, "spaces"))
    return space.set(reference.set) if reference.set else space


def _reference(reference: ReferenceSpec, spec: StudySpec) -> Reference:
    space = reference_space(reference, spec)
    architecture = space.closed(f"reference {reference.name}: it")
    return Reference(reference.name, architecture, params_of(spec.space, space.answer(space.replay({}))))


def params_of(space: Space, answers: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Params by which the study's space gives ``answers``; None where it never does."""
    try:
        answered = space.answer(space.replay(answers))
    except UserError:
        return None
    return answered.params if dict(answered) == dict(answers) else None


def make_plan(spec: StudySpec, evaluator: Evaluator, shared: Mapping[str, Any], corpus: Corpus) -> Plan:
    """Builds the driver's plan. Paths in the jobs are absolute, since workers may start elsewhere.

    Args:
        shared: what every record says.
        corpus: what the trials learn from.
    """
    job = {"data": corpus.spec.resolve().to_json(), "cache": str(default_cache()), "recipe": spec.recipe.to_json(),
           "seed": spec.seed, "threads": spec.resources.threads_per_trial,
           "processes": spec.resources.processes_per_trial, "proxies": spec.proxies}
    return Plan(evaluator, spec.objectives, spec.trials, job, shared, references(spec), spec.attempts,
                rungs=spec.rungs, seeds=spec.seeds)


def meta_of(spec: StudySpec, evaluator: Evaluator, corpus: Corpus, teacher: Mapping[str, Any] | None = None
            ) -> StudyMeta:
    """Builds the study's meta data, with which a resumed study must agree. ``corpus`` is the real text's."""
    rows: dict[str, Any] = {"sampler": asdict(spec.proposer)}
    if spec.rows:
        rows = spec.rows.to_json() | {"rows": tuple(row.label for row in spec.rows.rows)}
    return StudyMeta(
        id=uuid.uuid4().hex, name=spec.name, created=now(), space=spec.space.hash,
        protocol=evaluator.protocol.to_json(), objectives=spec.objectives, recipe=spec.recipe.to_json(),
        seed=spec.seed, data=data_facts(corpus), synthetic=corpus.synthetic,
        trials=spec.trials + len(references(spec)), limits=tuple(limit.text for limit in evaluator.limits),
        bounds=upper_bounds(limits(spec.space, spec.budget)), versions=versions(*SEARCHERS), teacher=teacher,
        rungs=spec.rungs, seeds=spec.seeds, warm_start=spec.warm.to_json() if spec.warm else None, **rows,
    ).as_read()


def data_facts(corpus: Corpus) -> dict[str, Any]:
    """Facts of the text for the study and its records."""
    return {key: value for key, value in corpus.to_json().items() if key not in ("counts", "notes")}


def as_begun(spec: StudySpec) -> StudySpec:
    """Gives ``spec`` the name that its study began with. A fork is named after its folder."""
    study = StudyDir(spec.out)
    return replace(spec, name=study.look().meta.name) if study.begun() else spec


def refuse_a_second_start(spec: StudySpec, resume: bool) -> None:
    """Refuses a folder that holds a study, unless ``resume`` is set. Raises UserError."""
    if not resume and StudyDir(spec.out).begun():
        raise UserError(f"{spec.out}: a study is here already. Go on with --resume, or choose another folder "
                        "with --out", code="study-exists")


def open_study(spec: StudySpec, meta: StudyMeta, resume: bool) -> StudyDir:
    """The study's folder: a new one, or with ``resume`` the one that is there.

    Raises:
        UserError: there is a study already and ``resume`` is off.
        Changed: it is not the one that the file describes.
    """
    study = StudyDir(spec.out)
    if not study.begun():
        study.create(meta, spec.text, spec.space.to_yaml())
        return study.load()
    refuse_a_second_start(spec, resume)
    study.log.repair()
    study.load()
    refuse_a_changed(spec.out, study.meta, meta)
    refuse_other_references(spec.out, study.trials, references(spec))
    revised = {key: getattr(meta, key) for key in REVISED}
    if any(getattr(study.meta, key) != value for key, value in revised.items()):
        study.revise(**revised)
    return study


def refuse_other_data(study: StudyDir, data: Mapping[str, Any]) -> None:
    """Raises UserError where trials on record learned from other translations than those to come would."""
    for trial in study.trials.having(State.COMPLETE):
        record = study.record(trial)
        if record and record["data"]["hash"] != data["hash"]:
            raise UserError(f"{study.folder}: the teacher's translations are not those that trial {trial.number} "
                            "learned from, so old and new candidates would not compare. Put teacher/ back, or start "
                            "another study with --out", code="translations-changed")


def sampler_of(spec: StudySpec, evaluator: Evaluator) -> BaseSampler | None:
    """The sampler that proposes; None in a study of rows.

    Raises:
        UserError: there is none of that name, it lacks a library, or takes other arguments.
    """
    if spec.rows is not None:
        return None
    with about("proposer"):
        return make_sampler(spec.proposer, evaluator.define, partial(evaluator.known, objectives=spec.objectives),
                            evaluator.region, spec.objectives)


def refuse_the_unreachable(spec: StudySpec) -> None:
    """Refuses a storage or a cluster that does not answer, before a large corpus is read. Raises UserError."""
    if spec.storage is not None:
        with about("storage"):
            reach(spec.storage)
    if spec.backend == "ray" and spec.resources.address:
        from scalesearch.study.executors.ray_services import refuse_no_cluster

        refuse_no_cluster(spec.resources.address)


def load_data(data: DataSpec) -> Corpus:
    """The corpus of ``data``; made and cached now, so that workers find it."""
    with about("data"):
        return load_corpus(data, default_cache(), Path.cwd())
