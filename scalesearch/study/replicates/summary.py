"""Replicates of a study: as means of scores, as proposals, in words."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from scalesearch.pareto.noise import CONFIDENCE, decimals_for_interval, format_percent
from scalesearch.pareto.objective import Objective
from scalesearch.study.config.sections import Seeds
from scalesearch.study.replicates.allocation import (
    CHALLENGER,
    NEIGHBORS,
    FrontOrder,
    MeanDifference,
    PairComparison,
    next_replicate,
)
from scalesearch.study.replicates.replicated import ReplicatedTrial
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State, Trial
from scalesearch.study.trials.trials import Trials

MIN_DF = 5  # degrees of freedom of the noise below which its intervals come with a caution


def front_candidates(trials: Trials, objectives: Sequence[Objective]) -> list[ReplicatedTrial]:
    """The trials that may stand on the front, each with its replicates.

    Of an architecture that was trained by several recipes it is the best, by the first objective
    that is measured.
    """
    eligible = with_replicates(trials, (trial for trial in trials if trial.is_eligible))
    main = next((one for one in objectives if one.is_measured), objectives[0])
    best: dict[str | None, int] = {}
    for one in sorted(eligible, key=lambda one: (one.mean(main.name) * main.sign, one.number)):
        best.setdefault(one.first.architecture, one.number)
    return [one
            for one in eligible
            if not one.first.recipe_params or best[one.first.architecture] == one.number]


def completed_candidates(trials: Trials) -> list[ReplicatedTrial]:
    """The candidates that were trained to the end, those that may not stand on the front included."""
    return with_replicates(
        trials, (trial for trial in trials.candidates() if trial.state == State.COMPLETE))


def with_replicates(trials: Trials, firsts: Iterable[Trial]) -> list[ReplicatedTrial]:
    """Each of ``firsts`` with its replicates."""
    further: dict[int | None, list[Trial]] = {}
    for one in trials.replicates():
        further.setdefault(one.original, []).append(one)
    return [ReplicatedTrial(first, tuple(further.get(first.number, ()))) for first in firsts]


def propose_replicate(study: StudyDir, objectives: Sequence[Objective], seeds: Seeds,
                      seed: int) -> Trial | None:
    """Announces the next replicate; None where there is none to begin now.

    Nothing is trained again before the search is over, since who is on the front is not known until
    then.

    Args:
        seed: of the search.
    """
    trials = study.trials
    if any(trial.origin != Origin.REPLICATE for trial in trials.with_state(State.PENDING)):
        return None
    chosen = next_reference(trials, seeds)
    allowed = with_reference_allowance(trials, seeds)
    if chosen is None and _count_candidate_replicates(trials) < allowed.extra_runs:
        chosen = next_replicate(front_candidates(trials, objectives), objectives, allowed,
                                completed_candidates(trials))
    if chosen is None:
        return None
    used = {seed, *(one.seed for one in chosen.replicates)}
    again = replace(chosen.first, number=trials.next_number, state=State.PENDING,
                    origin=Origin.REPLICATE, original=chosen.number,
                    seed=next(one for one in count(seed + 1) if one not in used), values=None,
                    reason="", rungs=(), attempts=0, crashes=0, wall_seconds=None, efforts={},
                    source=None)
    return study.propose(again)


def _references(trials: Trials) -> list[Trial]:
    """The references that are trained, each once; one that something else has trained before is that."""
    outcomes = map(trials.resolve_duplicate, trials.with_origin(Origin.REFERENCE))
    return list({one.number: one for one in outcomes if one.state == State.COMPLETE}.values())


def _count_candidate_replicates(trials: Trials) -> int:
    """Number of further trainings of what may stand on the front, whichever recipe is the best of it by now."""
    eligible = {one.number for one in trials if one.is_eligible}
    return sum(one.original in eligible for one in trials.replicates())


def next_reference(trials: Trials, seeds: Seeds) -> ReplicatedTrial | None:
    """Chooses the reference to train again.

    Those with the fewest seeds come first, then the order of the file.
    """
    references = with_replicates(trials, _references(trials))
    wanting = [one for one in references if one.started_seeds < seeds.references]
    return min(wanting, key=lambda one: (one.started_seeds, one.number), default=None)


def with_reference_allowance(trials: Trials, seeds: Seeds) -> Seeds:
    """``seeds`` with what the references have had, which takes nothing from the front."""
    references = {one.number for one in _references(trials) if one.is_eligible}
    counted = Counter(one.original for one in trials.replicates() if one.original in references)
    had = sum(min(times, seeds.references - 1) for times in counted.values())
    return replace(seeds, extra_runs=seeds.extra_runs + had)


def describe_end(trials: Trials, objectives: Sequence[Objective], seeds: Seeds) -> str:
    """Describes the result of further seeds; empty where none were asked for."""
    if seeds.max_per_candidate < 2:
        return ""
    trained = len(trials.replicates())
    order = FrontOrder(front_candidates(trials, objectives), objectives, seeds,
                       completed_candidates(trials))
    open_ = sum(not pair.is_resolved for pair in order.comparisons)
    outcome = ("the members of the front are settled" if order.is_resolved
               else f"{open_} comparisons are still within noise")
    return f", then {trained} with further seeds; {outcome}"


class SeedAnalysis:
    """Verdict of a study's seeds on its front.

    Args:
        meta: of the study: objectives, the seeds that were allowed.
    """

    def __init__(self, trials: Trials, meta: StudyMeta) -> None:
        objectives = meta.objectives
        self.trials = trials
        self.seeds = meta.seeds
        self.candidates = {one.number: one for one in front_candidates(trials, meta.objectives)}
        self.replicates = trials.replicates()
        self.has_replicates = bool(self.seeds.is_enabled or self.replicates)
        self.front_order: FrontOrder | None = None
        if self.has_replicates:
            self.front_order = FrontOrder(list(self.candidates.values()), objectives, self.seeds,
                                          completed_candidates(trials))

    @property
    def confidence(self) -> float:
        """Confidence of the verdict."""
        return self.seeds.confidence if self.has_replicates else CONFIDENCE

    def notes(self, seed: int) -> list[str]:
        """Notes on seeds for reading the scores. ``seed`` is the search's."""
        noise = {name: one
                 for name, one in (self.front_order.noise if self.front_order else {}).items()
                 if one.is_known}
        if not noise:
            return [f"Training seed {seed}, one seed a candidate: differences within the noise of "
                    "a seed are no order."]
        first = next(iter(noise.values()))
        spread = ", ".join(f"{name} {one.sd:.3g}" for name, one in noise.items())
        return [f"Training seed {seed}; {first.n_candidates} candidates have further seeds, and "
                f"their scores are means. Standard deviation between seeds: {spread} (pooled, "
                f"{first.df} degrees of freedom). ± is the {format_percent(self.confidence)} "
                "interval of a mean, with the number of its seeds after it.",
                *self._failed_seed_notes()]

    def sentences(self) -> list[str]:
        """Describes which members and which order are beyond the noise; empty before the noise is known."""
        if self.front_order is None or not any(
                noise.is_known for noise in self.front_order.noise.values()):
            return []
        settled = "settled" if self.front_order.is_resolved else "not settled"
        head = (f"Who is on the front is {settled}, at {format_percent(self.confidence)} for each "
                f"comparison (intervals of {format_percent(self.front_order.level)}, since each "
                "seed is another look)")
        head += (":" if self.front_order.comparisons
                 else ": no other is so near that noise could have put it there.")
        beside = [pair for pair in self.front_order.comparisons if pair.type == CHALLENGER]
        words = ", ".join(f"trial {pair.second} ({self._differences(pair)} from trial {pair.first})"
                          for pair in beside)
        return [head,
                *(f"  {self._sentence(pair)}"
                  for pair in self.front_order.comparisons if pair.type == NEIGHBORS),
                *([f"  off the front, but within noise of it: {words}"] if beside else []),
                *self._ties(), *self._few_seeds_warning()]

    def _ties(self) -> list[str]:
        """Says which members' scores noise may have put in their order."""
        assert self.front_order is not None, "of several seeds"
        words = ", ".join(f"trials {one} and {other} ({self._difference(each)})"
                          for one, other, each in self.front_order.ties())
        return [f"The order of the members' scores is not settled: {words}."] if words else []

    def _few_seeds_warning(self) -> list[str]:
        """Warns of intervals by a noise that hardly anything is known of."""
        assert self.front_order is not None, "of several seeds"
        df = self.front_order.df
        return [f"Caution: the noise of seeds is known by {df} degree{'s' * (df != 1)} of freedom. "
                f"Below {MIN_DF}, it may be several times larger or smaller; more seeds would "
                "tell."] if df < MIN_DF else []

    def to_json(self) -> dict[str, object]:
        """JSON of all fields; what is infinite or unknown is None."""
        order = self.front_order
        known = order is not None and any(noise.is_known for noise in order.noise.values())
        return {**self.seeds.to_json(), "runs": len(self.replicates),
                "failed": sum(trial.state == State.FAILED for trial in self.replicates),
                "resolved": order.is_resolved if order and known else None,
                "order_resolved": not order.ties() if order and known else None,
                "level": order.level if order else None,
                "noise": {name: {"sd": one.sd, "df": one.df, "candidates": one.n_candidates}
                          for name, one in (order.noise if order else {}).items() if one.is_known},
                "comparisons": [self._json(pair) for pair in order.comparisons] if order and known
                else []}

    def _sentence(self, pair: PairComparison) -> str:
        """Describes the difference of two neighbors."""
        verdict = "beyond noise" if pair.is_resolved else "within noise"
        means = [", ".join(
            f"{one.objective} {self.candidates[number].mean(one.objective):.{decimals_for_interval(one.half_width)}f}"
            for one in pair.differences) for number in (pair.first, pair.second)]
        return (f"trial {pair.first} ({means[0]}) and trial {pair.second} ({means[1]}): "
                f"{self._differences(pair)}, {verdict}")

    def _differences(self, pair: PairComparison) -> str:
        return ", ".join(map(self._difference, pair.differences))

    @staticmethod
    def _difference(one: MeanDifference) -> str:
        decimals = decimals_for_interval(one.half_width)
        return f"{one.objective} {one.value:+.{decimals}f} ± {one.half_width:.{decimals}f}"

    def _json(self, pair: PairComparison) -> dict[str, object]:
        differences = {one.objective: {"difference": one.value, "half_width": one.half_width}
                       for one in pair.differences}
        counts = [self.candidates[number].completed_seeds for number in (pair.first, pair.second)]
        return {"type": pair.type, "trials": [pair.first, pair.second], "seeds": counts,
                "resolved": pair.is_resolved, "differences": differences}

    def _failed_seed_notes(self) -> list[str]:
        """A word on each seed that failed: the mean of the others is too good."""
        return [f"Trial {trial.original} failed with seed {trial.seed} ({trial.reason}), which its "
                "mean does not hold." for trial in self.replicates if trial.state == State.FAILED]
