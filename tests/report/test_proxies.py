"""Tests of the rank correlations of early measurements with the final score."""

import json
import random
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from scalesearch.report.proxies import MIN_TRIALS, compute_proxy_correlations, rank_correlation
from scalesearch.report.records import early_measurements

stats = pytest.importorskip("scipy.stats")


def columns(count, noise, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    score = rng.normal(size=count)
    sign = score + noise * rng.normal(size=count)
    return (np.round(sign), np.round(score, 1)) if ties else (sign, score)


@pytest.mark.parametrize("count", [5, 8, 30])
@pytest.mark.parametrize("noise", [0.3, 3.0])
@pytest.mark.parametrize("ties", [False, True])
def test_rho_equals_scipy_and_is_in_its_interval(count, noise, ties):
    sign, score = columns(count, noise, ties=ties)
    result = rank_correlation("x", sign, score)
    assert result.rho == pytest.approx(stats.spearmanr(sign, score).statistic)
    assert -1 <= result.low <= result.rho <= result.high <= 1 and result.low < result.high
    assert rank_correlation("x", -sign, score).rho == pytest.approx(-result.rho)


def test_interval_has_nominal_coverage():
    """About 95 % of the intervals contain the true correlation."""
    samples = np.random.default_rng(3).multivariate_normal(
        [0, 0], [[1, 0.6], [0.6, 1]], size=(600, 15))
    truth = 6 / np.pi * np.arcsin(0.3)  # Spearman's rho of a normal pair with correlation 0.6
    correlations = [rank_correlation("x", sample[:, 0], sample[:, 1]) for sample in samples]
    assert 0.92 < np.mean([correlation.low <= truth <= correlation.high
                           for correlation in correlations]) < 0.985


def test_significance_of_random_and_perfect_orders():
    rng = random.Random(1)
    random_orders = [rank_correlation("x", np.array(rng.sample(range(12), 12)), np.arange(12))
              for _ in range(400)]
    assert np.mean([correlation.significant for correlation in random_orders]) < 0.08
    assert not rank_correlation("x", *columns(10, 50.0)).significant
    assert "not significant" in rank_correlation("x", *columns(10, 50.0)).describe()
    perfect = rank_correlation("x", np.arange(10.0), np.arange(10.0))
    assert perfect.rho == pytest.approx(1) and perfect.high == pytest.approx(
        1) and 0.5 < perfect.low < 1
    assert "not significant" not in perfect.describe()


@pytest.mark.parametrize("sign", [[1.0] * 8, [1.0, 2.0]])
def test_constant_or_short_columns_have_no_correlation(sign):
    assert rank_correlation("x", np.array(sign), np.arange(len(sign))) is None


def table(count):
    sign, score = columns(count, 0.5)
    rows = {"state": "complete", "bleu": score, "proxy.snip": sign, "params.total": 7.0}
    extra = pd.DataFrame({"state": ["failed", "pending"], "bleu": [9.0, None],
                          "proxy.snip": [0.0, 1.0]})
    return pd.concat([pd.DataFrame(rows), extra], ignore_index=True)


def test_only_finished_trials_count():
    result = compute_proxy_correlations(table(9), "bleu")
    # params are constant
    (correlation,) = result.correlations
    assert result.trials == 9 and correlation.proxy == "proxy.snip"
    assert result.correlations[0].rho == pytest.approx(stats.spearmanr(*columns(9, 0.5)).statistic)
    assert "over 9 finished trials" in result.lines()[0]
    assert result.lines()[1].startswith("  SNIP: +")
    json.dumps(asdict(result), allow_nan=False)


def test_trials_without_proxy_are_excluded():
    incomplete = table(9)
    incomplete.loc[0, "proxy.snip"] = np.nan
    result = compute_proxy_correlations(incomplete, "bleu")
    assert result.correlations[0].n_trials == 8 and "(some over 8)" in result.lines()[0]


def test_too_few_trials_are_reported():
    result = compute_proxy_correlations(table(MIN_TRIALS - 1), "bleu")
    assert not result.correlations
    assert "needs 5 finished trials; there are 4" in result.lines()[0]
    assert compute_proxy_correlations(table(0), "bleu").trials == 0
    assert not compute_proxy_correlations(pd.DataFrame(), "bleu").correlations


def test_first_loss_is_of_first_rung_or_validation():
    curve = [{"validation_loss": 5.0}, {"validation_loss": 4.0}]
    assert early_measurements({"rungs": [{"loss": 6.0}], "curve": curve})["proxy.first_loss"] == 6.0
    # a reference
    assert early_measurements({"rungs": [], "curve": curve})["proxy.first_loss"] is None
    assert early_measurements({"curve": curve, "metrics": {"proxies": {"snip": 2.0}}}) == {
        "proxy.first_loss": 5.0, "proxy.snip": 2.0}
    # the only validation is the final one
    assert early_measurements({"curve": curve[:1]})["proxy.first_loss"] is None
