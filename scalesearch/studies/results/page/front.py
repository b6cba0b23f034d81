"""Front of the report page: main metric against costs, hypervolume over time."""

import numpy as np

from scalesearch.pareto.front import pareto_front
from scalesearch.report.figures.plot import plot_tradeoff, stopped_heights
from scalesearch.report.figures.style import FRONT_COLOR, fixed_size_panel
from scalesearch.report.labels import (
    DEFAULT_COSTS,
    SIZE_COST_GROUPS,
    format_protocol,
    format_scientific,
    one_line_label,
)
from scalesearch.report.table import (
    COST_COLUMNS,
    HALF_WIDTH_SUFFIX,
    format_cell,
    summarize_trial,
    trial_name,
)
from scalesearch.studies.forecast import read_gain
from scalesearch.studies.monitor.format import describe_gain
from scalesearch.studies.results.page.curves import LOSS_LABELS
from scalesearch.studies.results.page.elements import PageSection, Part, fold, text
from scalesearch.studies.results.page.facts import FinishedRun, PageFacts
from scalesearch.studies.results.page.svg import PlotMark, picture
from scalesearch.tasks import EFFICIENCY_METRICS

MAX_MARKS = 600  # maximum number of points with a text, to limit the size of the file


def cost_choices(facts: PageFacts) -> tuple[list[str], list[str]]:
    """Return the costs that are plotted first, and the other costs.

    The first costs are the costs among the objectives and the default costs. Costs that are missing
    or 0 for all finished trials are left out.
    """
    names = dict.fromkeys([*facts.results.objectives, *COST_COLUMNS, *EFFICIENCY_METRICS])
    goals = facts.results.objectives
    costs = [name for name in names
             if name in EFFICIENCY_METRICS
             or ("." in name and (name in goals or _group(name) in SIZE_COST_GROUPS))]
    first = [name for name in costs if name in goals]
    first += [name for name in DEFAULT_COSTS if _group(name) not in map(_group, first)]
    available = [name for name in costs
                 if name in facts.finished_rows
                 and (facts.finished_rows[name].astype(float).fillna(0) != 0).any()]
    return ([name for name in first if name in available],
            [name for name in available if name not in first])


def _group(name: str) -> str:
    return name.partition(".")[0]


def front_section(facts: PageFacts) -> PageSection:
    """Create the section with the figures of the front.

    Figures against costs other than the first costs are folded. With JavaScript, readers can select
    among all costs.
    """
    title = "Pareto front" if facts.has_front else "Score against cost"
    if facts.finished_rows.empty:
        return PageSection("front", title,
                           [text("No finished trials.")])
    first, others = cost_choices(facts)
    goals = ", ".join(f"{name} ({direction})"
                      for name, direction in facts.results.objectives.items())
    head = (f"{len(facts.front_members)} of {len(facts.finished_rows)} finished trials are on the "
            f"front of {goals}." if facts.has_front
            else f"{len(facts.finished_rows)} architectures of the study file.")
    parts = [text(head),
             ("chooser", [(name, _short(name), name in first) for name in (*first, *others)]),
             *_panel_parts(facts, first, facts.main_metric, "front-panels")]
    if others:
        parts.append(fold("Against the other costs", _panel_parts(facts, others, facts.main_metric),
                          "front-others"))
    test_score = f"test.{facts.main_metric}"
    if test_score in facts.finished_rows and facts.finished_rows[test_score].notna().any():
        parts.append(fold(f"By {test_score}, which was not used for selection",
                          _panel_parts(facts, first, test_score)))
    return PageSection("front", title, parts)


def _short(name: str) -> str:
    """Label without unit and protocol, such as ``Non-embedding parameters``."""
    return one_line_label(name).removesuffix(" per sentence pair").removesuffix(
        ", float32)").replace(" (bytes", "")


def _panel_parts(facts: PageFacts, costs: list[str], metric: str,
                 key: str | None = None) -> list[Part]:
    bars = (" Bars: intervals of means over seeds, with pooled noise."
            if f"{metric}.half_width" in facts.finished_rows else "")
    words = (f"{one_line_label(metric)} against each cost; "
             f"{format_protocol(facts.meta.protocol)}.{bars}")
    return [("panels", ([_picture(facts, cost, metric) for cost in costs], key)),
            ("caption", words)]


def _picture(facts: PageFacts, x: str, y: str) -> Part:
    done = facts.finished_rows[facts.finished_rows[x].notna() & facts.finished_rows[y].notna()]
    done = done.sort_values("front", kind="stable").tail(MAX_MARKS)  # the front is drawn on top
    # Labels are left out because they are shown on hover.
    figure = plot_tradeoff(facts.results.table, facts.results.subject, x, y, label_front=False)
    words = {y: one_line_label(y), x: one_line_label(x)}
    shown = [name
             for name in ("trial", "label", "seeds", x, y, x + HALF_WIDTH_SUFFIX,
                          y + HALF_WIDTH_SUFFIX) if name in done]
    marks = [PlotMark(row["trial"], summarize_trial(row, words), figure.axes[0],
                      [(float(row[x]), float(row[y]))]) for row in done[shown].to_dict("records")]
    table = facts.results.table
    axes = figure.axes[0]
    for index, height in stopped_heights(table, axes, x, y)[-MAX_MARKS:].items():
        row = table.loc[index]
        stopped_text = (f"{trial_name(row)}; stopped at a rung; {LOSS_LABELS[facts.loss]} "
                        f"{row['rung_loss']:.3f}; {one_line_label(x)} ")
        marks.append(PlotMark(int(row["trial"]), stopped_text + format_cell(row, x), axes,
                              [(float(row[x]), float(height))]))
    title = f"{one_line_label(y)} against {one_line_label(x, facts.meta.protocol)}"
    front = facts.results.front
    front = front.dropna(subset=[x, y]) if len(front) else front
    members = "; ".join(summarize_trial(row, {y: y, x: x}) for _, row in front.iterrows())
    return picture(figure, f"front-{x}-{y}".replace(".", "-").replace("_", "-"),
                   f"Scatter plot of {title} for {len(facts.finished_rows)} trials. On the front: "
                   f"{members or 'none'}.", "", marks, cost=x)


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
    panels = []
    for key, words in (("hours", "Hours since the start of the study"),
                       ("training_hours", "Worker-hours of training, validation and decoding")):
        with fixed_size_panel(3.2) as (figure, axes):
            axes.step([getattr(run, key) for run, _ in steps], [volume for _, volume in steps],
                      where="post", color=FRONT_COLOR, linewidth=1.4, marker="o", markersize=3)
            axes.set(xlabel=words, ylabel="Hypervolume")
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: format_scientific(value))
        end = f"{format_scientific(steps[-1][1])} after {getattr(steps[-1][0], key):.2f}"
        panels.append(picture(figure, f"hypervolume-{key.replace('_', '-')}",
                              f"Hypervolume over {words.lower()}: {end}.", ""))
    last = steps[-1][0]
    times = (f"{last.hours:.2f} hours since the start of the study and "
             f"{last.training_hours:.2f} worker-hours")
    point = ", ".join(f"{name} {format_scientific(value)}"
                      for name, value in zip(facts.results.objectives, reference_point))
    caption = (f"Unit: product of the objectives' units. Reference point: {point}, which is the "
               "worst value of each objective over all finished trials plus a tenth of their "
               "range. The curve uses the first seed of each trial, and replicates count as time; "
               "the number above uses means over seeds.")
    gain = read_gain(facts.results.study.folder)
    forecast = f" {describe_gain(gain).capitalize()}." if gain else ""
    return PageSection("hypervolume", "Hypervolume", [
        text(f"{format_scientific(now)} after {len(facts.finished_runs)} trials, "
             f"{times}.{forecast}"),
        ("panels", (panels, None)), ("caption", caption)])
