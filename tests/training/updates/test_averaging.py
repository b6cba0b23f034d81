"""Exponential moving averages: window, and restored weights."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.training.updates.averaging import ExponentialMovingAverage


def averaged(
        window: float, values: list[float]) -> tuple[torch.nn.Linear, ExponentialMovingAverage]:
    model = torch.nn.Linear(1, 1, bias=False)
    mean = ExponentialMovingAverage(model, window)
    for value in values:
        model.weight.data.fill_(value)
        mean.update()
    return model, mean


@given(st.sampled_from([0.1, 0.3, 5.0]), st.lists(st.floats(-10, 10), min_size=1, max_size=60))
def test_average_is_within_the_range_of_the_weights(window: float, values: list[float]) -> None:
    _, mean = averaged(window, values)
    assert min(values) - 1e-4 <= mean.mean[0].item() <= max(values) + 1e-4


def test_average_covers_a_share_of_the_updates() -> None:
    """If weights grow linearly, the mean lags by the window minus one."""
    for steps in (200, 400):
        _, mean = averaged(0.1, [float(i) for i in range(steps)])
        assert mean.effective_window == pytest.approx(0.1 * steps)
        assert steps - mean.mean[0].item() == pytest.approx(mean.effective_window, rel=0.15)


def test_applied_restores_the_weights() -> None:
    model, mean = averaged(3.0, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError), mean.applied():
        assert 1 < model.weight.item() < 3
        raise ValueError
    assert model.weight.item() == 3
