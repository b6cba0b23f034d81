"""The cost ledgers: params, MACs and FLOPs by section, memory, and each trial module by module."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from scalesearch.cost.modules import Row
from scalesearch.report.page.facts import Facts, TrialFacts
from scalesearch.report.page.labels import protocol_words
from scalesearch.report.page.parts import Cell, Code, Fold, Heading, Picture, Section, Table, Text, table
from scalesearch.report.page.svg import canvas, picture

SECTIONS = ("embedding", "encoder", "decoder", "output")
QUANTITIES = {"params": "unique weights; a tied table counts once, where it is first used",
              "macs": "multiply-accumulates of one sentence pair; the embedding's look-up is free",
              "flops": "2 · MACs"}
MEMORY = {"weights": "weights", "cache": "key-value cache", "activations": "training activations"}
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
MAX_BARS = 40


def section(facts: Facts) -> Section:
    """A figure of shares, a table of exact numbers for each quantity, and the modules of each trial."""
    title = "Cost ledgers of the front" if facts.searched else "Cost ledgers"
    trials = [facts.trials[number] for number in facts.itemised]
    if not trials:
        return Section("costs", title, [Text(["No trial is on the front yet." if facts.searched else
                                              "No training is finished yet."])])
    return Section("costs", title, [
        _picture(facts, trials[:MAX_BARS]), _table(facts, trials, "params"), _table(facts, trials, "macs"),
        Fold("FLOPs by section", [_table(facts, trials, "flops")]), _memory(facts, trials),
        Heading("Module by module"), *map(_modules, trials)], "Cost ledgers")


def amounts(trial: TrialFacts, quantity: str) -> list[int]:
    """Amounts of ``quantity`` by section, and the total."""
    found = (trial.cost or {}).get(quantity, {})
    return [int(found.get(name, 0)) for name in (*SECTIONS, "total")]


def _share(value: int, total: int) -> Cell:
    return Cell(f"{value:,} ({value / total:.0%})" if total else "0", value)


def _table(facts: Facts, trials: Sequence[TrialFacts], quantity: str) -> Table:
    rows = []
    for trial in trials:
        *parts, total = amounts(trial, quantity)
        rows.append([Cell(trial.name, trial.number, left=True), *(_share(value, total) for value in parts), total])
    caption = f"{quantity}: {QUANTITIES[quantity]}. {protocol_words(facts.subject.protocol)}."
    return table(["trial", *SECTIONS, "total"], rows, caption, f"costs-{quantity}")


def _memory(facts: Facts, trials: Sequence[TrialFacts]) -> Table:
    rows = [[Cell(trial.name, trial.number, left=True), *((trial.cost or {}).get("memory", {}).get(name)
                                                          for name in MEMORY)] for trial in trials]
    caption = (f"memory: bytes in float32; the key-value cache after {facts.subject.protocol['target']} target tokens; "
               "an estimate of what one sentence pair keeps for the backward pass.")
    return table(["trial", *MEMORY.values()], rows, caption, "costs-memory")


def _modules(trial: TrialFacts) -> Fold:
    """The modules of one trial, how often its weights are used, and its architecture file."""
    params, macs = (amounts(trial, quantity)[-1] for quantity in ("params", "macs"))
    return Fold(f"{trial.name}: {params:,} params, {macs:,} MACs", [*_details(trial, params, macs)],
                f"costs-{trial.number}")


def _details(trial: TrialFacts, params: int, macs: int) -> Iterator[Any]:
    if trial.modules:
        caption = f"{trial.name}: a module's numbers include all beneath it; the layers of a stack are summed."
        yield table(["module", "params", "MACs", "calls a pass"],
                    [_module(at, row, params, macs) for at, row in enumerate(trial.modules)], caption,
                    f"costs-{trial.number}-modules")
    else:
        yield Text(["Its architecture file no longer gives the costs that it was judged by, so there are no modules."])
    load = (trial.cost or {}).get("load")
    if load:
        yield Text([f"Uses of a weight in a pass: {load['mean']:.3g} on average, {load['min']:.3g} to "
                    f"{load['max']:.3g}; balance (Jain's index) {load['balance']:.3g}."])
    if trial.config:
        yield Fold("architecture.yaml", [Code(trial.config)])


def _module(at: int, row: Row, params: int, macs: int) -> list[Any]:
    return [Cell(row.path.rpartition(".")[2], at, left=True, indent=row.level), _share(row.params, params),
            _share(row.macs, macs), "" if row.calls is None else row.calls]


def _picture(facts: Facts, trials: Sequence[TrialFacts]) -> Picture:
    with canvas(8.4, 1.2 + 0.22 * len(trials), 2) as (figure, panels):
        places = np.arange(len(trials))[::-1]
        for axes, quantity in zip(panels, QUANTITIES):
            left = np.zeros(len(trials))
            for at, (name, color) in enumerate(zip(SECTIONS, COLORS)):
                values = np.array([amounts(trial, quantity)[at] for trial in trials]) / 1e6
                axes.barh(places, values, left=left, color=color, height=0.7, label=name)
                left = left + values
            axes.grid(False, axis="y")
            axes.set_xlabel("Params (millions)" if quantity == "params" else "MACs of a sentence pair (millions)")
        panels[0].set_yticks(places, [str(trial.number) for trial in trials])
        panels[0].set_ylabel("Trial")
        panels[1].set_yticks([])
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    alt = "; ".join(f"trial {trial.number}: " + ", ".join(f"{name} {value:,}" for name, value in
                    zip((*SECTIONS, "total"), amounts(trial, "params"))) for trial in trials)
    who = "The front from the cheapest" if facts.searched else "Each finished trial"
    return picture(figure, "costs-figure", f"Bars of params and MACs by section. Params of {alt}.",
                   f"{who}; {protocol_words(facts.subject.protocol)}.")
