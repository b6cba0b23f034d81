"""Read published tables of trained Transformers (Zhang and Duh, TACL 2020; AMTA 2024).

Files of github.com/Este1le/hpo_nmt: NAME.csv has a trained model per row, NAME.curves.jsonl the
perplexity at each of its checkpoints. Curves lack the heads and partly the right vocabulary. The
curve of a row has its sizes, its learning rate and the nearest best perplexity. Perplexities are
per token, so they are not compared across vocabularies.
"""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from tabular import Row, Table

from scalesearch.errors import UserError
from scalesearch.pareto import Objective

PARAMETERS = ("bpe", "layers", "width", "ffn", "heads", "learning_rate")
COSTS = {"params": "params", "seconds": "dev_gpu_seconds"}
NEEDED = (*PARAMETERS, "dev_bleu", "dev_ppl", "updates", "params")
BETWEEN = 2000  # updates between checkpoints
MAX_MISMATCH = 0.1  # maximum log ratio of two perplexities of the same run
MIN_BLEU = 1.0  # runs with a lower BLEU failed


def read(file: Path, objectives: tuple[Objective, ...], curves: bool = True) -> tuple[Table, int]:
    """Return a table, and the number of rows that were left out.

    Rows without a curve and repeated rows are left out. Without ``curves`` each row has only its
    final perplexity, which is enough for searches without rungs.

    Raises:
        UserError: the file, its curves or a column are missing, or a cell is not a number.
    """
    rows = _rows(file)
    traced = _curves(file.with_suffix(".curves.jsonl")) if curves else None
    usual = float(np.median([row["updates"] for row in rows]))
    parsed = [_row(row, traced, usual) for row in rows]
    kept = {tuple(row.params.values()): row for row in reversed(parsed) if row is not None}
    if not kept:
        raise UserError(f"{file}: no row has a curve in "
                        f"{file.with_suffix('.curves.jsonl').name}", code="no-curves")
    return Table(list(kept.values())[::-1], objectives), len(rows) - len(kept)


def _rows(file: Path) -> list[dict[str, float]]:
    try:
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}", code="cannot-read") from None
    missing = [name for name in NEEDED if not rows or rows[0].get(name) is None]
    if missing:
        raise UserError(f"{file}: not a table of trained models: it has no rows, or lacks "
                        f"{', '.join(missing)}", code="bad-table")
    return [_numbers(row, f"{file}, line {line}") for line, row in enumerate(rows, 2)]


def _numbers(row: dict[str, str], where: str) -> dict[str, float]:
    try:
        return {name: int(text) if text.isdigit() else float(text)
                for name, text in row.items() if name and text}
    except ValueError as error:
        raise UserError(f"{where}: {error}", code="bad-table") from None


def _curves(file: Path) -> list[dict[str, Any]]:
    try:
        with file.open() as lines:
            return [curve for curve in map(json.loads, lines) if curve["perplexity_curve"]]
    except OSError:
        raise UserError(f"{file}: the file does not exist; searches with rungs need the learning "
                        "curves. Without them take --searches that have no rungs",
                        code="no-curves") from None
    except (ValueError, KeyError) as error:
        raise UserError(f"{file}: expected one JSON object with a perplexity_curve per line: {error}",
                        code="bad-table") from None


def _row(row: dict[str, float], curves: list[dict[str, Any]] | None, usual: float) -> Row | None:
    """Return a trained model; ``usual`` is the number of updates of a full-budget run."""
    curve = (row["dev_ppl"],) if curves is None else _curve(row, curves)
    if curve is None:
        return None
    values = {"bleu": row["dev_bleu"]} | {name: row[column]
                                          for name, column in COSTS.items() if column in row}
    return Row({name: row[name] for name in PARAMETERS}, values, curve,
               row["updates"] * row["params"], max(row["updates"], 1.0) / usual,
               f"token of {row['bpe']}", failed=row["dev_bleu"] < MIN_BLEU)


def _curve(row: dict[str, float], curves: list[dict[str, Any]]) -> tuple[float, ...] | None:
    key = ("layers", "width", "ffn", "learning_rate")
    mine = [curve["perplexity_curve"]
            for curve in curves if all(curve[name] == row[name] for name in key)]

    def mismatch(curve: list[float]) -> tuple[float, float]:
        return round(_log_ratio(min(curve), row["dev_ppl"]),
                     4), abs(len(curve) - row["updates"] / BETWEEN)

    best = min(mine, key=mismatch, default=None)
    # The perplexity of a failed run is meaningless, so any curve of its length is accepted.
    return tuple(best) if best and (mismatch(best)[0] <= MAX_MISMATCH or row["dev_bleu"] < MIN_BLEU) else None


def _log_ratio(first: float, other: float) -> float:
    return abs(float(np.log(max(first, 1e-9) / max(other, 1e-9))))
