"""Training curves of the report page: losses over updates, and the table of rungs."""

from collections import Counter

from matplotlib.collections import LineCollection

from scalesearch.report.figures.style import (
    DOMINATED_COLOR,
    FRONT_COLOR,
    REFERENCE_COLOR,
    fixed_size_panel,
)
from scalesearch.studies.monitor.format import format_percent
from scalesearch.studies.monitor.snapshot import rung_summaries
from scalesearch.studies.results.page.elements import (
    PageSection,
    Part,
    TableCell,
    fold,
    number,
    table,
    text,
)
from scalesearch.studies.results.page.facts import PageFacts, trial_name
from scalesearch.studies.results.page.svg import PlotMark, picture
from scalesearch.studies.trials.trial import State, Trial

LOSS_LABELS = {"validation_loss": "Validation loss (nats per token)",
               "validation_loss_per_char": "Validation loss (nats per character)"}
TRAINING_LOSS = "Training loss (nats per token)"


def curves_section(facts: PageFacts) -> PageSection:
    """Create the section with the curves, and with the table of rungs if any."""
    trials = facts.curve_trials
    rungs = "; crosses: losses at the rungs" if any(trial.rungs for trial in trials) else ""
    colors = "; blue: on the front; orange: references" if facts.has_front else ""
    title = LOSS_LABELS[facts.loss]
    caption = f"{title} of {len(trials)} trials, each with its first seed{colors}{rungs}."
    parts = [_picture(facts, facts.loss, title, caption) if trials
             else text("No validation has been recorded yet.")]
    if any(trial.number in facts.curves["train_loss"] for trial in trials):
        caption = (f"{TRAINING_LOSS}, with label smoothing if the recipe uses it; mean since the "
                   "previous validation.")
        parts.append(fold("Training loss", [_picture(facts, "train_loss", TRAINING_LOSS, caption)]))
    if facts.meta.rungs.n_pauses:
        parts.append(_rungs(facts))
    return PageSection("curves", "Training curves", parts)


def _picture(facts: PageFacts, key: str, title: str, caption: str) -> Part:
    trials = facts.curve_trials
    points_of = facts.curves[key]
    curves = [(trial, points_of[trial.number]) for trial in trials if trial.number in points_of]
    with fixed_size_panel() as (figure, axes):
        styles = [_style(facts, trial) for trial, _ in curves]
        # A collection is drawn much faster than single lines.
        order = sorted(range(len(curves)), key=lambda index: styles[index][2])
        axes.add_collection(LineCollection([curves[index][1] for index in order],
                                           colors=[styles[index][0] for index in order],
                                           linewidths=[styles[index][1] for index in order]))
        dots = [(*points[0], style[0])
                for (_, points), style in zip(curves, styles) if len(points) == 1]
        crosses = [(rung.step, rung.loss, _style(facts, trial)[0])
                   for trial in trials if key == facts.loss
                   for rung in trial.rungs if rung.step is not None]
        for spots, marker in ((dots, "o"), (crosses, "x")):
            if spots:
                x, y, colors = zip(*spots)
                axes.scatter(x, y, s=14, c=colors, marker=marker, linewidths=0.9, zorder=4)
        axes.autoscale_view()
        axes.set(xlabel="Updates", ylabel=title)
    ends = "; ".join(f"{trial_name(trial)} {points[-1][1]:.3f}"
                     for trial, points in curves if trial.number in facts.front_members)
    alt = (f"{title} over updates of {len(trials)} trials. Last losses of the front: "
           f"{ends or 'none'}.")
    marks = [PlotMark(trial.number, trial_name(trial), axes, points) for trial, points in curves]
    return picture(figure, key.replace("_", "-"), alt, caption, marks)


def _style(facts: PageFacts, trial: Trial) -> tuple[str, float, int]:
    """Color, width and drawing order of a curve."""
    if trial.number in facts.front_members:
        return FRONT_COLOR, 1.5, 3
    return (REFERENCE_COLOR, 1.1, 2) if trial.label else (DOMINATED_COLOR, 0.7, 1)


def _rungs(facts: PageFacts) -> Part:
    """Table of rungs: trials that reached the rung, promoted trials, and losses."""
    trials = [trial for trial in facts.candidates if trial.rungs]
    summaries = rung_summaries(facts.trials, facts.meta)
    n_reached = Counter(rung for trial in trials for rung in range(len(trial.rungs)))
    rows = []
    for rung, share in enumerate(facts.meta.rungs.shares[:-1]):
        losses = [trial.rungs[rung].loss for trial in trials if len(trial.rungs) > rung]
        promoted = sum(len(trial.rungs) > rung + 1
                       or (len(trial.rungs) == rung + 1 and trial.state != State.PAUSED)
                       for trial in trials)
        rows.append([rung + 1, TableCell(format_percent(share), share), n_reached[rung], promoted,
                     number(min(losses, default=None), ".3f"),
                     number(max(losses, default=None), ".3f"),
                     number(summaries[rung].rank_correlation, "+.2f")])
    headings = ["rung", "share of the budget", "reached", "promoted", "best loss", "worst loss",
                "rank correlation with the end"]
    caption = f"Rungs of successive halving; losses: {LOSS_LABELS[facts.loss].lower()}."
    return table(headings, rows, caption, "rungs-table")
