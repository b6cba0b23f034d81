"""Trials of a study, as a fold of its events.

The same fold runs live and after a crash.

Compute is measured in full-budget runs: training of one candidate to the end.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

from scalesearch.report.records import validation_loss_name
from scalesearch.schedule import Rungs
from scalesearch.studies.trials.trial import EventType, Origin, State, Trial, TrialEvent
from scalesearch.terminal import format_count
from scalesearch.training.effort import PHASES, Effort, sum_efforts


class Trials:
    """Trials of a study by number.

    Attributes:
        events: number of events that were applied.
        wall_seconds: wall-clock time up to the last event, without pauses between two runs of the
            study.
    """

    def __init__(self) -> None:
        self.events = 0
        self.wall_seconds = 0.0
        self._in_training: set[int] = set()
        self._last_time: datetime | None = None
        self._trials: dict[int, Trial] = {}
        self._first: dict[str, int] = {}

    def apply(self, event: TrialEvent) -> Trial:
        """Apply an event and return the trial after it.

        Raises:
            ValueError: the trial was never proposed, or is proposed again.
        """
        previous = self._trials.get(event.trial)
        if (previous is None) != (event.proposed_trial is not None):
            raise ValueError(f"trial {event.trial} was "
                             f"{'never' if previous is None else 'already'} proposed")
        trial = previous.apply(event) if previous else event.proposed_trial
        assert trial is not None
        if event.proposed_trial and trial.identity and trial.origin != Origin.REPLICATE \
                and trial.state in (State.PENDING, State.COMPLETE, State.FAILED):
            self._first.setdefault(trial.identity, trial.number)
        self._trials[trial.number] = trial
        self.events += 1
        if not event.time or event.proposed_trial is not None:
            return trial
        time = datetime.fromisoformat(event.time)
        is_start = event.type == EventType.STARTED
        if is_start and event.trial in self._in_training:
            self._in_training = set()  # the study was killed and resumed
        if self._in_training and self._last_time is not None:
            self.wall_seconds += (time - self._last_time).total_seconds()
        self._last_time = time
        if is_start:
            self._in_training.add(event.trial)
        else:
            self._in_training.discard(event.trial)
        return trial

    def __getitem__(self, number: int) -> Trial:
        return self._trials[number]

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        """Iterate over a copy, because displays read while the driver adds trials."""
        return iter(list(self._trials.values()))

    @property
    def next_number(self) -> int:
        """Number of the next trial; a repaired study may lack some of the earlier ones."""
        return max(self._trials, default=-1) + 1

    def get(self, number: int | None) -> Trial | None:
        """Return trial ``number``, or None."""
        return None if number is None else self._trials.get(number)

    def first_with_identity(self, identity: str | None) -> Trial | None:
        """Return the first trial with this architecture and recipe that is or was trained."""
        return self.get(self._first.get(identity)) if identity else None

    def with_state(self, *states: State) -> list[Trial]:
        """Return the trials in any of ``states``, in order."""
        return [trial for trial in self if trial.state in states]

    def with_origin(self, *origins: Origin) -> list[Trial]:
        """Return the trials of any of ``origins``, in order."""
        return [trial for trial in self if trial.origin in origins]

    def candidates(self) -> list[Trial]:
        """Return all trials except replicates, in order."""
        return [trial for trial in self if trial.origin != Origin.REPLICATE]

    def replicates(self) -> list[Trial]:
        """Return the replicates, in order."""
        return self.with_origin(Origin.REPLICATE)

    def resolve_duplicate(self, trial: Trial) -> Trial:
        """Return the trial that has the result of ``trial``: itself, or its original."""
        return (self.get(trial.original) if trial.state == State.DUPLICATE else None) or trial

    def paused_reference(self) -> Trial | None:
        """Return a paused trial that is also a reference, and must be trained to the end."""
        outcomes = (self.resolve_duplicate(trial) for trial in self.with_origin(Origin.REFERENCE))
        return next((trial for trial in outcomes if trial.state == State.PAUSED), None)

    def full_runs_spent(self, rungs: Rungs) -> float:
        """Return the full-budget runs of the search so far, running ones included."""
        return sum(allocated_full_runs(trial, rungs) for trial in self if trial.origin.charged)

    def full_runs_allowed(self, rungs: Rungs, max_full_runs: float, compute: float | None) -> float:
        """Return the limit of the search in full-budget runs.

        A limit of CPU-seconds is converted by the mean CPU time of the runs so far; before the
        first run, it has no effect.

        Args:
            rungs: rungs of the study.
            max_full_runs: limit in full-budget runs.
            compute: limit in CPU-seconds, or None.
        """
        trained = [trial for trial in self
                   if trial.origin.charged and trial.source is None and trial.efforts]
        n_runs = sum(completed_full_runs(trial, rungs) for trial in trained)
        if compute is None or not n_runs:
            return max_full_runs
        efforts = sum_efforts(*(trial.efforts for trial in trained))
        cpu_seconds = sum(effort.cpu_seconds for effort in efforts.values())
        if not cpu_seconds:
            return max_full_runs
        return min(max_full_runs, n_runs * compute / cpu_seconds)

    def describe_complete(self, is_search: bool) -> str:
        """Describe how many trials are complete: ``5 candidates and 1 reference``.

        Args:
            is_search: whether the study has candidates, or only named architectures.
        """
        complete = [trial for trial in self.candidates() if trial.state == State.COMPLETE]
        n_references = sum(trial.origin == Origin.REFERENCE for trial in complete)
        n_imported = sum(trial.origin == Origin.IMPORTED for trial in complete)
        if not is_search:
            return format_count(n_references, "architecture")
        parts = [format_count(len(complete) - n_references - n_imported, "candidate")]
        parts += [format_count(count, noun) for count, noun in (
            (n_references, "reference"), (n_imported, "imported candidate")) if count]
        return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)

    @property
    def loss_name(self) -> str:
        """Name of the validation loss by which trials are compared."""
        return next((validation_loss_name(trial.config) for trial in self if trial.config),
                    "validation_loss")

    def describe_pause(self, trial: Trial, costs: Mapping[str, str]) -> str:
        """Describe the rung at which ``trial`` is paused, and its rank there.

        Args:
            costs: cost objectives, with their directions.
        """
        rung = len(trial.rungs) - 1
        loss = trial.rungs[rung].loss
        others = [other for other in self.candidates()
                  if len(other.rungs) > rung and other.number != trial.number]
        better = [other for other in others if other.rungs[rung].loss < loss]
        signs = {name: 1 if direction == "min" else -1 for name, direction in costs.items()}
        dominating = [other for other in better
                      if all(signs[name] * other.costs[name] <= signs[name] * trial.costs[name]
                             for name in costs)]
        return (f"paused at rung {rung + 1}: its loss has rank {len(better) + 1} of "
                f"{len(others) + 1}; lower loss at no higher cost: "
                f"{format_count(len(dominating), 'trial')}")

    def efforts(self) -> dict[str, Effort]:
        """Return the sums of the efforts of all runs of this study."""
        return sum_efforts(*(trial.efforts for trial in self if trial.source is None))

    def mean_phases(self) -> dict[str, float]:
        """Return the mean wall-clock seconds of each phase of the complete runs of this study.

        Empty if no run has measured them.
        """
        runs = [trial.phases for trial in self.with_state(State.COMPLETE)
                if trial.source is None and trial.phases]
        return {phase: sum(run.get(phase, 0.0) for run in runs) / len(runs)
                for phase in PHASES} if runs else {}


def completed_full_runs(trial: Trial, rungs: Rungs) -> float:
    """Return the share of a full-budget run at the last rung or the end of ``trial``."""
    if trial.state == State.COMPLETE:
        return 1.0
    return rungs.shares[len(trial.rungs) - 1] if trial.rungs else 0.0


def full_run_cpu_seconds(trial: Trial) -> float | None:
    """Return the CPU-seconds of a full-budget run, extrapolated from the run so far.

    The result is None for an imported trial, and before its first rung.
    """
    share = 1.0 if trial.state == State.COMPLETE else trial.rungs[-1].share if trial.rungs else None
    cpu_seconds = sum(effort.cpu_seconds for effort in trial.efforts.values())
    return cpu_seconds / share if share and cpu_seconds and trial.source is None else None


def allocated_full_runs(trial: Trial, rungs: Rungs) -> float:
    """Return the share of a full-budget run that ``trial`` has taken or is taking."""
    reached = len(trial.rungs)
    if trial.state == State.COMPLETE:
        return 1.0
    if trial.state == State.PENDING:
        return rungs.shares[min(reached, rungs.n_pauses)]
    # A failure between rungs does not count: another candidate is trained instead.
    return rungs.shares[reached - 1] if reached and trial.state in (
        State.PAUSED, State.FAILED) else 0.0
