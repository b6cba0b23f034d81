"""Replicates: means over seeds, the next replicate, significance of the front."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import compress, count

import numpy as np
from numpy.typing import NDArray

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import default_reference_point, hypervolume
from scalesearch.pareto.noise import CONFIDENCE, Noise, decimals_for_interval, format_percent
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.replicates.allocation import (
    CHALLENGER,
    NEIGHBORS,
    FrontOrder,
    MeanDifference,
    PairComparison,
    next_replicate,
)
from scalesearch.studies.replicates.replicated import ReplicatedTrial
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import Origin, State, Trial
from scalesearch.studies.trials.trials import Trials

MIN_DF = 5  # degrees of freedom of the noise below which a warning is printed


def front_candidates(trials: Trials, meta: StudyMeta) -> list[ReplicatedTrial]:
    """Return the trials that may be on the front, with their replicates.

    If an architecture was trained with several recipes, only the best one by the main objective is
    kept.
    """
    eligible = with_replicates(trials, (trial for trial in trials if trial.is_eligible))
    main = meta.main_objective
    sign = next(objective.sign for objective in meta.objectives if objective.name == main)
    best_by_architecture: dict[str | None, int] = {}
    for candidate in sorted(eligible, key=lambda candidate: (candidate.mean(main) * sign,
                                                             candidate.number)):
        best_by_architecture.setdefault(candidate.first.architecture, candidate.number)
    return [candidate for candidate in eligible if not candidate.first.recipe_params
            or best_by_architecture[candidate.first.architecture] == candidate.number]


def completed_candidates(trials: Trials) -> list[ReplicatedTrial]:
    """Return all complete candidates, including those that may not be on the front."""
    return with_replicates(
        trials, (trial for trial in trials.candidates() if trial.state == State.COMPLETE))


class StudyView:
    """Candidates of a study, their Pareto front and its hypervolume.

    Each is computed once.

    Values are means over seeds, in the order of the study's objectives.

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
        """Trials that may be on the front; see :func:`front_candidates`."""
        return front_candidates(self.trials, self.meta)

    @cached_property
    def completed(self) -> list[ReplicatedTrial]:
        """Complete candidates, including those that may not be on the front."""
        return completed_candidates(self.trials)

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Values of ``candidates``: (candidates, objectives)."""
        return self._means(self.candidates)

    @cached_property
    def on_front(self) -> NDArray[np.bool_]:
        """(candidates,) mask of the front."""
        return pareto_front(self.values, self.directions)

    @property
    def members(self) -> list[ReplicatedTrial]:
        """Candidates on the front, in order of their numbers."""
        return list(compress(self.candidates, self.on_front))

    @cached_property
    def reference_point(self) -> list[float]:
        """Point beyond the worst value of each objective over ``completed``.

        Raises:
            ValueError: no candidate is complete.
        """
        return default_reference_point(self._means(self.completed), self.directions)

    def hypervolume(self, points: NDArray[np.float64]) -> float:
        """Return the hypervolume of ``points`` (n, objectives)."""
        return hypervolume(points, self.reference_point, self.directions)

    def _means(self, candidates: Sequence[ReplicatedTrial]) -> NDArray[np.float64]:
        rows = [[candidate.mean(name) for name in self.meta.directions]
                for candidate in candidates]
        return np.array(rows, float).reshape(len(candidates), len(self.directions))


def with_replicates(trials: Trials, firsts: Iterable[Trial]) -> list[ReplicatedTrial]:
    """Return ``firsts`` with their replicates."""
    replicates: dict[int | None, list[Trial]] = {}
    for trial in trials.replicates():
        replicates.setdefault(trial.original, []).append(trial)
    return [ReplicatedTrial(first, tuple(replicates.get(first.number, ()))) for first in firsts]


def propose_replicate(study: StudyDir, seeds: Seeds) -> Trial | None:
    """Propose the next replicate; or return None.

    Replicates start after the search, because the members of the front are not known before.

    Args:
        study: the study.
        seeds: limits of further seeds.
    """
    trials = study.trials
    if any(trial.origin != Origin.REPLICATE for trial in trials.with_state(State.PENDING)):
        return None
    chosen = next_reference(trials, seeds)
    allowed = with_reference_allowance(trials, seeds)
    if chosen is None and _count_candidate_replicates(trials) < allowed.extra_runs:
        chosen = next_replicate(front_candidates(trials, study.meta), study.meta.objectives,
                                allowed, completed_candidates(trials))
    if chosen is None:
        return None
    used_seeds = {replicate.seed for replicate in chosen.replicates}
    new_seed = next(seed for seed in count(study.meta.seed + 1) if seed not in used_seeds)
    return study.propose(replace(
        chosen.first, number=trials.next_number, state=State.PENDING, origin=Origin.REPLICATE,
        original=chosen.number, seed=new_seed, values=None, reason="", rungs=(), attempts=0,
        crashes=0, wall_seconds=None, efforts={}, source=None))


def _references(trials: Trials) -> list[Trial]:
    """Return the complete references without duplicates."""
    outcomes = map(trials.resolve_duplicate, trials.with_origin(Origin.REFERENCE))
    return list({trial.number: trial
                 for trial in outcomes if trial.state == State.COMPLETE}.values())


def _count_candidate_replicates(trials: Trials) -> int:
    """Return the number of replicates of eligible trials, with any recipe."""
    eligible = {trial.number for trial in trials if trial.is_eligible}
    return sum(replicate.original in eligible for replicate in trials.replicates())


def next_reference(trials: Trials, seeds: Seeds) -> ReplicatedTrial | None:
    """Return the reference that needs a further seed.

    Those with the fewest seeds come first.
    """
    references = [reference for reference in with_replicates(trials, _references(trials))
                  if reference.started_seeds < seeds.references]
    return min(references, key=lambda reference: (reference.started_seeds, reference.number),
               default=None)


def with_reference_allowance(trials: Trials, seeds: Seeds) -> Seeds:
    """Return ``seeds`` with extra runs for those of references, which do not count."""
    references = {trial.number for trial in _references(trials) if trial.is_eligible}
    counts = Counter(replicate.original for replicate in trials.replicates()
                     if replicate.original in references)
    n_runs = sum(min(n_replicates, seeds.references - 1) for n_replicates in counts.values())
    return replace(seeds, extra_runs=seeds.extra_runs + n_runs)


def describe_end(trials: Trials, meta: StudyMeta, seeds: Seeds) -> str:
    """Describe the result of further seeds; empty if the study has none."""
    if seeds.max_per_candidate < 2:
        return ""
    order = FrontOrder(front_candidates(trials, meta), meta.objectives, seeds,
                       completed_candidates(trials))
    n_open = sum(not pair.is_resolved for pair in order.comparisons)
    outcome = ("all comparisons on the front are significant" if order.is_resolved
               else f"{n_open} comparisons are still within noise")
    return f", then {len(trials.replicates())} with further seeds; {outcome}"


class SeedAnalysis:
    """Significance of a study's front over seeds.

    Args:
        trials: trials of the study.
        meta: facts of the study: objectives and limits of seeds.
    """

    def __init__(self, trials: Trials, meta: StudyMeta) -> None:
        self.trials = trials
        self.seeds = meta.seeds
        self.view = StudyView(trials, meta)
        self.candidates = {candidate.number: candidate for candidate in self.view.candidates}
        self.replicates = trials.replicates()
        self.has_replicates = bool(self.seeds.is_enabled or self.replicates)
        self.front_order: FrontOrder | None = None
        if self.has_replicates:
            self.front_order = FrontOrder(self.view.candidates, meta.objectives, self.seeds,
                                          self.view.completed)

    @property
    def confidence(self) -> float:
        """Confidence level of the intervals."""
        return self.seeds.confidence if self.has_replicates else CONFIDENCE

    def _known_noise(self) -> dict[str, Noise]:
        """Return the noise of the objectives for which it is known."""
        noise_by_name = self.front_order.noise if self.front_order else {}
        return {name: noise for name, noise in noise_by_name.items() if noise.is_known}

    def notes(self, seed: int) -> list[str]:
        """Return notes on seeds for the reader of scores.

        Args:
            seed: training seed of the search.
        """
        known_noise = self._known_noise()
        if not known_noise:
            return [f"Training seed {seed}, one seed per candidate: differences within the noise "
                    "between seeds are not significant."]
        first = next(iter(known_noise.values()))
        deviations = ", ".join(f"{name} {noise.sd:.3g}" for name, noise in known_noise.items())
        return [f"Training seed {seed}; {first.n_candidates} candidates have further seeds, and "
                f"their scores are means. Standard deviation between seeds: {deviations} (pooled, "
                f"{first.df} degrees of freedom). ± is the {format_percent(self.confidence)} "
                "interval of a mean, followed by its number of seeds.",
                *self._failed_seed_notes()]

    def sentences(self) -> list[str]:
        """Describe which comparisons are significant; empty while the noise is unknown."""
        if self.front_order is None or not self._known_noise():
            return []
        order = self.front_order
        resolved = "is significant" if order.is_resolved else "is not significant"
        head = (f"Membership of the front {resolved}, at {format_percent(self.confidence)} per "
                f"comparison (intervals of {format_percent(order.level)}, because each seed is "
                "another test)")
        head += ":" if order.comparisons else ": no other candidate is within noise of the front."
        challengers = [pair for pair in order.comparisons if pair.type == CHALLENGER]
        described = ", ".join(
            f"trial {pair.second} ({self._differences(pair)} from trial {pair.first})"
            for pair in challengers)
        return [head,
                *(f"  {self._sentence(pair)}"
                  for pair in order.comparisons if pair.type == NEIGHBORS),
                *([f"  off the front, but within noise of it: {described}"] if challengers else []),
                *self._tie_notes(order), *self._few_seeds_warning(order)]

    def _tie_notes(self, order: FrontOrder) -> list[str]:
        described = ", ".join(
            f"trials {first} and {second} ({self._difference(difference)})"
            for first, second, difference in order.ties())
        return [f"The order of the members' scores is not significant: {described}."
                ] if described else []

    def _few_seeds_warning(self, order: FrontOrder) -> list[str]:
        df = order.df
        return [f"Caution: the noise between seeds is known with {df} "
                f"degree{'s' * (df != 1)} of freedom. Below {MIN_DF}, its true value may be "
                "several times larger or smaller; use more seeds."] if df < MIN_DF else []

    def to_json(self) -> dict[str, object]:
        """Return JSON of all fields; infinite or unknown values are None."""
        order = self.front_order
        known_noise = self._known_noise()
        is_known = order is not None and bool(known_noise)
        return {**self.seeds.to_json(), "runs": len(self.replicates),
                "failed": sum(trial.state == State.FAILED for trial in self.replicates),
                "resolved": order.is_resolved if order and is_known else None,
                "order_resolved": not order.ties() if order and is_known else None,
                "level": order.level if order else None,
                "noise": {name: {"sd": noise.sd, "df": noise.df, "candidates": noise.n_candidates}
                          for name, noise in known_noise.items()},
                "comparisons": [self._json(pair) for pair in order.comparisons]
                if order and is_known else []}

    def _sentence(self, pair: PairComparison) -> str:
        """Describe the difference of two neighbors."""
        verdict = "significant" if pair.is_resolved else "within noise"
        means = []
        for number in (pair.first, pair.second):
            candidate = self.candidates[number]
            means.append(", ".join(
                f"{difference.objective} {candidate.mean(difference.objective):.{decimals}f}"
                for difference in pair.differences
                for decimals in [decimals_for_interval(difference.half_width)]))
        return (f"trial {pair.first} ({means[0]}) and trial {pair.second} ({means[1]}): "
                f"{self._differences(pair)}, {verdict}")

    def _differences(self, pair: PairComparison) -> str:
        return ", ".join(map(self._difference, pair.differences))

    @staticmethod
    def _difference(difference: MeanDifference) -> str:
        decimals = decimals_for_interval(difference.half_width)
        return (f"{difference.objective} {difference.value:+.{decimals}f} ± "
                f"{difference.half_width:.{decimals}f}")

    def _json(self, pair: PairComparison) -> dict[str, object]:
        differences = {difference.objective: {"difference": difference.value,
                                              "half_width": difference.half_width}
                       for difference in pair.differences}
        counts = [self.candidates[number].completed_seeds for number in (pair.first, pair.second)]
        return {"type": pair.type, "trials": [pair.first, pair.second], "seeds": counts,
                "resolved": pair.is_resolved, "differences": differences}

    def _failed_seed_notes(self) -> list[str]:
        """Return a note per failed seed: the mean of the other seeds is too optimistic."""
        return [f"Trial {trial.original} failed with seed {trial.seed} ({trial.reason}); its mean "
                "does not include this seed."
                for trial in self.replicates if trial.state == State.FAILED]
