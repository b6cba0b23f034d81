"""Reads tables of Transformers that were really trained, as published with Zhang and Duh (TACL 2020; AMTA 2024).

From github.com/Este1le/hpo_nmt: NAME.csv, a trained model a row, and NAME.curves.jsonl, the
perplexity at each of its checkpoints. Curves name neither heads nor, everywhere, the right
vocabulary; a row's is the one of its sizes and learning rate whose best perplexity is nearest to
its own. Perplexities are of a token, so those of different vocabularies do not compare.
"""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from tabular import Row, Table

from scalesearch.errors import UserError
from scalesearch.pareto.objective import Objective

QUESTIONS = ("bpe", "layers", "width", "ffn", "heads", "learning_rate")
COSTS = {"params": "params", "seconds": "dev_gpu_seconds"}
NEEDED = (*QUESTIONS, "dev_bleu", "dev_ppl", "updates", "params")
BETWEEN = 2000  # updates between checkpoints
FAR = 0.1  # the log of two perplexities' ratio from which they cannot be of one training
FAILED = 1.0  # a BLEU below which a training came to nothing


def read(file: Path, objectives: tuple[Objective, ...], curves: bool = True) -> tuple[Table, int]:
    """The table in ``file``, and how many rows are left out: without a curve, or answering as an earlier row does.

    Without ``curves`` each row has its final perplexity alone, which serves searches without rungs.

    Raises:
        UserError: the file, its curves or a column are missing, or a cell is no number.
    """
    rows = _rows(file)
    traced = _curves(file.with_suffix(".curves.jsonl")) if curves else None
    usual = float(np.median([row["updates"] for row in rows]))
    found = [_row(row, traced, usual) for row in rows]
    kept = {tuple(row.answers.values()): row for row in reversed(found) if row is not None}
    if not kept:
        raise UserError(f"{file}: not one row has a curve in "
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
        raise UserError(f"{file}: no table of trained models: it has no rows, or lacks "
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
        raise UserError(f"{file}: there is no such file; searches with rungs need the learning "
                        "curves. Without them take --searches that have no rungs",
                        code="no-curves") from None
    except (ValueError, KeyError) as error:
        raise UserError(f"{file}: not one JSON object with a perplexity_curve a line: {error}",
                        code="bad-table") from None


def _row(row: dict[str, float], curves: list[dict[str, Any]] | None, usual: float) -> Row | None:
    """One trained model; ``usual``: updates of a full training, in which rungs count."""
    curve = (row["dev_ppl"],) if curves is None else _curve(row, curves)
    if curve is None:
        return None
    values = {"bleu": row["dev_bleu"]} | {name: row[column]
                                          for name, column in COSTS.items() if column in row}
    return Row({name: row[name] for name in QUESTIONS}, values, curve,
               row["updates"] * row["params"], max(row["updates"], 1.0) / usual,
               f"token of {row['bpe']}", failed=row["dev_bleu"] < FAILED)


def _curve(row: dict[str, float], curves: list[dict[str, Any]]) -> tuple[float, ...] | None:
    key = ("layers", "width", "ffn", "learning_rate")
    mine = [curve["perplexity_curve"]
            for curve in curves if all(curve[name] == row[name] for name in key)]

    def far(curve: list[float]) -> tuple[float, float]:
        return round(_apart(min(curve), row["dev_ppl"]),
                     4), abs(len(curve) - row["updates"] / BETWEEN)

    best = min(mine, key=far, default=None)
    # A failed training's perplexity says nothing, so that the curve of its length is as good as
    # any.
    return tuple(best) if best and (far(best)[0] <= FAR or row["dev_bleu"] < FAILED) else None


def _apart(one: float, other: float) -> float:
    return abs(float(np.log(max(one, 1e-9) / max(other, 1e-9))))
