"""Front of a study so far: a few of its members, its hypervolume, and what the youngest brought."""

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
from scalesearch.study.replicates.summary import completed_candidates, front_candidates, with_replicates
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State
from scalesearch.study.trials.trials import Trials

MAX_MEMBERS_SHOWN = 6


@dataclass(frozen=True)
class FrontMember:
    """A finished candidate; its values are means over its ``seeds``."""

    trial: int
    label: str | None
    architecture: str | None
    seeds: int
    values: dict[str, float]


@dataclass(frozen=True)
class FrontHypervolume:
    """The hypervolume of the front against ``reference_point``, and what its youngest member brought.

    Attributes:
        gain: by how much the volume grew with ``trial``, all finished before it counted against the
            same corner.
        ended_at: it was finished, in seconds since the epoch; None for one that came from another
            study.
    """

    value: float
    reference_point: dict[str, float]
    gain: float
    trial: int
    ended_at: float | None


@dataclass(frozen=True)
class FrontSnapshot:
    """The best so far.

    Attributes:
        size: members of the front; 0 where only references outside the space are finished, which
            then are the rows.
        main_objective: the objective that rows are ordered by, from the best.
        members: a few of them, the two ends included, evenly between.
    """

    objectives: dict[str, str]
    main_objective: str
    size: int = 0
    members: tuple[FrontMember, ...] = ()
    hypervolume: FrontHypervolume | None = None


def front_snapshot(meta: StudyMeta, trials: Trials) -> FrontSnapshot:
    """Computes the front, its hypervolume and a few members.

    Where no trial is eligible, the rows are references.
    """
    objectives = meta.objectives
    main = meta.main_objective
    sign = next(one.sign for one in objectives if one.name == main)
    done = front_candidates(trials, objectives)
    if not done:
        references = [
            one for one in trials.with_state(State.COMPLETE) if one.origin == Origin.REFERENCE]
        rows = sorted(with_replicates(trials, references), key=lambda one: sign * one.mean(main))
        return FrontSnapshot(meta.directions, main, 0,
                             tuple(_row(one, objectives) for one in _evenly_spaced(rows)))
    values = np.array([[one.mean(objective.name) for objective in objectives] for one in done],
                      float)
    on = pareto_front(values, list(meta.directions.values()))
    members = sorted(compress(done, on), key=lambda one: sign * one.mean(main))
    return FrontSnapshot(meta.directions, main, len(members),
                         tuple(_row(one, objectives) for one in _evenly_spaced(members)),
                         _front_hypervolume(done, values, on, objectives,
                                            completed_candidates(trials)))


def _evenly_spaced(rows: list[ReplicatedTrial]) -> list[ReplicatedTrial]:
    if len(rows) <= MAX_MEMBERS_SHOWN:
        return rows
    return [rows[round(place)] for place in np.linspace(0, len(rows) - 1, MAX_MEMBERS_SHOWN)]


def _row(one: ReplicatedTrial, objectives: Sequence[Objective]) -> FrontMember:
    values = {objective.name: one.mean(objective.name) for objective in objectives}
    return FrontMember(one.number, one.first.label, one.first.architecture, one.completed_seeds,
                       values)


def _front_hypervolume(done: list[ReplicatedTrial], values: NDArray[np.float64],
                       on: NDArray[np.bool_], objectives: Sequence[Objective],
                       finished: list[ReplicatedTrial]) -> FrontHypervolume:
    """Hypervolume and its last change, up to beyond the worst of all that is ``finished``.

    A trial after the front's youngest member added nothing.
    """
    ways: list[str] = [one.direction for one in objectives]
    worst = [[one.mean(objective.name) for objective in objectives] for one in finished]
    corner = default_reference_point(np.array(worst, float), ways)
    ends = [_ended(one.first.ended_at) for one in done]
    # Ranks, not times: trials that ended within the same millisecond count in the order of their
    # numbers.
    order = np.argsort(np.argsort([-1.0 if end is None else end for end in ends], kind="stable"))
    youngest = int(np.flatnonzero(on)[order[on].argmax()])
    before = values[order < order[youngest]]
    value = hypervolume(values[on], corner, ways)
    gain = value - hypervolume(before[pareto_front(before, ways)], corner, ways)
    return FrontHypervolume(value, dict(zip((one.name for one in objectives), corner)), gain,
                            done[youngest].number, ends[youngest])


def _ended(when: str | None) -> float | None:
    return None if when is None else datetime.fromisoformat(when).timestamp()
