"""Replicates: means over seeds, the next replicate, significance of the front."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import compress, count

import numpy as np
from numpy.typing import NDArray

from scalesearch.pareto.front import default_reference_point, hypervolume, pareto_front
from scalesearch.pareto.noise import CONFIDENCE, Noise, decimals_for_interval, format_percent
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.replicates.allocation import (
    FrontOrder,
    MeanDifference,
    ReplicatedTrial,
    next_replicate,
)
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import Origin, State, Trial
from scalesearch.studies.trials.trials import Trials
from scalesearch.terminal import format_count

MIN_DF = 5  # degrees of freedom of the noise below which a warning is printed


class StudyView:
    """Candidates of a study with all their seeds, their Pareto front and its hypervolume.

    The driver, the command line, displays, reports and other studies read it. Each property is
    computed once. Values are means over seeds, in the order of the study's objectives.

    Args:
        trials: trials of the study; the view does not follow later changes.
        meta: facts of the study.
    """

    def __init__(self, trials: Trials, meta: StudyMeta) -> None:
        self.trials = trials
        self.meta = meta
        self.directions: list[str] = list(meta.directions.values())

    @cached_property
    def candidates(self) -> list[ReplicatedTrial]:
        """Trials that may be on the front.

        If an architecture was trained with several recipes, only the best one by the main
        objective is kept.
        """
        eligible = self.with_replicates(trial for trial in self.trials if trial.is_eligible)
        main = self.meta.main_objective.name
        sign = self.meta.main_objective.sign
        best_by_architecture: dict[str | None, int] = {}
        for candidate in sorted(eligible, key=lambda candidate: (candidate.mean(main) * sign,
                                                                 candidate.number)):
            best_by_architecture.setdefault(candidate.first.architecture, candidate.number)
        return [candidate for candidate in eligible if not candidate.first.recipe_params
                or best_by_architecture[candidate.first.architecture] == candidate.number]

    @cached_property
    def completed(self) -> list[ReplicatedTrial]:
        """Complete candidates, including those that may not be on the front."""
        return self.with_replicates(trial for trial in self.trials.candidates()
                                    if trial.state == State.COMPLETE)

    @cached_property
    def references(self) -> list[ReplicatedTrial]:
        """Complete references, without duplicates."""
        trained = map(self.trials.resolve_duplicate, self.trials.with_origin(Origin.REFERENCE))
        return self.with_replicates({trial.number: trial for trial in trained
                                     if trial.state == State.COMPLETE}.values())

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Values of ``candidates``: (candidates, objectives)."""
        return self.means(self.candidates)

    @cached_property
    def on_front(self) -> NDArray[np.bool_]:
        """(candidates,) mask of the front."""
        return pareto_front(self.values, self.directions)

    @property
    def members(self) -> list[ReplicatedTrial]:
        """Candidates on the front, in order of their numbers."""
        return list(compress(self.candidates, self.on_front))

    @cached_property
    def order(self) -> FrontOrder:
        """Comparisons that the front depends on."""
        return FrontOrder(self.candidates, self.meta.objectives, self.meta.seeds, self.completed)

    @cached_property
    def reference_point(self) -> list[float]:
        """Point beyond the worst value of each objective over ``completed``.

        Raises:
            ValueError: no candidate is complete.
        """
        return default_reference_point(self.means(self.completed), self.directions)

    def hypervolume(self, points: NDArray[np.float64]) -> float:
        """Return the hypervolume of ``points`` (n, objectives)."""
        return hypervolume(points, self.reference_point, self.directions)

    def means(self, candidates: Sequence[ReplicatedTrial]) -> NDArray[np.float64]:
        """Return the values of candidates: (candidates, objectives)."""
        rows = [[candidate.mean(name) for name in self.meta.directions] for candidate in candidates]
        return np.array(rows, float).reshape(len(candidates), len(self.directions))

    def with_replicates(self, firsts: Iterable[Trial]) -> list[ReplicatedTrial]:
        """Return ``firsts`` with their replicates."""
        replicates: dict[int | None, list[Trial]] = {}
        for trial in self.trials.replicates():
            replicates.setdefault(trial.original, []).append(trial)
        return [ReplicatedTrial(first, tuple(replicates.get(first.number, ()))) for first in firsts]

    @cached_property
    def seed_limits(self) -> Seeds:
        """Limits of further seeds, with extra runs for those of references on the front.

        Further seeds of references do not count toward the limit of the study file.
        """
        seeds = self.meta.seeds
        n_runs = sum(min(len(reference.replicates), seeds.references - 1)
                     for reference in self.references if reference.first.is_eligible)
        return replace(seeds, extra_runs=seeds.extra_runs + n_runs)

    def next_replicate(self) -> ReplicatedTrial | None:
        """Return the trial to train with a further seed, or None.

        References come first: those with the fewest seeds.
        """
        due = [reference for reference in self.references
               if reference.started_seeds < self.meta.seeds.references]
        if due:
            return min(due, key=lambda reference: (reference.started_seeds, reference.number))
        eligible = {trial.number for trial in self.trials if trial.is_eligible}  # with any recipe
        n_replicates = sum(trial.original in eligible for trial in self.trials.replicates())
        if n_replicates >= self.seed_limits.extra_runs:
            return None
        return next_replicate(self.candidates, self.meta.objectives, self.seed_limits,
                              self.completed)


def propose_replicate(study: StudyDir) -> Trial | None:
    """Propose the next replicate; or return None.

    Replicates start after the search, because the members of the front are not known before.
    """
    trials = study.trials
    if any(trial.origin != Origin.REPLICATE for trial in trials.with_state(State.PENDING)):
        return None
    chosen = StudyView(trials, study.meta).next_replicate()
    if chosen is None:
        return None
    used_seeds = {replicate.seed for replicate in chosen.replicates}
    new_seed = next(seed for seed in count(study.meta.seed + 1) if seed not in used_seeds)
    return study.propose(chosen.first.replace(
        number=trials.next_number, state=State.PENDING, origin=Origin.REPLICATE,
        original=chosen.number, seed=new_seed, values=None, reason="", rungs=(), attempts=0,
        crashes=0, wall_seconds=None, efforts={}, phases={}, ended_at=None, source=None))


def describe_end(view: StudyView) -> str:
    """Describe the result of further seeds; empty if the study has none."""
    if view.meta.seeds.max_per_candidate < 2:
        return ""
    n_open = sum(not pair.is_resolved for pair in view.order.comparisons)
    outcome = (f"still within noise: {format_count(n_open, 'comparison')}" if n_open
               else "all comparisons on the front are significant")
    return f", then {len(view.trials.replicates())} with further seeds; {outcome}"


class SeedAnalysis:
    """Significance of a study's front over seeds.

    Args:
        trials: trials of the study.
        meta: facts of the study: objectives and limits of seeds.
    """

    def __init__(self, trials: Trials, meta: StudyMeta) -> None:
        self.seeds = meta.seeds
        self.view = StudyView(trials, meta)
        self.replicates = trials.replicates()
        self.has_replicates = bool(self.seeds.is_enabled or self.replicates)
        self.front_order = self.view.order if self.has_replicates else None

    @property
    def confidence(self) -> float:
        """Confidence level of the intervals."""
        return self.seeds.confidence if self.has_replicates else CONFIDENCE

    @cached_property
    def known_noise(self) -> dict[str, Noise]:
        """Noise of the objectives for which it is known."""
        noise_by_name = self.front_order.noise if self.front_order else {}
        return {name: noise for name, noise in noise_by_name.items() if noise.is_known}

    def notes(self, seed: int) -> list[str]:
        """Return notes on seeds for the reader of scores.

        Args:
            seed: training seed of the search.
        """
        if not self.known_noise:
            return [f"Training seed {seed}, one seed per candidate: differences within the noise "
                    "between seeds are not significant."]
        first = next(iter(self.known_noise.values()))
        deviations = ", ".join(f"{name} {noise.sd:.3g}" for name, noise in self.known_noise.items())
        failed = [f"Trial {trial.original} failed with seed {trial.seed} ({trial.reason}); its "
                  "mean does not include this seed."
                  for trial in self.replicates if trial.state == State.FAILED]
        have = "has" if first.n_candidates == 1 else "have"
        return [f"Training seed {seed}; {format_count(first.n_candidates, 'candidate')} {have} "
                f"further seeds, and their scores are means. Standard deviation between seeds: "
                f"{deviations} (pooled, {format_count(first.df, 'degree')} of freedom). ± is the "
                f"{format_percent(self.confidence)} "
                "interval of a mean, followed by its number of seeds.", *failed]

    def sentences(self) -> list[str]:
        """Describe which comparisons are significant; empty while the noise is unknown."""
        order = self.front_order
        if order is None or not self.known_noise:
            return []
        resolved = "is significant" if order.is_resolved else "is not significant"
        head = (f"Membership of the front {resolved} at {format_percent(self.confidence)} per "
                "comparison")
        n_open = sum(not pair.is_resolved for pair in order.comparisons)
        if n_open:
            head += (f" ({n_open} of {format_count(len(order.comparisons), 'comparison')} within "
                     "noise)")
        if order.level != self.confidence:
            head += (f". Intervals are {format_percent(order.level)}, because scores are tested "
                     "again after each seed")
        lines = [head + (":" if order.comparisons
                         else "; no other candidate is within noise of the front.")]
        candidates = {candidate.number: candidate for candidate in self.view.candidates}
        for pair in order.neighbors:
            texts = []
            for number in (pair.second, pair.first):
                means = ", ".join(
                    f"{name} {candidates[number].mean(name):.{decimals_for_interval(width)}f}"
                    for name, width in ((difference.objective, difference.half_width)
                                        for difference in pair.differences))
                texts.append(f"trial {number} ({means})")
            verdict = "significant" if pair.is_resolved else "within noise"
            lines.append(f"  {' minus '.join(texts)}: {describe_differences(pair.differences)}, "
                         f"{verdict}")
        if order.challengers:
            described = ", ".join(
                f"trial {pair.second} minus trial {pair.first} "
                f"({describe_differences(pair.differences)})" for pair in order.challengers)
            lines.append(f"  off the front, but within noise of it: {described}")
        shown = {frozenset((pair.first, pair.second)) for pair in order.neighbors}
        ties = ", ".join(f"trial {second} minus trial {first} "
                         f"({describe_differences([difference])})"
                         for first, second, difference in order.ties()
                         if frozenset((first, second)) not in shown)
        if ties:
            lines.append(f"The order of further members' scores is not significant: {ties}.")
        if order.df < MIN_DF:
            lines.append("Caution: the noise between seeds is known with "
                         f"{format_count(order.df, 'degree')} of freedom. Below {MIN_DF}, its true "
                         "value may be several times larger or smaller; use more seeds.")
        return lines


def describe_differences(differences: Iterable[MeanDifference]) -> str:
    """Describe differences of means with their intervals."""
    texts = []
    for difference in differences:
        decimals = decimals_for_interval(difference.half_width)
        texts.append(f"{difference.objective} {difference.value:+.{decimals}f} ± "
                     f"{difference.half_width:.{decimals}f}")
    return ", ".join(texts)
