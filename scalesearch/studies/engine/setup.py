"""Setup of a study: from its file to its corpora, evaluator, facts, sampler and folder.

Errors are reported here, before training starts.
"""

import math
import random
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import msgspec
from optuna.samplers import BaseSampler

from scalesearch.cost import load_protocol
from scalesearch.errors import UserError, error_context, option
from scalesearch.feasible.limits import collect_limits, is_lower_bound, upper_bounds
from scalesearch.feasible.report import min_costs
from scalesearch.samplers import make_sampler
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.schema.builtin import ENTRY_POINT_GROUP, foreign_blocks
from scalesearch.spaces.schema.cost_names import COST_NAMES
from scalesearch.studies.config.command import save_command
from scalesearch.studies.config.fixed_architectures import COMPRESS
from scalesearch.studies.config.sections import WARM_START_FILE
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.engine.corpora import Corpora, protocol_settings
from scalesearch.studies.forecast import FORECAST_FILE
from scalesearch.studies.optuna_sync.export import check_storage
from scalesearch.studies.trials.compatibility import check_references_unchanged, check_unchanged
from scalesearch.studies.trials.evaluator import (
    BUILDABLE_CONSTRAINT,
    Evaluator,
    estimate_feasibility,
)
from scalesearch.studies.trials.event_log import utc_now
from scalesearch.studies.trials.record import SEARCH_PACKAGES
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import StudyMeta, TeacherMeta
from scalesearch.studies.trials.trial import State
from scalesearch.tasks import EFFICIENCY_METRICS, METRICS
from scalesearch.training.result import Result, package_versions

FEW_SAMPLES = 64  # random candidates before the space is counted exactly
# Fields of ``study.json`` that may grow when a study is resumed.
REVISABLE_KEYS = ("compute", "seeds", "architectures", "scaling", "excluded")


def study_facts(spec: StudySpec, corpora: Corpora, evaluator: Evaluator,
                teacher: TeacherMeta | None) -> StudyMeta:
    """Return the facts of a new study, as they are read from ``study.json``."""
    data = corpora.data_facts
    rows = spec.architectures
    meta = StudyMeta(
        id=uuid.uuid4().hex, name=spec.name, created=utc_now(), space_hash=spec.space.hash,
        protocol=evaluator.protocol.facts, objectives=spec.objectives,
        recipe=spec.recipe.model_dump(), seed=spec.seed, data=data, synthetic=data.synthetic,
        total_trials=spec.trials + len(spec.named_architectures),
        limits=tuple(limit.text for limit in evaluator.limits),
        bounds=upper_bounds(collect_limits(spec.space, spec.budget)),
        versions=package_versions(*SEARCH_PACKAGES), teacher=teacher,
        sampler=None if spec.architectures else spec.sampler, rungs=spec.rungs,
        compute=spec.compute, seeds=spec.seeds, warm_start=spec.warm_start,
        recipe_space=spec.recipe_space.distribution_texts, processes=Result.processes,
        type=spec.type,
        architectures=tuple(row.label for row in rows.architectures) if rows else None,
        base=rows.base if rows else None, scaling=rows.scaling if rows else None,
        excluded=rows.excluded if rows else {},
        compression={"replace": spec.replacements, "fit": spec.fit.model_dump()}
        if spec.type == COMPRESS else None)
    return StudyMeta.decode(msgspec.json.encode(meta.encode()))


def make_evaluator(spec: StudySpec, corpora: Corpora | None) -> Evaluator:
    """Make the evaluator of the study's trials.

    It computes the costs of the model that is trained. The vocabulary is that of the architecture
    or of the corpus, unless the study file sets one. That of the space's ``cost:`` is ignored.

    Raises:
        UserError: the protocol is invalid.
    """
    protocol = corpora.protocol(spec) if corpora else load_protocol(protocol_settings(spec))
    return Evaluator(spec.space, protocol, collect_limits(spec.space, spec.budget),
                     spec.recipe_space)


def drop_infeasible_architectures(spec: StudySpec, evaluator: Evaluator) -> StudySpec:
    """Remove fixed architectures that violate the limits; a search is only checked.

    Raises:
        UserError: no candidate meets the limits.
    """
    if spec.architectures is None:
        check_feasible(evaluator, spec.sampler.seed)
        return spec
    feasible = spec.architectures.filter_by_limits(
        lambda architecture: evaluator.evaluate_architecture(architecture).reason)
    return spec.replace(architectures=feasible)


def study_warnings(spec: StudySpec) -> list[str]:
    """Return warnings about objectives without quality, and parameters that no model reads."""
    notes = list(spec.space.describe_unused())
    names = {objective.name for objective in spec.objectives}
    if names and names.isdisjoint(METRICS.keys() - set(EFFICIENCY_METRICS)):
        notes.append(f"no objective measures quality ({', '.join(sorted(names))}), so the smallest "
                     "models are the best and their scores have no effect; add a metric such as "
                     "`bleu: max` or `loss: min` to `objectives`")
    return [f"warning: {note}" for note in notes]


def check_feasible(evaluator: Evaluator, seed: int) -> None:
    """Check that a candidate of the space meets the limits.

    If no random candidate does, the space is counted exactly, or candidates are changed step by
    step until they meet the limits.

    Raises:
        UserError: no candidate was found. The message names the smallest costs of the space, or
            else the limit that most random candidates violate, or why none can be built.
    """
    region = evaluator.feasible_region
    if (estimate_feasibility(evaluator, seed, FEW_SAMPLES, max_feasible=1).feasible
            or region.sample_feasible(random.Random(seed)) is not None):
        return
    space = evaluator.space
    budgets = tuple(limit for limit in evaluator.limits
                    if isinstance(limit, Constraint) and limit not in space.constraints)
    advice = "Raise the budget, or add smaller models to the space"
    if region.feasible_share == 0 and (costs := min_costs(space, evaluator.protocol, budgets)):
        smallest = ", ".join(f"{name} {value:,}" for name, value in costs.items())
        reason = f"no candidate meets it. The smallest costs in the space are {smallest}"
    else:
        sample = estimate_feasibility(evaluator, seed)
        worst = max(sample.violations, key=lambda name: sample.violations[name])
        if sample.violations[worst] == sample.samples and worst == BUILDABLE_CONSTRAINT:
            rng = random.Random(seed)
            values = evaluator.joint_space.resolve(lambda _, parameter: parameter.sample(rng))
            cause = evaluator.evaluate(values.params).reason
            raise UserError(f"space: none of {sample.samples:,} random candidates can be built or "
                            f"exported, the first because of {cause}", key="space",
                            code="unbuildable")
        slack = sample.min_slacks[worst]
        is_cost = any(name in worst for name in COST_NAMES)  # slack: logarithm of a ratio
        nearest = (f", the nearest by {100 * math.expm1(slack):,.1f} %"
                   if is_cost and 0 < slack < math.inf else "")
        if any(limit.label == worst and is_lower_bound(limit) for limit in budgets):
            advice = "Lower this limit, or add larger models to the space"
        reason = (f"none of {sample.samples:,} random candidates meets it; "
                  f"{sample.violations[worst]:,} violate `{worst}`{nearest}")
    raise UserError(f"budget: {reason}, with {evaluator.protocol}. {advice}", key="budget",
                    code="budget-unmet")


def check_costs_of_blocks(spec: StudySpec, evaluator: Evaluator,
                          report: Callable[[str], object]) -> None:
    """Compare the costs of blocks of other packages with PyTorch's counter.

    Each block is counted in the first architecture that has it: of the named ones, and of random
    candidates of a search. ``report`` gets a warning if a block cannot be counted.

    Raises:
        UserError: the costs differ.
    """
    unchecked = set(foreign_blocks())
    for architecture in _example_architectures(spec, evaluator) if unchecked else ():
        names = unchecked & set(re.findall(r"\w+", str(architecture.config)))
        if not names:
            continue
        from scalesearch.nn.verify import verify_costs

        unchecked -= names
        protocol = evaluator.protocol.for_candidates(architecture.config)
        try:
            checks = verify_costs(architecture.block, protocol.source, protocol.target,
                                  protocol.vocab_size, protocol.length, with_fvcore=False)
        except RuntimeError as error:  # it reads numbers, which meta tensors do not have
            message = str(error).partition("\n")[0]
            report(f"warning: the costs of the block `{min(names)}` are not compared with "
                   f"PyTorch's counter, since it fails on the meta device: {message}")
            continue
        for check in checks:
            if not check.is_equal:
                raise UserError(f"the block `{min(names)}` declares other costs than PyTorch "
                                f"counts in {architecture.id}: {check.expected:,} "
                                f"{check.quantity} instead of "
                                f"{check.measured - check.explained:,}",
                                help="correct its `parts` or `loop_nests` "
                                "(docs/develop/blocks.md)", code="costs-differ")


def _example_architectures(spec: StudySpec, evaluator: Evaluator) -> Iterator[ModelSpec]:
    """Yield the named architectures and, of a search, random candidates."""
    yield from (named.architecture for named in spec.named_architectures)
    if spec.architectures is not None:
        return
    rng = random.Random(spec.sampler.seed)
    for _ in range(FEW_SAMPLES):
        values = evaluator.joint_space.resolve(lambda name, parameter: parameter.sample(rng))
        if architecture := evaluator.architecture(values.params):
            yield architecture


def build_sampler(spec: StudySpec, evaluator: Evaluator) -> BaseSampler | None:
    """Build the sampler of a search; None if all architectures are fixed.

    Raises:
        UserError: the name is unknown, a package is missing, or an argument is invalid.
    """
    if spec.architectures is not None:
        return None
    sampler = spec.sampler
    with error_context("sampler"):
        if "proxy" in sampler.arguments:
            proxy = evaluator.score_proxy(sampler.arguments["proxy"])
            sampler = replace(sampler, arguments={**sampler.arguments, "proxy": proxy})
        return make_sampler(sampler, evaluator.suggest_params,
                            partial(evaluator.candidate_facts, objectives=spec.objectives),
                            evaluator.feasible_region, spec.objectives, spec.rungs.shares)


def with_original_name(spec: StudySpec, resume: bool, report: Callable[[str], object]) -> StudySpec:
    """Return ``spec`` with the name that its study was started with.

    Raises:
        UserError: the study has started, and ``resume`` is off, or another process runs it.
    """
    study = StudyDir(spec.out)
    if not study.has_started():
        if resume:
            report(f"nothing to resume in {spec.out}; starting from the beginning")
        return spec
    if not resume:
        with study.exclusive():  # a study that is running cannot be resumed
            name = study.read_meta().meta.name
            if name != spec.name:
                raise UserError(f"{spec.out}: contains another study, {name}, not {spec.name}. "
                                f"Choose another folder with {option('out')}", code="study-exists")
            raise UserError(f"{spec.out}: a study is here already. Continue with "
                            f"{option('resume')}, or choose another folder with {option('out')}",
                            code="study-exists")
    return spec.replace(name=study.read_meta().meta.name)


def open_study(spec: StudySpec, evaluator: Evaluator, meta: StudyMeta) -> StudyDir:
    """Create the study's folder, or load the one that exists.

    Raises:
        StudyChangedError: the folder holds a study with other settings.
        UserError: the event log was cut.
    """
    study = StudyDir(spec.out)
    if not study.has_started():
        # Files of a start that was interrupted before the study was created.
        for name in (WARM_START_FILE, FORECAST_FILE):
            (spec.out / name).unlink(missing_ok=True)
        save_command(spec)
        study.create(meta, spec.space.to_yaml())
        return study.load()
    study.log.repair()
    study.load().check_complete()
    check_unchanged(spec.out, study.meta, meta)
    if spec.type != COMPRESS:  # the combinations of a compression are not chosen yet
        check_references(spec, evaluator, study)
    revised = {key: getattr(meta, key) for key in REVISABLE_KEYS}
    if any(getattr(study.meta, key) != value for key, value in revised.items()):
        study.update_meta(**revised)
    save_command(spec)
    return study


def check_references(spec: StudySpec, evaluator: Evaluator, study: StudyDir) -> None:
    """Check that references are unchanged; see :func:`check_references_unchanged`."""
    check_references_unchanged(spec.out, study.trials,
                               {reference.label: evaluator.identity(reference)
                                for reference in spec.named_architectures})


def check_same_translations(study: StudyDir, expected_hash: str) -> None:
    """Check that finished trials have learned from translations with this hash.

    Raises:
        UserError: a trial has learned from other translations.
    """
    for trial in study.trials.with_state(State.COMPLETE):
        record = study.record(trial)
        if record and record["data"]["hash"] != expected_hash:
            raise UserError(f"{study.folder}: the teacher's translations are not those of trial "
                            f"{trial.number}, so old and new candidates cannot be "
                            "compared. Restore teacher/, or start another study with "
                            f"{option('out')}",
                            code="translations-changed")


def check_blocks(spec: StudySpec, teachers: Iterable[ModelSpec] = ()) -> None:
    """Check that worker processes can import the blocks of the space and of named architectures.

    Raises:
        UserError: only this process has registered one of them.
    """
    texts = [spec.space.to_yaml(), *(teacher.to_yaml() for teacher in teachers),
             *(named.architecture.to_yaml() for named in spec.named_architectures)]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    names = [name for name, package in foreign_blocks().items() if name in words and not package]
    if names and spec.backend != "inprocess":
        raise UserError(f"the block `{names[0]}` is registered in this process only",
                        help="workers import blocks from the modules of the entry points "
                        f"`{ENTRY_POINT_GROUP}` (docs/develop/blocks.md); register the module, or "
                        f"train in this process ({option('backend', 'inprocess')})",
                        code="block-not-installed")


def check_reachable(spec: StudySpec) -> None:
    """Check that the storage and the cluster respond, before a large corpus is read.

    Raises:
        UserError: one of them does not respond.
    """
    if spec.storage is not None:
        with error_context("storage"):
            check_storage(spec.storage)
    if spec.backend == "ray" and spec.resources.address:
        from scalesearch.studies.executors.ray_environment import check_cluster

        check_cluster(spec.resources.address)
