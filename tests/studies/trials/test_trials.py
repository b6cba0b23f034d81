"""Trials as a fold of the events of a study."""

import pytest

from scalesearch.studies.trials.trial import EventType, Rung, State, Trial, TrialEvent
from scalesearch.studies.trials.trials import Trials


def test_wall_seconds_leave_out_pauses_of_the_study() -> None:
    """Two trials overlap by 5 s; the study is killed, and resumed after an hour."""
    trials = Trials()
    ended = {"state": State.COMPLETE}
    events = [(0, EventType.PROPOSED, 0, {}), (10, EventType.STARTED, 0, {}),
              (15, EventType.PROPOSED, 1, {}), (20, EventType.STARTED, 1, {}),
              (25, EventType.RUNG, 0, {"rung_result": Rung(1.0)}),
              (3600, EventType.STARTED, 1, {}), (3620, EventType.STARTED, 0, {}),
              (3630, EventType.ENDED, 1, ended), (3640, EventType.ENDED, 0, ended)]
    for second, event_type, number, fields in events:
        if event_type == EventType.PROPOSED:
            fields = {"proposed_trial": Trial(number, State.PENDING)}
        time = f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000+00:00"
        trials.apply(TrialEvent(event_type, number, time, **fields))
    assert trials.wall_seconds == pytest.approx((25 - 10) + (3640 - 3600))
