"""The cost ledgers: params, MACs and FLOPs by section, memory, and each candidate module by module."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from scalesearch.cost.modules import Row
from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import Cell, Html, Section, join, table, tag
from scalesearch.report.page.svg import canvas, framed, inline
from scalesearch.report.page.words import under

SECTIONS = ("embedding", "encoder", "decoder", "output")
QUANTITIES = {"params": "unique weights; a tied table counts once, where it is first used",
              "macs": "multiply-accumulates of one sentence pair; the embedding's look-up is free",
              "flops": "2 · MACs"}
MEMORY = {"weights": "weights", "cache": "key-value cache", "activations": "training activations"}
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
MOST = 40  # bars in the figure


def section(facts: Facts) -> Section:
    """A figure of shares, a table of exact numbers for each quantity, and the modules of each candidate."""
    title = "Cost ledgers of the front" if facts.searched else "Cost ledgers"
    if not facts.billed:
        return Section("costs", title, tag("p", "Nobody is on the front yet." if facts.searched else
                                           "No training is finished yet."))
    body = [_figure(facts, facts.billed[:MOST]), _table(facts, facts.billed, "params"),
            _table(facts, facts.billed, "macs"), _folded("FLOPs by section", _table(facts, facts.billed, "flops")),
            _memory(facts, facts.billed), tag("h3", "Module by module"),
            *(_ledger(facts, number) for number in facts.billed)]
    return Section("costs", title, join(body), "Cost ledgers")


def parts(facts: Facts, number: int, quantity: str) -> list[int]:
    """By section, and the total."""
    found = (facts.candidates[number].cost or {}).get(quantity, {})
    return [int(found.get(name, 0)) for name in (*SECTIONS, "total")]


def _folded(title: object, *inside: Html, **attributes: object) -> Html:
    return tag("details", tag("summary", title), *inside, **attributes)


def _table(facts: Facts, members: list[int], quantity: str) -> Html:
    rows = []
    for number in members:
        *sections, total = parts(facts, number, quantity)
        shares = [_share(value, total) for value in sections]
        rows.append([Cell(facts.candidates[number].name, number, words=True), *shares, Cell(f"{total:,}", total)])
    caption = f"{quantity}: {QUANTITIES[quantity]}. {under(facts.subject.protocol)}."
    return table(["candidate", *SECTIONS, "total"], rows, caption, f"costs-{quantity}")


def _share(value: int, total: int) -> Cell:
    return Cell(f"{value:,} ({value / total:.0%})" if total else "0", value)


def _memory(facts: Facts, members: list[int]) -> Html:
    rows = []
    for number in members:
        found = (facts.candidates[number].cost or {}).get("memory", {})
        rows.append([Cell(facts.candidates[number].name, number, words=True),
                     *(Cell(f"{int(found[name]):,}", int(found[name])) if name in found else "" for name in MEMORY)])
    target = facts.subject.protocol["target"]
    caption = (f"memory: bytes in float32; the key-value cache after {target} target tokens; an estimate of what one "
               "sentence pair keeps for the backward pass.")
    return table(["candidate", *MEMORY.values()], rows, caption, "costs-memory")


def _ledger(facts: Facts, number: int) -> Html:
    """The modules of one candidate, how often its weights are used, and its architecture file."""
    one = facts.candidates[number]
    total, macs = (parts(facts, number, quantity)[-1] for quantity in ("params", "macs"))
    inside = [_modules(one.modules, total, macs, f"ledger-{number}-modules", one.name)] if one.modules else \
        [tag("p", "Its architecture file does not give the bill that it was judged by, so there are no modules.")]
    inside += [_load(one.cost or {})]
    if one.config:
        inside.append(_folded("architecture.yaml", tag("pre", one.config, class_="scroll", tabindex="0")))
    return _folded(f"{one.name}: {total:,} params, {macs:,} MACs", *inside, id=f"ledger-{number}", class_="ledger")


def _modules(rows: Sequence[Row], params: int, macs: int, key: str, name: str) -> Html:
    cells = []
    for at, row in enumerate(rows):
        said = tag("span", row.path.rpartition(".")[2], style=f"padding-left: {1.2 * row.level:.1f}em")
        cells.append([Cell(said, at, words=True), Cell(_share(row.params, params).shown, row.params),
                      Cell(_share(row.macs, macs).shown, row.macs), "" if row.calls is None else row.calls])
    caption = f"{name}: what lies beneath a module is summed in it; the layers of a stack stand together."
    return table(["module", "params", "MACs", "calls a pass"], cells, caption, key)


def _load(cost: Any) -> Html:
    load = cost.get("load")
    return tag("p", f"Uses of a weight in a pass: {load['mean']:.3g} on average, {load['min']:.3g} to "
                    f"{load['max']:.3g}; balance (Jain's index) {load['balance']:.3g}.") if load else Html("")


def _figure(facts: Facts, members: list[int]) -> Html:
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
    who = "The front from the cheapest" if facts.searched else "Each finished candidate"
    return framed(inline(figure, "costs-figure", f"Bars of params and MACs by section. Params of {alt}."),
                  f"{who}; {under(facts.subject.protocol)}.")


def _bars(axes: Any, places: Any, values: Any) -> None:
    left = np.zeros(len(values))
    for at, name in enumerate(SECTIONS):
        axes.barh(places, values[:, at] / 1e6, left=left, color=COLORS[at], height=0.7, label=name)
        left = left + values[:, at] / 1e6
    axes.grid(False, axis="y")
