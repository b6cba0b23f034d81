"""Progress of a study and its time left, from what its trainings took so far.

What is left is counted in full trainings: of the search's compute what no candidate has taken yet,
references that were not begun, and further seeds. A full training is taken to last as long as the
ones so far did: all seconds of finished, paused and failed trainings over all the full trainings'
worth that these were. So a failure makes the others dearer, and with rungs every trial counts with
the share it was trained for. A further seed of a finished training takes as long as that. Before
anything has finished, the pace of what is in training says it, without scoring.

The parts are then handed out to the workers, each to the one that is free first. Further seeds
begin when the search is over, so theirs comes on top. Those for the front are an upper limit: they
end early where its members are settled.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scalesearch.study.monitor.running import RunningTrial
from scalesearch.study.replicates.summary import front_candidates, with_reference_allowance
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State, Trial
from scalesearch.study.trials.trials import Trials, allocated_full_runs

MAX_PARTS = 10_000  # parts that are handed out one by one


@dataclass(frozen=True)
class PlannedWork:
    """Trainings that a study wants: candidates (in full trainings' worth of compute) and references."""

    candidates: float
    references: int


@dataclass(frozen=True)
class StudyProgress:
    """Progress of a study in full trainings.

    Attributes:
        done, total: candidates, references, and the further seeds that each reference is to have;
            those for the front are
            not counted, since nobody knows how many it will take.
        share: from 0 to 1; 0 where nothing is wanted.
        candidates, references, reference_seeds: (done, of) of each.
        front_seeds: (trained, allowed at most) for the front.
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
    """Time left.

    Attributes:
        seconds: of all that is left; None while unknown.
        front_seeds: of these, at most so many for the front's further seeds.
        full_run_seconds: seconds that a full training is taken to last; None while unknown.
    """

    seconds: float | None = None
    front_seeds: float = 0.0
    full_run_seconds: float | None = None


@dataclass(frozen=True)
class ProgressState:
    """All that is known of a study at a moment; ``running`` is what is in training."""

    trials: Trials
    planned: PlannedWork
    meta: StudyMeta
    running: Sequence[RunningTrial]

    @property
    def references(self) -> list[Trial]:
        """The references that were begun."""
        return self.trials.with_origin(Origin.REFERENCE)

    @property
    def repeated_references(self) -> list[Trial]:
        """The trials that train these, each once, unless they failed: what gets their further seeds."""
        trained = {one.number: one for one in map(self.trials.resolve_duplicate, self.references)}
        return [one for one in trained.values() if one.state in (State.PENDING, State.COMPLETE)]

    @property
    def unstarted_references(self) -> int:
        """Number of references that were not begun."""
        return max(0, self.planned.references - len(self.references))


def study_progress(state: ProgressState) -> StudyProgress:
    """Computes the progress of a study.

    Trainings under way count with the share that they have done.
    """
    share = {one.trial: one.trained_share for one in state.running}
    rungs = state.meta.rungs
    seeds = state.meta.seeds

    def ended(trials: Iterable[Trial]) -> float:
        return sum((share.get(trial.number, 0.0) if trial.state == State.PENDING else 1.0
                    for trial in trials), 0.0)

    searched = sum(share.get(trial.number, 0.0) if trial.state == State.PENDING
                   else allocated_full_runs(trial, rungs)
                   for trial in state.trials if trial.origin.charged)
    replicates = state.trials.replicates()
    named = {trial.number for trial in state.repeated_references}
    again = [trial
             for trial in replicates if trial.original in named] if seeds.references > 1 else []
    parts = ((searched, float(state.planned.candidates)),
             (ended(state.references), float(state.planned.references)),
             (ended(again),
              float((len(named) + state.unstarted_references) * (seeds.references - 1))))
    done = sum(min(part, most) for part, most in parts)
    of = sum(most for _, most in parts)
    return StudyProgress(done, of, min(1.0, done / of) if of else 0.0, *parts,
                         (len(replicates) - len(again),
                          seeds.extra_runs if seeds.max_per_candidate > 1 else 0))


def time_left(state: ProgressState, workers: int) -> Eta:
    """Computes the time left with so many ``workers``; see this module for how."""
    full = full_run_seconds(state)
    if full is None:
        return Eta()
    replicates = {trial.number for trial in state.trials.replicates()}
    search = [_left(one, full) for one in state.running if one.trial not in replicates]
    seeds = [_left(one, full) for one in state.running if one.trial in replicates]
    if not seeds:  # nothing of the search can begin beside further seeds
        search += [full] * state.unstarted_references + _remaining_search_runs(state, full)
    seeds += _remaining_reference_runs(state, full)
    total = makespan(search, workers) + makespan(
        [*seeds, *[full] * _remaining_front_seeds(state)], workers)
    return Eta(total, total - makespan(search, workers) - makespan(seeds, workers), full)


def full_run_seconds(state: ProgressState) -> float | None:
    """Seconds of a full training, as they went so far; None before anything is known."""
    seconds = worth = 0.0
    for trial in state.trials:
        share, took = _share_and_seconds(trial)
        seconds = seconds + took
        worth = worth + share
    if worth > 0 and seconds > 0:
        return seconds / worth
    paces = [one.full_run_seconds for one in state.running if one.full_run_seconds is not None]
    return sum(paces) / len(paces) if paces else None


def _share_and_seconds(trial: Trial) -> tuple[float, float]:
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
        return full * max(0.0, one.pause_share - one.trained_share)
    return max(0.0, full - one.elapsed) if one.elapsed is not None and one.rung is None else 0.0


def _remaining_search_runs(now: ProgressState, full: float) -> list[float]:
    """Trainings that the search has left: whole ones, or up to the first rung."""
    left = max(0.0, now.planned.candidates - now.trials.full_runs_spent(now.meta.rungs))
    piece = now.meta.rungs.shares[0]
    whole = int(left / piece + 1e-9)
    rest = left - whole * piece
    return [piece * full] * whole + ([rest * full] if rest > 1e-9 else [])


def _remaining_reference_runs(now: ProgressState, full: float) -> list[float]:
    """Seconds of the further seeds that references are still to be given."""
    each = now.meta.seeds.references - 1
    begun = Counter(trial.original for trial in now.trials.replicates())
    left = [trial.wall_seconds or full for trial in now.repeated_references
            for _ in range(each - begun[trial.number])]
    return left + [full] * now.unstarted_references * each


def _remaining_front_seeds(now: ProgressState) -> int:
    """Number of further seeds that the front may still have."""
    if now.meta.seeds.max_per_candidate < 2:
        return 0
    begun = sum(one.started_seeds - 1 for one in front_candidates(now.trials, now.meta.objectives))
    return max(0, with_reference_allowance(now.trials, now.meta.seeds).extra_runs - begun)


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Computes when the last training ends.

    Each begins in its turn, on the worker that is free first.
    """
    parts = list(seconds)
    free = [0.0] * max(1, workers)
    if len(parts) > MAX_PARTS:
        return sum(parts) / len(free)
    for part in parts:
        heapq.heapreplace(free, free[0] + part)
    return max(free)
