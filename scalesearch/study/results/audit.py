"""Fairness audit of a study: what is trained for it, what its folder holds so far, and the findings from both.

::

    audit/plan.json                      what is trained, decided once
    audit/0003-4af0…/none-0.5/           a training as of a trial, by a rule of rates and a multiple of the study's rate
    audit/findings.json                  what it came to
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.errors import UserError
from scalesearch.files import read_json, try_read_json
from scalesearch.report.fairness import AuditRun, Fairness, RecipeOption, assess_fairness
from scalesearch.study.executors.worker import rung_file
from scalesearch.study.results.results import Results
from scalesearch.study.trials.record import JobFile
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Trial
from scalesearch.train.recipe import BUDGET_KEYS, RECIPE_SCHEMA, STEPS_OR_SHARE_UNIT, Recipe
from scalesearch.train.result import RESULT_FILE, Result

AUDIT_FOLDER = "audit"
PLAN_FILE = "plan.json"
FINDINGS_FILE = "findings.json"
MAX_VALUES = 4  # of an answer that tells kinds apart
# what a job says of its own trial
TRIAL_JOB_KEYS = ("trial", "attempt", "rung", "until_share", "origin", "original", "seed")


@dataclass(frozen=True)
class AuditSettings:
    """Extent of an audit.

    Attributes:
        rates: multiples of each trial's own rate, 1 among them.
        rules: further rules of rates, besides the study's.
        budget_share: length of a training, as a share of the study's.
        early_stop_share: share of such a training after which the worse half of the rates stops; 1:
            none does.
    """

    architectures: int = 12
    rates: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    rules: tuple[str, ...] = ()
    budget_share: float = 0.25
    early_stop_share: float = 0.4

    @property
    def kept_rates(self) -> int:
        """Rates of a rule that go on after ``until``, the study's own not counted."""
        return math.ceil(len(self.rates) / 2)


@dataclass(frozen=True)
class AuditedArchitecture:
    """An architecture of the audit: a trial, its kinds, the recipe that it was trained by, its CPU time."""

    trial: int
    folder: str
    groups: tuple[str, ...]
    recipe: Mapping[str, Any]
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class AuditPlan:
    """What an audit trains.

    Attributes:
        rule: of the study's recipe.
        reference_sizes: sizes from which other rules start, where the recipe gives none.
    """

    settings: AuditSettings
    architectures: tuple[AuditedArchitecture, ...]
    rule: str
    reference_sizes: Mapping[str, int | None]

    @property
    def study_option(self) -> RecipeOption:
        """The study's recipe."""
        return self.rule, 1.0

    @property
    def options(self) -> list[RecipeOption]:
        """Rules and rates that each member is trained by."""
        rules = dict.fromkeys((self.rule, *self.settings.rules))
        return [(rule, rate) for rule in rules for rate in self.settings.rates]

    @property
    def total_runs(self) -> int:
        """Number of trainings, those that stop early included."""
        return len(self.architectures) * len(self.options)

    @property
    def kept_runs(self) -> int:
        """Trainings of a member that go on to their end, at most."""
        rules = len(self.options) // len(self.settings.rates)
        return min(rules * self.settings.kept_rates + 1,
                   len(self.options)) if self.settings.early_stop_share < 1 else len(self.options)

    @property
    def stretches(self) -> int:
        """Stretches of training at most: to where the worse rates stop, and from there to the end."""
        return len(self.architectures) * (
            self.kept_runs + (len(self.options) if self.settings.early_stop_share < 1 else 0))

    @property
    def full_runs_per_architecture(self) -> float:
        """Full trainings' worth of compute of a member at most."""
        settings = self.settings
        return settings.budget_share * (settings.early_stop_share * len(self.options)
                                        + (1 - settings.early_stop_share) * self.kept_runs)

    @property
    def cpu_seconds(self) -> float:
        """CPU time that all of it takes at most, by what the members' own trainings have taken."""
        return self.full_runs_per_architecture * sum(
            member.cpu_seconds for member in self.architectures)

    def recipe(self, member: AuditedArchitecture, option: RecipeOption) -> Recipe:
        """The recipe of one training. Raises UserError where a rule does not go with it."""
        (rule, factor), lr = option, member.recipe["lr"]
        other = {} if rule == self.rule else {
            "rule": rule, "reference_sizes": lr["reference_sizes"] if lr["reference_sizes"]["width"] else self.reference_sizes}
        return Recipe.from_mapping(
            shorten_recipe({**member.recipe, "lr": {**lr, "base": lr["base"] * factor, **other}},
                           self.settings.budget_share))

    def run_folder(self, folder: Path, member: AuditedArchitecture, option: RecipeOption) -> Path:
        """Folder of one training, in the study's ``folder``."""
        return folder / AUDIT_FOLDER / member.folder / f"{option[0]}-{option[1]:g}"

    def due_runs(self, trainings: Sequence[AuditRun]) -> Iterator[tuple[AuditRun, bool]]:
        """Yields what is to be trained (on) of one member, and whether to its end."""
        for rule in dict.fromkeys(one.rule for one in trainings):
            rates = [one for one in trainings if one.rule == rule]
            begun = [one for one in rates if one.rung_loss is not None or one.loss is not None]
            if self.settings.early_stop_share < 1 and len(begun) < len(rates):
                yield from ((one, False) for one in rates if one not in begun)
                continue
            best = sorted(rates,
                          key=lambda one: math.inf if one.rung_loss is None
                          else one.rung_loss)[:self.settings.kept_rates]
            yield from ((one, True)
                        for one in rates
                        if one.loss is None
                        and (self.settings.early_stop_share >= 1 or one in best
                             or one.option == self.study_option))


def shorten_recipe(recipe: Mapping[str, Any], share: float) -> dict[str, Any]:
    """JSON of a recipe with ``share`` of its budget, and of every other number of updates."""
    made = dict(recipe)
    for key, field in RECIPE_SCHEMA.fields.items():
        value = recipe.get(key)
        if key in BUDGET_KEYS and isinstance(value, int | float):
            made[key] = max(1, round(value * share)) if isinstance(value, int) else value * share
        elif getattr(field, "unit", "") == STEPS_OR_SHARE_UNIT and isinstance(
                value, int | float) and value >= 1:
            made[key] = max(1.0, value * share)
    return made


def make_plan(results: Results, settings: AuditSettings) -> AuditPlan:
    """Chooses the architectures of an audit, spread over costs and kinds.

    Raises:
        UserError: the study has too few finished trainings, or no metric.
    """
    study = results.study
    meta = results.study.meta
    main = next((one
                 for one in meta.objectives if one.is_measured and one.name == meta.main_objective),
                None)
    trials = {one.first.architecture: one.first
              for one in sorted(results.finished,
                                key=lambda one: -one.mean(main.name) * main.sign if main else 0)
              if (study.trial_folder(one.first) / "architecture.yaml").is_file()
              and study.record(one.first)}
    if main is None or len(trials) < 2:
        raise UserError(f"{study.folder}: an audit needs two finished architectures and a metric "
                        "among the objectives", code="nothing-finished")
    kinds = architecture_groups(list(trials.values()))
    members = []
    for trial in select_diverse(list(trials.values()), kinds, settings.architectures):
        record: Mapping[str, Any] = study.record(trial) or {}
        members.append(
            AuditedArchitecture(trial.number, trial.folder, kinds[trial.number], record["recipe"],
                                float(record.get("total_cpu_seconds") or record.get("cpu_seconds")
                                      or 0)))
    middle = study.trials[members[len(members) // 2].trial].config
    head_dim = middle.get("encoder.head_dim", middle.get("decoder.head_dim"))
    at: dict[str, Any] = {"width": middle.get("width"), "head_dim": head_dim}
    rules = {str(member.recipe["lr"]["rule"]) for member in members}
    plan = AuditPlan(settings, tuple(members), rules.pop() if len(rules) == 1 else "own", at)
    for option in plan.options:
        plan.recipe(members[0], option)
    return plan


def architecture_groups(trials: Sequence[Trial]) -> dict[int, tuple[str, ...]]:
    """Trial to what tells it from others: words among its answers, weights shared or not, its half by size."""
    found: dict[int, list[str]] = {trial.number: [] for trial in trials}
    for key in dict.fromkeys(key for trial in trials for key in trial.config):
        values = [_group_word(key, trial.config.get(key)) for trial in trials]
        if 2 <= len(set(values)) <= MAX_VALUES and "" not in values:
            for trial, value in zip(trials, values):
                found[trial.number].append(f"{key} {value}")
    middle = float(np.median([trial.costs["params.total"] for trial in trials]))
    for trial in trials:
        found[trial.number].append(
            f"{'larger' if trial.costs['params.total'] > middle else 'smaller'} half")
    return {number: tuple(kinds) for number, kinds in found.items()}


def _group_word(key: str, value: Any) -> str:
    """What an answer is in a word; empty for a number that is no switch."""
    if key.startswith("share."):
        return "own" if value in ("own", "follow") else "shared"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "absent"}[value]
    if key.startswith(("tensor_chain.", "low_rank.")) and isinstance(value, int | float):
        return "on"
    return value if isinstance(value, str) else ""


def select_diverse(trials: Sequence[Trial], kinds: Mapping[int, Sequence[str]],
                   count: int) -> list[Trial]:
    """``count`` trials far apart in size and kind, from the smallest: each next is the farthest from all before it."""
    size = np.log([trial.costs["params.total"] for trial in trials])
    apart = np.abs(size[:, None] - size) / max(float(np.ptp(size)), 1e-12)
    sets = [set(kinds[trial.number]) for trial in trials]
    most = max((len(one ^ other) for one in sets for other in sets), default=0) or 1
    apart += np.array([[len(one ^ other) / most for other in sets] for one in sets])
    order = [int(size.argmin())]
    while len(order) < min(count, len(trials)):
        order.append(int(np.where(np.isin(range(len(trials)), order), -1,
                                  apart[:, order].min(1)).argmax()))
    return sorted((trials[at] for at in order), key=lambda trial: trial.costs["params.total"])


def study_job(study: StudyDir) -> JobFile:
    """What every job of the study says. Raises UserError where no trial's is left."""
    for trial in study.trials.candidates():
        job = try_read_json(study.trial_folder(trial) / "job.json", JobFile)
        if job:
            own = {key: value for key, value in job.items() if key not in TRIAL_JOB_KEYS}
            return JobFile(**own, seed=study.meta.seed)  # type: ignore[typeddict-item]
    raise UserError(f"{study.folder}: no trial was trained here (no job.json), so there is no job "
                    "to repeat", code="nothing-finished")


def read_plan(folder: Path) -> AuditPlan | None:
    """The plan of the audit in a study's ``folder``; None where there is none.

    Raises UserError where damaged.
    """
    file = folder / AUDIT_FOLDER / PLAN_FILE
    return read_json(file, AuditPlan) if file.is_file() else None


def runs_of_architecture(plan: AuditPlan, member: AuditedArchitecture, folder: Path,
                         metric: str) -> list[AuditRun]:
    """What ``folder``, the study's, holds of the trainings of one member."""
    return [_training(plan.run_folder(folder, member, option),
                      AuditRun(member.folder, member.groups, *option), metric)
            for option in plan.options]


def _training(place: Path, training: AuditRun, metric: str) -> AuditRun:
    rung = try_read_json(place / rung_file(0), Result)
    result = try_read_json(place / RESULT_FILE, Result)
    loss = rung.metrics.get("validation_loss_per_char") if rung else None
    training = replace(
        training, rung_loss=loss if rung is None else math.inf if loss is None else float(loss))
    if result is None:
        return training
    loss = result.metrics.get("validation_loss_per_char")
    score = result.metrics.get(metric)
    if result.state != "complete" or loss is None:
        return replace(training, loss=math.inf)
    return replace(training, loss=float(loss), score=None if score is None else float(score))


def audit_findings(results: Results, plan: AuditPlan | None = None) -> Fairness | None:
    """What the study's audit has found so far; None where it has none."""
    study = results.study
    plan = plan or read_plan(study.folder)
    if plan is None:
        return None
    main = next(one for one in study.meta.objectives if one.name == study.meta.main_objective)
    done = [replace(one, architecture=_name(study.trials[member.trial]))
            for member in plan.architectures
            for one in runs_of_architecture(plan, member, study.folder, main.name)]
    return assess_fairness(done, plan.study_option, main.name, main.direction,
                           results.seed_analysis.confidence)


def _name(trial: Trial) -> str:
    return f"{trial.label} ({trial.number})" if trial.label else f"trial {trial.number}"
