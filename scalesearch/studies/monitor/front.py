"""Front so far: some of its members, hypervolume and its latest change."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.objective import Objective
from scalesearch.studies.replicates.allocation import ReplicatedTrial
from scalesearch.studies.replicates.summary import StudyView
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import Origin, State
from scalesearch.studies.trials.trials import Trials

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
    view = StudyView(trials, meta)
    size = 0
    if view.candidates:
        rows = view.members
        size = len(rows)
    else:
        rows = view.with_replicates(trial for trial in trials.with_state(State.COMPLETE)
                                    if trial.origin == Origin.REFERENCE)
    rows.sort(key=lambda candidate: sign * candidate.mean(main))
    return FrontSnapshot(meta.directions, main, size,
                         tuple(_member(row, objectives) for row in _evenly_spaced(rows)),
                         _front_hypervolume(view) if view.candidates else None)


def _evenly_spaced(rows: list[ReplicatedTrial]) -> list[ReplicatedTrial]:
    if len(rows) <= MAX_MEMBERS_SHOWN:
        return rows
    return [rows[round(index)] for index in np.linspace(0, len(rows) - 1, MAX_MEMBERS_SHOWN)]


def _member(candidate: ReplicatedTrial, objectives: Sequence[Objective]) -> FrontMember:
    values = {objective.name: candidate.mean(objective.name) for objective in objectives}
    return FrontMember(candidate.number, candidate.first.label, candidate.first.architecture,
                       candidate.completed_seeds, values)


def _front_hypervolume(view: StudyView) -> FrontHypervolume:
    """Compute the hypervolume of the front, and its growth by the latest member."""
    ends = [_time_stamp(candidate.first.ended_at) for candidate in view.candidates]
    # Ranks instead of times: trials that ended in the same millisecond are ordered by number.
    order = np.argsort(np.argsort([-1.0 if end is None else end for end in ends], kind="stable"))
    latest = int(np.flatnonzero(view.on_front)[order[view.on_front].argmax()])
    before = view.values[order < order[latest]]
    value = view.hypervolume(view.values[view.on_front])
    gain = value - view.hypervolume(before[pareto_front(before, view.directions)])
    return FrontHypervolume(value, dict(zip(view.meta.directions, view.reference_point)), gain,
                            view.candidates[latest].number, ends[latest])


def _time_stamp(ended_at: str | None) -> float | None:
    return None if ended_at is None else datetime.fromisoformat(ended_at).timestamp()
