"""Searches of other tools on a table of trained models, each in its own interpreter.

``regrets`` writes the table to an .npz file and runs ``TOOL_search.py`` on it. For each seed, the
script returns the runs in their order: pairs of a row and a rung, where the last rung is the end.
Compute is counted as in replay.py. If a tool proposes a combination without a row, the nearest row
that it has not trained is used; distances count options in their order.
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

# Name on the command line: the script of the tool, and its search method.
ANCHORS = {"botorch": ("botorch", "exact"), "botorch-learnt": ("botorch", "learnt"),
           "botorch-momf": ("botorch", "momf"),
           "smac": ("smac", "parego"), "hebo": ("hebo", "general"), "neps-bo": ("neps", "bo"),
           "neps-mohyperband": ("neps", "mo_hyperband"), "neps-moasha": ("neps", "moasha"),
           "neps-primo": ("neps", "primo")}
TITLES = {"botorch": "BoTorch qLogEHVI", "botorch-learnt": "BoTorch qLogNEHVI",
          "botorch-momf": "BoTorch MOMF",
          "smac": "SMAC ParEGO", "hebo": "HEBO", "neps-bo": "NePS qLogNEHVI",
          "neps-mohyperband": "NePS MO-Hyperband", "neps-moasha": "NePS MOASHA",
          "neps-primo": "NePS PriMO"}
Task = Mapping[str, Any]
Done = list[tuple[int, int]]


def regrets(table: Any, shares: Sequence[float], anchor: str, python: str, seeds: Sequence[int],
            ends: Sequence[int]) -> NDArray[np.float64]:
    """Return the regret in per cent after n full-budget runs, (seeds, ends)."""
    tool, method = ANCHORS[anchor]
    script = Path(__file__).with_name(f"{tool}_search.py")
    with tempfile.TemporaryDirectory() as folder:
        input_file = Path(folder) / "table.npz"
        output_file = Path(folder) / "done.npz"
        np.savez(input_file, **as_task(table, shares), method=method, seeds=list(seeds), count=max(ends))
        subprocess.run([python, script, input_file, output_file], check=True)
        traces = np.load(output_file)
        done = [traces[name] for name in map(str, seeds)]
    return np.array([[left(table, shares, rows, end) for end in ends] for rows in done])


def as_task(table: Any, shares: Sequence[float]) -> dict[str, Any]:
    """Return the arrays for a tool; objectives are maximized, failed rows get the worst."""
    from scalesearch.samplers.bayes.coordinates import Coordinates
    from scalesearch.samplers.candidate import Candidate
    from scalesearch.samplers.encoding import encode_params

    values = table.values(range(len(table.rows)))
    failed = np.array([row.failed for row in table.rows])
    signs = np.array([-objective.sign for objective in table.objectives])
    measured = np.array([objective.is_measured for objective in table.objectives])
    worst = table.reference_point * signs
    options = {name: list(parameter.values()) for name, parameter in table.space.parameters()}
    # A parameter that does not exist has the value in the middle.
    codes = np.array([[values_.index(row.params[name]) if name in row.params else (len(values_) - 1) / 2
                       for name, values_ in options.items()] for row in table.rows])
    candidates = [Candidate(*encode_params(table.space, row.params)) for row in table.rows]
    points = Coordinates.of(candidates, values[:, ~measured])
    losses = np.array([[row.loss(share) for share in shares] for row in table.rows])
    return {"x": points.points, "codes": codes, "options": [len(values_) for values_ in options.values()],
            "y": np.where(failed[:, None] & measured, worst, values * signs), "reference_point": worst,
            "measured": measured, "losses": losses, "shares": list(shares)}


def left(table: Any, shares: Sequence[float], done: NDArray[np.int64], end: int) -> float:
    """Return the regret in per cent of the rows that finish within ``end`` full-budget runs."""
    spent = 0.0
    trained_share = dict[int, float]()
    rows = list[int]()
    for row, level in done.tolist():
        spent += shares[level] - trained_share.get(row, 0.0)
        if spent > end + 1e-9:
            break
        trained_share[row] = shares[level]
        if level == len(shares) - 1 and not table.rows[row].failed:
            rows.append(row)
    return 100 * (1 - table.hypervolume(table.values(rows)) / table.best)


def main(search: Callable[[Task, int], Done]) -> None:
    """Run ``search`` with each seed; ``regrets`` calls the script that calls this."""
    warnings.filterwarnings("ignore")
    task = dict(np.load(sys.argv[1]))
    np.savez(sys.argv[2],
             **{str(seed): np.array(search(task, int(seed))) for seed in task["seeds"]})


def nearest(task: Task, target: Sequence[float], done: Sequence[int]) -> int:
    """Return the row that is not ``done`` with the options nearest to ``target``."""
    spans = np.maximum(1, np.asarray(task["options"]) - 1)
    distances = np.abs((task["codes"] - np.asarray(target)) / spans).sum(1)
    distances[list(done)] = np.inf
    return int(distances.argmin())
