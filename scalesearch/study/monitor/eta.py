"""Progress of a study and its time left, from what its trainings took so far.

What is left is counted in full trainings: of the search's compute what no candidate has taken yet, references that were
not begun, and further seeds. A full training is taken to last as long as the ones so far did: all seconds of finished,
paused and failed trainings over all the full trainings' worth that these were. So a failure, which takes nobody's
place, makes the others dearer, and with rungs everyone that was stopped early counts with the share it was trained for.
A further seed of a finished training takes as long as that. Before anything has finished, the pace of what is in
training says it, without scoring; before that, nothing does.

The parts are then handed out to the workers, each to whoever is free first. Further seeds begin when the search is
over, so theirs comes on top. Those for the front are an upper limit: they end early where its order is settled.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scalesearch.study.monitor.running import RunningTrial
from scalesearch.study.replicates.summary import candidates_of, on_top
from scalesearch.study.trials.compute import share_of, spent
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State, Trial
from scalesearch.study.trials.trials import Trials

MAX_PARTS = 10_000  # parts that are handed out one by one


@dataclass(frozen=True)
class Wanted:
    """Trainings that a study wants: candidates (in full trainings' worth of compute) and references."""

    candidates: int
    references: int


@dataclass(frozen=True)
class Done:
    """Progress of a study in full trainings.

    Attributes:
        done, of: candidates, references, and the further seeds that each reference is to have; those for the front are
            not counted, since nobody knows how many it will take.
        candidates, references, reference_seeds: (done, of) of each.
        front_seeds: (trained, allowed at most) for the front.
    """

    done: float
    of: float
    candidates: tuple[float, float]
    references: tuple[float, float]
    reference_seeds: tuple[float, float]
    front_seeds: tuple[int, int]

    @property
    def share(self) -> float:
        """From 0 to 1; 0 where nothing is wanted."""
        return min(1.0, self.done / self.of) if self.of else 0.0

    def to_json(self) -> dict[str, Any]:
        """Its fields, and the share."""
        return {**asdict(self), "share": self.share}


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

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


@dataclass(frozen=True)
class Situation:
    """All that is known of a study at a moment.

    Attributes:
        training: what is in training.
    """

    trials: Trials
    wanted: Wanted
    meta: StudyMeta
    training: Sequence[RunningTrial]

    def of(self, origin: Origin) -> list[Trial]:
        """The trials of one origin."""
        return self.trials.of(origin)

    def of_references(self) -> list[Trial]:
        """Further seeds of references."""
        if self.meta.seeds.references < 2:
            return []
        return [trial for trial in self.of(Origin.REPLICATE) if self._first(trial).origin == Origin.REFERENCE]

    def _first(self, trial: Trial) -> Trial:
        return self.trials.get(trial.of) or trial


def done_so_far(now: Situation) -> Done:
    """Computes the progress of a study. Trainings under way count with the share that they have done."""
    share = {one.trial: one.share for one in now.training}
    pending = [trial for trial in now.trials.having(State.PENDING) if trial.origin.charged]
    searched = spent(now.trials, now.meta.rungs) - sum(share_of(trial, now.meta.rungs) for trial in pending)
    searched += sum(share.get(trial.number, 0.0) for trial in pending)
    again = now.of_references()
    references, seeded = _ended(now.of(Origin.REFERENCE), share), _ended(again, share)
    parts = ((searched, float(now.wanted.candidates)), (references, float(now.wanted.references)),
             (seeded, float(_seeds_of_references(now))))
    done = sum(min(part, of) for part, of in parts)
    return Done(done, sum(of for _, of in parts), *parts,
                (len(now.of(Origin.REPLICATE)) - len(again), now.meta.seeds.trials if now.meta.seeds.most > 1 else 0))


def _ended(trials: Sequence[Trial], share: Mapping[int, float]) -> float:
    """Number of ``trials`` that have ended; those under way count by their shares."""
    return sum((share.get(trial.number, 0.0) if trial.state == State.PENDING else 1.0 for trial in trials), 0.0)


def _seeds_of_references(now: Situation) -> int:
    """Number of further seeds that references need: none where their training failed, or was another's."""
    able = now.wanted.references - sum(trial.state not in (State.PENDING, State.COMPLETE)
                                       for trial in now.of(Origin.REFERENCE))
    return max(0, able) * (now.meta.seeds.references - 1)


def time_left(now: Situation, workers: int) -> Eta:
    """Computes the time left with so many ``workers``; see this module for how."""
    full = seconds_of_one(now)
    if full is None:
        return Eta()
    under_way = {one.trial: _left(one, full) for one in now.training}
    again = {trial.number for trial in now.of(Origin.REPLICATE)}
    search = [seconds for number, seconds in under_way.items() if number not in again]
    seeds_begun = len(search) < len(under_way)  # nothing of the search can go on then
    search += [] if seeds_begun else [full] * max(0, now.wanted.references - len(now.of(Origin.REFERENCE)))
    search += [] if seeds_begun else _pieces(now, full)
    due = [seconds for number, seconds in under_way.items() if number in again] + _due_to_references(now, full)
    optional = [full] * _allowed(now)
    without = handed_out(search, workers) + handed_out(due, workers)
    total = handed_out(search, workers) + handed_out([*due, *optional], workers)
    return Eta(total, total - without, full)


def seconds_of_one(now: Situation) -> float | None:
    """Seconds of a full training, as they went so far; None before anything is known."""
    seconds = worth = 0.0
    for trial in now.trials:
        share, took = _taken(trial, now)
        seconds, worth = seconds + took, worth + share
    if worth > 0 and seconds > 0:
        return seconds / worth
    paces = [one.full_seconds for one in now.training if one.full_seconds is not None]
    return sum(paces) / len(paces) if paces else None


def _taken(trial: Trial, now: Situation) -> tuple[float, float]:
    """(full trainings' worth, seconds) of one that ended or waits; what another study trained says nothing here."""
    if trial.origin == Origin.IMPORTED:
        return 0.0, 0.0
    if trial.state == State.COMPLETE and trial.wall_seconds is not None:
        return 1.0, trial.wall_seconds
    if trial.state == State.FAILED and trial.wall_seconds is not None:
        return 0.0, trial.wall_seconds
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
    left = max(0.0, now.wanted.candidates - spent(now.trials, now.meta.rungs))
    piece = now.meta.rungs.shares[0]
    whole = int(left / piece + 1e-9)
    rest = left - whole * piece
    return [piece * full] * whole + ([rest * full] if rest > 1e-9 else [])


def _due_to_references(now: Situation, full: float) -> list[float]:
    """Seconds of the further seeds that references are still to be given."""
    begun: dict[int | None, int] = {}
    for trial in now.of(Origin.REPLICATE):
        begun[trial.of] = begun.get(trial.of, 0) + 1
    there = [trial for trial in now.of(Origin.REFERENCE) if trial.state in (State.PENDING, State.COMPLETE)]
    left = [trial.wall_seconds or full for trial in there
            for _ in range(now.meta.seeds.references - 1 - begun.get(trial.number, 0))]
    unbegun = max(0, now.wanted.references - len(now.of(Origin.REFERENCE)))
    return left + [full] * unbegun * (now.meta.seeds.references - 1)


def _allowed(now: Situation) -> int:
    """Number of further seeds that the front may still have."""
    if now.meta.seeds.most < 2:
        return 0
    begun = sum(one.tried - 1 for one in candidates_of(now.trials))
    return max(0, on_top(now.trials, now.meta.seeds).trials - begun)


def handed_out(seconds: Iterable[float], workers: int) -> float:
    """Computes when the last training ends. Each begins in its turn, on the worker that is free first."""
    parts, free = list(seconds), [0.0] * max(1, workers)
    if len(parts) > MAX_PARTS:
        return sum(parts) / len(free)
    for part in parts:
        heapq.heapreplace(free, free[0] + part)
    return max(free)
