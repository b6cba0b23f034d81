"""Making of forecasts: from the speed of the smallest and the largest model here, or from what trainings have taken.

Between the two, the time of a training grows in a line with ``macs.total``. A search is taken to
train candidates as random feasible ones are, and with rungs to promote one in eta of each.
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
from scalesearch.space.assembly.architecture import ModelSpec
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.engine.corpora import Corpora
from scalesearch.study.monitor.eta import makespan
from scalesearch.study.monitor.forecast import FORECAST_FILE, StudyForecast, read_forecast, total_effort
from scalesearch.study.trials.evaluator import Evaluator
from scalesearch.study.trials.plan import StudyPlan
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import State, Trial
from scalesearch.study.trials.trials import Trials, completed_full_runs
from scalesearch.train.effort import OTHER, SCORING, TRAINING_PARTS, Effort, Efforts, sum_efforts

RANDOM_CANDIDATES = 48  # random candidates
# an architecture and seconds for it, to what a training of it takes
Measure = Callable[[ModelSpec, float], Efforts]


@dataclass(frozen=True)
class PlannedRuns:
    """Trainings that a study plans.

    Attributes:
        search_full_runs: candidates, in full trainings' worth. ends, starts: of them, trainings
            that come to their end, and
            processes that train, of which a candidate has one for each rung that it goes on to.
        reference_seeds: of each reference. front: further seeds for the front at most.
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
        """Trainings of a study with so many references, or rows.

        Args:
            cpu_seconds_per_run: CPU-seconds of a candidate's training, if they are known: they
                count where the compute is limited.
        """
        search = (min(spec.trials, spec.compute / cpu_seconds_per_run)
                  if spec.compute and cpu_seconds_per_run else spec.trials)
        ends, starts = rung_transitions(spec.rungs, search)
        return cls(search, ends, starts, references, spec.seeds.references,
                   spec.seeds.extra_runs if spec.seeds.max_per_candidate > 1 else 0)

    @property
    def reference_runs(self) -> int:
        """Trainings of references."""
        return self.references * self.reference_seeds

    @property
    def full_runs(self) -> float:
        """Full trainings' worth."""
        return self.search_full_runs + self.reference_runs + self.front_seeds

    @property
    def completed_runs(self) -> float:
        """Trainings that come to their end."""
        return self.completed_search_runs + self.reference_runs + self.front_seeds


def rung_transitions(rungs: Rungs, trials: float) -> tuple[float, float]:
    """Trainings that come to their end, and stretches of training, in so many full trainings' worth of a search."""
    passing = [rungs.eta**-rung for rung in range(len(rungs.shares))]
    begun = trials / sum(share * rungs.budget_to_rung(rung) for rung, share in enumerate(passing))
    return begun * passing[-1], begun * sum(passing)


def forecast_from_trials(spec: StudySpec, references: int, trials: Trials) -> StudyForecast | None:
    """The forecast by what trainings of this study have taken; None before one has come to its end."""
    rungs = spec.rungs
    workers = spec.workers
    own = [trial
           for trial in trials
           if trial.source is None and trial.efforts and completed_full_runs(trial, rungs)]
    ends = sum(trial.state == State.COMPLETE for trial in own)
    if not ends:
        return None
    took = sum_efforts(*(trial.efforts for trial in own))
    worth = sum(completed_full_runs(trial, rungs) for trial in own)
    full = {part: took[part] * (1 / (ends if part == SCORING else worth))
            for part in TRAINING_PARTS}
    plan = PlannedRuns.of(spec, references, total_effort(full).cpu_seconds)
    efforts = {part: full[part] * (plan.completed_runs if part == SCORING else plan.full_runs)
               for part in TRAINING_PARTS}
    cpu = np.array([total_effort(trial.efforts).cpu_seconds / completed_full_runs(trial, rungs)
                    for trial in own])
    low, high = (float(np.quantile(cpu, share) / cpu.mean()) for share in (0.25, 0.75))
    whole = total_effort(efforts)
    front = plan.front_seeds / plan.full_runs
    return StudyForecast(
        efforts,
        _elapsed(plan, total_effort(full).seconds, [total_effort(full).seconds] * plan.references,
                 workers), whole.cpu_seconds * (1 - front) * min(1.0, low),
        whole.cpu_seconds * max(1.0, high), plan.full_runs, plan.completed_runs,
        f"what {len(own)} trainings of this study have taken, {ends} of them to " "their end")


def forecast_from_speeds(plan: PlannedRuns, candidate_macs: Sequence[float],
                         reference_macs: Sequence[float], time_model: "TrainingTimeModel",
                         workers: int, basis: str) -> StudyForecast:
    """The forecast by the time that trainings take here.

    Args:
        candidate_macs: ``macs.total`` of random candidates. named: of the references.
    """
    def of_search(macs: float, front: int) -> dict[str, Effort]:
        one = time_model.predict(macs)
        times = {SCORING: plan.completed_search_runs + front, OTHER: plan.search_processes + front}
        return {part: one[part] * times.get(part, plan.search_full_runs + front)
                for part in TRAINING_PARTS}

    known = [{part: each * plan.reference_seeds for part, each in time_model.predict(macs).items()}
             for macs in reference_macs]
    low, high, mean = map(float,
                          (*np.quantile(candidate_macs, (0.25, 0.75)),
                           np.mean(candidate_macs))) if len(candidate_macs) else (0.0,) * 3
    efforts, least, most = (
        sum_efforts(of_search(macs, front), *known)
        for macs, front in ((mean, plan.front_seeds), (low, 0), (high, plan.front_seeds)))
    one = total_effort(
        of_search(mean, 0)).seconds / plan.search_full_runs if plan.search_full_runs else 0.0
    whole = total_effort(efforts).cpu_seconds
    return StudyForecast(
        efforts,
        _elapsed(plan, one,
                 [total_effort(time_model.predict(macs)).seconds for macs in reference_macs],
                 workers), min(whole, total_effort(least).cpu_seconds),
        max(whole, total_effort(most).cpu_seconds), plan.full_runs, plan.completed_runs, basis)


def _elapsed(plan: PlannedRuns, candidate_seconds: float, reference_seconds: Sequence[float],
             workers: int) -> float:
    """Wall-clock seconds: references and the search, and then further seeds; ``candidate_seconds`` is of a candidate."""
    search = [*reference_seconds, *[candidate_seconds] * int(plan.search_full_runs)]
    seeds = [*(list(reference_seconds) * (plan.reference_seeds - 1)),
             *[candidate_seconds or max(reference_seconds, default=0.0)] * plan.front_seeds]
    return makespan(search, workers) + makespan(seeds, workers)


@dataclass(frozen=True)
class TrainingTimeModel:
    """Times of a whole training, by part, of the smallest and the largest model: (macs, time)."""

    smallest: tuple[float, Efforts]
    largest: tuple[float, Efforts]

    def predict(self, macs: float) -> dict[str, Effort]:
        """What a training takes of a model of so many ``macs``."""
        (low, less), (high, more) = self.smallest, self.largest
        along = (macs - low) / (high - low) if high > low else 0.0
        return {part: less[part] + (more[part] - less[part]) * min(1.0, max(0.0, along))
                for part in TRAINING_PARTS}


def make_forecast(spec: StudySpec, evaluator: Evaluator, architectures: Sequence[ModelSpec],
                  trials: Trials, load_corpora: Callable[[], Corpora],
                  seconds: float) -> StudyForecast | str:
    """The forecast of a study, or why there is none; nothing where none was asked for.

    Args:
        architectures: architectures of references, or of rows.
        trials: of the study so far; once one has come to its end, nothing is measured.
        load_corpora: the text.
        seconds: to measure for; 0 for not at all.
    """
    known = forecast_from_trials(spec, len(architectures), trials)
    if known or not seconds:
        return known or ""
    from scalesearch.nn.causality import CausalityError
    from scalesearch.train.hardware import TrainingFailedError

    try:
        return forecast_by_measuring(spec, evaluator, architectures,
                                     training_measurer(spec, load_corpora()), seconds)
    except (TrainingFailedError, CausalityError, UserError) as error:  # of one candidate, whose training says it again
        return str(error)


def load_or_make_forecast(study: StudyDir, spec: StudySpec, evaluator: Evaluator, plan: StudyPlan,
                          corpora: Corpora, seconds: float) -> StudyForecast | str:
    """The forecast of ``study``: its own, or a new one where it has none or other trainings are planned now."""
    # each is trained once
    named = list({one.architecture.id: one.architecture for one in plan.references}.values())
    known = read_forecast(study.folder)
    if known is not None and math.isclose(known.full_runs,
                                          PlannedRuns.of(spec, len(named)).full_runs):
        return known
    made = make_forecast(spec, evaluator, named, study.trials, lambda: corpora, seconds)
    if isinstance(made, StudyForecast):
        write_json(study.folder / FORECAST_FILE, msgspec.to_builtins(made))
    return made


def forecast_by_measuring(spec: StudySpec, evaluator: Evaluator, architectures: Sequence[ModelSpec],
                          measure: Measure, seconds: float) -> StudyForecast:
    """Forecasts a study by measuring its smallest and its largest model for so many ``seconds``.

    Args:
        architectures: architectures of references, or of rows.
    """
    drawn = [] if spec.architectures is not None else sample_feasible(evaluator, spec.sampler.seed)
    models = [(evaluator.evaluate_architecture(one).costs["macs.total"], one)
              for one in architectures]
    models += [(trial.costs["macs.total"], evaluator.architecture(trial.params)) for trial in drawn]
    ends = min(models, key=lambda each: each[0]), max(models, key=lambda each: each[0])
    small, large = ((macs, measure(model, seconds / 2)) for macs, model in ends)
    of = f", and {len(drawn)} random candidates that meet the limits" if drawn else ""
    basis = f"the speed of the smallest and the largest model on this machine{of}"
    line = TrainingTimeModel(small, large)
    sizes = [trial.costs["macs.total"] for trial in drawn]
    each = total_effort(line.predict(float(np.mean(sizes)))).cpu_seconds if sizes else 0.0
    return forecast_from_speeds(PlannedRuns.of(spec, len(architectures), each), sizes,
                                [macs for macs, _ in models[: len(architectures)]], line,
                                spec.workers, basis)


def sample_feasible(evaluator: Evaluator, seed: int) -> list[Trial]:
    """Random candidates that meet the limits."""
    rng = random.Random(seed)
    sheets = [evaluator.feasible_region.sample_feasible(rng) for _ in range(RANDOM_CANDIDATES)]
    return [evaluator.evaluate(decode_params(evaluator.joint_space, sheet.params).params)
            for sheet in sheets if sheet]


def training_measurer(spec: StudySpec, corpora: Corpora) -> Measure:
    """Measures whole trainings by the study's recipe, with as many threads as a trial has."""
    import torch

    from scalesearch.train.scoring.speed import measure_speed

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
