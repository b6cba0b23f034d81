"""Forecasts of CPU time and makespan, from measured speeds or finished runs.

The speed of the smallest and the largest model is measured on this machine; between them, the
training time is interpolated linearly in ``macs.total``. The model assumes that the candidates of a
search are distributed like random feasible candidates, and that one in eta is promoted per rung.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from scalesearch.errors import UserError
from scalesearch.files import write_json
from scalesearch.samplers.encoding import decode_params
from scalesearch.schedule.rungs import Rungs
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.engine.corpora import Corpora
from scalesearch.studies.monitor.eta import makespan
from scalesearch.studies.monitor.forecast import (
    FORECAST_FILE,
    StudyForecast,
    read_forecast,
    total_effort,
)
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.plan import StudyPlan
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State, Trial
from scalesearch.studies.trials.trials import Trials, completed_full_runs
from scalesearch.training.effort import OTHER, SCORING, TRAINING_PARTS, Effort, Efforts, sum_efforts

RANDOM_CANDIDATES = 48
# From an architecture and the seconds to measure it, to the effort of a full-budget run.
Measure = Callable[[ModelSpec, float], Efforts]


@dataclass(frozen=True)
class PlannedRuns:
    """Training runs that a study plans.

    Attributes:
        search_full_runs: compute of the search, in full-budget runs.
        completed_search_runs: runs of the search that reach the full budget.
        search_processes: training processes of the search; a trial has one per rung.
        references: number of references, or of fixed architectures.
        reference_seeds: number of seeds per reference.
        front_seeds: maximum number of further seeds for the front.
    """

    search_full_runs: float
    completed_search_runs: float
    search_processes: float
    references: int
    reference_seeds: int
    front_seeds: int

    @classmethod
    def of(cls, spec: StudySpec, references: int,
           cpu_seconds_per_run: float = 0.0) -> "PlannedRuns":
        """Plan the runs of a study.

        Args:
            spec: of the study.
            references: number of references, or of fixed architectures.
            cpu_seconds_per_run: mean CPU time of a full-budget run, to apply a compute limit; 0 if
                it is not measured.
        """
        full_runs = (min(spec.trials, spec.compute / cpu_seconds_per_run)
                     if spec.compute and cpu_seconds_per_run else spec.trials)
        completed, processes = rung_transitions(spec.rungs, full_runs)
        return cls(full_runs, completed, processes, references, spec.seeds.references,
                   spec.seeds.extra_runs if spec.seeds.max_per_candidate > 1 else 0)

    @property
    def reference_runs(self) -> int:
        """Number of runs of references."""
        return self.references * self.reference_seeds

    @property
    def full_runs(self) -> float:
        """Compute of all runs, in full-budget runs."""
        return self.search_full_runs + self.reference_runs + self.front_seeds

    @property
    def completed_runs(self) -> float:
        """Number of runs that reach the full budget."""
        return self.completed_search_runs + self.reference_runs + self.front_seeds


def rung_transitions(rungs: Rungs, trials: float) -> tuple[float, float]:
    """Number of completed runs, and of training processes, of a search with rungs.

    Args:
        rungs: of the search.
        trials: compute of the search, in full-budget runs.
    """
    reached = [rungs.eta**-rung for rung in range(len(rungs.shares))]  # share of started trials
    started = trials / sum(share * rungs.budget_to_rung(rung) for rung, share in enumerate(reached))
    return started * reached[-1], started * sum(reached)


def forecast_from_trials(spec: StudySpec, references: int, trials: Trials) -> StudyForecast | None:
    """Forecast from the finished runs of this study.

    The result is None before the first one is complete.
    """
    rungs = spec.rungs
    own = [trial for trial in trials
           if trial.source is None and trial.efforts and completed_full_runs(trial, rungs)]
    n_complete = sum(trial.state == State.COMPLETE for trial in own)
    if not n_complete:
        return None
    spent = sum_efforts(*(trial.efforts for trial in own))
    full_runs = sum(completed_full_runs(trial, rungs) for trial in own)
    per_run = {part: spent[part] * (1 / (n_complete if part == SCORING else full_runs))
               for part in TRAINING_PARTS}
    plan = PlannedRuns.of(spec, references, total_effort(per_run).cpu_seconds)
    efforts = {part: per_run[part] * (plan.completed_runs if part == SCORING else plan.full_runs)
               for part in TRAINING_PARTS}
    cpu_seconds = np.array([total_effort(trial.efforts).cpu_seconds
                            / completed_full_runs(trial, rungs) for trial in own])
    low, high = (float(np.quantile(cpu_seconds, share) / cpu_seconds.mean())
                 for share in (0.25, 0.75))
    total = total_effort(efforts)
    front_share = plan.front_seeds / plan.full_runs
    seconds = total_effort(per_run).seconds
    elapsed = _elapsed(plan, seconds, [seconds] * plan.references, spec.workers)
    return StudyForecast(
        efforts, elapsed, total.cpu_seconds * (1 - front_share) * min(1.0, low),
        total.cpu_seconds * max(1.0, high), plan.full_runs, plan.completed_runs,
        f"{len(own)} training runs of this study, {n_complete} of them complete")


def forecast_from_speeds(plan: PlannedRuns, candidate_macs: Sequence[float],
                         reference_macs: Sequence[float], time_model: "TrainingTimeModel",
                         workers: int, basis: str) -> StudyForecast:
    """Forecast from the training times on this machine.

    Args:
        plan: the runs of the study.
        candidate_macs: ``macs.total`` of random candidates.
        reference_macs: ``macs.total`` of the references.
        time_model: predicts the effort of a full-budget run from ``macs.total``.
        workers: trials in training at a time.
        basis: source of the forecast, for the user.
    """
    def search_effort(macs: float, front_seeds: int) -> dict[str, Effort]:
        per_run = time_model.predict(macs)
        counts = {SCORING: plan.completed_search_runs + front_seeds,
                  OTHER: plan.search_processes + front_seeds}
        return {part: per_run[part] * counts.get(part, plan.search_full_runs + front_seeds)
                for part in TRAINING_PARTS}

    reference_efforts = [{part: effort * plan.reference_seeds
                          for part, effort in time_model.predict(macs).items()}
                         for macs in reference_macs]
    low = high = mean = 0.0
    if len(candidate_macs):
        low, high = map(float, np.quantile(candidate_macs, (0.25, 0.75)))
        mean = float(np.mean(candidate_macs))
    efforts, least, most = (
        sum_efforts(search_effort(macs, front_seeds), *reference_efforts)
        for macs, front_seeds in ((mean, plan.front_seeds), (low, 0), (high, plan.front_seeds)))
    candidate_seconds = 0.0
    if plan.search_full_runs:
        candidate_seconds = total_effort(search_effort(mean, 0)).seconds / plan.search_full_runs
    reference_seconds = [total_effort(time_model.predict(macs)).seconds for macs in reference_macs]
    cpu_seconds = total_effort(efforts).cpu_seconds
    return StudyForecast(
        efforts, _elapsed(plan, candidate_seconds, reference_seconds, workers),
        min(cpu_seconds, total_effort(least).cpu_seconds),
        max(cpu_seconds, total_effort(most).cpu_seconds), plan.full_runs, plan.completed_runs,
        basis)


def _elapsed(plan: PlannedRuns, candidate_seconds: float, reference_seconds: Sequence[float],
             workers: int) -> float:
    """Makespan in seconds: of references and the search, then of further seeds."""
    search = [*reference_seconds, *[candidate_seconds] * int(plan.search_full_runs)]
    seeds = [*(list(reference_seconds) * (plan.reference_seeds - 1)),
             *[candidate_seconds or max(reference_seconds, default=0.0)] * plan.front_seeds]
    return makespan(search, workers) + makespan(seeds, workers)


@dataclass(frozen=True)
class TrainingTimeModel:
    """Effort of a full-budget run as a linear function of MACs.

    Attributes:
        smallest: ``macs.total`` and effort of the smallest model.
        largest: the same of the largest model.
    """

    smallest: tuple[float, Efforts]
    largest: tuple[float, Efforts]

    def predict(self, macs: float) -> dict[str, Effort]:
        """Predict the effort, by part, of a full-budget run of a model with these MACs."""
        low, min_effort = self.smallest
        high, max_effort = self.largest
        weight = min(1.0, max(0.0, (macs - low) / (high - low))) if high > low else 0.0
        return {part: min_effort[part] + (max_effort[part] - min_effort[part]) * weight
                for part in TRAINING_PARTS}


def make_forecast(spec: StudySpec, evaluator: Evaluator, architectures: Sequence[ModelSpec],
                  trials: Trials, load_corpora: Callable[[], Corpora],
                  seconds: float) -> StudyForecast | str:
    """Return the forecast of a study, or why it is missing (empty with ``seconds=0``).

    Args:
        spec: of the study.
        evaluator: of the study.
        architectures: references, or fixed architectures.
        trials: of the study so far. If a run is complete, no speed is measured.
        load_corpora: loads the training text.
        seconds: to measure the speed; 0 disables it.
    """
    forecast = forecast_from_trials(spec, len(architectures), trials)
    if forecast or not seconds:
        return forecast or ""
    from scalesearch.nn.causality import CausalityError
    from scalesearch.training.hardware import TrainingFailedError

    try:
        return forecast_by_measuring(spec, evaluator, architectures,
                                     training_measurer(spec, load_corpora()), seconds)
    except (TrainingFailedError, CausalityError, UserError) as error:  # training fails, too
        return str(error)


def load_or_make_forecast(study: StudyDir, spec: StudySpec, evaluator: Evaluator, plan: StudyPlan,
                          corpora: Corpora, seconds: float) -> StudyForecast | str:
    """Load the forecast of ``study``.

    Make a new one if none exists or other runs are planned.
    """
    # Equal architectures are trained once.
    architectures = list({reference.architecture.id: reference.architecture
                          for reference in plan.references}.values())
    saved = read_forecast(study.folder)
    planned = PlannedRuns.of(spec, len(architectures))
    if saved is not None and math.isclose(saved.full_runs, planned.full_runs):
        return saved
    forecast = make_forecast(spec, evaluator, architectures, study.trials, lambda: corpora,
                             seconds)
    if isinstance(forecast, StudyForecast):
        write_json(study.folder / FORECAST_FILE, msgspec.to_builtins(forecast))
    return forecast


def forecast_by_measuring(spec: StudySpec, evaluator: Evaluator, architectures: Sequence[ModelSpec],
                          measure: Measure, seconds: float) -> StudyForecast:
    """Forecast a study by measuring its smallest and its largest model.

    Args:
        spec: of the study.
        evaluator: of the study.
        architectures: references, or fixed architectures.
        measure: measures the effort of a full-budget run.
        seconds: to measure both models.
    """
    sampled = [] if spec.architectures is not None else sample_feasible(evaluator,
                                                                        spec.sampler.seed)
    models = [(evaluator.evaluate_architecture(architecture).costs["macs.total"], architecture)
              for architecture in architectures]
    models += [(trial.costs["macs.total"], architecture) for trial in sampled
               if (architecture := evaluator.architecture(trial.params)) is not None]
    extremes = [min(models, key=lambda model: model[0]), max(models, key=lambda model: model[0])]
    smallest, largest = ((macs, measure(model, seconds / 2)) for macs, model in extremes)
    note = f", and {len(sampled)} random candidates that meet the limits" if sampled else ""
    basis = f"the speed of the smallest and the largest model on this machine{note}"
    time_model = TrainingTimeModel(smallest, largest)
    macs_sampled = [trial.costs["macs.total"] for trial in sampled]
    cpu_seconds = 0.0
    if macs_sampled:
        cpu_seconds = total_effort(time_model.predict(float(np.mean(macs_sampled)))).cpu_seconds
    return forecast_from_speeds(PlannedRuns.of(spec, len(architectures), cpu_seconds), macs_sampled,
                                [macs for macs, _ in models[:len(architectures)]], time_model,
                                spec.workers, basis)


def sample_feasible(evaluator: Evaluator, seed: int) -> list[Trial]:
    """Sample random candidates that meet the limits."""
    rng = random.Random(seed)
    candidates = [evaluator.feasible_region.sample_feasible(rng) for _ in range(RANDOM_CANDIDATES)]
    return [evaluator.evaluate(decode_params(evaluator.joint_space, candidate.params).params)
            for candidate in candidates if candidate]


def training_measurer(spec: StudySpec, corpora: Corpora) -> Measure:
    """Return a function that measures a full-budget run as a trial would train it."""
    import torch

    from scalesearch.training.scoring.speed import measure_speed

    def measure(architecture: ModelSpec, seconds: float) -> Efforts:
        corpus = corpora.by_vocab[architecture.vocab]
        threads = torch.get_num_threads()
        torch.set_num_threads(spec.recipe.threads or spec.resources.threads_per_trial)
        try:
            speed = measure_speed(architecture, corpus, spec.recipe, seconds)
        finally:
            torch.set_num_threads(threads)
        return speed.predict_training_time(spec.recipe, len(corpus.train))

    return measure
