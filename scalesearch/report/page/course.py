"""How the front grew: its hypervolume over wall time, and over what all workers have spent."""

from dataclasses import dataclass

import numpy as np

from scalesearch.pareto.front import front
from scalesearch.pareto.hypervolume import hypervolume
from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import Section, join, tag
from scalesearch.report.page.svg import canvas, framed, inline
from scalesearch.report.plot import FRONT


@dataclass(frozen=True)
class Step:
    """The hypervolume from a finished candidate on."""

    hours: float
    spent: float
    number: int
    volume: float


def course(facts: Facts, corner: list[float]) -> list[Step]:
    """After each finished candidate that changed it, and after the last one; ``corner``: the reference point."""
    ways = list(facts.subject.objectives.values())
    best = np.empty((0, len(ways)))
    steps: list[Step] = []
    volume = 0.0
    for moment in facts.moments:
        both = np.vstack([best, moment.values])
        kept = front(both, ways)
        if kept[-1]:
            best = both[kept]
            volume = hypervolume(best, corner, ways)
        if not steps or volume != steps[-1].volume or moment is facts.moments[-1]:
            steps.append(Step(moment.hours, moment.spent, moment.number, volume))
    return steps


def section(facts: Facts) -> Section | None:
    """The figure and its reference point; None where nothing is searched and no named architecture can be on a front.
    """
    title = "Hypervolume"
    if facts.hypervolume is None or not facts.moments:
        if not facts.searched:
            return None
        return Section("course", title, tag("p", "No feasible candidate is finished yet, so there is no hypervolume."))
    now, corner = facts.hypervolume
    steps = course(facts, corner)
    with canvas(8.4, 3.2, 2) as (figure, (left, right)):
        for axes, key, words in ((left, "hours", "Hours since the study began"),
                                 (right, "spent", "Worker-hours of training, validation and decoding")):
            across = [getattr(step, key) for step in steps]
            axes.step(across, [step.volume for step in steps], where="post", color=FRONT, linewidth=1.4)
            axes.plot(across, [step.volume for step in steps], "o", markersize=3, color=FRONT)
            axes.set_xlabel(words)
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
        left.set_ylabel("Hypervolume")
    last = steps[-1]
    point = ", ".join(f"{name} {value:,.6g}" for name, value in zip(facts.subject.objectives, corner))
    alt = (f"Hypervolume over time, rising to {last.volume:.6g} after {last.hours:.2f} hours and {last.spent:.2f} "
           "worker-hours.")
    said = (f"In the product of the objectives' units, against the reference point {point}: each objective's worst "
            "value of all that are finished, a tenth of their range beyond. The curve is of each candidate's first "
            "training, and further seeds count as time spent; the number above is of means where there are several.")
    return Section("course", title, join((
        tag("p", f"{now:.6g} after {len(facts.moments)} candidates, {last.hours:.2f} hours since the study "
                 f"began and {last.spent:.2f} worker-hours."), framed(inline(figure, "course", alt), said))))
