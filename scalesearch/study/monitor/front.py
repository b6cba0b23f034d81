"""Front so far: some of its members, hypervolume and its latest change."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import default_reference_point, hypervolume
from scalesearch.pareto.objective import Objective
from scalesearch.study.replicates.replicated import ReplicatedTrial
from scalesearch.study.replicates.summary import (
    completed_candidates,
    front_candidates,
    with_replicates,
)
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State
from scalesearch.study.trials.trials import Trials

MAX_MEMBERS_SHOWN = 6


@dataclass(frozen=True)
class FrontMember:
    """A complete candidate; its values are means over its ``seeds``."""

    trial: int
    label: str | None
    architecture: str | None
    seeds: int
    values: dict[str, float]


@dataclass(frozen=True)
class FrontHypervolume:
    """Hypervolume of the front, and its growth by the latest member.

    Attributes:
        value: hypervolume with respect to ``reference_point``.
        gain: growth of the hypervolume by ``trial``, the member of the front that ended last. The
            hypervolume before it uses the same reference point.
        ended_at: end of ``trial`` in seconds since the epoch; None if another study trained it.
    """

    value: float
    reference_point: dict[str, float]
    gain: float
    trial: int
    ended_at: float | None


@dataclass(frozen=True)
class FrontSnapshot:
    """The best candidates so far.

    Attributes:
        size: number of members of the front; 0 if only references outside the space are complete.
        main_objective: objective by which members are sorted, best first.
        members: some members, evenly spaced, with the first and the last one; references if
            ``size`` is 0.
    """

    objectives: dict[str, str]
    main_objective: str
    size: int = 0
    members: tuple[FrontMember, ...] = ()
    hypervolume: FrontHypervolume | None = None


def front_snapshot(meta: StudyMeta, trials: Trials) -> FrontSnapshot:
    """Compute the front, its hypervolume and some members.

    If no trial is eligible, the members are the complete references.
    """
    objectives = meta.objectives
    main = meta.main_objective
    sign = next(objective.sign for objective in objectives if objective.name == main)
    candidates = front_candidates(trials, meta)
    if not candidates:
        references = [trial for trial in trials.with_state(State.COMPLETE)
                      if trial.origin == Origin.REFERENCE]
        rows = sorted(with_replicates(trials, references),
                      key=lambda candidate: sign * candidate.mean(main))
        return FrontSnapshot(meta.directions, main, 0,
                             tuple(_member(row, objectives) for row in _evenly_spaced(rows)))
    values = np.array([[candidate.mean(objective.name) for objective in objectives]
                       for candidate in candidates], float)
    on_front = pareto_front(values, list(meta.directions.values()))
    members = sorted(compress(candidates, on_front),
                     key=lambda candidate: sign * candidate.mean(main))
    return FrontSnapshot(meta.directions, main, len(members),
                         tuple(_member(row, objectives) for row in _evenly_spaced(members)),
                         _front_hypervolume(candidates, values, on_front, objectives,
                                            completed_candidates(trials)))


def _evenly_spaced(rows: list[ReplicatedTrial]) -> list[ReplicatedTrial]:
    if len(rows) <= MAX_MEMBERS_SHOWN:
        return rows
    return [rows[round(index)] for index in np.linspace(0, len(rows) - 1, MAX_MEMBERS_SHOWN)]


def _member(candidate: ReplicatedTrial, objectives: Sequence[Objective]) -> FrontMember:
    values = {objective.name: candidate.mean(objective.name) for objective in objectives}
    return FrontMember(candidate.number, candidate.first.label, candidate.first.architecture,
                       candidate.completed_seeds, values)


def _front_hypervolume(candidates: list[ReplicatedTrial], values: NDArray[np.float64],
                       on_front: NDArray[np.bool_], objectives: Sequence[Objective],
                       completed: list[ReplicatedTrial]) -> FrontHypervolume:
    """Hypervolume and its growth by the member of the front that ended last.

    Trials that ended after this member did not change the hypervolume.

    Args:
        candidates: trials that may be on the front.
        values: (candidates, objectives).
        on_front: (candidates,) mask of the front.
        completed: all complete trials; the reference point is beyond the worst of them.
    """
    directions: list[str] = [objective.direction for objective in objectives]
    completed_values = [[candidate.mean(objective.name) for objective in objectives]
                        for candidate in completed]
    reference_point = default_reference_point(np.array(completed_values, float), directions)
    ends = [_time_stamp(candidate.first.ended_at) for candidate in candidates]
    # Ranks instead of times: trials that ended in the same millisecond are ordered by number.
    order = np.argsort(np.argsort([-1.0 if end is None else end for end in ends], kind="stable"))
    latest = int(np.flatnonzero(on_front)[order[on_front].argmax()])
    before = values[order < order[latest]]
    value = hypervolume(values[on_front], reference_point, directions)
    gain = value - hypervolume(before[pareto_front(before, directions)], reference_point,
                               directions)
    names = (objective.name for objective in objectives)
    return FrontHypervolume(value, dict(zip(names, reference_point)), gain,
                            candidates[latest].number, ends[latest])


def _time_stamp(ended_at: str | None) -> float | None:
    return None if ended_at is None else datetime.fromisoformat(ended_at).timestamp()
