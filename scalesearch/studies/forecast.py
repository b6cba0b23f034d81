"""Forecast of the time of a study, before and during training.

Work is counted in full-budget runs: training of one candidate to the end.

:func:`make_forecast` measures the speed of the smallest and the largest model on this machine;
between them, the time is interpolated linearly in ``macs.total``. It assumes that the candidates of
a search are distributed like random feasible candidates, that one in eta is promoted per rung, and
that all allowed further seeds of the front are used.

During training, :func:`forecast_status` compares the forecast with the time spent so far. The
remaining time of the study is in ``eta.py``.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from scalesearch.data import Corpus
from scalesearch.errors import UserError
from scalesearch.files import try_read_json, write_json
from scalesearch.samplers.encoding import decode_params
from scalesearch.schedule import MIN_IN_TRAINING, Rungs
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.eta import RunningTrial, makespan
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State, Trial
from scalesearch.studies.trials.trials import Trials, completed_full_runs
from scalesearch.terminal import format_count
from scalesearch.training.effort import (
    OTHER,
    SCORING,
    TRAINING_PARTS,
    UPDATES,
    Effort,
    Efforts,
    sum_efforts,
)

FORECAST_FILE = "forecast.json"
GAIN_FILE = "gain.json"
RANDOM_CANDIDATES = 48
# From an architecture and the seconds to measure it, to the effort of a full-budget run.
Measure = Callable[[ModelSpec, float], Efforts]


@dataclass(frozen=True)
class StudyForecast:
    """Forecast of the time of a study, in ``forecast.json``.

    Attributes:
        efforts: part of a training run (see :class:`scalesearch.training.effort.TrainingTimer`) to
            its time, summed over all runs.
        wall_seconds: wall-clock time of the study.
        cpu_seconds_low: CPU seconds if all candidates cost as much as the cheapest quarter, without
            further seeds of the front.
        cpu_seconds_high: CPU seconds if all candidates cost as much as the most expensive quarter.
        full_runs: updates of all runs, in full-budget runs.
        completed_runs: number of runs that are trained to the end and scored.
        basis: what the forecast is based on, in words.
        limits: planned full-budget runs without a limit on compute, and this limit, for which it
            was made.
    """

    efforts: dict[str, Effort]
    wall_seconds: float
    cpu_seconds_low: float
    cpu_seconds_high: float
    full_runs: float
    completed_runs: float
    basis: str
    limits: tuple[float, float | None] | None = None

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all parts."""
        return total_effort(self.efforts).cpu_seconds


@dataclass(frozen=True)
class ForecastStatus:
    """A forecast, the time spent so far, and the expected time at the end.

    Attributes:
        spent: time of each part so far.
        expected: expected time of each part at the end of the study.
        wall_seconds: wall-clock time so far.
        expected_wall_seconds: expected wall-clock time at the end, if the workers are as busy as
            predicted.
    """

    forecast: StudyForecast
    spent: dict[str, Effort]
    expected: dict[str, Effort]
    wall_seconds: float
    expected_wall_seconds: float


@dataclass(frozen=True)
class ExpectedGain:
    """Expected growth of the front's hypervolume, relative to its present value; in ``gain.json``.

    Attributes:
        completed_trials: number of complete trials when the forecast was computed.
        full_runs: number of further full-budget runs that the forecast assumes.
        mean, low, high: expected growth and its 90 % interval.
        new, paused: acquisition values of the best new candidate and of paused trials by number,
            as in :class:`scalesearch.samplers.hypervolume_gp.AcquisitionValues`. None and empty
            without rungs.
        proxy_note: whether the forecast uses the proxy of the sampler; empty without a proxy.
    """

    completed_trials: int
    full_runs: int
    mean: float
    low: float
    high: float
    new: float | None = None
    paused: dict[str, float] = field(default_factory=dict)
    proxy_note: str = ""


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
        counts = spec.rungs.expected_counts(full_runs)
        return cls(full_runs, counts[-1], sum(counts), references, spec.seeds.references,
                   spec.seeds.max_front_seeds)

    @property
    def full_runs(self) -> float:
        """Compute of all runs, in full-budget runs."""
        return self.search_full_runs + self.references * self.reference_seeds + self.front_seeds

    @property
    def completed_runs(self) -> float:
        """Number of runs that reach the full budget."""
        return (self.completed_search_runs + self.references * self.reference_seeds
                + self.front_seeds)

    def search_efforts(self, per_run: Mapping[str, Effort], front_seeds: int) -> dict[str, Effort]:
        """Effort of the search, and of further seeds for the front, from that of one run."""
        counts = {SCORING: self.completed_search_runs, OTHER: self.search_processes}
        return {part: per_run[part] * (counts.get(part, self.search_full_runs) + front_seeds)
                for part in TRAINING_PARTS}

    def makespan(self, candidate_seconds: float, reference_seconds: Sequence[float],
                 workers: int, max_in_training: float) -> float:
        """Seconds of references and the search, then of further seeds."""
        search = [*reference_seconds, *[candidate_seconds] * int(self.search_full_runs)]
        seeds = [*(list(reference_seconds) * (self.reference_seeds - 1)),
                 *[candidate_seconds or max(reference_seconds, default=0.0)] * self.front_seeds]
        return (makespan(search, workers, max_in_training, MIN_IN_TRAINING)
                + makespan(seeds, workers))


def total_effort(efforts: Mapping[str, Effort]) -> Effort:
    """Sum the efforts of all parts."""
    return sum(efforts.values(), Effort())


def read_forecast(folder: Path) -> StudyForecast | None:
    """Read the forecast of the study in ``folder``; None if it is missing."""
    return try_read_json(folder / FORECAST_FILE, StudyForecast)


def read_gain(folder: Path) -> ExpectedGain | None:
    """Read the latest expected gain of the study in ``folder``; None if it is missing."""
    return try_read_json(folder / GAIN_FILE, ExpectedGain)


def load_or_make_forecast(study: StudyDir, spec: StudySpec, evaluator: Evaluator, measure: Measure,
                          seconds: float, report: Callable[[str], object] = str
                          ) -> StudyForecast | str:
    """Load the forecast of ``study``.

    Make a new one if none exists or other runs are planned; see :func:`make_forecast`.
    """
    # Equal architectures are trained once.
    architectures = list({reference.architecture.id: reference.architecture
                          for reference in spec.named_architectures}.values())
    saved = read_forecast(study.folder)
    limits = PlannedRuns.of(spec, len(architectures)).full_runs, spec.compute
    if saved is not None and saved.limits == limits:
        return saved
    forecast = make_forecast(spec, evaluator, architectures, study.trials, measure, seconds,
                             report)
    if isinstance(forecast, StudyForecast):
        forecast = replace(forecast, limits=limits)
        write_json(study.folder / FORECAST_FILE, msgspec.to_builtins(forecast))
    return forecast


def make_forecast(spec: StudySpec, evaluator: Evaluator, architectures: Sequence[ModelSpec],
                  trials: Trials, measure: Measure, seconds: float,
                  report: Callable[[str], object] = str) -> StudyForecast | str:
    """Return the forecast of a study, or why it is missing (empty with ``seconds=0``).

    Args:
        spec: of the study.
        evaluator: of the study.
        architectures: references, or fixed architectures.
        trials: of the study so far. If a run is complete, no speed is measured.
        measure: measures the effort of a full-budget run; see :func:`training_measurer`.
        seconds: to measure the speed; 0 disables it.
        report: receives a line before the speed is measured.
    """
    spec = spec.replace(trials=evaluator.count_feasible(spec.trials))
    forecast = forecast_from_trials(spec, len(architectures), trials)
    if forecast or not seconds:
        return forecast or ""
    from scalesearch.nn.causality import CausalityError
    from scalesearch.training.hardware import TrainingFailedError

    report("Measuring the speed of the smallest and the largest model, for the forecast …")
    try:
        return forecast_by_measuring(spec, evaluator, architectures, measure, seconds)
    except (TrainingFailedError, CausalityError, UserError) as error:  # training fails, too
        return str(error)


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
    low, high = map(float, np.quantile(cpu_seconds, (0.25, 0.75)) / cpu_seconds.mean())
    total = total_effort(efforts)
    front_share = plan.front_seeds / plan.full_runs
    seconds = total_effort(per_run).seconds
    return StudyForecast(
        efforts, plan.makespan(seconds, [seconds] * plan.references, spec.workers,
                               spec.sampler.max_in_training),
        total.cpu_seconds * (1 - front_share) * min(1.0, low), total.cpu_seconds * max(1.0, high),
        plan.full_runs, plan.completed_runs,
        f"{format_count(len(own), 'training run')} of this study, {n_complete} complete")


def forecast_by_measuring(spec: StudySpec, evaluator: Evaluator, architectures: Sequence[ModelSpec],
                          measure: Measure, seconds: float) -> StudyForecast:
    """Forecast a study by measuring its smallest and its largest model.

    See :func:`make_forecast`.
    """
    sampled: list[Trial] = []
    if spec.architectures is None:
        rng = random.Random(spec.sampler.seed)
        candidates = [evaluator.feasible_region.sample_feasible(rng)
                      for _ in range(RANDOM_CANDIDATES)]
        sampled = [evaluator.evaluate(decode_params(evaluator.joint_space, candidate.params).params)
                   for candidate in candidates if candidate]
    reference_macs = [evaluator.evaluate_architecture(architecture).costs["macs.total"]
                      for architecture in architectures]
    candidate_macs = [trial.costs["macs.total"] for trial in sampled]
    models = list(zip(reference_macs, architectures))
    for trial in sampled:
        architecture = evaluator.architecture(trial.params)
        if architecture is not None:
            models.append((trial.costs["macs.total"], architecture))
    low_macs, smallest = min(models, key=lambda model: model[0])
    high_macs, largest = max(models, key=lambda model: model[0])
    low = measure(smallest, seconds / 2)
    high = measure(largest, seconds / 2)

    def predict_run(macs: float) -> dict[str, Effort]:  # beyond the measured models, it is theirs
        weight = (macs - low_macs) / (high_macs - low_macs) if high_macs > low_macs else 0.0
        weight = min(1.0, max(0.0, weight))
        return {part: low[part] + (high[part] - low[part]) * weight for part in TRAINING_PARTS}

    mean = quarter = three_quarters = 0.0
    if candidate_macs:
        mean = float(np.mean(candidate_macs))
        quarter, three_quarters = map(float, np.quantile(candidate_macs, (0.25, 0.75)))
    plan = PlannedRuns.of(spec, len(architectures),
                          total_effort(predict_run(mean)).cpu_seconds if candidate_macs else 0.0)
    reference_runs = [predict_run(macs) for macs in reference_macs]
    references = [{part: effort * plan.reference_seeds for part, effort in efforts.items()}
                  for efforts in reference_runs]
    expected = sum_efforts(plan.search_efforts(predict_run(mean), plan.front_seeds), *references)
    least = sum_efforts(plan.search_efforts(predict_run(quarter), 0), *references)
    most = sum_efforts(plan.search_efforts(predict_run(three_quarters), plan.front_seeds),
                       *references)
    candidate_seconds = 0.0
    if plan.search_full_runs:
        search = total_effort(plan.search_efforts(predict_run(mean), 0))
        candidate_seconds = search.seconds / plan.search_full_runs
    reference_seconds = [total_effort(efforts).seconds for efforts in reference_runs]
    note = (f", and {format_count(len(sampled), 'random candidate')} within the limits"
            if sampled else "")
    cpu_seconds = total_effort(expected).cpu_seconds
    return StudyForecast(
        expected, plan.makespan(candidate_seconds, reference_seconds, spec.workers,
                                spec.sampler.max_in_training),
        min(cpu_seconds, total_effort(least).cpu_seconds),
        max(cpu_seconds, total_effort(most).cpu_seconds), plan.full_runs, plan.completed_runs,
        f"the speed of the smallest and the largest model on this machine{note}")


def training_measurer(spec: StudySpec, corpus_of: Callable[[ModelSpec], Corpus]) -> Measure:
    """Return a function that measures a full-budget run as a trial would train it."""
    def measure(architecture: ModelSpec, seconds: float) -> Efforts:
        import torch

        from scalesearch.training.scoring.speed import measure_speed

        corpus = corpus_of(architecture)
        threads = torch.get_num_threads()
        torch.set_num_threads(spec.recipe.threads or spec.resources.threads_per_trial)
        try:
            speed = measure_speed(architecture, corpus, spec.recipe, seconds)
        finally:
            torch.set_num_threads(threads)
        return speed.predict_training_time(spec.recipe, len(corpus.train))

    return measure


def forecast_status(forecast: StudyForecast, trials: Trials, rungs: Rungs,
                    running: Sequence[RunningTrial] = (), is_finished: bool = False
                    ) -> ForecastStatus:
    """Compare ``forecast`` with the time spent so far.

    A finished study expects no more time, even if fewer runs than planned were needed. The
    remaining runs are expected to take the mean time of the runs so far. For parts without a
    run so far, the forecast is used. The updates of running and interrupted trials since their last
    rung count; their other parts are not known.
    """
    own_trials = [trial for trial in trials if trial.source is None and trial.efforts]
    spent = trials.efforts()
    runs = dict.fromkeys(TRAINING_PARTS,
                         sum(completed_full_runs(trial, rungs) for trial in own_trials))
    for running_trial in running:
        trial = trials[running_trial.trial]
        logged = trial.efforts.get(UPDATES, Effort())
        total = Effort(running_trial.seconds or 0.0, running_trial.cpu_seconds or 0.0)
        if total.seconds > logged.seconds:
            spent[UPDATES] += total - logged
            runs[UPDATES] += running_trial.trained_share - completed_full_runs(trial, rungs)
    runs[SCORING] = sum(trial.state == State.COMPLETE for trial in own_trials)
    expected = {}
    for part in TRAINING_PARTS:
        planned = forecast.completed_runs if part == SCORING else forecast.full_runs
        if runs[part]:
            effort_per_run = spent[part] * (1 / runs[part])
        else:
            effort_per_run = forecast.efforts[part] * (1 / planned if planned else 0.0)
        left = 0.0 if is_finished else max(0.0, planned - runs[part])
        expected[part] = spent[part] + effort_per_run * left
    predicted_seconds = total_effort(forecast.efforts).seconds
    wall_share = forecast.wall_seconds / predicted_seconds if predicted_seconds else 0.0
    spent_seconds = total_effort(spent).seconds
    unlogged_seconds = spent_seconds - total_effort(trials.efforts()).seconds
    wall_seconds = trials.wall_seconds + wall_share * unlogged_seconds
    remaining_seconds = total_effort(expected).seconds - spent_seconds
    return ForecastStatus(forecast, spent, expected, wall_seconds,
                          wall_seconds + wall_share * remaining_seconds)
