"""Time of a training run by part: the parts add up to the total."""

from contextlib import nullcontext
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.training import run, train
from scalesearch.training.effort import (
    DECODING,
    OTHER,
    PART_OF_PHASE,
    PHASES,
    SCORING,
    START,
    TRAINING_PARTS,
    UPDATES,
    Effort,
    TrainingTimer,
    sum_efforts,
)
from tests.training.conftest import recipe, tiny
from tests.training.test_run import diverging

SPENT = st.integers(0, 1000)


@given(st.lists(st.tuples(st.sampled_from([*PHASES, None]), SPENT, SPENT, st.booleans()),
                max_size=12))
def test_parts_add_up_to_the_total_time(stretches):
    """A stretch is a phase, its seconds and CPU seconds, and whether the process ends after it."""
    now = [5.0, 7.0]
    expected = dict.fromkeys(TRAINING_PARTS, Effort())
    expected_phases = dict.fromkeys(PHASES, 0.0)
    outside = START
    timer = TrainingTimer(lambda: Effort(*now))
    for part, seconds, cpu_seconds, ends in stretches:
        with timer.measure_part(part) if part else nullcontext():
            now[0] += seconds
            now[1] += cpu_seconds
        phase = part or outside
        outside = OTHER if part == UPDATES and outside == START else outside
        expected[PART_OF_PHASE.get(phase, phase)] += Effort(seconds, cpu_seconds)
        expected_phases[phase] += seconds
        if ends:
            kept = {name: (effort.seconds, effort.cpu_seconds)
                    for name, effort in timer.efforts().items()}
            now[:] = [3.0, 2.0]
            phases = timer.phases
            outside = START
            timer = TrainingTimer(lambda: Effort(*now))
            timer.restore(kept, phases)
    assert timer.efforts() == sum_efforts(expected) == expected
    assert timer.phases == expected_phases


def test_nested_phases_are_counted_once():
    now = [0.0]
    timer = TrainingTimer(lambda: Effort(now[0], now[0]))
    with timer.measure_part(SCORING):
        now[0] += 1
        with timer.measure_part(DECODING):
            now[0] += 5
        now[0] += 2
    assert timer.efforts()[SCORING] == Effort(8.0, 8.0)
    assert (timer.phases[SCORING], timer.phases[DECODING]) == (3.0, 5.0)


@pytest.fixture
def readings(monkeypatch):
    """The read seconds of clocks that advance by 1 s, and by 2 s of CPU time, per reading."""
    recorded = []

    def tick():
        recorded.append(float(len(recorded)))
        return Effort(recorded[-1], 2 * recorded[-1])

    monkeypatch.setattr(run, "TrainingTimer", lambda: TrainingTimer(tick))
    return recorded


@pytest.mark.full
def test_rollback_counts_time_once(corpus, out, monkeypatch, readings):
    diverging(monkeypatch, 6)
    result = train(tiny(), corpus, recipe(), out)
    assert result.state == "complete" and result.notes
    total = Effort(result.total_seconds, result.total_cpu_seconds)
    assert sum(result.efforts.values(), Effort()) == total == Effort(readings[-1], 2 * readings[-1])
    assert result.efforts["updates"] == Effort(result.seconds, result.cpu_seconds)
    assert all(result.efforts[part].seconds > 0 for part in TRAINING_PARTS)


def test_paused_run_counts_each_part_once(corpus, tmp_path, readings):
    """The total includes all segments except the time after each checkpoint."""
    starts = [0]
    ends = []
    for until in (0.25, 0.6, 1.0):
        ends.append(train(tiny(), corpus, recipe(), tmp_path, until_share=until))
        starts.append(len(readings))
    for before, after in pairwise(ends):
        assert all(before.efforts[part].seconds <= after.efforts[part].seconds
                   for part in ("updates", "scoring"))
    spent = [readings[end - 1] - readings[start] for start, end in pairwise(starts)]
    lost = sum(spent) - ends[-1].total_seconds
    # readings after a checkpoint: those of a validation and the last ones
    assert 0 <= lost <= 8
