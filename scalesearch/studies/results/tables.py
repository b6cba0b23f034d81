"""Tables of named architectures and of scaling studies, and their files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scalesearch.files import write_json, write_text
from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.report.ablation import Ablation, build_ablation
from scalesearch.report.labels import better_direction
from scalesearch.report.scaling.study import ScalingStudy, analyze_scaling, read_scaling_plan
from scalesearch.report.scaling.tables import scaling_frame, to_json, to_markdown
from scalesearch.report.text_tables import to_csv
from scalesearch.studies.results.results import Results
from scalesearch.studies.trials.record import describe_teacher_facts
from scalesearch.studies.trials.trial import State
from scalesearch.tasks import COMMON_METRICS, EFFICIENCY_METRICS


def table_of(results: Results, metric: str, base: str | None = None,
             confidence: float = CONFIDENCE) -> Ablation:
    """Compare the named architectures of a study with a base.

    Args:
        metric: score to compare.
        base: label of the base; the study's base if not given.
        confidence: confidence level of intervals.

    Raises:
        UserError: the study has no named architectures, or the base is unknown or has no complete
            run.
    """
    return build_ablation(records_of(results), metric, base or results.study.meta.base, confidence)


def records_of(results: Results) -> list[dict[str, Any]]:
    """Return the records of all trials.

    Without a search, return those of the architectures in its file.
    """
    labels = results.study.meta.architectures
    if labels is None:
        return results.records
    return [record for record in results.records if record["label"] in labels]


def write_table(ablation: Ablation, folder: Path) -> list[Path]:
    """Write ``table.md``, ``table.csv`` and ``table.tex``; return their paths."""
    texts = {"md": ablation.to_markdown(), "csv": to_csv(ablation.frame()),
             "tex": ablation.to_latex()}
    for suffix, text in texts.items():
        write_text(folder / f"table.{suffix}", text)
    return [folder / f"table.{suffix}" for suffix in texts]


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
    meta = results.study.meta.to_json()
    records = results.records
    read_scaling_plan(meta)
    name = metric or results.main_metric
    return analyze_scaling(
        records, meta, name, results.objectives.get(name, better_direction(name)),
        confidence or results.seed_analysis.confidence, ranking_sizes,
        _signature(results, records, name),
        describe_teacher_facts(results.teacher) if results.teacher else "")


def _signature(results: Results, records: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Signature of the metric, or of the study's main metric; empty for losses."""
    name = metric.removeprefix("test.")
    metrics = next((record.get("metrics") or {}
                    for record in records if record["state"] == State.COMPLETE), {})
    own = str(metrics.get(f"{name}_signature") or "")
    return own if own or name in COMMON_METRICS or name in EFFICIENCY_METRICS else results.signature


def write_scaling(study: ScalingStudy, folder: Path) -> list[Path]:
    """Write ``scaling.md``, ``.csv``, ``.json`` and figures; return the paths."""
    from scalesearch.report.figures.style import save_figure
    from scalesearch.report.scaling.figures import plot_laws, plot_means

    files = [folder / f"scaling.{ending}" for ending in ("md", "csv", "json")]
    write_text(files[0], to_markdown(study))
    write_text(files[1], to_csv(scaling_frame(study)))
    write_json(files[2], to_json(study))
    figures = {"curves": plot_means(study)} | {
        cost.removesuffix(".total").replace(".", "-").replace("_", "-"): plot_laws(study, cost)
        for cost in study.costs}
    for stem, figure in figures.items():
        if figure is not None:
            files += save_figure(figure, folder / f"scaling-{stem}")
    return files
