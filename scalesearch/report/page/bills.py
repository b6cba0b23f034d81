"""What each member of the front is made of: params and MACs by section."""

from typing import Any

import numpy as np

from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import Cell, Section, join, table, tag
from scalesearch.report.page.svg import canvas, framed, inline
from scalesearch.report.page.words import under

SECTIONS = ("embedding", "encoder", "decoder", "output")
QUANTITIES = {"params": "unique weights; a tied table counts once, where it is first used",
              "macs": "multiply-accumulates of one sentence pair; the embedding's look-up is free"}
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
MOST = 40  # bars in the figure


def section(facts: Facts) -> Section:
    """A figure of shares, and a table of exact numbers for each quantity."""
    members = [number for number in facts.members if facts.candidates[number].cost]
    if not members:
        return Section("costs", "What the front is made of", tag("p", "Nobody is on the front yet."))
    body = [_figure(facts, members[:MOST]), *(_table(facts, members, name) for name in QUANTITIES)]
    return Section("costs", "What the front is made of", join(body))


def parts(facts: Facts, number: int, quantity: str) -> list[int]:
    """By section, and the total."""
    found = (facts.candidates[number].cost or {}).get(quantity, {})
    return [int(found.get(name, 0)) for name in (*SECTIONS, "total")]


def _table(facts: Facts, members: list[int], quantity: str) -> Any:
    rows = []
    for number in members:
        *sections, total = parts(facts, number, quantity)
        shares = [Cell(f"{value:,} ({value / total:.0%})" if total else "0", value) for value in sections]
        rows.append([Cell(facts.candidates[number].name, number), *shares, Cell(f"{total:,}", total)])
    caption = f"{quantity}: {QUANTITIES[quantity]}. {under(facts.subject.protocol)}."
    return table(["candidate", *SECTIONS, "total"], rows, caption, f"costs-{quantity}")


def _figure(facts: Facts, members: list[int]) -> Any:
    with canvas(8.4, 1.2 + 0.22 * len(members), 2) as (figure, panels):
        places = np.arange(len(members))[::-1]
        for axes, quantity in zip(panels, QUANTITIES):
            _bars(axes, places, np.array([parts(facts, number, quantity) for number in members], dtype=float))
            axes.set_xlabel("Params (millions)" if quantity == "params" else "MACs of a sentence pair (millions)")
        panels[0].set_yticks(places, [str(number) for number in members])
        panels[0].set_ylabel("Trial")
        panels[1].set_yticks([])
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    alt = "; ".join(f"trial {number}: " + ", ".join(f"{name} {value:,}" for name, value in
                    zip((*SECTIONS, "total"), parts(facts, number, "params"))) for number in members)
    return framed(inline(figure, "costs-figure", f"Bars of params and MACs by section. Params of {alt}."),
                  f"The front from the cheapest; {under(facts.subject.protocol)}.")


def _bars(axes: Any, places: Any, values: Any) -> None:
    left = np.zeros(len(values))
    for at, name in enumerate(SECTIONS):
        axes.barh(places, values[:, at] / 1e6, left=left, color=COLORS[at], height=0.7, label=name)
        left = left + values[:, at] / 1e6
    axes.grid(False, axis="y")
