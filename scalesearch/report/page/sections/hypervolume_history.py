"""How the front grew: its hypervolume over wall time, and over what all workers have spent."""

import numpy as np

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import hypervolume
from scalesearch.report.page.facts import Facts, Finished
from scalesearch.report.page.parts import Section, text
from scalesearch.report.page.svg import picture
from scalesearch.report.style import FRONT, canvas

KEY, TITLE = "hypervolume", "Hypervolume"


def history(facts: Facts, corner: list[float]) -> list[tuple[Finished, float]]:
    """Each finished trial that changed the hypervolume, and the last one, with the hypervolume from it on."""
    directions = list(facts.subject.objectives.values())
    best = np.empty((0, len(directions)))
    steps: list[tuple[Finished, float]] = []
    for one in facts.finished:
        both = np.vstack([best, one.values])
        best = both[pareto_front(both, directions)]
        volume = hypervolume(best, corner, directions)
        if not steps or volume != steps[-1][1] or one is facts.finished[-1]:
            steps.append((one, volume))
    return steps


def section(facts: Facts) -> Section | None:
    """The figure and its reference point; None where nothing was searched and nothing can be on a front."""
    if facts.hypervolume is None or not facts.finished:
        empty = text("No feasible trial is finished yet, so there is no hypervolume.")
        return Section(KEY, TITLE, [empty]) if facts.searched else None
    now, corner = facts.hypervolume
    steps = history(facts, corner)
    with canvas(8.4, 3.2, columns=2) as (figure, (left, right)):
        for axes, key, words in ((left, "hours", "Hours since the study began"),
                                 (right, "spent", "Worker-hours of training, validation and decoding")):
            axes.step([getattr(one, key) for one, _ in steps], [volume for _, volume in steps], where="post",
                      color=FRONT, linewidth=1.4, marker="o", markersize=3)
            axes.set_xlabel(words)
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
        left.set_ylabel("Hypervolume")
    last, volume = steps[-1]
    spent = f"{last.hours:.2f} hours since the study began and {last.spent:.2f} worker-hours"
    point = ", ".join(f"{name} {value:,.6g}" for name, value in zip(facts.subject.objectives, corner))
    caption = (f"In the product of the objectives' units, against the reference point {point}: the worst value of each "
               "objective over all finished trials, and a tenth of their range beyond it. The curve counts each trial "
               "with its first seed, and replicates as time spent; the number above is of means over seeds.")
    return Section(KEY, TITLE, [text(f"{now:.6g} after {len(facts.finished)} trials, {spent}."),
                                picture(figure, "hypervolume-figure", f"Hypervolume: {volume:.6g} after {spent}.",
                                        caption)])
