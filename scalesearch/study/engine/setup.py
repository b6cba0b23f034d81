"""Setup of a study: from its file to a plan.

What can be found wrong is found here, before anything starts.
"""

import math
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from optuna.samplers import BaseSampler

from scalesearch.cost import load_protocol
from scalesearch.data import Corpus, default_cache
from scalesearch.errors import UserError, error_context
from scalesearch.feasible.limits import collect_limits, upper_bounds
from scalesearch.library import find_file
from scalesearch.samplers import make_sampler
from scalesearch.space import Space, read_space
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.study.config.command import command_of
from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.config.sections import WARM_START_FILE, ReferenceSpec
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.engine.corpora import Corpora, load_corpora, protocol_settings
from scalesearch.study.monitor.forecast import FORECAST_FILE
from scalesearch.study.optuna_sync.export import check_storage
from scalesearch.study.trials.compatibility import check_references_unchanged, check_unchanged
from scalesearch.study.trials.evaluator import Evaluator, estimate_feasibility
from scalesearch.study.trials.event_log import utc_now
from scalesearch.study.trials.plan import StudyPlan
from scalesearch.study.trials.record import SEARCH_PACKAGES
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.study_meta import StudyMeta, TeacherMeta
from scalesearch.study.trials.trial import Params, State
from scalesearch.train.result import package_versions

# what a study may have more of when it goes on
REVISABLE_KEYS = ("compute", "seeds", "architectures", "scaling", "excluded")


@dataclass(frozen=True)
class PreparedStudy:
    """A study that was looked at; nothing about it is wrong.

    ``spec`` is without the rows that its limits forbid.
    """

    spec: StudySpec
    evaluator: Evaluator
    meta: StudyMeta
    plan: StudyPlan


def prepare_study(spec: StudySpec, corpora: Corpora, teacher: TeacherMeta | None) -> PreparedStudy:
    """Sets a study up. Paths in its jobs are absolute, since workers may start elsewhere.

    Raises:
        UserError: nothing meets the limits, or a reference leaves something open or cannot be
            built.
    """
    evaluator = make_evaluator(spec, corpora)
    facts = corpora.data_facts
    spec = drop_infeasible_architectures(spec, evaluator)
    rows = ({**spec.architectures.to_json(),
             "architectures": tuple(row.label for row in spec.architectures.architectures)}
            if spec.architectures else {})
    meta = StudyMeta(
        id=uuid.uuid4().hex, name=spec.name, created=utc_now(), space_hash=spec.space.hash,
        protocol=evaluator.protocol.to_json(), objectives=spec.objectives,
        recipe=spec.recipe.to_json(), seed=spec.seed, data=facts, synthetic=facts.synthetic,
        total_trials=spec.trials + len(fixed_architectures(spec)),
        limits=tuple(limit.text for limit in evaluator.limits),
        bounds=upper_bounds(evaluator.limits), versions=package_versions(*SEARCH_PACKAGES),
        teacher=teacher, sampler=None if spec.architectures else spec.sampler, rungs=spec.rungs,
        compute=spec.compute, seeds=spec.seeds, warm_start=spec.warm_start,
        recipe_space=spec.recipe_space.distribution_texts,
        processes=spec.resources.processes_per_trial, **rows).round_trip()
    job = {"data": spec.data.with_absolute_paths().to_json(), "cache": str(default_cache()),
           "recipe": spec.recipe.to_json(), "seed": spec.seed,
           "threads": spec.resources.threads_per_trial, "nice": spec.resources.nice,
           "processes": spec.resources.processes_per_trial, "proxies": spec.proxies}
    plan = StudyPlan(evaluator, spec.objectives, spec.trials, job, meta.record_fields,
                     fixed_architectures(spec), spec.attempts, rungs=spec.rungs, seeds=spec.seeds,
                     compute=spec.compute, stop=spec.stop)
    return PreparedStudy(spec, evaluator, meta, plan)


def plan_with_teacher(plan: StudyPlan, corpus: Corpus, teacher: Mapping[str, object]) -> StudyPlan:
    """The plan of trials that learn from ``corpus``, a teacher's translations; ``teacher`` is for their records."""
    shared = {**plan.record_fields, "data": msgspec.to_builtins(Corpora({None: corpus}).data_facts),
              "teacher": teacher}
    return replace(plan, record_fields=shared,
                   job_template={**plan.job_template,
                                 "data": corpus.spec.with_absolute_paths().to_json()})


def load_data(spec: StudySpec, report: Callable[[str], object] = str) -> Corpora:
    """The corpora of a study, and of its references; see :func:`load_corpora`."""
    listed = fixed_architectures(
        spec) if spec.architectures is None or spec.architectures.architectures else ()
    return load_corpora(spec, listed, report)


def make_evaluator(spec: StudySpec, corpora: Corpora | None) -> Evaluator:
    """The evaluator of the study's trials.

    It costs the model that is trained: the vocabulary is its own or the corpus's, unless the study
    file itself gives one; the one in the space's ``cost:`` does not count.

    Raises:
        UserError: the protocol is wrong.
    """
    protocol = corpora.protocol(spec) if corpora else load_protocol(protocol_settings(spec))
    return Evaluator(spec.space, protocol, collect_limits(spec.space, spec.budget),
                     spec.recipe_space)


def check_feasible(evaluator: Evaluator, seed: int) -> None:
    """Raises UserError where nothing meets the limits, naming the limit that stops most samples.

    Where none of many samples does, the space is counted, or sheets are changed until they do.
    """
    sample = estimate_feasibility(evaluator, seed, max_feasible=1)
    if sample.feasible or evaluator.feasible_region.sample_feasible(
            random.Random(seed)) is not None:
        return
    counted = ("; counted, nothing in the space does"
               if evaluator.feasible_region.feasible_share == 0 else "")
    worst = max(sample.violations, key=lambda name: sample.violations[name])
    slack = sample.min_slacks[worst]
    is_cost = any(name in worst for name in COST_NAMES)  # whose slack is the logarithm of a ratio
    nearest = (f", the nearest by {math.expm1(slack):,.1%}" if is_cost and 0 < slack < math.inf
               else "")
    raise UserError(f"budget: none of {sample.samples} random candidates meets it{counted}; "
                    f"{sample.violations[worst]} of them miss `{worst}`{nearest}. Costs are of "
                    f"protocol {evaluator.protocol}. Raise the budget, or let the space hold "
                    "smaller models", key="budget", code="budget-unmet")


def drop_infeasible_architectures(spec: StudySpec, evaluator: Evaluator) -> StudySpec:
    """Drops the rows of ``spec`` that the limits forbid; a search stays as it is.

    Raises:
        UserError: nothing meets the limits.
    """
    if spec.architectures is None:
        check_feasible(evaluator, spec.sampler.seed)
        return spec
    return replace(spec, architectures=spec.architectures.filter_by_limits(lambda one: evaluator.evaluate_architecture(one).reason))


def fixed_architectures(spec: StudySpec) -> tuple[FixedArchitecture, ...]:
    """References of a search, or the rows of a study that has them.

    Raises:
        UserError: one of them leaves something open or cannot be built.
    """
    if spec.architectures is not None:
        return spec.architectures.architectures
    with error_context("reference"):
        return tuple(_reference(reference, spec) for reference in spec.references)


def _reference(reference: ReferenceSpec, spec: StudySpec) -> FixedArchitecture:
    space = reference_space(reference, spec)
    architecture = space.single_architecture(f"reference {reference.name}: it")
    params = params_in_space(spec.space, space.resolve(space.replay_values({})))
    recipe = spec.recipe_space.default_params(reference.recipe)
    return FixedArchitecture(reference.name, architecture,
                             None if params is None else {**params, **recipe}, recipe)


def reference_space(reference_spec: ReferenceSpec, spec: StudySpec) -> Space:
    """The study's space, or the file that ``reference_spec`` names, with its ``set``."""
    space = spec.space
    if reference_spec.file is not None:
        beside = spec.file.parent / reference_spec.file
        space = read_space(beside if beside.is_file() else find_file(reference_spec.file, "spaces"))
    return space.with_overrides(reference_spec.set) if reference_spec.set else space


def params_in_space(space: Space, config: Params) -> Params | None:
    """Params by which the study's space gives ``config``; None where it never does."""
    try:
        answered = space.resolve(space.replay_values(config))
    except UserError:
        return None
    return answered.params if dict(answered) == dict(config) else None


def build_sampler(spec: StudySpec, evaluator: Evaluator) -> BaseSampler | None:
    """The sampler that proposes; None in a study of rows.

    Raises:
        UserError: there is none of that name, it lacks a library, or takes other arguments.
    """
    if spec.architectures is not None:
        return None
    with error_context("sampler"):
        return make_sampler(spec.sampler, evaluator.suggest_params,
                            partial(evaluator.candidate_facts, objectives=spec.objectives),
                            evaluator.feasible_region, spec.objectives, spec.rungs.shares)


def with_original_name(spec: StudySpec, resume: bool) -> StudySpec:
    """Gives ``spec`` the name that its study began with. A fork is named after its folder.

    Raises:
        UserError: there is a study, and ``resume`` is off.
    """
    study = StudyDir(spec.out)
    if not study.has_started():
        return spec
    if not resume:
        raise UserError(f"{spec.out}: a study is here already. Go on with --resume, or choose "
                        "another folder with --out", code="study-exists")
    return replace(spec, name=study.read_meta().meta.name)


def open_study(setup: PreparedStudy) -> StudyDir:
    """The study's folder, loaded: a new one, or the one that is there.

    Raises Changed where that is another study.
    """
    spec = setup.spec
    meta = setup.meta
    study = StudyDir(spec.out)
    if not study.has_started():
        # of a start that was cut off before anything happened
        for name in (WARM_START_FILE, FORECAST_FILE):
            (spec.out / name).unlink(missing_ok=True)
        command_of(spec).write(spec.out, spec.text)
        study.create(meta, spec.text, spec.space.to_yaml())
        return study.load()
    study.log.repair()
    study.load()
    check_unchanged(spec.out, study.meta, meta)
    check_references_unchanged(spec.out, study.trials, {one.label: setup.evaluator.identity(one)
                                                     for one in setup.plan.references})
    revised = {key: getattr(meta, key) for key in REVISABLE_KEYS}
    if any(getattr(study.meta, key) != value for key, value in revised.items()):
        study.update_meta(**revised)
    command_of(spec).write(spec.out, spec.text)
    return study


def check_same_translations(study: StudyDir, expected_hash: str) -> None:
    """Raises UserError where trials on record learned from other translations than those of this hash."""
    for trial in study.trials.with_state(State.COMPLETE):
        record = study.record(trial)
        if record and record["data"]["hash"] != expected_hash:
            raise UserError(f"{study.folder}: the teacher's translations are not those that trial "
                            f"{trial.number} learned from, so old and new candidates would not "
                            "compare. Put teacher/ back, or start another study with --out",
                            code="translations-changed")


def check_reachable(spec: StudySpec) -> None:
    """Refuses a storage or a cluster that does not answer, before a large corpus is read.

    Raises UserError.
    """
    if spec.storage is not None:
        with error_context("storage"):
            check_storage(spec.storage)
    if spec.backend == "ray" and spec.resources.address:
        from scalesearch.study.executors.ray_services import check_cluster

        check_cluster(spec.resources.address)
