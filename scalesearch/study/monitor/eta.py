"""Progress of a study and its time left, from what its trainings took so far.

What is left is counted in full trainings: of the search's compute what no candidate has taken yet, references that were
not begun, and further seeds. A full training is taken to last as long as the ones so far did: all seconds of finished,
paused and failed trainings over all the full trainings' worth that these were. So a failure makes the others dearer,
and with rungs every trial counts with the share it was trained for. A further seed of a finished training takes as long
as that. Before anything has finished, the pace of what is in training says it, without scoring.

The parts are then handed out to the workers, each to the one that is free first. Further seeds begin when the search is
over, so theirs comes on top. Those for the front are an upper limit: they end early where its members are settled.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scalesearch.study.monitor.running import RunningTrial
from scalesearch.study.replicates.summary import candidates_of, on_top
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State, Trial
from scalesearch.study.trials.trials import Trials, share_of

MAX_PARTS = 10_000  # parts that are handed out one by one


@dataclass(frozen=True)
class Wanted:
    """Trainings that a study wants: candidates (in full trainings' worth of compute) and references."""

    candidates: float
    references: int


@dataclass(frozen=True)
class Done:
    """Progress of a study in full trainings.

    Attributes:
        done, of: candidates, references, and the further seeds that each reference is to have; those for the front are
            not counted, since nobody knows how many it will take.
        share: from 0 to 1; 0 where nothing is wanted.
        candidates, references, reference_seeds: (done, of) of each.
        front_seeds: (trained, allowed at most) for the front.
    """

    done: float
    of: float
    share: float
    candidates: tuple[float, float]
    references: tuple[float, float]
    reference_seeds: tuple[float, float]
    front_seeds: tuple[int, int]


@dataclass(frozen=True)
class Eta:
    """Time left.

    Attributes:
        seconds: of all that is left; None while unknown.
        front_seeds: of these, at most so many for the front's further seeds.
        full: seconds that a full training is taken to last; None while unknown.
    """

    seconds: float | None = None
    front_seeds: float = 0.0
    full: float | None = None


@dataclass(frozen=True)
class Situation:
    """All that is known of a study at a moment; ``training`` is what is in training."""

    trials: Trials
    wanted: Wanted
    meta: StudyMeta
    training: Sequence[RunningTrial]

    @property
    def references(self) -> list[Trial]:
        """The references that were begun."""
        return self.trials.of(Origin.REFERENCE)

    @property
    def repeated(self) -> list[Trial]:
        """The trials that train these, each once, unless they failed: what gets their further seeds."""
        trained = {one.number: one for one in map(self.trials.outcome, self.references)}
        return [one for one in trained.values() if one.state in (State.PENDING, State.COMPLETE)]

    @property
    def unbegun(self) -> int:
        """Number of references that were not begun."""
        return max(0, self.wanted.references - len(self.references))


def done_so_far(now: Situation) -> Done:
    """Computes the progress of a study. Trainings under way count with the share that they have done."""
    share, rungs, seeds = {one.trial: one.share for one in now.training}, now.meta.rungs, now.meta.seeds

    def ended(trials: Iterable[Trial]) -> float:
        return sum((share.get(trial.number, 0.0) if trial.state == State.PENDING else 1.0 for trial in trials), 0.0)

    searched = sum(share.get(trial.number, 0.0) if trial.state == State.PENDING else share_of(trial, rungs)
                   for trial in now.trials if trial.origin.charged)
    replicates, named = now.trials.replicates(), {trial.number for trial in now.repeated}
    again = [trial for trial in replicates if trial.of in named] if seeds.references > 1 else []
    parts = ((searched, float(now.wanted.candidates)), (ended(now.references), float(now.wanted.references)),
             (ended(again), float((len(named) + now.unbegun) * (seeds.references - 1))))
    done, of = sum(min(part, most) for part, most in parts), sum(most for _, most in parts)
    return Done(done, of, min(1.0, done / of) if of else 0.0, *parts,
                (len(replicates) - len(again), seeds.trials if seeds.most > 1 else 0))


def time_left(now: Situation, workers: int) -> Eta:
    """Computes the time left with so many ``workers``; see this module for how."""
    full = seconds_of_one(now)
    if full is None:
        return Eta()
    replicates = {trial.number for trial in now.trials.replicates()}
    search = [_left(one, full) for one in now.training if one.trial not in replicates]
    seeds = [_left(one, full) for one in now.training if one.trial in replicates]
    if not seeds:  # nothing of the search can begin beside further seeds
        search += [full] * now.unbegun + _pieces(now, full)
    seeds += _due_to_references(now, full)
    total = handed_out(search, workers) + handed_out([*seeds, *[full] * _allowed(now)], workers)
    return Eta(total, total - handed_out(search, workers) - handed_out(seeds, workers), full)


def seconds_of_one(now: Situation) -> float | None:
    """Seconds of a full training, as they went so far; None before anything is known."""
    seconds = worth = 0.0
    for trial in now.trials:
        share, took = _taken(trial)
        seconds, worth = seconds + took, worth + share
    if worth > 0 and seconds > 0:
        return seconds / worth
    paces = [one.full_seconds for one in now.training if one.full_seconds is not None]
    return sum(paces) / len(paces) if paces else None


def _taken(trial: Trial) -> tuple[float, float]:
    """(full trainings' worth, seconds) of one that ended or waits; what another study trained says nothing here."""
    if trial.origin == Origin.IMPORTED:
        return 0.0, 0.0
    if trial.state in (State.COMPLETE, State.FAILED) and trial.wall_seconds is not None:
        return float(trial.state == State.COMPLETE), trial.wall_seconds
    last = trial.rungs[-1] if trial.rungs else None
    return (last.share, last.seconds) if last and last.share and last.seconds else (0.0, 0.0)


def _left(one: RunningTrial, full: float) -> float:
    """Seconds until ``one`` pauses or ends; scoring lasts until what a full training usually takes."""
    if one.seconds_left:
        return one.seconds_left
    if one.seconds_left is None:
        return full * max(0.0, one.until - one.share)
    return max(0.0, full - one.elapsed) if one.elapsed is not None and one.rung is None else 0.0


def _pieces(now: Situation, full: float) -> list[float]:
    """Trainings that the search has left: whole ones, or up to the first rung."""
    left = max(0.0, now.wanted.candidates - now.trials.spent(now.meta.rungs))
    piece = now.meta.rungs.shares[0]
    whole = int(left / piece + 1e-9)
    rest = left - whole * piece
    return [piece * full] * whole + ([rest * full] if rest > 1e-9 else [])


def _due_to_references(now: Situation, full: float) -> list[float]:
    """Seconds of the further seeds that references are still to be given."""
    each, begun = now.meta.seeds.references - 1, Counter(trial.of for trial in now.trials.replicates())
    left = [trial.wall_seconds or full for trial in now.repeated for _ in range(each - begun[trial.number])]
    return left + [full] * now.unbegun * each


def _allowed(now: Situation) -> int:
    """Number of further seeds that the front may still have."""
    if now.meta.seeds.most < 2:
        return 0
    begun = sum(one.tried - 1 for one in candidates_of(now.trials, now.meta.objectives))
    return max(0, on_top(now.trials, now.meta.seeds).trials - begun)


def handed_out(seconds: Iterable[float], workers: int) -> float:
    """Computes when the last training ends. Each begins in its turn, on the worker that is free first."""
    parts, free = list(seconds), [0.0] * max(1, workers)
    if len(parts) > MAX_PARTS:
        return sum(parts) / len(free)
    for part in parts:
        heapq.heapreplace(free, free[0] + part)
    return max(free)
