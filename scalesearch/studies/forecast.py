"""Forecasts of the time of a study, its progress and its remaining time.

Work is counted in full-budget runs: training of one candidate to the end.

- Before training, :func:`make_forecast` measures the speed of the smallest and the largest model on
  this machine; between them, the time is interpolated linearly in ``macs.total``. It assumes that
  the candidates of a search are distributed like random feasible candidates, that one in eta is
  promoted per rung, and that all allowed further seeds of the front are used.
- During training, :func:`time_left` assumes that a full run takes the mean time of the runs so far:
  the seconds of all complete, paused and failed runs, divided by the number of full runs that they
  correspond to. Failed runs therefore increase the estimate. Before any run has finished, the pace
  of the current runs is used, without the time for scoring. A run with a further seed takes as long
  as the first run of the same trial.

Runs are assigned to the workers in order, each to the worker that is free first. Further seeds
start after the search, so their time is added. The time for further seeds of the front is an upper
bound, because replication stops when the order of the front is resolved.
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from scalesearch.data import Corpus
from scalesearch.errors import UserError
from scalesearch.files import try_read_json, write_json
from scalesearch.samplers.encoding import decode_params
from scalesearch.schedule import Rungs
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.replicates.summary import StudyView
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import Origin, State, Trial
from scalesearch.studies.trials.trials import Trials, allocated_full_runs, completed_full_runs
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
MAX_PARTS = 10_000  # above this number, the makespan is the mean load of the workers
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
    """

    efforts: dict[str, Effort]
    wall_seconds: float
    cpu_seconds_low: float
    cpu_seconds_high: float
    full_runs: float
    completed_runs: float
    basis: str

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
        wall_seconds, expected_wall_seconds: the same as wall-clock time, if the workers are as busy
            as predicted.
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
    """

    completed_trials: int
    full_runs: int
    mean: float
    low: float
    high: float
    new: float | None = None
    paused: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RunningTrial:
    """A trial that is in training or waits for a worker.

    Attributes:
        type: candidate, reference or replicate.
        name: label, or number if it has none; for a replicate also the seed.
        attempt: number of starts; resuming from a rung does not count.
        status: ``starting``, ``training``, ``scoring``, ``waiting`` (for a worker) or ``silent``
            (the worker has no recent heartbeat).
        status_text: description of the status for users.
        trained_share: trained share of the full budget, from 0 to 1.
        rung: next rung, counted from 1; None if the trial is trained to the end without a pause.
        pause_share: share of the full budget at the next pause, or 1.
        seconds_left: seconds of training until the next pause or the end; None if unknown.
        full_run_seconds: seconds of a full-budget run at the present pace, without scoring; None if
            unknown.
        elapsed: seconds since the worker started this attempt.
        step, steps: number of updates so far and in total; ``steps`` is None if the recipe does not
            set it.
        validation_loss: latest validation loss, or None.
        seconds, cpu_seconds: wall-clock and CPU time of the updates so far; None if unknown.
    """

    trial: int
    type: str
    name: str
    architecture: str | None
    params: float | None
    macs: float | None
    attempt: int
    status: str
    status_text: str
    trained_share: float
    rung: int | None
    pause_share: float
    seconds_left: float | None
    full_run_seconds: float | None
    elapsed: float | None
    step: int | None
    steps: int | None
    loss: float | None
    validation_loss: float | None
    host: str | None
    pid: int | None
    seconds: float | None = None
    cpu_seconds: float | None = None

    def time_left(self, run_seconds: float) -> float:
        """Seconds until the trial pauses or ends, if a full-budget run takes ``run_seconds``.

        A trial that is being scored is assumed to end when ``run_seconds`` have elapsed.
        """
        if self.seconds_left:
            return self.seconds_left
        if self.seconds_left is None:
            return run_seconds * max(0.0, self.pause_share - self.trained_share)
        if self.elapsed is None or self.rung is not None:
            return 0.0
        return max(0.0, run_seconds - self.elapsed)


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

    def makespan(self, candidate_seconds: float, reference_seconds: Sequence[float],
                 workers: int) -> float:
        """Seconds of references and the search, then of further seeds."""
        search = [*reference_seconds, *[candidate_seconds] * int(self.search_full_runs)]
        seeds = [*(list(reference_seconds) * (self.reference_seeds - 1)),
                 *[candidate_seconds or max(reference_seconds, default=0.0)] * self.front_seeds]
        return makespan(search, workers) + makespan(seeds, workers)


def total_effort(efforts: Mapping[str, Effort]) -> Effort:
    """Sum the efforts of all parts."""
    return sum(efforts.values(), Effort())


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Compute when the last of several runs ends.

    The runs start in the given order, each on the worker that is free first (list scheduling).
    """
    runs = list(seconds)
    free_at = [0.0] * max(1, workers)
    if len(runs) > MAX_PARTS:
        return sum(runs) / len(free_at)
    for run in runs:
        heapq.heapreplace(free_at, free_at[0] + run)
    return max(free_at)


def read_forecast(folder: Path) -> StudyForecast | None:
    """Read the forecast of the study in ``folder``; None if it is missing."""
    return try_read_json(folder / FORECAST_FILE, StudyForecast)


def read_gain(folder: Path) -> ExpectedGain | None:
    """Read the latest expected gain of the study in ``folder``; None if it is missing."""
    return try_read_json(folder / GAIN_FILE, ExpectedGain)


def load_or_make_forecast(study: StudyDir, spec: StudySpec, evaluator: Evaluator, measure: Measure,
                          seconds: float) -> StudyForecast | str:
    """Load the forecast of ``study``.

    Make a new one if none exists or other runs are planned.
    """
    # Equal architectures are trained once.
    architectures = list({reference.architecture.id: reference.architecture
                          for reference in spec.named_architectures}.values())
    saved = read_forecast(study.folder)
    planned = PlannedRuns.of(spec, len(architectures))
    if saved is not None and math.isclose(saved.full_runs, planned.full_runs):
        return saved
    forecast = make_forecast(spec, evaluator, architectures, study.trials, measure, seconds)
    if isinstance(forecast, StudyForecast):
        write_json(study.folder / FORECAST_FILE, msgspec.to_builtins(forecast))
    return forecast


def make_forecast(spec: StudySpec, evaluator: Evaluator, architectures: Sequence[ModelSpec],
                  trials: Trials, measure: Measure, seconds: float) -> StudyForecast | str:
    """Return the forecast of a study, or why it is missing (empty with ``seconds=0``).

    Args:
        spec: of the study.
        evaluator: of the study.
        architectures: references, or fixed architectures.
        trials: of the study so far. If a run is complete, no speed is measured.
        measure: measures the effort of a full-budget run; see :func:`training_measurer`.
        seconds: to measure the speed; 0 disables it.
    """
    forecast = forecast_from_trials(spec, len(architectures), trials)
    if forecast or not seconds:
        return forecast or ""
    from scalesearch.nn.causality import CausalityError
    from scalesearch.training.hardware import TrainingFailedError

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
        efforts, plan.makespan(seconds, [seconds] * plan.references, spec.workers),
        total.cpu_seconds * (1 - front_share) * min(1.0, low), total.cpu_seconds * max(1.0, high),
        plan.full_runs, plan.completed_runs,
        f"{len(own)} training runs of this study, {n_complete} of them complete")


def forecast_by_measuring(spec: StudySpec, evaluator: Evaluator, architectures: Sequence[ModelSpec],
                          measure: Measure, seconds: float) -> StudyForecast:
    """Forecast a study by measuring its smallest and its largest model.

    See :func:`make_forecast`.
    """
    region = evaluator.feasible_region
    rng = random.Random(spec.sampler.seed)
    sampled: list[Trial] = []
    if spec.architectures is None:
        candidates = [region.sample_feasible(rng) for _ in range(RANDOM_CANDIDATES)]
        sampled = [evaluator.evaluate(decode_params(evaluator.joint_space, candidate.params).params)
                   for candidate in candidates if candidate]
    reference_macs = [evaluator.evaluate_architecture(architecture).costs["macs.total"]
                      for architecture in architectures]
    candidate_macs = [trial.costs["macs.total"] for trial in sampled]
    models = [*zip(reference_macs, architectures),
              *((trial.costs["macs.total"], architecture) for trial in sampled
                if (architecture := evaluator.architecture(trial.params)) is not None)]
    (low, smallest), (high, largest) = (choose(models, key=lambda model: model[0])
                                        for choose in (min, max))
    least_effort = measure(smallest, seconds / 2)
    most_effort = measure(largest, seconds / 2)

    def predict(macs: float) -> dict[str, Effort]:
        """Predict the effort, by part, of a full-budget run of a model with these MACs."""
        weight = min(1.0, max(0.0, (macs - low) / (high - low))) if high > low else 0.0
        return {part: least_effort[part] + (most_effort[part] - least_effort[part]) * weight
                for part in TRAINING_PARTS}

    mean = quarter = three_quarters = 0.0
    if candidate_macs:
        mean = float(np.mean(candidate_macs))
        quarter, three_quarters = map(float, np.quantile(candidate_macs, (0.25, 0.75)))
    plan = PlannedRuns.of(spec, len(architectures),
                          total_effort(predict(mean)).cpu_seconds if candidate_macs else 0.0)

    def search_effort(macs: float, front_seeds: int) -> dict[str, Effort]:
        """Predict the effort of the search and the front's seeds, if all models have ``macs``."""
        per_run = predict(macs)
        counts = {SCORING: plan.completed_search_runs + front_seeds,
                  OTHER: plan.search_processes + front_seeds}
        return {part: per_run[part] * counts.get(part, plan.search_full_runs + front_seeds)
                for part in TRAINING_PARTS}

    reference_runs = [predict(macs) for macs in reference_macs]
    reference_efforts = [{part: effort * plan.reference_seeds for part, effort in efforts.items()}
                         for efforts in reference_runs]
    efforts, least, most = (
        sum_efforts(search_effort(macs, front_seeds), *reference_efforts) for macs, front_seeds in
        ((mean, plan.front_seeds), (quarter, 0), (three_quarters, plan.front_seeds)))
    candidate_seconds = 0.0
    if plan.search_full_runs:
        candidate_seconds = total_effort(search_effort(mean, 0)).seconds / plan.search_full_runs
    wall_seconds = plan.makespan(candidate_seconds,
                                 [total_effort(run).seconds for run in reference_runs],
                                 spec.workers)
    note = f", and {len(sampled)} random candidates that meet the limits" if sampled else ""
    cpu_seconds = total_effort(efforts).cpu_seconds
    return StudyForecast(
        efforts, wall_seconds, min(cpu_seconds, total_effort(least).cpu_seconds),
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
                    running: Sequence[RunningTrial] = ()) -> ForecastStatus:
    """Compare ``forecast`` with the time spent so far.

    The remaining runs are expected to take the mean time of the runs so far. For parts without a
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
        expected[part] = spent[part] + effort_per_run * max(0.0, planned - runs[part])
    predicted_seconds = total_effort(forecast.efforts).seconds
    wall_share = forecast.wall_seconds / predicted_seconds if predicted_seconds else 0.0
    return ForecastStatus(forecast, spent, expected, total_effort(spent).seconds * wall_share,
                          total_effort(expected).seconds * wall_share)


@dataclass(frozen=True)
class PlannedWork:
    """Planned training of a study.

    Attributes:
        candidates: compute for candidates, in full-budget runs.
        references: number of references.
    """

    candidates: float
    references: int


@dataclass(frozen=True)
class StudyProgress:
    """Progress of a study in full-budget runs.

    Attributes:
        done, total: candidates, references and the further seeds of references. Further seeds of
            the front are not counted, because their number is unknown.
        share: from 0 to 1; 0 if nothing is planned.
        candidates, references, reference_seeds: (done, total) of each.
        front_seeds: (started, maximum) runs with further seeds for the front.
    """

    done: float
    total: float
    share: float
    candidates: tuple[float, float]
    references: tuple[float, float]
    reference_seeds: tuple[float, float]
    front_seeds: tuple[int, int]


@dataclass(frozen=True)
class Eta:
    """Estimated remaining time.

    Attributes:
        seconds: remaining time of the study; None if unknown.
        front_seeds: part of ``seconds`` for further seeds of the front, an upper bound.
        full_run_seconds: estimated seconds of a full-budget run; None if unknown.
    """

    seconds: float | None = None
    front_seeds: float = 0.0
    full_run_seconds: float | None = None


@dataclass(frozen=True)
class ProgressState:
    """State of a study at one time; ``running`` are the trials in training."""

    trials: Trials
    planned: PlannedWork
    meta: StudyMeta
    running: Sequence[RunningTrial]

    @property
    def references(self) -> list[Trial]:
        """The references that were started."""
        return self.trials.with_origin(Origin.REFERENCE)

    @property
    def repeated_references(self) -> list[Trial]:
        """The trials that train references and get further seeds, without failed ones."""
        trained = {trial.number: trial
                   for trial in map(self.trials.resolve_duplicate, self.references)}
        return [trial for trial in trained.values()
                if trial.state in (State.PENDING, State.COMPLETE)]

    @property
    def unstarted_references(self) -> int:
        """Number of references that were not started."""
        return max(0, self.planned.references - len(self.references))


def study_progress(state: ProgressState) -> StudyProgress:
    """Compute the progress of a study; running trials count with their trained share."""
    trained_shares = {trial.trial: trial.trained_share for trial in state.running}
    rungs = state.meta.rungs
    seeds = state.meta.seeds

    def completed_runs(trials: Iterable[Trial]) -> float:
        return sum((trained_shares.get(trial.number, 0.0) if trial.state == State.PENDING else 1.0
                    for trial in trials), 0.0)

    searched = sum(trained_shares.get(trial.number, 0.0) if trial.state == State.PENDING
                   else allocated_full_runs(trial, rungs)
                   for trial in state.trials if trial.origin.charged)
    replicates = state.trials.replicates()
    references = {trial.number for trial in state.repeated_references}
    reference_replicates = ([trial for trial in replicates if trial.original in references]
                            if seeds.references > 1 else [])
    planned_replicates = ((len(references) + state.unstarted_references)
                          * (seeds.references - 1))
    parts = ((searched, float(state.planned.candidates)),
             (completed_runs(state.references), float(state.planned.references)),
             (completed_runs(reference_replicates), float(planned_replicates)))
    done = sum(min(part, planned) for part, planned in parts)
    total = sum(planned for _, planned in parts)
    return StudyProgress(done, total, min(1.0, done / total) if total else 0.0, *parts,
                         (len(replicates) - len(reference_replicates), seeds.max_front_seeds))


def time_left(state: ProgressState, workers: int) -> Eta:
    """Estimate the remaining time with ``workers`` workers.

    See the module for the method.
    """
    run_seconds = full_run_seconds(state)
    if run_seconds is None:
        return Eta()
    trials = state.trials
    rungs = state.meta.rungs
    limits = state.meta.seeds
    started_seeds = Counter(trial.original for trial in trials.replicates())
    replicates = {trial.number for trial in trials.replicates()}
    search = [trial.time_left(run_seconds)
              for trial in state.running if trial.trial not in replicates]
    seeds = [trial.time_left(run_seconds) for trial in state.running if trial.trial in replicates]
    if not seeds:  # once further seeds are in training, the search starts no more trials
        # runs of the search are assumed to end at the first rung
        remaining = max(0.0, state.planned.candidates - trials.full_runs_spent(rungs))
        count = int(remaining / rungs.shares[0] + 1e-9)
        remainder = remaining - count * rungs.shares[0]
        search += [run_seconds] * state.unstarted_references
        search += [rungs.shares[0] * run_seconds] * count
        search += [remainder * run_seconds] if remainder > 1e-9 else []
    for trial in state.repeated_references:
        missing = limits.references - 1 - started_seeds[trial.number]
        seeds += [trial.wall_seconds or run_seconds] * missing
    seeds += [run_seconds] * (state.unstarted_references * (limits.references - 1))
    front_seeds: list[float] = []
    if limits.max_per_candidate > 1:
        view = StudyView(trials, state.meta)
        started = sum(candidate.started_seeds - 1 for candidate in view.candidates)
        front_seeds = [run_seconds] * max(0, view.seed_limits.extra_runs - started)
    total = makespan(search, workers) + makespan([*seeds, *front_seeds], workers)
    return Eta(total, total - makespan(search, workers) - makespan(seeds, workers), run_seconds)


def full_run_seconds(state: ProgressState) -> float | None:
    """Estimate the seconds of a full-budget run from the runs so far; None if unknown."""
    total_seconds = 0.0
    total_runs = 0.0
    for trial in state.trials:
        last = trial.rungs[-1] if trial.rungs else None
        if trial.origin == Origin.IMPORTED:
            continue
        if trial.state in (State.COMPLETE, State.FAILED) and trial.wall_seconds is not None:
            total_seconds += trial.wall_seconds
            total_runs += trial.state == State.COMPLETE
        elif last and last.share and last.seconds:
            total_seconds += last.seconds
            total_runs += last.share
    if total_runs > 0 and total_seconds > 0:
        return total_seconds / total_runs
    paces = [trial.full_run_seconds
             for trial in state.running if trial.full_run_seconds is not None]
    return sum(paces) / len(paces) if paces else None
