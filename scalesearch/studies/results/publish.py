"""Tables and figures of a study as files."""

from pathlib import Path

import numpy as np

from scalesearch.files import write_text
from scalesearch.studies.results.results import Results
from scalesearch.studies.trials.trial import State
from scalesearch.tasks import EFFICIENCY_METRICS

SECTION_SUFFIXES = {"total": "", "non_embedding": "-non-embedding"}


def write_outputs(results: Results, folder: Path | None = None) -> list[Path]:
    """Write tables and figures to the study's folder, or to ``folder``.

    Return their paths.

    The tables are ``front.csv`` and ``all.csv``. If a candidate has several seeds, ``seeds.csv``
    contains one row per run of these candidates.
    """
    from scalesearch.report.table import drop_empty_columns
    from scalesearch.report.text_tables import to_csv

    target = folder or results.study.folder
    files = []
    for name, rows in (("front.csv", results.front), ("all.csv", results.table),
                       *([("seeds.csv", results.seeds)] if len(results.seeds) else [])):
        write_text(target / name, to_csv(drop_empty_columns(rows)))
        files.append(target / name)
    return files + write_figures(results, target)


def write_figures(results: Results, folder: Path) -> list[Path]:
    """Write a figure of the main metric, and of its test score, against each cost."""
    from scalesearch.report.figures.plot import plot_tradeoff
    from scalesearch.report.figures.style import save_figure

    y = results.main_metric
    if not np.any((results.table["state"] == State.COMPLETE) & results.table[y].notna()):
        return []
    files = []
    names = [y]
    test_score = f"test.{y}"
    if test_score in results.table and results.table[test_score].notna().any():
        names.append(test_score)
    for name in names:
        for x in plotted_costs(results):
            stem = f"{name.replace('.', '-')}-vs-{_short(x)}"
            files += save_figure(plot_tradeoff(results.table, results.subject, x, name),
                                 folder / stem)
    return files


def plotted_costs(results: Results) -> list[str]:
    """Costs with a figure each: the costs among the objectives, parameters and MACs."""
    costs = [name for name in results.objectives if "." in name or name in EFFICIENCY_METRICS]
    for default in ("params.total", "macs.total"):
        if not any(cost.partition(".")[0] == default.partition(".")[0] for cost in costs):
            costs.append(default)
    return costs


def _short(name: str) -> str:
    group, _, section = name.partition(".")
    return group + SECTION_SUFFIXES.get(section, f"-{section}") if section else group
