"""Fairness audit of a study: its plan, its runs so far, and its findings.

::

    audit/plan.json              which runs are trained; written once
    audit/0003-4af0…/none-0.5/   a run, in files as those of a trial; named by learning-rate rule
                                 and multiple of the study's learning rate
    audit/findings.json          the findings
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.config.model import schema_of
from scalesearch.errors import UserError
from scalesearch.files import read_json, try_read_json
from scalesearch.pareto import farthest_points
from scalesearch.report.fairness import AuditRun, Fairness, RecipeOption, assess_fairness
from scalesearch.studies.executors.worker import rung_file
from scalesearch.studies.results.results import Results
from scalesearch.studies.trials.record import JobFile
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Trial
from scalesearch.training.recipe import BUDGET_KEYS, STEPS_OR_SHARE_UNIT, Recipe
from scalesearch.training.result import RESULT_FILE, Result

AUDIT_FOLDER = "audit"
PLAN_FILE = "plan.json"
FINDINGS_FILE = "findings.json"
MAX_VALUES = 4  # maximum number of values of a parameter that divides architectures into groups
# keys of a job that belong to one trial
TRIAL_JOB_KEYS = ("trial", "attempt", "rung", "until_share", "origin", "original", "seed")


@dataclass(frozen=True)
class AuditSettings:
    """Extent of an audit.

    Attributes:
        architectures: maximum number of audited architectures.
        rates: multiples of the learning rate of each trial; must contain 1.
        rules: further learning-rate rules, next to the rule of the study.
        budget_share: length of a run as a share of the study's training budget.
        early_stop_share: share of a run after which the worse half of the rates is stopped; 1: no
            run is stopped.
    """

    architectures: int = 12
    rates: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    rules: tuple[str, ...] = ()
    budget_share: float = 0.25
    early_stop_share: float = 0.4

    @property
    def kept_rates(self) -> int:
        """Number of rates per rule that continue after the early stop.

        The study's own option continues in any case.
        """
        return math.ceil(len(self.rates) / 2)


@dataclass(frozen=True)
class AuditedArchitecture:
    """Architecture of an audit, from a trial of the study.

    Attributes:
        trial, folder: number and folder name of the trial.
        groups: groups that the architecture belongs to, such as ``norm post``.
        recipe: recipe of the trial.
        cpu_seconds: CPU time of the trial.
    """

    trial: int
    folder: str
    groups: tuple[str, ...]
    recipe: Mapping[str, Any]
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class AuditPlan:
    """Plan of an audit.

    Attributes:
        rule: learning-rate rule of the study's recipe.
        reference_sizes: sizes at which other rules have the base learning rate, if the recipe does
            not set them.
    """

    settings: AuditSettings
    architectures: tuple[AuditedArchitecture, ...]
    rule: str
    reference_sizes: Mapping[str, int | None]

    @property
    def study_option(self) -> RecipeOption:
        """Option of the study's recipe."""
        return self.rule, 1.0

    @property
    def options(self) -> list[RecipeOption]:
        """Pairs of rule and rate with which each architecture is trained."""
        rules = dict.fromkeys((self.rule, *self.settings.rules))
        return [(rule, rate) for rule in rules for rate in self.settings.rates]

    @property
    def total_runs(self) -> int:
        """Number of training runs, including runs that are stopped early."""
        return len(self.architectures) * len(self.options)

    @property
    def kept_runs(self) -> int:
        """Maximum number of runs per architecture that are trained to the end."""
        if self.settings.early_stop_share >= 1:
            return len(self.options)
        rules = len(self.options) // len(self.settings.rates)
        return min(rules * self.settings.kept_rates + 1, len(self.options))

    @property
    def stretches(self) -> int:
        """Maximum number of jobs: runs up to the early stop, and continued runs."""
        stopped = len(self.options) if self.settings.early_stop_share < 1 else 0
        return len(self.architectures) * (self.kept_runs + stopped)

    @property
    def full_runs_per_architecture(self) -> float:
        """Maximum compute per architecture, in full-budget runs of the study."""
        settings = self.settings
        return settings.budget_share * (settings.early_stop_share * len(self.options)
                                        + (1 - settings.early_stop_share) * self.kept_runs)

    @property
    def cpu_seconds(self) -> float:
        """Maximum CPU time of the audit, estimated from the trials of the architectures."""
        return self.full_runs_per_architecture * sum(
            member.cpu_seconds for member in self.architectures)

    def recipe(self, member: AuditedArchitecture, option: RecipeOption) -> Recipe:
        """Return the recipe of one run.

        Raises:
            UserError: the recipe does not support the rule.
        """
        rule, factor = option
        lr = member.recipe["lr"]
        changes: dict[str, Any] = {"base": lr["base"] * factor}
        if rule != self.rule:
            sizes = lr["reference_sizes"]
            changes |= {"rule": rule,
                        "reference_sizes": sizes if sizes["width"] else self.reference_sizes}
        return Recipe.from_mapping(scale_recipe({**member.recipe, "lr": {**lr, **changes}},
                                                  self.settings.budget_share))

    def run_folder(self, folder: Path, member: AuditedArchitecture, option: RecipeOption) -> Path:
        """Folder of one run; ``folder`` is the study's."""
        return folder / AUDIT_FOLDER / member.folder / f"{option[0]}-{option[1]:g}"

    def due_runs(self, runs: Sequence[AuditRun]) -> Iterator[tuple[AuditRun, bool]]:
        """Iterate over the runs to train next, of all ``runs`` of one architecture.

        Yields:
            The run, and whether it is trained to the end.
        """
        for rule in dict.fromkeys(run.rule for run in runs):
            rule_runs = [run for run in runs if run.rule == rule]
            started = [run for run in rule_runs
                       if run.rung_loss is not None or run.loss is not None]
            if self.settings.early_stop_share < 1 and len(started) < len(rule_runs):
                yield from ((run, False) for run in rule_runs if run not in started)
                continue
            ranked = sorted(rule_runs, key=lambda run: math.inf if run.rung_loss is None
                            else run.rung_loss)
            best = ranked[:self.settings.kept_rates]
            for run in rule_runs:
                is_kept = (self.settings.early_stop_share >= 1 or run in best
                           or run.option == self.study_option)
                if run.loss is None and is_kept:
                    yield run, True


def scale_recipe(recipe: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Multiply the budget of a recipe, and all other numbers of updates, by ``share``."""
    scaled = dict(recipe)
    for key, field in schema_of(Recipe).fields.items():
        value = recipe.get(key)
        if key in BUDGET_KEYS and isinstance(value, int | float):
            scaled[key] = max(1, round(value * share)) if isinstance(value, int) else value * share
        elif getattr(field, "unit", "") == STEPS_OR_SHARE_UNIT and isinstance(
                value, int | float) and value >= 1:
            scaled[key] = max(1.0, value * share)
    return scaled


def make_plan(results: Results, settings: AuditSettings) -> AuditPlan:
    """Select the architectures of an audit so that their sizes and groups differ.

    Raises:
        UserError: the study has fewer than two complete architectures, or no metric.
    """
    study = results.study
    meta = results.study.meta
    main = meta.main_objective
    ranked = list(results.view.completed)
    if main.is_measured:
        ranked.sort(key=lambda candidate: -candidate.mean(main.name) * main.sign)
    trials = {candidate.first.architecture: candidate.first for candidate in ranked
              if (study.trial_folder(candidate.first) / "architecture.yaml").is_file()
              and study.record(candidate.first)}
    if not main.is_measured or len(trials) < 2:
        raise UserError(f"{study.folder}: an audit needs two finished architectures and a metric "
                        "among the objectives", code="nothing-finished")
    groups = architecture_groups(list(trials.values()))
    members = []
    for trial in select_diverse(list(trials.values()), groups, settings.architectures):
        record: Mapping[str, Any] = study.record(trial) or {}
        cpu_seconds = float(record.get("total_cpu_seconds") or record.get("cpu_seconds") or 0)
        members.append(AuditedArchitecture(trial.number, trial.folder, groups[trial.number],
                                           record["recipe"], cpu_seconds))
    median_config = study.trials[members[len(members) // 2].trial].config
    head_dim = median_config.get("encoder.head_dim", median_config.get("decoder.head_dim"))
    sizes: dict[str, Any] = {"width": median_config.get("width"), "head_dim": head_dim}
    rules = {str(member.recipe["lr"]["rule"]) for member in members}
    plan = AuditPlan(settings, tuple(members), rules.pop() if len(rules) == 1 else "own", sizes)
    for option in plan.options:
        plan.recipe(members[0], option)
    return plan


def architecture_groups(trials: Sequence[Trial]) -> dict[int, tuple[str, ...]]:
    """Return the groups of each trial, by its number.

    Groups are the values of categorical parameters that differ between the trials, whether weights
    are shared, and the larger or smaller half by number of parameters.
    """
    groups: dict[int, list[str]] = {trial.number: [] for trial in trials}
    for key in dict.fromkeys(key for trial in trials for key in trial.config):
        words = [_group_word(key, trial.config.get(key)) for trial in trials]
        if 2 <= len(set(words)) <= MAX_VALUES and "" not in words:
            for trial, word in zip(trials, words):
                groups[trial.number].append(f"{key} {word}")
    median = float(np.median([trial.costs["params.total"] for trial in trials]))
    for trial in trials:
        groups[trial.number].append(
            f"{'larger' if trial.costs['params.total'] > median else 'smaller'} half")
    return {number: tuple(names) for number, names in groups.items()}


def _group_word(key: str, value: object) -> str:
    """Describe the value of a parameter in one word.

    The result is empty for numbers other than switches.
    """
    if key.startswith("share."):
        return "own" if value in ("own", "follow") else "shared"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "absent"}[value]
    if key.startswith(("tensor_chain.", "low_rank.")) and isinstance(value, int | float):
        return "on"
    return value if isinstance(value, str) else ""


def select_diverse(trials: Sequence[Trial], groups: Mapping[int, Sequence[str]],
                   count: int) -> list[Trial]:
    """Select ``count`` trials that differ in size and groups.

    This is farthest-point sampling.

    The first trial is the smallest. Each next trial has the largest distance from the trials before
    it. The distance is the normalized difference of log sizes plus the normalized number of
    different groups.
    """
    sizes = np.log([trial.costs["params.total"] for trial in trials])
    distances = np.abs(sizes[:, None] - sizes) / max(float(np.ptp(sizes)), 1e-12)
    sets = [set(groups[trial.number]) for trial in trials]
    differences = [[len(row ^ column) for column in sets] for row in sets]
    max_difference = max((max(row) for row in differences), default=0) or 1
    distances += np.array([[difference / max_difference for difference in row]
                           for row in differences])
    smallest = int(sizes.argmin())
    order = [smallest, *farthest_points(distances.__getitem__, [smallest], range(len(trials)),
                                        count - 1)]
    return sorted((trials[index] for index in order), key=lambda trial: trial.costs["params.total"])


def study_job(study: StudyDir) -> JobFile:
    """Return the keys that all jobs of the study have in common.

    Raises:
        UserError: no trial of the study has a ``job.json``.
    """
    for trial in study.trials.candidates():
        job = try_read_json(study.trial_folder(trial) / "job.json", JobFile)
        if job:
            common: Any = {key: value for key, value in job.items() if key not in TRIAL_JOB_KEYS}
            shared_job: JobFile = common | {"seed": study.meta.seed}
            return shared_job
    raise UserError(f"{study.folder}: no trial was trained in this folder (no job.json), so the "
                    "audit has no job to repeat", code="nothing-finished")


def read_plan(folder: Path) -> AuditPlan | None:
    """Read the plan of the audit of the study in ``folder``; None if it is missing.

    Raises:
        UserError: the file is damaged.
    """
    file = folder / AUDIT_FOLDER / PLAN_FILE
    return read_json(file, AuditPlan) if file.is_file() else None


def runs_of_architecture(plan: AuditPlan, member: AuditedArchitecture,
                         study: StudyDir) -> list[AuditRun]:
    """Read the runs of one architecture; failed runs have infinite loss."""
    runs = []
    for option in plan.options:
        run = AuditRun(member.folder, member.groups, *option)
        run_folder = plan.run_folder(study.folder, member, option)
        if (rung := try_read_json(run_folder / rung_file(0), Result)) is not None:
            loss = rung.metrics.get("validation_loss_per_char")
            run = replace(run, rung_loss=math.inf if loss is None else float(loss))
        if (result := try_read_json(run_folder / RESULT_FILE, Result)) is not None:
            loss = result.metrics.get("validation_loss_per_char")
            score = result.metrics.get(study.meta.main_objective.name)
            if result.state != "complete" or loss is None:
                run = replace(run, loss=math.inf)
            else:
                run = replace(run, loss=float(loss), score=None if score is None else float(score))
        runs.append(run)
    return runs


def audit_findings(results: Results, plan: AuditPlan | None = None) -> Fairness | None:
    """Compute the findings of the runs so far; None if the study has no audit.

    Args:
        plan: the plan; read from the study's folder if not given.
    """
    study = results.study
    plan = plan or read_plan(study.folder)
    if plan is None:
        return None
    main = study.meta.main_objective
    runs: list[AuditRun] = []
    for member in plan.architectures:
        trial = study.trials[member.trial]
        name = f"{trial.label} ({trial.number})" if trial.label else f"trial {trial.number}"
        runs += [replace(run, architecture=name)
                 for run in runs_of_architecture(plan, member, study)]
    return assess_fairness(runs, plan.study_option, main.name, main.direction,
                           results.seed_analysis.confidence)
