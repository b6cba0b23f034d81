"""Progress of a study, and its remaining time.

Work is counted in full-budget runs: training of one candidate to the end.

:func:`time_left` assumes that a full run takes the mean time of the runs so far: the seconds of all
complete, paused and failed runs, divided by the number of full runs that they correspond to. Failed
runs therefore increase the estimate. Before any run has finished, the pace of the current runs is
used, with their start-up but without the time for scoring. A run with a further seed takes as long
as the first run of the same trial.

Runs are assigned to the workers in order, each to the worker that is free first, or waits for
results as in :mod:`scalesearch.schedule`. Further seeds start after the search, so their time is
added. The time for further seeds of the front is an upper
bound, because replication stops when the order of the front is resolved.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scalesearch.schedule import MIN_IN_TRAINING
from scalesearch.studies.replicates.summary import StudyView
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import Origin, State, Trial
from scalesearch.studies.trials.trials import Trials, allocated_full_runs

MAX_PARTS = 10_000  # above this number, the makespan is the mean load of the workers


@dataclass(frozen=True)
class RunningTrial:
    """A trial that is in training or waits for a worker.

    Attributes:
        type: candidate, reference or replicate.
        name: label, or number if it has none; for a replicate also the seed.
        attempt: number of starts; resuming from a rung does not count.
        status: ``starting``, ``training``, ``scoring``, ``waiting`` (for a worker), ``silent``
            (the worker has no recent heartbeat) or ``interrupted`` (the study has ended).
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
        if self.seconds_left != 0:
            # the pace of the updates is without validation and start-up
            return max(self.seconds_left or 0.0,
                       run_seconds * (self.pause_share - self.trained_share))
        if self.elapsed is None or self.rung is not None:
            return 0.0
        return max(0.0, run_seconds - self.elapsed)


def makespan(seconds: Iterable[float], workers: int, max_share: float = 1.0,
             min_count: float = 1) -> float:
    """Compute when the last of several runs ends.

    The runs start in the given order, each on the worker that is free first (list scheduling). At
    most ``max_share`` of the remaining runs, or ``min_count``, are in training at once.
    """
    runs = list(seconds)
    workers = max(1, workers)
    if len(runs) > MAX_PARTS:
        return sum(runs) / workers
    clock = 0.0
    ends: list[float] = []  # of the runs in training
    for index, run in enumerate(runs):
        while len(ends) + 1 > min(
                workers, max(min_count, max_share * (len(runs) - index + len(ends)))):
            clock = heapq.heappop(ends)
        heapq.heappush(ends, clock + run)
    return max(ends, default=0.0)


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
    """State of a study at one time.

    Attributes:
        planned_candidates: compute for candidates, in full-budget runs.
        planned_references: number of references.
        running: the trials in training.
    """

    trials: Trials
    planned_candidates: float
    planned_references: int
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
        return max(0, self.planned_references - len(self.references))


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
    planned_replicates = (len(references) + state.unstarted_references) * (seeds.references - 1)
    parts = ((searched, float(state.planned_candidates)),
             (completed_runs(state.references), float(state.planned_references)),
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
        remaining = max(0.0, state.planned_candidates - trials.full_runs_spent(rungs))
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
    max_share = state.meta.sampler.max_in_training if state.meta.sampler else 1.0
    search_seconds = makespan(search, workers, max_share, MIN_IN_TRAINING / rungs.shares[0])
    seeds_seconds = makespan([*seeds, *front_seeds], workers)
    return Eta(search_seconds + seeds_seconds, seeds_seconds - makespan(seeds, workers),
               run_seconds)


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
            total_seconds += (sum([effort.seconds for effort in trial.efforts.values()])
                              or last.seconds)
            total_runs += last.share
    if total_runs > 0 and total_seconds > 0:
        return total_seconds / total_runs
    # Time of a running trial without updates is mostly its start-up.
    paces = [trial.full_run_seconds + max(0.0, (trial.elapsed or 0.0) - (trial.seconds or 0.0))
             for trial in state.running if trial.full_run_seconds is not None]
    return sum(paces) / len(paces) if paces else None
