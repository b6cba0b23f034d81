"""Replays searches on tables of Transformers that were really trained: how soon is the front found?

    python benchmarks/replay.py --tables FOLDER --seeds 20

A table is NAME.csv (a trained model a row) with NAME.curves.jsonl (perplexity at each checkpoint), as published with
Zhang and Duh (TACL 2020; AMTA 2024): github.com/Este1le/hpo_nmt. Printed is the regret, the share of the table's best
hypervolume of (dev BLEU, params) that a search has not found yet, as mean and standard error over seeds: after so many
evaluations (candidates begun), and after so much compute. Compute is updates times params, in units of the table's mean
full training. `plain` are Optuna's samplers as they are, over every combination of the options, told unlisted
combinations as infeasible; none of them is charged for those, nor for proposing again what it has.
"""

import argparse
import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.search.history import Goal
from scalesearch.search.proposers.base import Settings
from scalesearch.search.replay import Replay, Row, Table, Trace
from scalesearch.search.rungs import Rungs

QUESTIONS = ("bpe", "layers", "width", "ffn", "heads", "learning_rate")
AN_UPDATE = 2000  # updates between checkpoints
FULL = Rungs()
LADDER = Rungs.geometric(1 / 9, 3)
SEARCHES = {
    "plain random": ("random", FULL), "plain tpe": ("tpe", FULL), "plain nsga2": ("nsga2", FULL),
    "local": ("local", FULL), "mixed": ("mixed", FULL),
    "random + rungs": ("random", LADDER), "tpe + rungs": ("tpe", LADDER), "local + rungs": ("local", LADDER),
    "mixed + rungs": ("mixed", LADDER),
}


def read(csv_file: Path, goals: tuple[Goal, ...]) -> Table:
    """The table in ``csv_file``, with curves from the file beside it."""
    with csv_file.with_suffix(".curves.jsonl").open() as lines:
        curves = [json.loads(line) for line in lines]
    with csv_file.open() as lines:
        rows = list(csv.DictReader(lines))
    usual = float(np.median([float(row["updates"]) for row in rows])) / AN_UPDATE
    found = [_row(row, curves, usual) for row in rows]
    return Table([row for row in found if row], goals)


def _row(row: dict[str, str], curves: list[dict[str, Any]], usual: float) -> Row | None:
    """One trained model, with the curve of its sizes and rate that ends nearest to its perplexity."""
    asked = {name: _number(row[name]) for name in QUESTIONS}
    key = ("layers", "width", "ffn", "learning_rate")  # curves name neither heads nor, always, the vocabulary
    mine = [curve for curve in curves if all(curve[name] == asked[name] for name in key)]
    perplexity, updates = float(row["dev_ppl"]), float(row["updates"])
    best = min(mine, key=lambda curve: (round(abs(np.log(curve["perplexity_best"] / perplexity)), 4),
                                        abs(len(curve["perplexity_curve"]) - updates / AN_UPDATE)), default=None)
    if best is None or abs(np.log(best["perplexity_best"] / perplexity)) > 0.1:
        return None
    values = {"bleu": float(row["dev_bleu"]), "params": float(row["params"]), "seconds": float(row["dev_gpu_seconds"])}
    length = len(best["perplexity_curve"])
    return Row(asked, values, tuple(best["perplexity_curve"]), updates * values["params"], length / usual)


def _number(text: str) -> float | int:
    return int(text) if text.isdigit() else float(text)


@dataclass(frozen=True)
class Search:
    """One way to search: its traces, one a seed."""

    name: str
    traces: list[Trace]

    def regret(self, column: str, at: float) -> tuple[float, float]:
        """Mean regret in per cent and its standard error, at ``at`` of a trace's column."""
        found = np.array([100 * (1 - _volume(trace, getattr(trace, column), at)) for trace in self.traces])
        return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else 0.0


def _volume(trace: Trace, column: Any, at: float) -> float:
    reached = np.flatnonzero(column <= at * (1 + 1e-9))
    return float(trace.volume[reached[-1]]) if len(reached) else 0.0


def searches(table: Table, names: list[str], seeds: int, workers: int, compute: float) -> Iterator[Search]:
    """Every search of ``names`` with every seed."""
    mean = float(np.mean([row.compute for row in table.rows]))
    for name in names:
        kind, rungs = SEARCHES[name]
        traces = []
        for seed in range(1, seeds + 1):
            found = Replay(table, Settings(kind, seed), rungs, workers).run(compute=compute * mean)
            traces.append(Trace(found.compute / mean, found.volume, found.ended, found.begun))
        yield Search(name, traces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True, help="a folder of tables, or one .csv")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--compute", type=float, default=80.0, help="full trainings' worth of compute")
    parser.add_argument("--cost", default="params", choices=["params", "seconds"], help="the other goal")
    parser.add_argument("--searches", nargs="+", default=list(SEARCHES), choices=SEARCHES)
    parser.add_argument("--json", type=Path, help="write every trace here")
    given = parser.parse_args()
    files = sorted(given.tables.glob("*.csv")) if given.tables.is_dir() else [given.tables]
    marks = [mark for mark in (5, 10, 20, 40, 80, 160) if mark <= given.compute]
    kept: list[dict[str, Any]] = []
    for file in files:
        table = read(file, (Goal("bleu", "max", True), Goal(given.cost, "min", False)))
        print(f"\n{file.stem}: {len(table.rows)} models, goals bleu and {given.cost}, {given.seeds} seeds, "
              f"{given.workers} workers; regret in % after compute of so many full trainings")
        lines = {}
        for search in searches(table, given.searches, given.seeds, given.workers, given.compute):
            lines[search.name] = {str(mark): "{:.2f} ± {:.2f}".format(*search.regret("compute", mark))
                                  for mark in marks}
            kept += [{"table": file.stem, "search": search.name, "seed": seed + 1, "compute": trace.compute.tolist(),
                      "volume": trace.volume.tolist(), "begun": trace.begun.tolist()}
                     for seed, trace in enumerate(search.traces)]
            print(f"  {search.name:16}", *(f"{cell:>14}" for cell in lines[search.name].values()), flush=True)
    if given.json:
        given.json.write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
