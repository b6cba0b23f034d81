"""Tables and figures of a study, for the terminal and as files."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from scalesearch.files import write_json, write_text
from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.report.ablation import Ablation, build_ablation
from scalesearch.report.labels import DEFAULT_COSTS, better_direction, describe_costs
from scalesearch.report.records import labeled_records
from scalesearch.report.scaling.study import ScalingStudy, analyze_scaling
from scalesearch.report.scaling.tables import scaling_frame, scaling_to_json, to_markdown
from scalesearch.report.table import architecture_lines, drop_empty_columns, format_trials
from scalesearch.report.text_tables import frame_to_table, to_csv
from scalesearch.studies.results.results import Results
from scalesearch.studies.trials.trial import State
from scalesearch.tasks import COMMON_METRICS, EFFICIENCY_METRICS
from scalesearch.terminal import format_count


def front_parts(results: Results) -> Iterator[Table | str]:
    """Yield the front as a table, its architectures, and notes on its numbers."""
    meta = results.study.meta
    if results.front.empty:
        yield f"Front of {meta.name}: no finished trials."
        yield from results.warnings()
        return
    title = (f"Front of {meta.name}: {format_count(len(results.front), 'member')}, of "
             f"{results.study.trials.describe_complete(is_search=meta.architectures is None)} "
             "trained to the end")
    front = format_trials(results.front, results.objectives)
    yield frame_to_table(front, title=title, has_box=True)
    yield from architecture_lines(results.front, results.params)
    yield from results.notes()
    yield from results.seed_analysis.sentences()
    if volume := results.hypervolume():
        reference_point = ", ".join(f"{name} {value:,.6g}"
                                    for name, value in zip(results.objectives, volume[1]))
        yield f"Hypervolume {volume[0]:.6g} against the reference point {reference_point}."


def write_outputs(results: Results, folder: Path | None = None) -> list[Path]:
    """Write tables and figures to the study's folder, or to ``folder``; return their paths.

    The tables are ``front.csv`` and ``all.csv``. If a candidate has several seeds, ``seeds.csv``
    contains one row per run of these candidates.
    """
    target = folder or results.study.folder
    tables = {"front.csv": results.front, "all.csv": results.table, "seeds.csv": results.seeds}
    texts = {name: to_csv(drop_empty_columns(rows)) for name, rows in tables.items()
             if name != "seeds.csv" or len(rows)}
    return [*_write_texts(texts, target), *write_figures(results, target)]


def _write_texts(texts: dict[str, str], folder: Path) -> list[Path]:
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def write_figures(results: Results, folder: Path) -> list[Path]:
    """Write a figure of the main metric, and of its test score, against each cost."""
    from scalesearch.report.figures.plot import plot_tradeoff
    from scalesearch.report.figures.style import save_figure

    table = results.table
    main = results.main_metric
    if not np.any((table["state"] == State.COMPLETE) & table[main].notna()):
        return []
    files = []
    for y in (main, f"test.{main}"):
        if y not in table or not table[y].notna().any():
            continue
        for x in plotted_costs(results):
            cost = x.removesuffix(".total").replace("non_embedding", "non-embedding")
            files += save_figure(plot_tradeoff(table, results.subject, x, y),
                                 folder / f"{y}-vs-{cost}".replace(".", "-"))
    return files


def plotted_costs(results: Results) -> list[str]:
    """Costs with a figure each: the costs among the objectives, parameters and MACs."""
    costs = [name for name in results.objectives if "." in name or name in EFFICIENCY_METRICS]
    groups = {cost.partition(".")[0] for cost in costs}
    return costs + [name for name in DEFAULT_COSTS if name.partition(".")[0] not in groups]


def table_of(results: Results, metric: str, base: str | None = None,
             confidence: float = CONFIDENCE) -> Ablation:
    """Compare the named architectures of a study, and the front of a search, with a base.

    Args:
        metric: score to compare.
        base: label of the base; the study's base if not given.
        confidence: confidence level of intervals.

    Raises:
        UserError: the study has no named architectures, or the base is unknown or has no complete
            run.
    """
    records = records_of(results)
    base = base or results.study.meta.base
    if results.study.meta.architectures is None and (named := labeled_records(records)):
        base = base or next(iter(named))
        members = {member.number for member in results.view.members}
        records = [{**record, "label": record["label"] or f"trial {record['trial']}"}
                   if record["trial"] in members else record for record in records]
    return replace(build_ablation(records, metric, base, confidence),
                   cost_note=describe_costs(results.study.meta.protocol))


def records_of(results: Results) -> list[dict[str, Any]]:
    """Return the records of all trials.

    Without a search, return those of the architectures in its file.
    """
    labels = results.study.meta.architectures
    return [record for record in results.records if labels is None or record["label"] in labels]


def write_table(ablation: Ablation, folder: Path) -> list[Path]:
    """Write ``table.md``, ``table.csv`` and ``table.tex``; return their paths."""
    return _write_texts({"table.md": ablation.to_markdown(), "table.csv": to_csv(ablation.frame()),
                         "table.tex": ablation.to_latex()}, folder)


def scaling_of(results: Results, metric: str | None = None,
               ranking_sizes: Sequence[tuple[str, float]] = (),
               confidence: float | None = None) -> ScalingStudy:
    """Analyze the scaling rules of a study, which may be unfinished.

    Args:
        metric: score to analyze; the task's main metric if not given.
        ranking_sizes: pairs of cost and size at which the rules are ranked.
        confidence: confidence level of intervals; the study's if not given.

    Raises:
        UserError: the study is not a scaling study, or the metric or a cost is unknown.
    """
    name = metric or results.main_metric
    # The signature is that of the metric, or of the main metric; losses have none.
    plain = name.removeprefix("test.")
    metrics = next((record.get("metrics") or {} for record in results.records
                    if record["state"] == State.COMPLETE), {})
    signature = str(metrics.get(f"{plain}_signature") or "")
    if not signature and plain not in {*COMMON_METRICS, *EFFICIENCY_METRICS}:
        signature = results.signature
    return analyze_scaling(
        results.records, results.study.meta.encode(), name,
        results.objectives.get(name, better_direction(name)),
        confidence or results.seed_analysis.confidence, ranking_sizes, signature,
        results.teacher_note)


def write_scaling(study: ScalingStudy, folder: Path) -> list[Path]:
    """Write ``scaling.md``, ``.csv``, ``.json`` and figures; return the paths."""
    from scalesearch.report.figures.style import save_figure
    from scalesearch.report.scaling.figures import plot_laws, plot_means

    files = _write_texts({"scaling.md": to_markdown(study),
                          "scaling.csv": to_csv(scaling_frame(study))}, folder)
    files.append(folder / "scaling.json")
    write_json(files[-1], scaling_to_json(study))
    figures = {"curves": plot_means(study)}
    figures |= {cost.removesuffix(".total"): plot_laws(study, cost) for cost in study.costs}
    for name, figure in figures.items():
        if figure is not None:
            stem = f"scaling-{name}".replace(".", "-").replace("_", "-")
            files += save_figure(figure, folder / stem)
    return files
