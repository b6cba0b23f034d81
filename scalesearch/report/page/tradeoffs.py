"""The front against each cost, as the study's own figures have it, with words on every point."""

from collections.abc import Iterable

import matplotlib
from matplotlib.figure import Figure

from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import Html, Section, join, tag
from scalesearch.report.page.svg import POINT, framed, inline
from scalesearch.report.page.words import label, tell
from scalesearch.report.plot import STYLE, WORDS, tradeoff
from scalesearch.report.table import COSTS
from scalesearch.tasks import MEASURED

MOST_POINTS = 600  # with words of their own; more would make the file large
USUAL = ("params.total", "macs.total")


def costs_of(facts: Facts) -> tuple[list[str], list[str]]:
    """The costs that are drawn at once, and the others: objectives, or of a study without any the usual ones, first.

    Costs that no finished candidate has, or that are nothing for all of them, are neither.
    """
    known = [name for name in dict.fromkeys([*facts.subject.objectives, *COSTS, *MEASURED])
             if ("." in name or name in MEASURED) and name.partition(".")[0] in (*WORDS, "memory", *MEASURED)]
    mine = [name for name in known if name in facts.subject.objectives]
    mine = [*mine, *(name for name in USUAL if not any(_group(one) == _group(name) for one in mine))]
    drawn = [name for name in known if name in facts.done and (facts.done[name].astype(float).fillna(0) != 0).any()]
    return [name for name in mine if name in drawn], [name for name in drawn if name not in mine]


def _group(name: str) -> str:
    return name.partition(".")[0]


def section(facts: Facts) -> Section:
    """The figures; those against what is no objective are folded, until a reader with a script chooses among all."""
    title = "Front" if facts.ranked else "Score against cost"
    if not len(facts.done):
        said = "No candidate is finished yet, so there is no front." if facts.searched else "No training is finished."
        return Section("front", title, tag("p", said))
    first, others = costs_of(facts)
    body = [_head(facts), _chooser(first, others), tag("div", *_panels(facts, first, facts.main), class_="panels",
                                                       id="front-panels")]
    reported = f"test.{facts.main}"
    if others:
        body.append(tag("details", tag("summary", "Against the other costs"),
                        tag("div", *_panels(facts, others, facts.main), class_="panels"), id="front-others"))
    if reported in facts.done and facts.done[reported].notna().any():
        body.append(tag("details", tag("summary", f"By {reported}, which was not looked at in choosing"),
                        tag("div", *_panels(facts, first, reported), class_="panels")))
    return Section("front", title, join(body))


def _head(facts: Facts) -> Html:
    goals = ", ".join(f"{name} ({way})" for name, way in facts.subject.objectives.items())
    said = f"{len(facts.front)} of {len(facts.done)} finished candidates are on the front of {goals}. " \
        if facts.ranked else f"{len(facts.done)} architectures that the study file names. "
    return tag("p", said, tag("span", "Rest on a point for its numbers; click it for its row in the table.",
                              class_="scripted", hidden=True))


def _chooser(first: list[str], others: list[str]) -> Html:
    """A box to tick for each cost that can stand below; shown by the script alone."""
    boxes = [tag("label", tag("input", type="checkbox", value=name, checked=name in first), f" {_short(name)}")
             for name in (*first, *others)]
    return tag("fieldset", tag("legend", "Against"), *boxes, class_="tools scripted", id="front-axes", hidden=True)


def _short(name: str) -> str:
    """``Non-embedding parameters``, ``Multiply-accumulates``: without unit and protocol."""
    return label(name, {}).removesuffix(" per sentence pair").removesuffix(", float32)").replace(" (bytes", "")


def _panels(facts: Facts, costs: Iterable[str], y: str) -> list[Html]:
    return [_panel(facts, x, y) for x in costs]


def _panel(facts: Facts, x: str, y: str) -> Html:
    done = facts.done[facts.done[x].notna() & facts.done[y].notna()]
    figure = tradeoff(facts.table, facts.subject, x, y)
    names = {y: label(y, {}), x: label(x, {})}
    titles = {int(row["trial"]): tell(row, names) for _, row in done.head(MOST_POINTS).iterrows()}
    _mark(figure, [(int(row["trial"]), float(row[x]), float(row[y])) for _, row in done.head(MOST_POINTS).iterrows()])
    bars = "; bars: intervals of means over seeds, by pooled noise" if f"{y}.half" in facts.table else ""
    key = f"front-{x}-{y}".replace(".", "-").replace("_", "-")
    return framed(inline(figure, key, _alt(facts, x, y), titles),
                  f"{label(y, {})} against {label(x, facts.subject.protocol)}{bars}.", data_x=x)


def _mark(figure: Figure, points: list[tuple[int, float, float]]) -> None:
    """An unseen mark over each point, to rest the pointer on."""
    with matplotlib.rc_context(STYLE):
        for number, x, y in points:
            figure.axes[0].plot([x], [y], "o", markersize=7, alpha=0, gid=f"{POINT}{number}", label="_", zorder=9)


def _alt(facts: Facts, x: str, y: str) -> str:
    best = facts.front.dropna(subset=[x, y]) if len(facts.front) else facts.front
    said = "; ".join(tell(row, {y: y, x: x}) for _, row in best.iterrows())
    return (f"Scatter plot of {label(y, {})} against {label(x, facts.subject.protocol)} for {len(facts.done)} "
            f"candidates. On the front: {said or 'nobody'}.")
