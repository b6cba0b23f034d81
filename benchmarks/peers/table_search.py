"""Other tools' searches on a table of trained models, each by an interpreter of its own, charged as ours are.

``regrets`` writes the table to an .npz file and runs ``TOOL_search.py`` on it, which answers with
what each seed trained: pairs of a row and a level, one of the shares of a full training. A tool
that asks for what the table has not is given the nearest row that it has not trained, counted over
options in their order.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Name on the command line, the tool's script, and what it is asked to do there.
ANCHORS = {"botorch": ("botorch", "exact"), "botorch-learnt": ("botorch", "learnt"),
           "smac": ("smac", "parego"), "hebo": ("hebo", "general"), "neps-bo": ("neps", "bo"),
           "neps-mohyperband": ("neps", "mo_hyperband"), "neps-moasha": ("neps", "moasha"),
           "neps-primo": ("neps", "primo")}
TITLES = {"botorch": "BoTorch qLogEHVI", "botorch-learnt": "BoTorch qLogNEHVI",
          "smac": "SMAC ParEGO", "hebo": "HEBO", "neps-bo": "NePS qLogNEHVI",
          "neps-mohyperband": "NePS MO-Hyperband", "neps-moasha": "NePS MOASHA",
          "neps-primo": "NePS PriMO"}
Task = Mapping[str, Any]
Done = list[tuple[int, int]]


def regrets(table: Any, shares: Sequence[float], anchor: str, python: str, seeds: Sequence[int],
            ends: Sequence[int]) -> NDArray[np.float64]:
    """(seeds, ends) regret in per cent after so many full trainings."""
    tool, way = ANCHORS[anchor]
    script = Path(__file__).with_name(f"{tool}_search.py")
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "table.npz"
        found = Path(folder) / "done.npz"
        np.savez(given, **as_task(table, shares), way=way, seeds=list(seeds), count=max(ends))
        subprocess.run([python, script, given, found], check=True)
        traces = np.load(found)
        done = [traces[name] for name in map(str, seeds)]
    return np.array([[left(table, shares, rows, end) for end in ends] for rows in done])


def as_task(table: Any, shares: Sequence[float]) -> dict[str, Any]:
    """Arrays of what a tool is told: goals are to be maximized, a failed row's measured ones being the worst."""
    from scalesearch.samplers.bayes.coordinates import Coordinates
    from scalesearch.samplers.candidate import Candidate
    from scalesearch.samplers.encoding import encode_params

    values = table.values(range(len(table.rows)))
    failed = np.array([row.failed for row in table.rows])
    signs = np.array([-one.sign for one in table.objectives])
    measured = np.array([one.is_measured for one in table.objectives])
    worst = table.reference_point * signs
    options = {name: list(parameter.values()) for name, parameter in table.space.parameters()}
    # not asked: between
    codes = np.array([[its.index(row.answers[name]) if name in row.answers else (len(its) - 1) / 2
                       for name, its in options.items()] for row in table.rows])
    candidates = [Candidate(*encode_params(table.space, row.answers)) for row in table.rows]
    points = Coordinates.of(candidates, values[:, ~measured])
    losses = np.array([[row.loss(share) for share in shares] for row in table.rows])
    return {"x": points.points, "codes": codes, "options": [len(its) for its in options.values()],
            "y": np.where(failed[:, None] & measured, worst, values * signs), "corner": worst,
            "measured": measured, "losses": losses, "shares": list(shares)}


def left(table: Any, shares: Sequence[float], done: NDArray[np.int64], end: int) -> float:
    """The regret of what was trained to its end within ``end`` full trainings."""
    spent = 0.0
    at = dict[int, float]()
    rows = list[int]()
    for row, level in done.tolist():
        spent += shares[level] - at.get(row, 0.0)
        if spent > end + 1e-9:
            break
        at[row] = shares[level]
        if level == len(shares) - 1 and not table.rows[row].failed:
            rows.append(row)
    return 100 * (1 - table.hypervolume(table.values(rows)) / table.best)


def main(search: Callable[[Task, int], Done]) -> None:
    """Run ``search`` with every seed, as the script that ``regrets`` calls."""
    warnings.filterwarnings("ignore")
    task = dict(np.load(sys.argv[1]))
    np.savez(sys.argv[2],
             **{str(seed): np.array(search(task, int(seed))) for seed in task["seeds"]})


def nearest(task: Task, wanted: Sequence[float], done: Sequence[int]) -> int:
    """The row, of those that are not ``done``, whose options are nearest to those wanted."""
    far = np.abs((task["codes"] - np.asarray(wanted))
                 / np.maximum(1, np.asarray(task["options"]) - 1)).sum(1)
    far[list(done)] = np.inf
    return int(far.argmin())
