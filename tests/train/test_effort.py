"""Time of a training run by part: the parts add up to the total."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.train import train, training
from scalesearch.train.effort import TRAINING_PARTS, Effort, TrainingTimer, sum_efforts
from tests.train.conftest import recipe, tiny
from tests.train.test_training import diverging

SPENT = st.integers(0, 1000)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*TRAINING_PARTS, None]), SPENT, SPENT, st.booleans()),
                max_size=12))
def test_parts_add_up_to_the_total_time(stretches):
    """Each stretch has a part, the times that pass, and whether the process ends after it."""
    now = [5.0, 7.0]
    expected = dict.fromkeys(TRAINING_PARTS, Effort())
    meter = TrainingTimer(lambda: Effort(*now))
    for part, seconds, cpu_seconds, ends in stretches:
        def pass_by(seconds=seconds, cpu_seconds=cpu_seconds):
            now[0], now[1] = now[0] + seconds, now[1] + cpu_seconds

        if part:
            with meter.measure_part(part):
                pass_by()
        else:
            pass_by()
        expected[part or "other"] += Effort(seconds, cpu_seconds)
        if ends:
            kept, now[:] = {name: (first.seconds, first.cpu_seconds)
                            for name, first in meter.efforts().items()}, [3.0, 2.0]
            meter = TrainingTimer(lambda: Effort(*now))
            meter.restore(kept)
    assert meter.efforts() == sum_efforts(expected) == expected


@pytest.fixture
def readings(monkeypatch):
    """Clocks that are a second, and two of CPU time, later at each reading: the seconds that were read."""
    recorded = []

    def tick():
        recorded.append(float(len(recorded)))
        return Effort(recorded[-1], 2 * recorded[-1])

    monkeypatch.setattr(training, "TrainingTimer", lambda: TrainingTimer(tick))
    return recorded


def test_rollback_counts_time_once(corpus, out, monkeypatch, readings):
    diverging(monkeypatch, 6)
    result = train(tiny(), corpus, recipe(), out)
    assert result.state == "complete" and result.notes
    total = Effort(result.total_seconds, result.total_cpu_seconds)
    assert sum(result.efforts.values(), Effort()) == total == Effort(readings[-1], 2 * readings[-1])
    assert result.efforts["updates"] == Effort(result.seconds, result.cpu_seconds)
    assert all(result.efforts[part].seconds > 0 for part in TRAINING_PARTS)


def test_paused_run_counts_each_part_once(corpus, tmp_path, readings):
    """At its end it has what the pauses had and what came since; only what followed a save is lost."""
    starts = [0]
    ends = []
    for until in (0.25, 0.6, 1.0):
        ends.append(train(tiny(), corpus, recipe(), tmp_path, until_share=until))
        starts.append(len(readings))
    for before, after in pairwise(ends):
        assert all(before.efforts[part].seconds <= after.efforts[part].seconds
                   for part in ("updates", "scoring"))
    took = [readings[end - 1] - readings[start] for start, end in pairwise(starts)]
    lost = sum(took) - ends[-1].total_seconds
    # a save reads the clocks, and is followed by a validation's readings and the last ones
    assert 0 <= lost <= 8
