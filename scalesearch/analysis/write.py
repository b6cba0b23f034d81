"""Writes an analysis to a folder: ``analysis.json``, a CSV file a measure, and its figures as PNG and SVG."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalesearch.analysis.run import Analysis
from scalesearch.files import write_json, write_text


def write(found: Analysis, about: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write everything into ``folder``, made if need be; files of an earlier analysis are replaced.

    Args:
        about: what the analysis is of, as JSON values; stands in ``analysis.json`` before the measures.

    Returns:
        The paths of what was written.
    """
    from scalesearch.analysis.plot import figures
    from scalesearch.report.style import save

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "analysis.json"]
    write_json(paths[0], {**about, **found.to_json()})
    for name, rows in found.tables().items():
        if rows:
            paths.append(folder / f"{name}.csv")
            write_text(paths[-1], as_csv(rows))
    for name, figure in figures(found).items():
        paths += save(figure, folder / name)
    return paths


def as_csv(rows: list[Any]) -> str:
    """Rows (dataclasses of one kind) under a heading; None is an empty field."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(asdict(rows[0])), lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(row) for row in rows)
    return text.getvalue()
