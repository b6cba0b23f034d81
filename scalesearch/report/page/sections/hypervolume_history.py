"""How the front grew: its hypervolume over wall time, and over what all workers have spent."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import hypervolume
from scalesearch.report.page.facts import Facts
from scalesearch.report.page.parts import Section, Text
from scalesearch.report.page.svg import canvas, picture
from scalesearch.report.plot import FRONT

KEY, TITLE = "hypervolume", "Hypervolume"


@dataclass(frozen=True)
class Step:
    """The hypervolume from a finished trial on."""

    hours: float
    spent: float
    number: int
    volume: float


def history(facts: Facts, corner: list[float]) -> list[Step]:
    """A step for each finished trial that changed the hypervolume, and the last one; ``corner``: reference point."""
    directions = list(facts.subject.objectives.values())
    best = np.empty((0, len(directions)))
    steps: list[Step] = []
    volume = 0.0
    for one in facts.finished:
        both = np.vstack([best, one.values])
        kept = pareto_front(both, directions)
        if kept[-1]:
            best = both[kept]
            volume = hypervolume(best, corner, directions)
        if not steps or volume != steps[-1].volume or one is facts.finished[-1]:
            steps.append(Step(one.hours, one.spent, one.number, volume))
    return steps


def section(facts: Facts) -> Section | None:
    """The figure and its reference point; None where nothing was searched and nothing can be on a front."""
    if facts.hypervolume is None or not facts.finished:
        empty = Text(["No feasible trial is finished yet, so there is no hypervolume."])
        return Section(KEY, TITLE, [empty]) if facts.searched else None
    now, corner = facts.hypervolume
    steps = history(facts, corner)
    last = steps[-1]
    spent = f"{last.hours:.2f} hours since the study began and {last.spent:.2f} worker-hours"
    point = ", ".join(f"{name} {value:,.6g}" for name, value in zip(facts.subject.objectives, corner))
    caption = (f"In the product of the objectives' units, against the reference point {point}: the worst value of each "
               "objective over all finished trials, and a tenth of their range beyond it. The curve counts each trial "
               "with its first seed, and replicates as time spent; the number above is of means over seeds.")
    return Section(KEY, TITLE, [
        Text([f"{now:.6g} after {len(facts.finished)} trials, {spent}."]),
        picture(_draw(steps), "hypervolume-figure", f"Hypervolume: {last.volume:.6g} after {spent}.", caption)])


def _draw(steps: list[Step]) -> Figure:
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
    return figure
