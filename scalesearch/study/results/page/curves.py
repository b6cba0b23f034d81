"""How training went: the loss of each trial over its updates, and where it paused at rungs."""

from collections import Counter

from matplotlib.collections import LineCollection

from scalesearch.report.figures.style import DOMINATED_COLOR, FRONT_COLOR, REFERENCE_COLOR, fixed_size_panel
from scalesearch.study.monitor.snapshot import rung_summaries
from scalesearch.study.results.page.elements import PageSection, Part, TableCell, fold, number, table, text
from scalesearch.study.results.page.facts import PageFacts, trial_name
from scalesearch.study.results.page.svg import PlotMark, picture
from scalesearch.study.trials.trial import State, Trial

LOSS_LABELS = {"validation_loss": "Validation loss (nats per token)",
        "validation_loss_per_char": "Validation loss (nats per character)"}
TRAINING_LOSS = "Training loss (nats per token)"


def curves_section(facts: PageFacts) -> PageSection:
    """The curves, and the table of rungs where there are any."""
    shown = facts.curve_trials
    rungs = "; crosses: losses at the rungs" if any(one.rungs for one in shown) else ""
    colors = "; blue: on the front; orange: references" if facts.has_front else ""
    title = LOSS_LABELS[facts.loss]
    caption = f"{title} of {len(shown)} trials, each with its first seed{colors}{rungs}."
    parts = [_picture(facts, facts.loss, title, caption) if shown
             else text("No validation has " "been recorded yet.")]
    if any(one.number in facts.curves["train_loss"] for one in shown):
        caption = (f"{TRAINING_LOSS}, label smoothing included where the recipe has it; mean since "
                   "the validation before.")
        parts.append(fold("Training loss", [_picture(facts, "train_loss", TRAINING_LOSS, caption)]))
    return PageSection("curves", "Training curves",
                       [*parts, *([_rungs(facts)] if facts.meta.rungs.n_pauses else [])])


def _picture(facts: PageFacts, key: str, title: str, caption: str) -> Part:
    trials = facts.curve_trials
    every = facts.curves[key]
    curves = [(one, every[one.number]) for one in trials if one.number in every]
    with fixed_size_panel() as (figure, axes):
        styles = [_style(facts, one) for one, _ in curves]
        # a collection is drawn much faster than lines
        order = sorted(range(len(curves)), key=lambda at: styles[at][2])
        axes.add_collection(LineCollection([curves[at][1] for at in order],
                                           colors=[styles[at][0] for at in order],
                                           linewidths=[styles[at][1] for at in order]))
        dots = [(*points[0], style[0])
                for (_, points), style in zip(curves, styles) if len(points) == 1]
        crosses = [(rung.step, rung.loss, _style(facts, one)[0])
                   for one in trials if key == facts.loss
                   for rung in one.rungs if rung.step is not None]
        for spots, marker in ((dots, "o"), (crosses, "x")):
            if spots:
                x, y, colors = zip(*spots)
                axes.scatter(x, y, s=14, c=colors, marker=marker, linewidths=0.9, zorder=4)
        axes.autoscale_view()
        axes.set(xlabel="Updates", ylabel=title)
    ends = "; ".join(f"{trial_name(one)} {points[-1][1]:.3f}"
                     for one, points in curves if one.number in facts.front_members)
    alt = (f"{title} over updates of {len(trials)} trials. Last losses of the front: "
           f"{ends or 'none'}.")
    marks = [PlotMark(one.number, trial_name(one), axes, points) for one, points in curves]
    return picture(figure, key.replace("_", "-"), alt, caption, marks)


def _style(facts: PageFacts, trial: Trial) -> tuple[str, float, int]:
    """Color, width and order of a curve."""
    if trial.number in facts.front_members:
        return FRONT_COLOR, 1.5, 3
    return (REFERENCE_COLOR, 1.1, 2) if trial.label else (DOMINATED_COLOR, 0.7, 1)


def _rungs(facts: PageFacts) -> Part:
    """Trials that reached each rung, that were promoted from it, and the losses there."""
    trials = [one for one in facts.candidates if one.rungs]
    told = rung_summaries(facts.trials, facts.meta)
    reached = Counter(at for one in trials for at in range(len(one.rungs)))
    rows = []
    for at, share in enumerate(facts.meta.rungs.shares[:-1]):
        losses = [one.rungs[at].loss for one in trials if len(one.rungs) > at]
        promoted = sum(len(one.rungs) > at + 1
                       or (len(one.rungs) == at + 1 and one.state != State.PAUSED)
                       for one in trials)
        rows.append([at + 1, TableCell(f"{share:.0%}", share), reached[at], promoted,
                     *(number(best(losses, default=None), ".3f") for best in (min, max)),
                     number(told[at].rank_correlation, "+.2f")])
    headings = ["rung", "share of a training", "reached", "promoted", "best loss", "worst loss",
                "order as at the end"]
    return table(headings, rows,
                 f"Rungs of successive halving; losses: {LOSS_LABELS[facts.loss].lower()}.",
                 "rungs-table")
