"""Repeated ``kill -9`` of all processes of a study at random times."""

import random

import pytest

from benchmarks.kills import fifty
from scalesearch.pareto.front import pareto_front
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State
from tests.studies import kills
from tests.studies.fakes import state_of
from tests.studies.kills import (
    ALL,
    CLUSTER,
    CONTROL,
    DRIVER,
    INPROCESS,
    KEPT,
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


def front_of(trials):
    done = trials.with_state(State.COMPLETE)
    names = sorted(done[0].values)
    directions = ["max" if name == "bleu" else "min" for name in names]
    on = pareto_front([[trial.values[name] for name in names] for trial in done], directions)
    return {(done[i].architecture, *done[i].values.items()) for i in range(len(done)) if on[i]}


def whole(folder, *arguments, backend=INPROCESS):
    driver = kills.driver_of(folder, backend, *arguments)
    driver.run()
    return StudyDir(folder).load().trials


@pytest.mark.slow
@pytest.mark.ray
def test_fifty_kills_lose_and_repeat_no_result(tmp_path):
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
def test_killed_sequential_study_equals_uninterrupted(tmp_path):
    arguments = (10, 1.0, "local")
    killed = Killed(tmp_path / "killed", [(INPROCESS, [DRIVER])] * 8, *arguments)
    killed.run()
    assert state_of(check(killed)) == state_of(whole(tmp_path / "whole", *arguments))


@pytest.mark.slow
def test_killed_parallel_study_has_same_front(tmp_path):
    arguments = (
        14,
        2.0,
        "random",
    )  # proposals of this sampler do not depend on the order of results
    kinds = {WORKER: 6, DRIVER: 3, ALL: 3}
    killed = Killed(tmp_path / "killed", plan_of(kinds, POOL, random.Random(SEED)), *arguments)
    killed.run()
    mine = check(killed)
    other = whole(tmp_path / "whole", 14, 0.0, "random")
    assert front_of(mine) == front_of(other)
    mine, other = ({t.architecture for t in trials.with_state(State.COMPLETE)}
                   for trials in (mine, other))
    assert mine == other


@pytest.mark.full
@pytest.mark.parametrize("backend", [POOL, KEPT])
def test_few_kills_with_rungs_lose_no_result(tmp_path, backend):
    """The short version, with two workers and their driver."""
    killed = Killed(tmp_path / "study",
                    plan_of({WORKER: 1, "worker stopped": 1, DRIVER: 1, ALL: 1}, backend,
                            random.Random(3)), 3, 1.0)
    killed.run()
    check(killed)
    assert len(killed.kills) == 4
