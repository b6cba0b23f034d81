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


def costs_of(facts: Facts) -> tuple[list[str], list[str]]:
    """The costs that are objectives, and the others that a table has; where none is an objective, params and MACs."""
    known = [name for name in dict.fromkeys([*facts.subject.objectives, *COSTS])
             if ("." in name or name in MEASURED) and name.partition(".")[0] in (*WORDS, "memory", *MEASURED)]
    mine = [name for name in known if name in facts.subject.objectives] or ["params.total", "macs.total"]
    drawn = [name for name in known if name in facts.done and (facts.done[name].astype(float) != 0).any()
             and facts.done[name].notna().any()]
    return [name for name in mine if name in drawn], [name for name in drawn if name not in mine]


def section(facts: Facts) -> Section:
    """The figures; those against what is no objective are folded."""
    if not len(facts.done):
        return Section("front", "Front", tag("p", "No candidate is finished yet, so there is no front."))
    first, others = costs_of(facts)
    head = tag("p", f"{len(facts.front)} of {len(facts.done)} finished candidates are on the front of "
                    f"{', '.join(f'{name} ({way})' for name, way in facts.subject.objectives.items())}. "
                    "Rest on a point for its numbers; click it for its row in the table.")
    body = [head, _panels(facts, first, facts.main)]
    reported = f"test.{facts.main}"
    if reported in facts.done and facts.done[reported].notna().any():
        body.append(_folded(f"By {reported}, which was not looked at in choosing", _panels(facts, first, reported)))
    if others:
        body.append(_folded("Against the other costs", _panels(facts, others, facts.main)))
    return Section("front", "Front", join(body))


def _folded(title: str, inside: Html) -> Html:
    return tag("details", tag("summary", title), inside)


def _panels(facts: Facts, costs: Iterable[str], y: str) -> Html:
    return tag("div", *(_panel(facts, x, y) for x in costs), class_="panels")


def _panel(facts: Facts, x: str, y: str) -> Html:
    done = facts.done[facts.done[x].notna() & facts.done[y].notna()]
    figure = tradeoff(facts.table, facts.subject, x, y)
    names = {y: label(y, {}), x: label(x, {})}
    titles = {int(row["trial"]): tell(row, names) for _, row in done.head(MOST_POINTS).iterrows()}
    _mark(figure, [(int(row["trial"]), float(row[x]), float(row[y])) for _, row in done.head(MOST_POINTS).iterrows()])
    bars = "; bars: intervals of means over seeds, by pooled noise" if f"{y}.half" in facts.table else ""
    key = f"front-{x}-{y}".replace(".", "-").replace("_", "-")
    return framed(inline(figure, key, _alt(facts, x, y), titles),
                  f"{label(y, {})} against {label(x, facts.subject.protocol)}{bars}.")


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
