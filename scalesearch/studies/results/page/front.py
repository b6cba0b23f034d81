"""Front, hypervolume over time and training curves on the report page."""

import numpy as np
from matplotlib.collections import LineCollection

from scalesearch.pareto.front import pareto_front
from scalesearch.report import labels
from scalesearch.report.figures import style
from scalesearch.report.figures.plot import plot_tradeoff, stopped_heights
from scalesearch.report.records import LOSS_UNITS
from scalesearch.report.table import (
    COST_COLUMNS,
    HALF_WIDTH_SUFFIX,
    format_cell,
    summarize_trial,
    trial_name,
)
from scalesearch.studies.forecast import read_gain
from scalesearch.studies.monitor.format import describe_gain, format_percent
from scalesearch.studies.monitor.snapshot import rung_summaries
from scalesearch.studies.results.page import elements
from scalesearch.studies.results.page.elements import PageSection, Part, PlotMark, fold, text
from scalesearch.studies.results.page.facts import FinishedRun, PageFacts, name_of
from scalesearch.studies.trials.trial import Trial
from scalesearch.tasks import EFFICIENCY_METRICS
from scalesearch.terminal import format_count

MAX_MARKS = 600  # maximum number of points with a text, to limit the size of the file
LOSS_LABELS = {name: f"Validation loss ({unit})" for name, unit in LOSS_UNITS.items()}
TRAINING_LOSS = "Training loss (nats per token)"


# -- front


def cost_choices(facts: PageFacts) -> tuple[list[str], list[str]]:
    """Return the costs that are plotted first, and the other costs.

    The first costs are the costs among the objectives and the default costs. Costs that are missing
    or 0 for all finished trials are left out.
    """
    objectives = facts.results.objectives
    rows = facts.finished_rows
    available = []
    for name in dict.fromkeys([*objectives, *COST_COLUMNS, *EFFICIENCY_METRICS]):
        is_size = name.partition(".")[0] in labels.SIZE_COST_GROUPS
        is_cost = name in EFFICIENCY_METRICS or ("." in name and (name in objectives or is_size))
        if is_cost and name in rows and (rows[name].astype(float).fillna(0) != 0).any():
            available.append(name)
    goals = [name for name in available if name in objectives]
    groups = {name.partition(".")[0] for name in objectives if "." in name}
    first = [*goals, *(name for name in labels.DEFAULT_COSTS
                       if name in available and name.partition(".")[0] not in groups)]
    return first, [name for name in available if name not in first]


def front_section(facts: PageFacts) -> PageSection:
    """Create the section with the figures of the front.

    Figures against costs other than the first costs are folded. With JavaScript, readers can select
    among all costs.
    """
    title = "Pareto front" if facts.has_front else "Score against cost"
    n_finished = len(facts.finished_rows)
    if not n_finished:
        return PageSection("front", title, [text("No finished trials.")])
    main = facts.main_metric
    first, others = cost_choices(facts)
    goals = ", ".join(f"{name} ({direction})"
                      for name, direction in facts.results.objectives.items())
    head = (f"{len(facts.front_members)} of {n_finished} finished trials are on the front of "
            f"{goals}." if facts.has_front
            else f"{format_count(n_finished, 'architecture')} of the study file.")
    choices = []
    for name in (*first, *others):  # without unit and protocol
        words = labels.plain_label(name).removesuffix(" per example")
        choices.append((name, words.removesuffix(", float32)").replace(" (bytes", ""),
                        name in first))
    parts = [text(head), ("chooser", choices), *panels(facts, first, main, "front-panels")]
    if others:
        parts.append(fold("Against the other costs", panels(facts, others, main), "front-others"))
    test_score = f"test.{main}"
    if test_score in facts.finished_rows and facts.finished_rows[test_score].notna().any():
        parts.append(fold(f"By {test_score}, which was not used for selection",
                          panels(facts, first, test_score)))
    return PageSection("front", title, parts)


def panels(facts: PageFacts, costs: list[str], metric: str, key: str | None = None) -> list[Part]:
    """Figures of a metric against each cost, with a common caption."""
    bars = (" Bars: intervals of means over seeds, with pooled noise."
            if metric + HALF_WIDTH_SUFFIX in facts.finished_rows else "")
    caption = (f"{labels.plain_label(metric)} against each cost; "
               f"{labels.format_protocol(facts.meta.protocol)}.{bars}")
    return [("panels", ([tradeoff_picture(facts, cost, metric) for cost in costs], key)),
            ("caption", caption)]


def tradeoff_picture(facts: PageFacts, x: str, y: str) -> Part:
    """Figure of the metric ``y`` against the cost ``x``, with texts on hover."""
    table = facts.results.table
    names = {name: labels.plain_label(name, facts.meta.protocol) for name in (y, x)}
    # Labels are left out because they are shown on hover.
    figure = plot_tradeoff(table, facts.results.subject, x, y, label_front=False)
    axes = figure.axes[0]
    done = facts.finished_rows.dropna(subset=[x, y])
    done = done.sort_values("front", kind="stable").tail(MAX_MARKS)  # the front is drawn on top
    columns = ("trial", "label", "seeds", x, y, x + HALF_WIDTH_SUFFIX, y + HALF_WIDTH_SUFFIX)
    rows = done[[name for name in columns if name in done]].to_dict("records")
    marks = [PlotMark(row["trial"], summarize_trial(row, names), axes,
                      [(float(row[x]), float(row[y]))]) for row in rows]
    for index, height in stopped_heights(table, axes, x, y)[-MAX_MARKS:].items():
        row = table.loc[index]
        words = (f"{trial_name(row)}; stopped at a rung; {LOSS_LABELS[facts.loss]} "
                 f"{row['rung_loss']:.3f}; {names[x]} {format_cell(row, x)}")
        marks.append(PlotMark(int(row["trial"]), words, axes, [(float(row[x]), float(height))]))
    front = facts.results.front
    front = front.dropna(subset=[x, y]) if len(front) else front
    members = "; ".join(summarize_trial(row, {y: y, x: x}) for _, row in front.iterrows())
    alt = (f"Scatter plot of {names[y]} against {labels.one_line_label(x, facts.meta.protocol)} "
           f"for {format_count(len(facts.finished_rows), 'trial')}. On the front: "
           f"{members or 'none'}.")
    key = f"front-{x}-{y}".replace(".", "-").replace("_", "-")
    return elements.picture(figure, key, alt, "", marks, cost=x)


# -- hypervolume


def hypervolume_history(facts: PageFacts) -> list[tuple[FinishedRun, float]]:
    """Return the runs that changed the hypervolume, and the last run.

    Each run comes with the hypervolume after it.
    """
    view = facts.results.view
    front = np.empty((0, len(view.directions)))
    steps: list[tuple[FinishedRun, float]] = []
    for run in facts.finished_runs:
        points = np.vstack([front, run.values])
        front = points[pareto_front(points, view.directions)]
        volume = view.hypervolume(front)
        if not steps or volume != steps[-1][1] or run is facts.finished_runs[-1]:
            steps.append((run, volume))
    return steps


def hypervolume_section(facts: PageFacts) -> PageSection | None:
    """Create the section with the hypervolume over time.

    None if the study is not a search and has no eligible trials.
    """
    result = facts.results.hypervolume()
    if result is None or not facts.finished_runs:
        empty = text("No feasible finished trials, so the hypervolume is not defined.")
        return PageSection("hypervolume", "Hypervolume", [empty]) if facts.is_search else None
    now, reference_point = result
    steps = hypervolume_history(facts)
    last, last_volume = steps[-1]
    pictures = []
    for key, words in (("hours", "Hours since the start of the study"),
                       ("training_hours", "Worker-hours of training, validation and decoding")):
        with style.fixed_size_panel(3.2) as (figure, axes):
            axes.step([getattr(run, key) for run, _ in steps], [volume for _, volume in steps],
                      where="post", color=style.FRONT_COLOR, linewidth=1.4, marker="o",
                      markersize=3, clip_on=False)
            axes.set(xlabel=words, ylabel="Hypervolume")
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: labels.format_scientific(value))
        alt = (f"Hypervolume over {words.lower()}: {labels.format_scientific(last_volume)} after "
               f"{getattr(last, key):.2f}.")
        pictures.append(elements.picture(figure, f"hypervolume-{key.replace('_', '-')}", alt, ""))
    point = ", ".join(f"{name} {labels.format_scientific(value)}"
                      for name, value in zip(facts.results.objectives, reference_point))
    caption = (f"Unit: product of the objectives' units. Reference point: {point}, which is the "
               "worst value of each objective over all finished trials plus a tenth of their "
               "range. The curve uses the first seed of each trial, and replicates count as time; "
               "the number above uses means over seeds.")
    gain = read_gain(facts.results.study.folder)
    forecast = f" {describe_gain(gain).capitalize()}." if gain else ""
    head = (f"{labels.format_scientific(now)} after "
            f"{format_count(len(facts.finished_runs), 'trial')}, {last.hours:.2f} hours since the "
            f"start of the study and {last.training_hours:.2f} "
            f"worker-hours.{forecast}")
    return PageSection("hypervolume", "Hypervolume", [
        text(head), ("panels", (pictures, None)), ("caption", caption)])


# -- curves


def curves_section(facts: PageFacts) -> PageSection:
    """Create the section with the curves, and with the table of rungs if any."""
    trials = facts.curve_trials
    rungs = "; crosses: losses at the rungs" if any(trial.rungs for trial in trials) else ""
    colors = (f"; blue: on the front; orange: {facts.meta.architecture_noun}s" if facts.has_front
              else "")
    title = LOSS_LABELS[facts.loss]
    caption = (f"{title} of {format_count(len(trials), 'trial')}, each with its first "
               f"seed{colors}{rungs}.")
    parts = [curves_picture(facts, facts.loss, title, caption) if trials
             else text("No validation has been recorded yet.")]
    if any(trial.number in facts.curves["train_loss"] for trial in trials):
        caption = (f"{TRAINING_LOSS}, with label smoothing if the recipe uses it; mean since the "
                   "previous validation.")
        picture = curves_picture(facts, "train_loss", TRAINING_LOSS, caption)
        parts.append(fold("Training loss", [picture]))
    if facts.meta.rungs.n_pauses:
        parts.append(rungs_table(facts))
    return PageSection("curves", "Training curves", parts)


def curves_picture(facts: PageFacts, key: str, title: str, caption: str) -> Part:
    """Figure of the losses ``key`` of all trials over updates."""
    trials = facts.curve_trials
    curves = [(trial, facts.curves[key][trial.number])
              for trial in trials if trial.number in facts.curves[key]]

    def line_style(trial: Trial) -> tuple[int, str, float]:
        """Drawing order, color and width of a curve."""
        if trial.number in facts.front_members:
            return 3, style.FRONT_COLOR, 1.5
        return (2, style.REFERENCE_COLOR, 1.1) if trial.label else (1, style.DOMINATED_COLOR, 0.7)

    with style.fixed_size_panel() as (figure, axes):
        # A collection is drawn much faster than single lines.
        ordered = sorted(curves, key=lambda curve: line_style(curve[0])[0])
        axes.add_collection(LineCollection(
            [points for _, points in ordered],
            colors=[line_style(trial)[1] for trial, _ in ordered],
            linewidths=[line_style(trial)[2] for trial, _ in ordered]))
        dots = [(*points[0], line_style(trial)[1]) for trial, points in curves if len(points) == 1]
        crosses = [(rung.step, rung.loss, line_style(trial)[1])
                   for trial in trials if key == facts.loss
                   for rung in trial.rungs if rung.step is not None]
        for spots, marker in ((dots, "o"), (crosses, "x")):
            if spots:
                x, y, colors = zip(*spots)
                axes.scatter(x, y, s=14, c=colors, marker=marker, linewidths=0.9, zorder=4)
        axes.autoscale_view()
        axes.set(xlabel="Updates", ylabel=title)
    ends = "; ".join(f"{name_of(trial)} {points[-1][1]:.3f}"
                     for trial, points in curves if trial.number in facts.front_members)
    alt = (f"{title} over updates of {format_count(len(trials), 'trial')}. Last losses of the "
           f"front: {ends or 'none'}.")
    marks = [PlotMark(trial.number, name_of(trial), axes, points) for trial, points in curves]
    return elements.picture(figure, key.replace("_", "-"), alt, caption, marks)


def rungs_table(facts: PageFacts) -> Part:
    """Table of rungs: trials that reached the rung, promoted trials, and the best loss."""
    rows = [[number, elements.TableCell(format_percent(rung.share), rung.share), rung.reached,
             rung.promoted, elements.number(rung.best_loss, ".3f"),
             elements.number(rung.rank_correlation, "+.2f")]
            for number, rung in enumerate(rung_summaries(facts.trials, facts.meta)[:-1], 1)]
    headings = ["rung", "share of the budget", "reached", "promoted", "best loss",
                "rank correlation with the end"]
    caption = f"Rungs of successive halving; losses: {LOSS_LABELS[facts.loss].lower()}."
    return elements.table(headings, rows, caption, "rungs-table")
