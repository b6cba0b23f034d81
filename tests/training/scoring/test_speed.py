"""Predicted time of training runs, with clocks that advance per reading."""

from itertools import count

import msgspec
import pytest

from scalesearch.training.effort import Effort
from scalesearch.training.scoring.speed import MIN_TIMED_UPDATES, measure_speed
from tests.training.conftest import recipe, tiny


@pytest.fixture(scope="module")
def speed(corpus):
    seconds = count()
    return measure_speed(tiny(), corpus, recipe(), 0.0,
                         lambda: Effort(position := float(next(seconds)), 2 * position))


def test_measured_times(speed, corpus):
    # the clocks are read after the timed updates and at the end
    assert speed.update_time == Effort(2 / MIN_TIMED_UPDATES, 4 / MIN_TIMED_UPDATES)
    assert speed.other_time == Effort(1.0, 2.0)
    assert 0 < speed.pairs_per_update < speed.tokens_per_update < 200
    # two splits, each with a metric, a loss and translations
    assert speed.scoring_time.seconds >= 2 * (
        1 + speed.validation_time.seconds) and speed.validation_time.seconds >= 1


def test_predicted_time_follows_the_budget(speed, corpus):
    pairs = len(corpus.train)
    predicted = speed.predict_training_time(recipe(validate_every=4), pairs)
    assert predicted["updates"] == speed.update_time * 12
    assert predicted["validation"] == speed.validation_time * 3
    msgspec.json.encode(predicted)  # plain numbers
    assert (predicted["scoring"], predicted["other"]) == (speed.scoring_time, speed.other_time)
    by_cpu = speed.predict_training_time(recipe(steps=None, cpu_minutes=5, validate_every=0.3),
                                         pairs)
    assert by_cpu["updates"].cpu_seconds == pytest.approx(300)
    assert by_cpu["updates"].seconds == pytest.approx(150)
    assert by_cpu["validation"] == speed.validation_time * 4  # after every 30 %, and at the end
    # the budget that is reached first
    assert speed.predict_training_time(recipe(minutes=5),
                                       pairs)["updates"] == speed.update_time * 12
    by_tokens = speed.predict_training_time(recipe(steps=None, tokens=10_000, validate_every=0),
                                            pairs)
    assert by_tokens["updates"].seconds == pytest.approx(
        2 * 10_000 / speed.tokens_per_update / MIN_TIMED_UPDATES)
    assert by_tokens["validation"] == speed.validation_time
    by_epochs = speed.predict_training_time(recipe(steps=None, epochs=2), pairs)
    assert by_epochs["updates"].seconds == pytest.approx(
        2 * 2 * pairs / speed.pairs_per_update / MIN_TIMED_UPDATES)
