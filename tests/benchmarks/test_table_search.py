"""Other tools' searches on a table: what they are told, what they are charged, and how a script answers."""

import shutil
import sys

import numpy as np
import pytest

from benchmarks.peers import table_search
from benchmarks.peers.table_search import as_task, left, nearest, regrets
from benchmarks.tabular import Table
from scalesearch.schedule.rungs import Rungs
from tests.benchmarks.test_tabular import OBJECTIVES, rows

SHARES = Rungs.geometric().shares
STUB = """
from table_search import main
main(lambda task, seed: [(row, level) for row in range(seed) for level in range(len(task["shares"]))])
"""


@pytest.fixture
def table():
    return Table(rows(), OBJECTIVES)


def whole(count):
    """The first rows, each trained rung by rung."""
    return np.array([(row, level) for row in range(count) for level in range(len(SHARES))])


def test_a_training_costs_one_however_it_is_divided(table):
    count = len(table.rows)
    assert left(table, SHARES, whole(count), count) == pytest.approx(0)
    assert left(table, SHARES, whole(count), 3) == left(table, SHARES, whole(3), 3) > 0
    at_once = np.array([(row, len(SHARES) - 1) for row in range(3)])
    assert left(table, SHARES, at_once, 3) == left(table, SHARES, whole(3), 3)


def test_what_stands_at_a_rung_counts_for_nothing(table):
    begun = np.array([(row, 0) for row in range(len(table.rows))])
    assert left(table, SHARES, begun, len(table.rows)) == 100


def test_the_task_has_every_row_by_its_options(table):
    task = as_task(table, SHARES)
    assert len({tuple(code) for code in task["codes"].tolist()}) == len(table.rows)
    assert (task["y"] == table.values(range(len(table.rows))) * [1, -1]).all()
    assert task["losses"].shape == (len(table.rows),
                                    len(SHARES)) and (np.diff(task["losses"]) <= 0).all()


def test_the_nearest_row_is_the_one_asked_for_and_never_one_that_was_trained(table):
    task = as_task(table, SHARES)
    done = []
    assert nearest(task, task["codes"][5], done) == 5
    for _ in table.rows:
        done.append(nearest(task, task["codes"][5], done))
    assert sorted(done) == list(range(len(table.rows)))


def test_a_script_is_run_for_every_seed(table, tmp_path, monkeypatch):
    (tmp_path / "stub_search.py").write_text(STUB)
    shutil.copy(table_search.__file__, tmp_path / "table_search.py")
    monkeypatch.setattr(table_search, "__file__", str(tmp_path / "table_search.py"))
    monkeypatch.setitem(table_search.ANCHORS, "stub", ("stub", ""))
    found = regrets(table, SHARES, "stub", sys.executable, [2, 6], [2, 6])
    assert found[0, 0] == found[0, 1] == found[1, 0] == left(table, SHARES, whole(2), 2)
    assert found[1, 1] == left(table, SHARES, whole(6), 6)
