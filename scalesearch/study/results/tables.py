"""The table of a study's named architectures, and the files that hold it."""

from pathlib import Path
from typing import Any

from scalesearch.files import write_text
from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.report.ablation import Ablation, ablation
from scalesearch.report.text_tables import to_csv
from scalesearch.study.results.results import Results


def table_of(results: Results, metric: str, base: str | None = None, confidence: float = CONFIDENCE) -> Ablation:
    """Every row or reference of a study; the base is the study's, unless given.

    Raises:
        UserError: nothing has a name, there is no such base, or it has no finished training.
    """
    return ablation(records_of(results), metric, base or results.study.meta.base, confidence)


def records_of(results: Results) -> list[dict[str, Any]]:
    """Records of all trials; of a study of rows those that its file names."""
    rows = results.study.meta.rows
    return results.records if rows is None else [record for record in results.records if record["label"] in rows]


def write_table(ablation: Ablation, folder: Path) -> list[Path]:
    """Writes table.md, table.csv and table.tex."""
    texts = {"md": ablation.to_markdown(), "csv": to_csv(ablation.frame()), "tex": ablation.to_latex()}
    for suffix, text in texts.items():
        write_text(folder / f"table.{suffix}", text)
    return [folder / f"table.{suffix}" for suffix in texts]
