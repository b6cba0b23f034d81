"""``kill -9`` of everything a study consists of, at random moments, again and again."""

import random

import pytest

from benchmarks.kills import fifty
from scalesearch.pareto.front import pareto_front
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import State
from tests.study import kills
from tests.study.kills import (
    ALL,
    CLUSTER,
    CONTROL,
    DRIVER,
    INPROCESS,
    NODE,
    POOL,
    RAY,
    RAYLET,
    STOPPED,
    WORKER,
    Killed,
    check,
    plan_of,
)

SEED = 1


def state_of(trials):
    return [(t.number, t.params, t.state, t.rungs, t.values) for t in trials]


def front_of(trials):
    done = trials.with_state(State.COMPLETE)
    names = sorted(done[0].values)
    directions = ["max" if name == "bleu" else "min" for name in names]
    on = pareto_front([[trial.values[name] for name in names] for trial in done], directions)
    return {(done[i].architecture, *done[i].values.items()) for i in range(len(done)) if on[i]}


def whole(folder, *given, backend=INPROCESS):
    driver = kills.driver_of(folder, backend, *given)
    driver.run()
    return StudyDir(folder).load().trials


@pytest.mark.slow
@pytest.mark.ray
def test_more_than_fifty_kills_lose_nothing_and_do_nothing_twice(tmp_path):
    killed = fifty(tmp_path / "study", SEED)
    try:
        killed.run()
    finally:
        print(kills.summary(killed.kills))
        (tmp_path / "kills.txt").write_text(kills.summary(killed.kills) + "\n")
    trials = check(killed)
    assert sum(kill.backend in (RAY, CLUSTER) for kill in killed.kills) >= 50
    assert {kill.kind for kill in killed.kills} == {
        WORKER, DRIVER, RAYLET, CONTROL, NODE, ALL, *STOPPED}
    assert len(trials.with_state(State.COMPLETE)) > 10 and any(
        len(t.rungs) == kills.RUNGS.n_pauses for t in trials)


@pytest.mark.slow
def test_killed_in_sequence_the_ledger_is_the_uninterrupted_one(tmp_path):
    given = (10, 1.0, "local")
    killed = Killed(tmp_path / "killed", [(INPROCESS, [DRIVER])] * 8, *given)
    killed.run()
    assert state_of(check(killed)) == state_of(whole(tmp_path / "whole", *given))


@pytest.mark.slow
def test_killed_with_two_workers_the_front_is_the_uninterrupted_one(tmp_path):
    given = (14, 2.0, "random")  # whose proposals do not depend on who ends first
    kinds = {WORKER: 6, DRIVER: 3, ALL: 3}
    killed = Killed(tmp_path / "killed", plan_of(kinds, POOL, random.Random(SEED)), *given)
    killed.run()
    mine = check(killed)
    other = whole(tmp_path / "whole", 14, 0.0, "random")
    assert front_of(mine) == front_of(other)
    mine, other = ({t.architecture for t in trials.with_state(State.COMPLETE)}
                   for trials in (mine, other))
    assert mine == other


def test_a_few_kills_with_rungs_lose_nothing(tmp_path):
    """What runs by default: the same, of two workers and their driver."""
    killed = Killed(tmp_path / "study",
                    plan_of({WORKER: 1, "worker stopped": 1, DRIVER: 1, ALL: 1}, POOL,
                            random.Random(3)), 3, 1.0)
    killed.run()
    check(killed)
    assert len(killed.kills) == 4
