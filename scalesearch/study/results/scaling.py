"""Files of a scaling study: tables as Markdown, CSV and JSON, and figures.

::

    runs/growth/scaling.md  scaling.csv  scaling.json        everything, a row a point, everything for machines
    runs/growth/scaling-curves.png …                         means against each cost, a line a rule
    runs/growth/scaling-params.png  scaling-macs.png …       laws with their bands; each figure also as SVG
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scalesearch.files import write_json, write_text
from scalesearch.report.labels import direction
from scalesearch.report.scaling.figures import curves, laws
from scalesearch.report.scaling.study import ScalingStudy, plan_of, scaling_study
from scalesearch.report.scaling.tables import frame, to_json, to_markdown
from scalesearch.report.style import save
from scalesearch.report.text_tables import to_csv
from scalesearch.study.results.results import Results, main_metric
from scalesearch.study.trials.record import describe_taught
from scalesearch.study.trials.trial import State
from scalesearch.tasks import COMMON, MEASURED


def scaling_of(results: Results, metric: str | None = None, at: Sequence[tuple[str, float]] = (),
               confidence: float | None = None) -> ScalingStudy:
    """Scaling of the rules of a study, which may be unfinished.

    Args:
        metric: the score; the task's main metric, unless given.
        at: costs and sizes to rank the rules at.
        confidence: of intervals; the study's, unless given.

    Raises:
        UserError: it is no scaling study, or there is no such metric or cost.
    """
    meta, records = results.study.meta.to_json(), results.records
    plan_of(meta)
    name = metric or main_metric(results)
    return scaling_study(records, meta, name, results.objectives.get(name, direction(name)),
                         confidence or results.verdict.confidence, at, _signature(results, records, name),
                         describe_taught(results.teacher) if results.teacher else "")


def _signature(results: Results, records: Sequence[Mapping[str, Any]], metric: str) -> str:
    """The metric's own, or that of its task's; a loss has none."""
    name = metric.removeprefix("test.")
    metrics = next((record.get("metrics") or {} for record in records if record["state"] == State.COMPLETE), {})
    own = str(metrics.get(f"{name}_signature") or "")
    return own if own or name in COMMON or name in MEASURED else results.signature


def publish_scaling(results: Results, folder: Path | None = None) -> list[Path]:
    """Writes tables and figures of a scaling study into its folder, or ``folder``. Returns their paths."""
    return write_scaling(scaling_of(results), folder or results.study.folder)


def write_scaling(study: ScalingStudy, folder: Path) -> list[Path]:
    """Writes the files of a known scaling; no figure where there is nothing to draw."""
    files = [folder / f"scaling.{ending}" for ending in ("md", "csv", "json")]
    write_text(files[0], to_markdown(study))
    write_text(files[1], to_csv(frame(study)))
    write_json(files[2], to_json(study))
    figures = {"curves": curves(study)} | {_stem(cost): laws(study, cost) for cost in study.costs}
    for stem, figure in figures.items():
        if figure is not None:
            files += save(figure, folder / f"scaling-{stem}")
    return files


def _stem(cost: str) -> str:
    """``params``, ``params-non-embedding``."""
    return cost.removesuffix(".total").replace(".", "-").replace("_", "-")
