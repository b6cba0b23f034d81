"""Figures of compression studies: scores of replacements, and whether they add up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scalesearch.compression.alternatives import CHAINS
from scalesearch.compression.front import ScoredLibrary
from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.report.figures.style import new_figure
from scalesearch.report.proxies import audit_proxies
from scalesearch.terminal import format_count

MIN_RISE = 1e-4  # smaller rises have the color of this one


def plot_scores(library: ScoredLibrary) -> Figure:
    """Plot a heat map of the rise of the loss: a row per layer and chain, a column per size."""
    rises = dict(zip(library.alternatives, library.rises))
    rows = sorted({(list(CHAINS).index(alternative.chain), alternative.first)
                   for alternative in rises})
    labels = {alternative: "shared" if alternative.last > alternative.first
              else str(alternative.size) if alternative.size else "none" for alternative in rises}
    columns = list(dict.fromkeys(labels[alternative] for alternative in sorted(
        rises, key=lambda item: (labels[item] == "shared", item.size))))
    values = np.full((len(rows), len(columns)), np.nan)
    for alternative, rise in rises.items():
        row = rows.index((list(CHAINS).index(alternative.chain), alternative.first))
        values[row, columns.index(labels[alternative])] = rise
    with new_figure(2.4 + 0.62 * len(columns), 1.1 + 0.26 * len(rows)) as (figure, (axes,)):
        shown = np.log10(np.clip(values, MIN_RISE, None))
        image = axes.imshow(shown, aspect="auto", cmap="viridis_r")
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), [f"{list(CHAINS)[chain]} {layer + 1}"
                                           for chain, layer in rows])
        for (row, column), value in np.ndenumerate(values):
            if not math.isnan(value):
                is_dark = shown[row, column] > np.nanmean(shown)
                axes.text(column, row, f"{value:.4f}", ha="center", va="center", fontsize=6,
                          color="white" if is_dark else "black")
        axes.grid(False)
        axes.tick_params(length=0)
        axes.set_xlabel("Heads or hidden units; shared: one set of weights with the next layer")
        figure.colorbar(image, label="log10 of the rise of the loss\n(nats per character)")
    return figure


def additivity_table(library: ScoredLibrary, params: Sequence[float]) -> pd.DataFrame:
    """A row per measured combination: ``predicted.loss``, ``loss`` and ``params.total``."""
    predicted = [library.predicted_rise(combination.alternatives)
                 for combination in library.measured]
    measured = [combination.rise for combination in library.measured]
    return pd.DataFrame({"predicted.loss": predicted, "loss": measured, "params.total": params})


def plot_additivity(table: pd.DataFrame, library: ScoredLibrary) -> Figure:
    """Plot measured against predicted rises of random combinations.

    Args:
        table: result of :func:`additivity_table`.
        library: has the standard errors of the measured rises.
    """
    errors = [combination.standard_error for combination in library.measured]
    with new_figure(3.6, 3.4) as (figure, (axes,)):
        axes.errorbar(table["predicted.loss"], table["loss"], yerr=errors, fmt="o", markersize=3,
                      linewidth=0.8)
        limits = np.array([0, table[["predicted.loss", "loss"]].to_numpy().max() * 1.05])
        axes.plot(limits, limits, linewidth=0.8, color="0.5")
        axes.set(xlabel="Predicted rise of the loss (sum of single rises)",
                 ylabel="Measured rise (nats per character)")
    return figure


def describe_additivity(table: pd.DataFrame) -> str:
    """Describe in a sentence how well the order of predicted rises agrees with measured ones."""
    text = (f"{format_count(len(table), 'random combination')} before fine-tuning; the line is "
            "equality, bars are standard errors.")
    audited = audit_proxies(table, "loss", "params.total", ["predicted.loss"], CONFIDENCE).proxies
    proxy = next((entry for entry in audited if entry.proxy == "predicted.loss"), None)
    if proxy is None:
        return text
    return (f"{text} Kendall's tau {proxy.tau}; at equal params {proxy.tau_at_equal_cost} "
            f"({proxy.n_pairs} pairs).")
