"""How training went: the validation loss of each candidate, and where it paused at rungs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from scalesearch.report.page.facts import Candidate, Facts
from scalesearch.report.page.html import Cell, Section, join, table, tag
from scalesearch.report.page.svg import POINT, canvas, framed, inline
from scalesearch.report.plot import FRONT, REFERENCE, REST

Points = list[tuple[float, float]]
LOSS = "Validation loss (nats per token)"
MOST = 400  # curves in one figure


def points_of(candidate: Candidate, key: str = "valid_loss") -> Points:
    """(updates, loss) of a candidate's validations, by the number of updates."""
    found = [(one.get("step"), one.get(key)) for one in candidate.curve]
    return sorted((float(step), float(loss)) for step, loss in found if step is not None and loss is not None)


def shown(facts: Facts) -> list[Candidate]:
    """Whose curves are drawn: first trainings, the latest where there are too many."""
    return [one for one in facts.candidates.values() if one.origin != "seed" and (points_of(one) or one.rungs)][-MOST:]


def drawn(facts: Facts) -> set[int]:
    """The trials that have a curve of their own in the figure."""
    return {one.number for one in shown(facts) if points_of(one)}


def section(facts: Facts) -> Section:
    """The curves, and the table of rungs where there are any."""
    own = shown(facts)
    body: list[Any] = [_curves(facts, own)] if own else [tag("p", "No validation has been recorded yet.")]
    if own and any(points_of(one, "train_loss") for one in own):
        body.append(tag("details", tag("summary", "Training loss"), _training(facts, own)))
    if facts.meta.get("rungs"):
        body.append(_rungs(facts))
    return Section("curves", "Training", join(body))


def _color(facts: Facts, one: Candidate) -> tuple[str, float, int]:
    if one.number in facts.members:
        return FRONT, 1.5, 3
    return (REFERENCE, 1.1, 2) if one.label else (REST, 0.7, 1)


def _lines(axes: Axes, facts: Facts, own: Sequence[Candidate], key: str) -> None:
    for one in own:
        points = points_of(one, key)
        color, width, order = _color(facts, one)
        if points:
            axes.plot(*zip(*points), color=color, linewidth=width, zorder=order, gid=f"{POINT}{one.number}",
                      marker="o" if len(points) == 1 else None, markersize=3)
    axes.set_xlabel("Updates")


def _curves(facts: Facts, own: Sequence[Candidate]) -> Any:
    with canvas(6.4, 3.8) as (figure, (axes,)):
        _lines(axes, facts, own, "valid_loss")
        for one in own:
            if one.rungs:
                axes.plot(*zip(*one.rungs), "x", color=_color(facts, one)[0], markersize=4, zorder=4)
        axes.set_ylabel(LOSS)
    marks = "; crosses: losses at the rungs" if any(one.rungs for one in own) else ""
    colors = "; blue: on the front; orange: references" if facts.ranked else ""
    ends = "; ".join(f"{one.name} {points_of(one)[-1][1]:.3f}" for one in own
                     if one.number in facts.members and points_of(one))
    alt = f"Validation loss over updates of {len(own)} candidates. Last losses of the front: {ends or 'none'}."
    return framed(inline(figure, "curves", alt, {one.number: one.name for one in own}),
                  f"{LOSS} of {len(own)} candidates, each with its first seed{colors}{marks}.")


def _training(facts: Facts, own: Sequence[Candidate]) -> Any:
    with canvas(6.4, 3.8) as (figure, (axes,)):
        _lines(axes, facts, own, "train_loss")
        axes.set_ylabel("Training loss (nats per token)")
    alt = f"Training loss over updates of {len(own)} candidates."
    return framed(inline(figure, "training", alt, {one.number: one.name for one in own}),
                  "Training loss (nats per token), label smoothing included where the recipe has it; mean since the "
                  "validation before.")


def _rungs(facts: Facts) -> Any:
    """How many reached each rung, how many of them went on, and the losses there."""
    shares = facts.meta["rungs"]["shares"]
    own = [one for one in facts.candidates.values() if one.origin != "seed" and one.rungs]
    reached = Counter(at for one in own for at in range(len(one.rungs)))
    rows = []
    for at, share in enumerate(shares[:-1]):
        losses = sorted(one.rungs[at][1] for one in own if len(one.rungs) > at)
        on = sum(len(one.rungs) > at + 1 or (len(one.rungs) == at + 1 and one.state != "paused") for one in own)
        best = f"{losses[0]:.3f}" if losses else "–"
        worst = f"{losses[-1]:.3f}" if losses else "–"
        rows.append([Cell(at, at), Cell(f"{share:.0%}", share), Cell(reached[at], reached[at]), Cell(on, on),
                     Cell(best, losses[0] if losses else None), Cell(worst, losses[-1] if losses else None)])
    headings = ["rung", "share of a training", "reached", "went on", "best loss", "worst loss"]
    return table(headings, rows, f"Rungs of successive halving; losses: {LOSS.lower()}.", "rungs-table")
