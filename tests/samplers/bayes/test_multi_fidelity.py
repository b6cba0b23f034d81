"""Predictions of final losses, from the loss at a rung and from the candidate."""

import numpy as np
import pytest

from scalesearch.pareto import Objective
from scalesearch.samplers.bayes import acquisition
from scalesearch.samplers.bayes.coordinates import Coordinates
from scalesearch.samplers.bayes.multi_fidelity import MIN_OBSERVATIONS, MultiFidelitySurrogate
from tests.samplers.trials import frozen

NAN = np.nan


def candidates(count, seed=1):
    """Points (size, vocabulary), losses at the first rung per vocabulary, and final losses."""
    rng = np.random.default_rng(seed)
    size = rng.random(count)
    vocabulary = rng.integers(0, 2, count).astype(float)
    skill = rng.normal(0, 0.3, count)
    final = 3 - 2 * size + skill
    early = final + 4 * vocabulary + rng.normal(0, 0.05, count)
    return Coordinates(np.column_stack([size, vocabulary]), np.array([0, 1]),
                       np.zeros((count, 0))), early, final


def learned(complete, paused=20):
    points, early, final = candidates(complete + paused + 40)
    losses = np.column_stack([early, final])[: complete + paused]
    losses[complete:, 1] = NAN
    return MultiFidelitySurrogate(points[: complete + paused], losses), points, early, final


def test_losses_of_different_vocabularies_are_comparable():
    forecast, points, early, final = learned(12)
    waiting = slice(12, 32)
    mean, spread = forecast.predict_final(points[waiting], 0, early[waiting])
    assert np.corrcoef(mean, final[waiting])[0, 1] > 0.9 > np.corrcoef(
        early[waiting], final[waiting])[0, 1]
    assert (abs(mean - final[waiting]) < 2 * np.sqrt(spread**2 + 0.1)).mean() > 0.9


def test_new_candidates_are_more_uncertain_than_paused_ones():
    forecast, points, early, final = learned(12)
    new = slice(32, 72)
    mean, spread = forecast.predict_final(points[new], 0,
                                          *forecast.levels[0].predict(points[new], None))
    _, less = forecast.predict_final(points[new], 0, early[new])
    assert spread.mean() > 1.3 * less.mean()
    assert np.corrcoef(mean, final[new])[0, 1] > 0.6


def test_prediction_without_rungs_is_that_of_the_final_level():
    points, _, final = candidates(30)
    forecast = MultiFidelitySurrogate(points[:20], final[:20, None])
    mean, spread = forecast.levels[0].predict(points[20:], None)
    assert np.array_equal(forecast.predict_final(points[20:], 0, mean, spread), (mean, spread))


def test_trial_without_rungs_counts_at_the_final_level():
    points, early, final = candidates(30)
    losses = np.column_stack([early, final])[:12]
    losses[0, 0] = NAN
    with_it = MultiFidelitySurrogate(points[:12], losses)
    without = MultiFidelitySurrogate(points[1:12], losses[1:])
    counts = [len(surrogate.levels[1].surrogate.scores) for surrogate in (with_it, without)]
    assert counts == [12, 11]


def test_too_few_trials_are_rejected():
    points, early, final = candidates(10)
    losses = np.column_stack([early, np.where(np.arange(10) < MIN_OBSERVATIONS - 1, final, NAN)])
    with pytest.raises(ValueError, match="2 trials have reached level 1"):
        MultiFidelitySurrogate(points, losses)


def test_front_is_kept_when_training_trials_are_selected(monkeypatch):
    trials = [frozen(n, "COMPLETE", {"width": n}, values=[float(n == 7), float(n != 3)])
              for n in range(60)]
    objectives = (Objective("bleu", "max", True), Objective("params", "min", False))
    assert acquisition._select_training_trials(trials, objectives) == trials
    monkeypatch.setattr(acquisition, "MAX_TRAINING_TRIALS", 10)
    kept = {trial.number for trial in acquisition._select_training_trials(trials, objectives)}
    assert {3, 7} <= kept and 10 <= len(kept) <= 12
