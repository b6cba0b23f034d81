"""Everything between a study file and a driver: what can be found wrong is found here, before anything starts."""

import math
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalesearch.cost import protocol_of
from scalesearch.data import Corpus, DataSpec, default_cache, load_corpus
from scalesearch.errors import UserError, about
from scalesearch.feasible.limits import limits, upper_bounds
from scalesearch.library import find_file
from scalesearch.samplers import make_proposer
from scalesearch.samplers.base import Proposer, Settings
from scalesearch.space import Space, read_space
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.study.config.spec import CORPUS, ReferenceSpec, StudySpec
from scalesearch.study.optuna_sync.mirror import Mirror
from scalesearch.study.optuna_sync.retrying import SteadyMirror
from scalesearch.study.optuna_sync.storage import open_mirror, reach
from scalesearch.study.trials.compatibility import refuse_a_changed, refuse_other_references
from scalesearch.study.trials.evaluator import Bill
from scalesearch.study.trials.history import goals_of
from scalesearch.study.trials.plan import Plan, Reference
from scalesearch.study.trials.record import SEARCHERS
from scalesearch.study.trials.study_dir import Store, now
from scalesearch.study.trials.trials import COMPLETE
from scalesearch.train.result import versions

SAMPLES = 2000  # draws after which a budget that none of them met counts as one that nothing meets
ASKS = 1000
REVISED = ("seeds", "rows", "scaling", "left_out")  # what a study may have more of when it goes on


@dataclass(frozen=True)
class Odds:
    """What a random sample of the space is worth under the limits."""

    samples: int
    feasible: int
    missed: Mapping[str, int]  # limit to how many miss it
    nearest: Mapping[str, float]  # limit to the least slack of any; log(cost / budget) for a budget


def make_bill(spec: StudySpec, corpus: Corpus | None) -> Bill:
    """The judge of the study's candidates. It bills the model that is trained: the vocabulary is the corpus's, unless
    the study file itself says another; what the space's ``cost:`` says of it does not count.

    Raises:
        UserError: the protocol is wrong.
    """
    given: dict[str, Any] = dict(spec.protocol)
    if spec.vocab == CORPUS:
        assert corpus is not None, "the caller loads the corpus for this"
        given["vocab"] = corpus.tokenizer.vocab_size
    return Bill(spec.space, protocol_of({**spec.space.protocol, **given}), limits(spec.space, spec.budget))


def odds(bill: Bill, seed: int, samples: int = SAMPLES, enough: int | None = None) -> Odds:
    """Draws ``samples`` at random and counts what is feasible; stops at ``enough`` feasible ones, where given."""
    rng = random.Random(seed)
    feasible, drawn = 0, 0
    missed, nearest = dict.fromkeys(bill.names, 0), dict.fromkeys(bill.names, math.inf)
    while drawn < samples and (enough is None or feasible < enough):
        candidate = bill.judge(bill.space.sample(rng).params)
        drawn, feasible = drawn + 1, feasible + candidate.feasible
        for name, slack in candidate.slacks.items():
            missed[name] += slack > 0
            if candidate.cost:  # of what cannot be built, no limit is known
                nearest[name] = min(nearest[name], slack)
    return Odds(drawn, feasible, missed, nearest)


def refuse_the_impossible(bill: Bill, seed: int) -> None:
    """Raises UserError where nothing meets the limits, naming the limit that stops most samples.

    Where none of many samples does, the space is counted, or sheets are changed until they do.
    """
    found = odds(bill, seed, enough=1)
    if not found.feasible and bill.region.drawn(random.Random(seed)) is None:
        counted = "; counted, nothing in the space does" if bill.region.share == 0 else ""
        worst = max(found.missed, key=lambda name: found.missed[name])
        raise UserError(f"budget: none of {found.samples} random candidates meets it{counted}; {found.missed[worst]} "
                        f"of them miss `{worst}`{_nearest(worst, found)}. Costs are of protocol {bill.protocol}. "
                        "Raise the budget, or let the space hold smaller models", key="budget")


def _nearest(limit: str, found: Odds) -> str:
    """By how much the nearest missed; said of costs alone, whose slack is the logarithm of a ratio."""
    slack = found.nearest[limit]
    if not any(name in limit for name in COST_NAMES) or not 0 < slack < math.inf:
        return ""
    return f", the nearest by {math.expm1(slack):,.1%}"


def settled(spec: StudySpec, bill: Bill) -> StudySpec:
    """``spec`` with those of its rows that the limits allow, where it has any; a search as it is.

    Raises:
        UserError: nothing meets the limits.
    """
    if spec.rows is None:
        refuse_the_impossible(bill, spec.proposer_seed)
        return spec
    return replace(spec, rows=spec.rows.within(lambda one: bill.judge_architecture(one, {}).reason))


def references(spec: StudySpec) -> tuple[Reference, ...]:
    """The architectures that the study file names: a search's references, or the rows of a study that has them.

    Raises:
        UserError: one of them leaves something open or cannot be built.
    """
    if spec.rows is not None:
        return tuple(Reference(row.label, row.architecture, row.params) for row in spec.rows.rows)
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
    return Reference(reference.name, architecture, params(spec.space, space.answer(space.replay({}))))


def params(space: Space, answers: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the study's space would have to be answered to give ``answers``, or None where it never does."""
    try:
        found = space.answer(space.replay(answers))
    except UserError:
        return None
    return found.params if dict(found) == dict(answers) else None


def make_plan(spec: StudySpec, bill: Bill, corpus: Corpus, teacher: Mapping[str, Any] | None = None) -> Plan:
    """What the driver works off. Paths in the jobs are absolute, since workers may start elsewhere.

    Args:
        corpus: what the candidates learn from.
        teacher: what their records say of the teacher, where they have one.
    """
    data = corpus.spec.resolve().to_json()
    job = {"data": data, "cache": str(default_cache()), "recipe": spec.recipe.to_json(), "seed": spec.seed,
           "threads": spec.resources.threads_per_trial, "processes": spec.resources.processes_per_trial,
           "proxies": spec.proxies}
    facts = {
        "study": spec.name,
        "space": spec.space.hash,
        "protocol": bill.protocol.to_json(),
        "objectives": {objective.name: objective.direction for objective in spec.objectives},
        "recipe": spec.recipe.to_json(),
        "seed": spec.seed,
        "data": {key: value for key, value in corpus.to_json().items() if key not in ("counts", "notes")},
        **({"teacher": dict(teacher)} if teacher else {}),
    }
    return Plan(bill, spec.objectives, spec.trials, job, facts, references(spec), spec.attempts, ASKS, spec.rungs,
                spec.seeds)


def meta_of(spec: StudySpec, plan: Plan, corpus: Corpus, teacher: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What ``study.json`` says, and what a resumed study must agree with; ``corpus`` is the real text's."""
    return {
        "id": uuid.uuid4().hex,
        "name": spec.name,
        "created": now(),
        **plan.facts,
        "trials": spec.trials + len(plan.references),
        "synthetic": corpus.synthetic,
        "limits": [limit.text for limit in plan.bill.limits],
        "bounds": upper_bounds(limits(spec.space, spec.budget)),
        **(spec.rows.to_json() if spec.rows else {"proposer": {"kind": spec.proposer, "seed": spec.proposer_seed}}),
        **({"rungs": {"shares": list(spec.rungs.shares), "eta": spec.rungs.eta}} if spec.rungs.pauses else {}),
        **({"seeds": spec.seeds.to_json()} if spec.seeds.wanted else {}),
        "teacher": teacher,
        **({"warm_start": spec.warm.to_json()} if spec.warm else {}),
        "versions": versions(*SEARCHERS),
    }


def as_begun(spec: StudySpec) -> StudySpec:
    """``spec`` under the name that its study has had from the beginning: a fork is named after its folder."""
    store = Store(spec.out)
    return replace(spec, name=store.load().meta["name"]) if store.begun() else spec


def refuse_a_second_start(spec: StudySpec, resume: bool) -> None:
    """Raises UserError where the folder holds a study that ``resume`` does not ask to go on with."""
    if not resume and Store(spec.out).begun():
        raise UserError(f"{spec.out}: a study is here already. Go on with --resume, or choose another folder "
                        "with --out")


def open_store(spec: StudySpec, plan: Plan, corpus: Corpus, resume: bool,
               teacher: Mapping[str, Any] | None = None) -> Store:
    """The study's folder: a new one, or with ``resume`` the one that is there.

    Raises:
        UserError: there is a study already and ``resume`` is off.
        Changed: it is not the one that the file describes.
    """
    store, meta = Store(spec.out), meta_of(spec, plan, corpus, teacher)
    if not store.begun():
        store.create(meta, spec.text, spec.space.to_yaml())
        return store.load()
    refuse_a_second_start(spec, resume)
    store.mend()
    store.load()
    refuse_a_changed(spec.out, store.meta, meta)
    refuse_other_references(spec.out, store.ledger, plan.references)
    for key in REVISED:
        if store.meta.get(key) != meta.get(key):
            store.revise(key, meta.get(key))
    return store


def refuse_other_data(store: Store, plan: Plan) -> None:
    """Raises UserError where candidates on record learned from other translations than those to come would."""
    for trial in store.ledger.having(COMPLETE):
        record = store.record(trial)
        if record and record["data"]["hash"] != plan.facts["data"]["hash"]:
            raise UserError(f"{store.folder}: the teacher's translations are not those that trial {trial.number} "
                            "learned from, so old and new candidates would not compare. Put teacher/ back, or start "
                            "another study with --out")


def searcher(spec: StudySpec, bill: Bill) -> Proposer:
    """Who proposes. Raises UserError where the proposer lacks a library, or the space has no grid."""
    given = spec.proposer_arguments
    settings = Settings(spec.proposer, spec.proposer_seed, given.get("n_startup_trials"),
                        given.get("population_size", 20))
    return make_proposer(spec.space, bill.names, goals_of(spec.objectives), settings, bill.region)


def make_mirror(spec: StudySpec, plan: Plan, store: Store) -> SteadyMirror:
    """Optuna's copy of the study, knowing all that the store holds. Raises UserError where it cannot be kept."""
    def make(study: Any) -> Mirror:
        return Mirror(spec.space, plan.bill.names, spec.objectives, study)

    return open_mirror(spec.storage, store.folder, spec.name, store.meta["id"], spec.objectives, store.ledger, make)


def refuse_the_unreachable(spec: StudySpec) -> None:
    """Raises UserError where the storage or the cluster does not answer: before a large corpus is read for nothing."""
    if spec.storage is not None:
        reach(spec.storage)
    if spec.backend == "ray" and spec.resources.address:
        from scalesearch.study.executors.ray import knock

        knock(spec.resources.address)


def load_data(data: DataSpec) -> Corpus:
    """The corpus of ``data``; made and cached now, so that workers find it."""
    with about("data"):
        return load_corpus(data, default_cache(), Path.cwd())
