"""Noise between seeds: the pooled deviation, its intervals, how a mean is written."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.pareto.noise import (
    Noise,
    decimals_for_interval,
    format_percent,
    pool_noise,
    sample_std,
    t_quantile,
)
from scalesearch.report.table import format_cell

samples = st.lists(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=5), max_size=6)


@given(samples, st.floats(-100, 100, width=32))
def test_variances_are_pooled_within_candidates(scores_by_candidate, shift):
    noise = pool_noise(scores_by_candidate)
    several = [sample for sample in scores_by_candidate if len(sample) > 1]
    assert noise.df == sum(len(sample) - 1
                           for sample in several) and noise.n_candidates == len(several)
    if several:
        variances = [(len(sample) - 1) * np.var(sample, ddof=1) for sample in several]
        assert noise.sd == pytest.approx(math.sqrt(sum(variances) / noise.df))
        moved = pool_noise([[x + shift * number for x in sample]
                            for number, sample in enumerate(scores_by_candidate)])
        # differences between candidates are not noise
        assert moved.sd == pytest.approx(noise.sd, abs=1e-3)
    else:
        assert not noise.is_known and noise.interval_half_width(0.9, 2) == math.inf


def test_student_quantiles_and_standard_errors():
    # Two-sided 90 % and 95 %, as in any table of Student's t.
    assert [round(t_quantile(0.9, df), 3) for df in (1, 4, 10)] == [6.314, 2.132, 1.812]
    assert round(t_quantile(0.95, 6), 3) == 2.447
    noise = Noise(2.0, 4, 2)
    assert noise.standard_error(4) == 1.0 and noise.standard_error(2, 2) == 2.0
    assert noise.interval_half_width(0.9, 4) == pytest.approx(2.1318, abs=1e-4)


def test_interval_covers_the_true_mean_at_its_level():
    rng = random.Random(5)
    held = 0
    for _ in range(1000):
        scores_by_candidate = [[rng.gauss(10 * number, 1.5) for _ in range(count)]
                               for number, count in enumerate((2, 3, 1))]
        noise = pool_noise(scores_by_candidate)
        held += abs(np.mean(scores_by_candidate[1]) - 10) <= noise.interval_half_width(0.9, 3)
    assert 870 <= held <= 930


def test_one_score_has_no_standard_deviation():
    assert sample_std([3.0]) is None and sample_std([1.0, 3.0]) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(("value", "half", "seeds", "text"),
                         [(31.23, 0.42, 3, "31.2 ± 0.4 (3)"), (31.23, 0.14, 2, "31.23 ± 0.14 (2)"),
                          (3.21987, 0.0123, 2, "3.220 ± 0.012 (2)"),
                          (812.4, 53.0, 3, "812 ± 53 (3)"), (20.0, 0.0, 2, "20.00 ± 0.00 (2)"),
                          (29.67, 2.2, 1, "29.7 ± 2.2 (1)")])
def test_mean_has_significant_digits_only(value, half, seeds, text):
    row = {"bleu": value, "bleu.half_width": half, "seeds": seeds}
    assert format_cell(row, "bleu") == text


def test_percentages_keep_their_digits():
    assert [format_percent(0.9), format_percent(0.975), format_percent(1 - 0.1 / 3)] == [
        "90 %", "97.5 %", "96.67 %"]
    assert decimals_for_interval(math.inf) == 2
