"""Searches of other tools on a table: observations, compute and output of scripts."""

import shutil
import sys

import numpy as np
import pytest

from benchmarks.peers import table_search
from benchmarks.peers.table_search import as_task, left, nearest, regrets
from benchmarks.tabular import Table
from scalesearch.schedule import Rungs
from tests.benchmarks.test_tabular import OBJECTIVES, rows

SHARES = Rungs.geometric().shares
STUB = """
from table_search import main
main(lambda task, seed: [(row, level) for row in range(seed)
                         for level in range(len(task["shares"]))])
"""


@pytest.fixture
def table():
    return Table(rows(), OBJECTIVES)


def whole(count):
    """The first rows, each trained rung by rung to the full budget."""
    return np.array([(row, level) for row in range(count) for level in range(len(SHARES))])


def test_cost_of_a_training_run_does_not_depend_on_rungs(table):
    count = len(table.rows)
    assert left(table, SHARES, whole(count), count) == pytest.approx(0)
    assert left(table, SHARES, whole(count), 3) == left(table, SHARES, whole(3), 3) > 0
    at_once = np.array([(row, len(SHARES) - 1) for row in range(3)])
    assert left(table, SHARES, at_once, 3) == left(table, SHARES, whole(3), 3)


def test_trials_paused_at_a_rung_do_not_reduce_regret(table):
    started = np.array([(row, 0) for row in range(len(table.rows))])
    assert left(table, SHARES, started, len(table.rows)) == 100


def test_task_has_all_rows(table):
    task = as_task(table, SHARES)
    assert len({tuple(code) for code in task["codes"].tolist()}) == len(table.rows)
    assert (task["y"] == table.values(range(len(table.rows))) * [1, -1]).all()
    assert task["losses"].shape == (len(table.rows),
                                    len(SHARES)) and (np.diff(task["losses"]) <= 0).all()


def test_nearest_row_is_exact_and_excludes_trained_rows(table):
    task = as_task(table, SHARES)
    done = []
    assert nearest(task, task["codes"][5], done) == 5
    for _ in table.rows:
        done.append(nearest(task, task["codes"][5], done))
    assert sorted(done) == list(range(len(table.rows)))


def test_script_runs_for_each_seed(table, tmp_path, monkeypatch):
    (tmp_path / "stub_search.py").write_text(STUB)
    shutil.copy(table_search.__file__, tmp_path / "table_search.py")
    monkeypatch.setattr(table_search, "__file__", str(tmp_path / "table_search.py"))
    monkeypatch.setitem(table_search.ANCHORS, "stub", ("stub", ""))
    mean_regrets = regrets(table, SHARES, "stub", sys.executable, [2, 6], [2, 6])
    assert (
        mean_regrets[0, 0]
        == mean_regrets[0, 1]
        == mean_regrets[1, 0]
        == left(table, SHARES, whole(2), 2)
    )
    assert mean_regrets[1, 1] == left(table, SHARES, whole(6), 6)
