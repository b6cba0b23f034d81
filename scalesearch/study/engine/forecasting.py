"""Making of forecasts: from the speed of the smallest and the largest model here, or from what trainings have taken.

Between the two, the time of a training grows in a line with ``macs.total``. A search is taken to train candidates as
random feasible ones are, and with rungs to promote one in eta of each.
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
from scalesearch.study.monitor.eta import handed_out
from scalesearch.study.monitor.forecast import FILE, Forecast, read_forecast, total
from scalesearch.study.trials.evaluator import Evaluator
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import State, Trial
from scalesearch.study.trials.trials import Trials, trained_share
from scalesearch.train.effort import OTHER, SCORING, TRAINING_PARTS, Effort, Efforts, sum_efforts

SAMPLES = 48  # random candidates
Measure = Callable[[ModelSpec, float], Efforts]  # an architecture and seconds for it, to what a training of it takes


@dataclass(frozen=True)
class Trainings:
    """Trainings that a study plans.

    Attributes:
        search: candidates, in full trainings' worth. ends, starts: of them, trainings that come to their end, and
            processes that train, of which a candidate has one for each rung that it goes on to.
        seeds: of each reference. front: further seeds for the front at most.
    """

    search: float
    ends: float
    starts: float
    references: int
    seeds: int
    front: int

    @classmethod
    def of(cls, spec: StudySpec, references: int, each: float = 0.0) -> "Trainings":
        """Trainings of a study with so many references, or rows.

        Args:
            each: CPU-seconds of a candidate's training, if they are known: they count where the compute is limited.
        """
        search = min(spec.trials, spec.compute / each) if spec.compute and each else spec.trials
        ends, starts = passages(spec.rungs, search)
        return cls(search, ends, starts, references, spec.seeds.references,
                   spec.seeds.trials if spec.seeds.most > 1 else 0)

    @property
    def named(self) -> int:
        """Trainings of references."""
        return self.references * self.seeds

    @property
    def worth(self) -> float:
        """Full trainings' worth."""
        return self.search + self.named + self.front

    @property
    def scored(self) -> float:
        """Trainings that come to their end."""
        return self.ends + self.named + self.front


def passages(rungs: Rungs, trials: float) -> tuple[float, float]:
    """Trainings that come to their end, and stretches of training, in so many full trainings' worth of a search."""
    passing = [rungs.eta**-rung for rung in range(len(rungs.shares))]
    begun = trials / sum(share * rungs.budget_to_rung(rung) for rung, share in enumerate(passing))
    return begun * passing[-1], begun * sum(passing)


def from_trials(spec: StudySpec, references: int, trials: Trials) -> Forecast | None:
    """The forecast by what trainings of this study have taken; None before one has come to its end."""
    rungs, workers = spec.rungs, spec.workers
    own = [trial for trial in trials if trial.source is None and trial.efforts and trained_share(trial, rungs)]
    ends = sum(trial.state == State.COMPLETE for trial in own)
    if not ends:
        return None
    took, worth = sum_efforts(*(trial.efforts for trial in own)), sum(trained_share(trial, rungs) for trial in own)
    full = {part: took[part] * (1 / (ends if part == SCORING else worth)) for part in TRAINING_PARTS}
    plan = Trainings.of(spec, references, total(full).cpu_seconds)
    efforts = {part: full[part] * (plan.scored if part == SCORING else plan.worth) for part in TRAINING_PARTS}
    cpu = np.array([total(trial.efforts).cpu_seconds / trained_share(trial, rungs) for trial in own])
    low, high = (float(np.quantile(cpu, share) / cpu.mean()) for share in (0.25, 0.75))
    whole, front = total(efforts), plan.front / plan.worth
    return Forecast(efforts, _elapsed(plan, total(full).seconds, [total(full).seconds] * plan.references, workers),
                    whole.cpu_seconds * (1 - front) * min(1.0, low), whole.cpu_seconds * max(1.0, high), plan.worth,
                    plan.scored, f"what {len(own)} trainings of this study have taken, {ends} of them to their end")


def from_speeds(plan: Trainings, sizes: Sequence[float], named: Sequence[float], line: "Line", workers: int,
                basis: str) -> Forecast:
    """The forecast by the time that trainings take here.

    Args:
        sizes: ``macs.total`` of random candidates. named: of the references.
    """
    def of_search(macs: float, front: int) -> dict[str, Effort]:
        one = line.at(macs)
        times = {SCORING: plan.ends + front, OTHER: plan.starts + front}
        return {part: one[part] * times.get(part, plan.search + front) for part in TRAINING_PARTS}

    known = [{part: each * plan.seeds for part, each in line.at(macs).items()} for macs in named]
    low, high, mean = map(float, (*np.quantile(sizes, (0.25, 0.75)), np.mean(sizes))) if len(sizes) else (0.0,) * 3
    efforts, least, most = (sum_efforts(of_search(macs, front), *known)
                            for macs, front in ((mean, plan.front), (low, 0), (high, plan.front)))
    one = total(of_search(mean, 0)).seconds / plan.search if plan.search else 0.0
    whole = total(efforts).cpu_seconds
    return Forecast(efforts, _elapsed(plan, one, [total(line.at(macs)).seconds for macs in named], workers),
                    min(whole, total(least).cpu_seconds), max(whole, total(most).cpu_seconds), plan.worth,
                    plan.scored, basis)


def _elapsed(plan: Trainings, one: float, named: Sequence[float], workers: int) -> float:
    """Wall-clock seconds: references and the search, and then further seeds; ``one`` is of a candidate."""
    search = [*named, *[one] * int(plan.search)]
    seeds = [*(list(named) * (plan.seeds - 1)), *[one or max(named, default=0.0)] * plan.front]
    return handed_out(search, workers) + handed_out(seeds, workers)


@dataclass(frozen=True)
class Line:
    """Times of a whole training, by part, of the smallest and the largest model: (macs, time)."""

    small: tuple[float, Efforts]
    large: tuple[float, Efforts]

    def at(self, macs: float) -> dict[str, Effort]:
        """What a training takes of a model of so many ``macs``."""
        (low, less), (high, more) = self.small, self.large
        along = (macs - low) / (high - low) if high > low else 0.0
        return {part: less[part] + (more[part] - less[part]) * min(1.0, max(0.0, along)) for part in TRAINING_PARTS}


def forecast_of(spec: StudySpec, evaluator: Evaluator, named: Sequence[ModelSpec], trials: Trials,
                load: Callable[[], Corpora], seconds: float) -> Forecast | str:
    """The forecast of a study, or why there is none; nothing where none was asked for.

    Args:
        named: architectures of references, or of rows.
        trials: of the study so far; once one has come to its end, nothing is measured.
        load: the text.
        seconds: to measure for; 0 for not at all.
    """
    known = from_trials(spec, len(named), trials)
    if known or not seconds:
        return known or ""
    from scalesearch.nn.causality import CausalityError
    from scalesearch.train.hardware import TrainingFailedError

    try:
        return foretell(spec, evaluator, named, measure_training(spec, load()), seconds)
    except (TrainingFailedError, CausalityError, UserError) as error:  # of one candidate, whose training says it again
        return str(error)


def keep_forecast(study: StudyDir, spec: StudySpec, evaluator: Evaluator, plan: Plan, corpora: Corpora, seconds: float
                  ) -> Forecast | str:
    """The forecast of ``study``: its own, or a new one where it has none or other trainings are planned now."""
    named = list({one.architecture.id: one.architecture for one in plan.references}.values())  # each is trained once
    known = read_forecast(study.folder)
    if known is not None and math.isclose(known.worth, Trainings.of(spec, len(named)).worth):
        return known
    made = forecast_of(spec, evaluator, named, study.trials, lambda: corpora, seconds)
    if isinstance(made, Forecast):
        write_json(study.folder / FILE, msgspec.to_builtins(made))
    return made


def foretell(spec: StudySpec, evaluator: Evaluator, named: Sequence[ModelSpec], measure: Measure, seconds: float
             ) -> Forecast:
    """Forecasts a study by measuring its smallest and its largest model for so many ``seconds``.

    Args:
        named: architectures of references, or of rows.
    """
    drawn = [] if spec.rows is not None else feasible(evaluator, spec.proposer.seed)
    models = [(evaluator.evaluate_architecture(one).costs["macs.total"], one) for one in named]
    models += [(trial.costs["macs.total"], evaluator.architecture(trial.params)) for trial in drawn]
    ends = min(models, key=lambda each: each[0]), max(models, key=lambda each: each[0])
    small, large = ((macs, measure(model, seconds / 2)) for macs, model in ends)
    of = f", and {len(drawn)} random candidates that meet the limits" if drawn else ""
    basis = f"the speed of the smallest and the largest model on this machine{of}"
    line, sizes = Line(small, large), [trial.costs["macs.total"] for trial in drawn]
    each = total(line.at(float(np.mean(sizes)))).cpu_seconds if sizes else 0.0
    return from_speeds(Trainings.of(spec, len(named), each), sizes, [macs for macs, _ in models[: len(named)]], line,
                       spec.workers, basis)


def feasible(evaluator: Evaluator, seed: int) -> list[Trial]:
    """Random candidates that meet the limits."""
    rng = random.Random(seed)
    sheets = [evaluator.region.sample_feasible(rng) for _ in range(SAMPLES)]
    return [evaluator.evaluate(decode_params(evaluator.searched, sheet.params).params) for sheet in sheets if sheet]


def measure_training(spec: StudySpec, corpora: Corpora) -> Measure:
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
