"""How training went: the loss of each trial over its updates, and where it paused at rungs."""

from collections import Counter
from collections.abc import Sequence

from matplotlib.axes import Axes

from scalesearch.report.page.facts import Facts, TrialFacts
from scalesearch.report.page.parts import Cell, Fold, Picture, Section, Table, Text, number, table
from scalesearch.report.page.svg import Mark, canvas, picture
from scalesearch.report.plot import FRONT, REFERENCE, REST

Points = list[tuple[float, float]]
LOSS = "Validation loss (nats per token)"
TRAINING_LOSS = "Training loss (nats per token)"
MAX_CURVES = 400  # in one figure


def points_of(trial: TrialFacts, key: str = "valid_loss") -> Points:
    """(updates, loss) of a trial's validations, by the number of updates."""
    found = [(one.get("step"), one.get(key)) for one in trial.curve]
    return sorted((float(step), float(loss)) for step, loss in found if step is not None and loss is not None)


def _shown(facts: Facts) -> list[TrialFacts]:
    """The trials whose curves are drawn: no replicates, the latest where there are too many."""
    return [one for one in facts.own if points_of(one) or one.rungs][-MAX_CURVES:]


def plotted(facts: Facts) -> set[int]:
    """The trials that have a curve of their own in the figure."""
    return {one.number for one in _shown(facts) if points_of(one)}


def section(facts: Facts) -> Section:
    """The curves, and the table of rungs where there are any."""
    shown = _shown(facts)
    parts: list[Picture | Text | Fold | Table] = [_losses(facts, shown) if shown else
                                                  Text(["No validation has been recorded yet."])]
    if any(points_of(one, "train_loss") for one in shown):
        parts.append(Fold("Training loss", [_training(facts, shown)]))
    if facts.meta.get("rungs"):
        parts.append(_rungs(facts))
    return Section("curves", "Training curves", parts)


def _color(facts: Facts, trial: TrialFacts) -> tuple[str, float, int]:
    if trial.number in facts.members:
        return FRONT, 1.5, 3
    return (REFERENCE, 1.1, 2) if trial.label else (REST, 0.7, 1)


def _lines(axes: Axes, facts: Facts, trials: Sequence[TrialFacts], key: str) -> list[Mark]:
    """Draws the curves; returns their marks."""
    curves = [(one, points) for one in trials if (points := points_of(one, key))]
    for one, points in curves:
        color, width, order = _color(facts, one)
        axes.plot(*zip(*points), color=color, linewidth=width, zorder=order, marker="o" if len(points) == 1 else None,
                  markersize=3)
    axes.set_xlabel("Updates")
    return [Mark(one.number, one.name, axes, points) for one, points in curves]


def _losses(facts: Facts, trials: Sequence[TrialFacts]) -> Picture:
    with canvas(6.4, 3.8) as (figure, (axes,)):
        marks = _lines(axes, facts, trials, "valid_loss")
        for one in trials:
            if one.rungs:
                axes.plot(*zip(*one.rungs), "x", color=_color(facts, one)[0], markersize=4, zorder=4)
        axes.set_ylabel(LOSS)
    crosses = "; crosses: losses at the rungs" if any(one.rungs for one in trials) else ""
    colors = "; blue: on the front; orange: references" if facts.ranked else ""
    ends = "; ".join(f"{one.name} {points_of(one)[-1][1]:.3f}" for one in trials
                     if one.number in facts.members and points_of(one))
    alt = f"Validation loss over updates of {len(trials)} trials. Last losses of the front: {ends or 'none'}."
    return picture(figure, "valid-loss", alt,
                   f"{LOSS} of {len(trials)} trials, each with its first seed{colors}{crosses}.", marks)


def _training(facts: Facts, trials: Sequence[TrialFacts]) -> Picture:
    with canvas(6.4, 3.8) as (figure, (axes,)):
        marks = _lines(axes, facts, trials, "train_loss")
        axes.set_ylabel(TRAINING_LOSS)
    return picture(figure, "train-loss", f"Training loss over updates of {len(trials)} trials.",
                   f"{TRAINING_LOSS}, label smoothing included where the recipe has it; mean since the validation "
                   "before.", marks)


def _rungs(facts: Facts) -> Table:
    """Trials that reached each rung, that were promoted from it, and the losses there."""
    trials = [one for one in facts.own if one.rungs]
    reached = Counter(at for one in trials for at in range(len(one.rungs)))
    rows = []
    for at, share in enumerate(facts.meta["rungs"]["shares"][:-1]):
        losses = [one.rungs[at][1] for one in trials if len(one.rungs) > at]
        promoted = sum(len(one.rungs) > at + 1 or (len(one.rungs) == at + 1 and one.state != "paused")
                       for one in trials)
        rows.append([at, Cell(f"{share:.0%}", share), reached[at], promoted, number(min(losses, default=None), ".3f"),
                     number(max(losses, default=None), ".3f")])
    headings = ["rung", "share of a training", "reached", "promoted", "best loss", "worst loss"]
    return table(headings, rows, f"Rungs of successive halving; losses: {LOSS.lower()}.", "rungs-table")
