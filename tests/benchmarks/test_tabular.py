"""Replayed searches: what they spend, what they find, and that they end."""

import math
import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tabular import Replay, Row, Table
from scalesearch.pareto.objective import Objective
from scalesearch.samplers import SamplerSpec
from scalesearch.samplers.hypervolume_gp import HypervolumeGP
from scalesearch.schedule.rungs import Rungs
from tests.errors import refuses

OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))
LADDERS = [Rungs(), Rungs.geometric(), Rungs((0.05, 1.0), 4)]


def rows(missing=7):
    """A full table of three parameters, less some rows, of unequal length and cost; the dear learn slower."""
    rng = random.Random(5)
    found = []
    for width, depth, rate in product((64, 128, 256, 512), (1, 2, 4), (0.1, 0.3)):
        size = float(width * width * depth)
        bleu = 4 * math.log(size) - 20 * (rate - 0.1) + rng.gauss(0, 1)
        length = rng.randint(4, 30)
        curve = tuple(math.exp(5 - bleu / 20 + 2 / (1 + step)) for step in range(length))
        found.append(Row({"width": width, "depth": depth, "rate": rate},
                         {"bleu": bleu, "params": size}, curve, size * length, length / 15))
    return [row for place, row in enumerate(found) if place % missing]


def rows_of(search, state):
    """The rows of the trials in a state; None of one that was never begun."""
    return [search.rows.get(trial.number) for trial in search.trials if trial.state.name == state]


@pytest.mark.parametrize("kind", ["random", "tpe", "local"])
@pytest.mark.parametrize("rungs", LADDERS)
@pytest.mark.parametrize("workers", [1, 4])
def test_an_exhausted_table_is_found_whole_and_paid_once(kind, rungs, workers, asks=150):
    table = Table(rows(), OBJECTIVES)
    search = Replay(table, SamplerSpec(kind, {}, 2), rungs, workers, asks=150)
    trace = search.run()
    assert trace.hypervolume[-1] == pytest.approx(1) and trace.ended[-1] == trace.started[-1] == len(
        table.rows)
    assert trace.compute[-1] == pytest.approx(sum(row.compute for row in table.rows))
    assert (np.diff(trace.compute) >= 0).all() and (np.diff(trace.hypervolume) >= -1e-12).all()
    trained = rows_of(search, "COMPLETE")
    assert len(trained) == len(set(trained)) == len(table.rows)


@pytest.mark.parametrize("rungs", LADDERS)
def test_no_candidate_costs_more_than_it_did(rungs):
    table = Table(rows(), OBJECTIVES)
    search = Replay(table, SamplerSpec("local", {}, 2), rungs)
    trace = search.run(compute=0.3 * sum(row.compute for row in table.rows))
    assert trace.compute[-1] <= sum(table.rows[row].compute for row in search.rows.values())
    assert trace.hypervolume[-1] == pytest.approx(table.hypervolume(table.values(rows_of(search, "COMPLETE")))
                                             / table.best)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_seed_goes_the_same_way(workers):
    table = Table(rows(), OBJECTIVES)
    one, same = (Replay(table, SamplerSpec("local", {}, 4), LADDERS[1], workers).run(evaluations=12)
                 for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(same).values()))
    assert one.started[-1] == 12


def test_rungs_begin_more_for_the_same_compute():
    table = Table(rows(), OBJECTIVES)
    most = 0.3 * sum(row.compute for row in table.rows)
    full, halved = (Replay(table, SamplerSpec("random", {}, 1), rungs).run(compute=most)
                    for rungs in LADDERS[:2])
    assert halved.started[-1] > full.started[-1]


def test_a_row_tells_no_loss_that_is_not_paid_for():
    row = Row({}, {}, (9.0, 4.0, 5.0, 3.0), 100.0, share=2.0)
    assert [row.spent(share) for share in (0.01, 0.5, 1.0, 2.0, math.inf)] == [25, 25, 50, 100, 100]
    assert [row.loss(share) for share in (0.01, 0.5, 1.0, 1.5, math.inf)] == [9, 9, 4, 4, 3]
    assert not row.ended(1.9) and row.ended(2.0)


def test_a_failed_training_costs_and_counts_for_nothing():
    some = rows()
    worst = replace(some[0], values={"bleu": 0.0, "params": 1.0}, failed=True)
    table = Table([worst, *some[1:]], OBJECTIVES)
    assert table.best == pytest.approx(Table(some[1:], OBJECTIVES).best)
    search = Replay(table, SamplerSpec("local", {}, 1), LADDERS[1], asks=400)
    trace = search.run()
    assert trace.hypervolume[-1] == pytest.approx(1)
    assert [row for row in rows_of(search, "FAIL") if row is not None] == [0]
    assert trace.compute[-1] == pytest.approx(sum(row.compute for row in table.rows))


def test_replays_with_rungs_promote_by_the_acquisition_function(monkeypatch):
    asked = []
    monkeypatch.setattr(HypervolumeGP, "acquisition_values",
                        lambda self, trials: asked.append(len(trials)))
    Replay(Table(rows(), OBJECTIVES), SamplerSpec("bayes", {}, 1), LADDERS[1],
           asks=50).run(evaluations=8)
    assert asked


def test_a_table_is_a_space_of_the_options_that_occur():
    table = Table(rows(), OBJECTIVES)
    assert {name: parameter.options for name, parameter in table.space.parameters()} == {
        "width": (64, 128, 256, 512), "depth": (1, 2, 4), "rate": (0.1, 0.3)}
    there = [table.find(answers.params) for answers in table.space.enumerate()]
    assert len(there) == 24 and sorted(
        row for row in there if row is not None) == list(range(len(table.rows)))


def test_a_table_that_cannot_be_searched_is_told():
    with refuses("rows-repeat"):
        Table([*rows(), rows()[0]], OBJECTIVES)
    with refuses("nothing-trained"):
        Table([replace(row, failed=True) for row in rows()], OBJECTIVES)


@pytest.mark.parametrize("file", sorted(Path("benchmarks/tables").glob("*.csv")),
                         ids=lambda file: file.stem)
def test_our_tables_belong_to_the_spaces_of_today(file, monkeypatch):
    monkeypatch.syspath_prepend("benchmarks")  # its scripts import each other
    import own_tables

    table = own_tables.read(file, ["params.total"])
    assert len(table.rows) == len([line
                                   for line in file.read_text().splitlines() if line[0] != "#"]) - 1
