"""Progress of a study and its remaining time, estimated from its runs.

The remaining work is counted in full-budget runs:

- compute of the search that no candidate has used yet,
- references that are not started,
- runs with further seeds.

A full run is assumed to take the mean time of the runs so far: the seconds of all complete, paused
and failed runs, divided by the number of full runs that this work corresponds to. Failed runs
therefore increase the estimate. In a study with rungs, each trial counts with its trained share.
A run with a further seed takes as long as the first run of the same trial. Before any run has
finished, the pace of the current runs is used, without the time for scoring.

The remaining runs are then assigned to the workers in order, each to the worker that is free first.
Further seeds start after the search, so their time is added. The time for further seeds of the
front is an upper bound, because replication stops when the order of the front is resolved.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scalesearch.studies.monitor.running import RunningTrial
from scalesearch.studies.replicates.summary import front_candidates, with_reference_allowance
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import Origin, State, Trial
from scalesearch.studies.trials.trials import Trials, allocated_full_runs

MAX_PARTS = 10_000  # above this number, the makespan is the mean load of the workers


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
    max_front_seeds = seeds.extra_runs if seeds.max_per_candidate > 1 else 0
    return StudyProgress(done, total, min(1.0, done / total) if total else 0.0, *parts,
                         (len(replicates) - len(reference_replicates), max_front_seeds))


def time_left(state: ProgressState, workers: int) -> Eta:
    """Estimate the remaining time with ``workers`` workers.

    See the module for the method.
    """
    run_seconds = full_run_seconds(state)
    if run_seconds is None:
        return Eta()
    replicates = {trial.number for trial in state.trials.replicates()}
    search = [_seconds_left(trial, run_seconds)
              for trial in state.running if trial.trial not in replicates]
    seeds = [_seconds_left(trial, run_seconds)
             for trial in state.running if trial.trial in replicates]
    if not seeds:  # once further seeds are in training, the search starts no more trials
        search += [run_seconds] * state.unstarted_references
        search += _remaining_search_runs(state, run_seconds)
    seeds += _remaining_reference_runs(state, run_seconds)
    front_seeds = [run_seconds] * _remaining_front_seeds(state)
    total = makespan(search, workers) + makespan([*seeds, *front_seeds], workers)
    return Eta(total, total - makespan(search, workers) - makespan(seeds, workers), run_seconds)


def full_run_seconds(state: ProgressState) -> float | None:
    """Estimate the seconds of a full-budget run from the runs so far; None if unknown."""
    total_seconds = total_runs = 0.0
    for trial in state.trials:
        share, seconds = _share_and_seconds(trial)
        total_seconds = total_seconds + seconds
        total_runs = total_runs + share
    if total_runs > 0 and total_seconds > 0:
        return total_seconds / total_runs
    paces = [trial.full_run_seconds
             for trial in state.running if trial.full_run_seconds is not None]
    return sum(paces) / len(paces) if paces else None


def _share_and_seconds(trial: Trial) -> tuple[float, float]:
    """Full-budget runs and seconds of an ended or paused trial.

    Both are 0 for an imported trial.
    """
    if trial.origin == Origin.IMPORTED:
        return 0.0, 0.0
    if trial.state in (State.COMPLETE, State.FAILED) and trial.wall_seconds is not None:
        return float(trial.state == State.COMPLETE), trial.wall_seconds
    last = trial.rungs[-1] if trial.rungs else None
    return (last.share, last.seconds) if last and last.share and last.seconds else (0.0, 0.0)


def _seconds_left(trial: RunningTrial, run_seconds: float) -> float:
    """Seconds until a trial pauses or ends.

    A trial that is being scored is assumed to end when ``run_seconds`` have elapsed.
    """
    if trial.seconds_left:
        return trial.seconds_left
    if trial.seconds_left is None:
        return run_seconds * max(0.0, trial.pause_share - trial.trained_share)
    return (max(0.0, run_seconds - trial.elapsed)
            if trial.elapsed is not None and trial.rung is None else 0.0)


def _remaining_search_runs(state: ProgressState, run_seconds: float) -> list[float]:
    """Seconds of the remaining runs of the search, to the first rung or the end."""
    remaining = max(0.0, state.planned.candidates
                    - state.trials.full_runs_spent(state.meta.rungs))
    first_share = state.meta.rungs.shares[0]
    count = int(remaining / first_share + 1e-9)
    remainder = remaining - count * first_share
    return ([first_share * run_seconds] * count
            + ([remainder * run_seconds] if remainder > 1e-9 else []))


def _remaining_reference_runs(state: ProgressState, run_seconds: float) -> list[float]:
    """Seconds of the remaining runs with further seeds of references."""
    per_reference = state.meta.seeds.references - 1
    started = Counter(trial.original for trial in state.trials.replicates())
    runs = [trial.wall_seconds or run_seconds for trial in state.repeated_references
            for _ in range(per_reference - started[trial.number])]
    return runs + [run_seconds] * state.unstarted_references * per_reference


def _remaining_front_seeds(state: ProgressState) -> int:
    """Maximum number of further seeds that the front may still get."""
    if state.meta.seeds.max_per_candidate < 2:
        return 0
    started = sum(candidate.started_seeds - 1
                  for candidate in front_candidates(state.trials, state.meta))
    return max(0, with_reference_allowance(state.trials, state.meta.seeds).extra_runs - started)


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
