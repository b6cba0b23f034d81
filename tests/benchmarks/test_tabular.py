"""Replayed searches: their compute, their hypervolume, and that they end."""

import math
import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tabular import Replay, Row, Table
from scalesearch.pareto import Objective
from scalesearch.samplers import SamplerSpec
from scalesearch.samplers.hypervolume_gp import HypervolumeGP
from scalesearch.schedule import Rungs
from tests.errors import refuses

OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))
LADDERS = [Rungs(), Rungs.geometric(), Rungs((0.05, 1.0), 4)]


def rows(missing=7):
    """A table of three parameters with rows of unequal length and cost.

    Every ``missing``-th row is left out; expensive rows learn more slowly."""
    rng = random.Random(5)
    full_table = []
    for width, depth, rate in product((64, 128, 256, 512), (1, 2, 4), (0.1, 0.3)):
        size = float(width * width * depth)
        bleu = 4 * math.log(size) - 20 * (rate - 0.1) + rng.gauss(0, 1)
        length = rng.randint(4, 30)
        curve = tuple(math.exp(5 - bleu / 20 + 2 / (1 + step)) for step in range(length))
        full_table.append(Row({"width": width, "depth": depth, "rate": rate},
                         {"bleu": bleu, "params": size}, curve, size * length, length / 15))
    return [row for place, row in enumerate(full_table) if place % missing]


def rows_of(search, state):
    """The rows of the trials in a state; None for a trial that was not started."""
    return [search.rows.get(trial.number) for trial in search.trials if trial.state.name == state]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["random", "tpe", "local"])
@pytest.mark.parametrize("rungs", LADDERS)
@pytest.mark.parametrize("workers", [1, 4])
def test_exhausted_table_has_all_rows_at_their_cost(kind, rungs, workers):
    table = Table(rows(), OBJECTIVES)
    search = Replay(table, SamplerSpec(kind, {}, 2), rungs, workers, max_repeats=150)
    trace = search.run()
    assert trace.hypervolume[-1] == pytest.approx(1) and trace.ended[-1] == trace.started[
        -1
    ] == len(table.rows)
    assert trace.compute[-1] == pytest.approx(sum(row.compute for row in table.rows))
    assert (np.diff(trace.compute) >= 0).all() and (np.diff(trace.hypervolume) >= -1e-12).all()
    trained = rows_of(search, "COMPLETE")
    assert len(trained) == len(set(trained)) == len(table.rows)


@pytest.mark.parametrize("rungs", LADDERS)
def test_no_candidate_costs_more_than_its_row(rungs):
    table = Table(rows(), OBJECTIVES)
    search = Replay(table, SamplerSpec("local", {}, 2), rungs)
    trace = search.run(compute=0.3 * sum(row.compute for row in table.rows))
    assert trace.compute[-1] <= sum(table.rows[row].compute for row in search.rows.values())
    assert trace.hypervolume[-1] == pytest.approx(
        table.hypervolume(table.values(rows_of(search, "COMPLETE"))) / table.best
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_same_seed_gives_same_trace(workers):
    table = Table(rows(), OBJECTIVES)
    first, same = (
        Replay(table, SamplerSpec("local", {}, 4), LADDERS[1], workers).run(evaluations=12)
        for _ in range(2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(vars(first).values(), vars(same).values()))
    assert first.started[-1] == 12


def test_rungs_start_more_candidates_for_same_compute():
    table = Table(rows(), OBJECTIVES)
    most = 0.3 * sum(row.compute for row in table.rows)
    full, halved = ([Replay(table, SamplerSpec("random", {}, seed), rungs).run(compute=most)
                     for seed in range(1, 6)] for rungs in LADDERS[:2])
    counts = [(trace.started[-1], halved_trace.started[-1])
              for trace, halved_trace in zip(full, halved)]
    assert all(n_full <= n_halved for n_full, n_halved in counts)
    assert sum(n_full < n_halved for n_full, n_halved in counts) >= 3


def test_row_returns_loss_of_the_paid_share():
    row = Row({}, {}, (9.0, 4.0, 5.0, 3.0), 100.0, share=2.0)
    assert [row.spent(share) for share in (0.01, 0.5, 1.0, 2.0, math.inf)] == [25, 25, 50, 100, 100]
    assert [row.loss(share) for share in (0.01, 0.5, 1.0, 1.5, math.inf)] == [9, 9, 4, 4, 3]
    assert not row.ended(1.9) and row.ended(2.0)


@pytest.mark.full
def test_failed_row_costs_compute_and_adds_no_hypervolume():
    some = rows()
    worst = replace(some[0], values={"bleu": 0.0, "params": 1.0}, failed=True)
    table = Table([worst, *some[1:]], OBJECTIVES)
    assert table.best == pytest.approx(Table(some[1:], OBJECTIVES).best)
    search = Replay(table, SamplerSpec("local", {}, 1), LADDERS[1], max_repeats=400)
    trace = search.run()
    assert trace.hypervolume[-1] == pytest.approx(1)
    assert [row for row in rows_of(search, "FAIL") if row is not None] == [0]
    assert trace.compute[-1] == pytest.approx(sum(row.compute for row in table.rows))


def test_replays_with_rungs_promote_by_acquisition_function(monkeypatch):
    batch_sizes = []
    monkeypatch.setattr(HypervolumeGP, "acquisition_values",
                        lambda self, trials: batch_sizes.append(len(trials)))
    Replay(Table(rows(), OBJECTIVES), SamplerSpec("bayes", {}, 1), LADDERS[1],
           max_repeats=50).run(evaluations=8)
    assert batch_sizes


def test_space_of_a_table_has_the_values_that_occur():
    table = Table(rows(), OBJECTIVES)
    assert {name: parameter.options for name, parameter in table.space.parameters()} == {
        "width": (64, 128, 256, 512), "depth": (1, 2, 4), "rate": (0.1, 0.3)}
    rows_found = [table.find(candidate.params) for candidate in table.space.enumerate()]
    assert len(rows_found) == 24 and sorted(
        row for row in rows_found if row is not None) == list(range(len(table.rows)))


def test_invalid_table_is_refused():
    with refuses("rows-repeat"):
        Table([*rows(), rows()[0]], OBJECTIVES)
    with refuses("nothing-trained"):
        Table([replace(row, failed=True) for row in rows()], OBJECTIVES)


@pytest.mark.parametrize("file", sorted(Path("benchmarks/tables").glob("*.csv")),
                         ids=lambda file: file.stem)
def test_shipped_tables_belong_to_current_spaces(file, monkeypatch):
    monkeypatch.syspath_prepend("benchmarks")  # its scripts import each other
    import own_tables

    table = own_tables.read(file, ["params.total"])
    assert len(table.rows) == len([line
                                   for line in file.read_text().splitlines() if line[0] != "#"]) - 1
