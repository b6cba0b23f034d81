"""Writes a study's tables and figures."""

from pathlib import Path

import numpy as np

from scalesearch.files import write_text
from scalesearch.study.results.results import Results
from scalesearch.study.trials.trial import State
from scalesearch.tasks import EFFICIENCY_METRICS

SECTION_SUFFIXES = {"total": "", "non_embedding": "-non-embedding"}


def write_outputs(results: Results, folder: Path | None = None) -> list[Path]:
    """Writes tables and figures into the study's folder, or ``folder``.

    The tables are front.csv and all.csv, and where any candidate has several seeds, seeds.csv with
    every training.
    """
    from scalesearch.report.table import drop_empty_columns
    from scalesearch.report.text_tables import to_csv

    place = folder or results.study.folder
    files = []
    for name, rows in (("front.csv", results.front), ("all.csv", results.table),
                       *([("seeds.csv", results.seeds)] if len(results.seeds) else [])):
        write_text(place / name, to_csv(drop_empty_columns(rows)))
        files.append(place / name)
    return files + write_figures(results, place)


def write_figures(results: Results, folder: Path) -> list[Path]:
    """A figure of the main metric against each cost."""
    from scalesearch.report.figures.plot import plot_tradeoff
    from scalesearch.report.figures.style import save_figure

    y = results.main_metric
    if not np.any((results.table["state"] == State.COMPLETE) & results.table[y].notna()):
        return []
    files = []
    reported = f"test.{y}"
    for name in (y, reported) if reported in results.table and results.table[reported].notna().any() else (y,):
        for x in plotted_costs(results):
            stem = f"{name.replace('.', '-')}-vs-{_short(x)}"
            files += save_figure(plot_tradeoff(results.table, results.subject, x, name),
                                 folder / stem)
    return files


def plotted_costs(results: Results) -> list[str]:
    """The costs that figures have one each of: those among the objectives, params and MACs."""
    costs = [name for name in results.objectives if "." in name or name in EFFICIENCY_METRICS]
    for usual in ("params.total", "macs.total"):
        if not any(cost.partition(".")[0] == usual.partition(".")[0] for cost in costs):
            costs.append(usual)
    return costs


def _short(name: str) -> str:
    group, _, section = name.partition(".")
    return group + SECTION_SUFFIXES.get(section, f"-{section}") if section else group
