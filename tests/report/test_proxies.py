"""Correlations of early measurements with the final score: scipy's numbers, and none where there are too few."""

import json
import random

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
def test_rho_is_scipys_and_lies_in_its_interval(count, noise, ties):
    sign, score = columns(count, noise, ties=ties)
    found = rank_correlation("x", sign, score)
    assert found.rho == pytest.approx(stats.spearmanr(sign, score).statistic)
    assert -1 <= found.low <= found.rho <= found.high <= 1 and found.low < found.high
    assert rank_correlation("x", -sign, score).rho == pytest.approx(-found.rho)


def test_the_interval_holds_what_it_says():
    """Of many samples of a known correlation, about 95 % of the intervals hold it."""
    draws = np.random.default_rng(3).multivariate_normal(
        [0, 0], [[1, 0.6], [0.6, 1]], size=(600, 15))
    truth = 6 / np.pi * np.arcsin(0.3)  # Spearman's of a normal pair correlated by 0.6
    found = [rank_correlation("x", draw[:, 0], draw[:, 1]) for draw in draws]
    assert 0.92 < np.mean([one.low <= truth <= one.high for one in found]) < 0.985


def test_pure_chance_is_reported_as_such_and_a_clear_order_does_not():
    rng = random.Random(1)
    chance = [rank_correlation("x", np.array(rng.sample(range(12), 12)), np.arange(12))
              for _ in range(400)]
    assert np.mean([one.is_significant for one in chance]) < 0.08
    assert not rank_correlation("x", *columns(10, 50.0)).is_significant
    assert "within chance" in rank_correlation("x", *columns(10, 50.0)).describe()
    perfect = rank_correlation("x", np.arange(10.0), np.arange(10.0))
    assert perfect.rho == pytest.approx(1) and perfect.high == pytest.approx(
        1) and 0.5 < perfect.low < 1
    assert "says little" not in perfect.describe()


@pytest.mark.parametrize("sign", [[1.0] * 8, [1.0, 2.0]])
def test_what_cannot_be_ranked_has_no_correlation(sign):
    assert rank_correlation("x", np.array(sign), np.arange(len(sign))) is None


def table(count):
    sign, score = columns(count, 0.5)
    rows = {"state": "complete", "bleu": score, "proxy.snip": sign, "params.total": 7.0}
    extra = pd.DataFrame({"state": ["failed", "pending"], "bleu": [9.0, None],
                          "proxy.snip": [0.0, 1.0]})
    return pd.concat([pd.DataFrame(rows), extra], ignore_index=True)


def test_only_the_finished_count():
    found = compute_proxy_correlations(table(9), "bleu")
    # params are constant
    assert found.n_trials == 9 and [one.proxy for one in found.correlations] == ["proxy.snip"]
    assert found.correlations[0].rho == pytest.approx(stats.spearmanr(*columns(9, 0.5)).statistic)
    assert "over 9 finished trials" in found.lines()[0] and found.lines()[1].startswith("  SNIP: +")
    json.dumps(found.to_json(), allow_nan=False)


def test_a_proxy_that_some_trials_lack_is_correlated_over_the_others():
    some = table(9)
    some.loc[0, "proxy.snip"] = np.nan
    found = compute_proxy_correlations(some, "bleu")
    assert found.correlations[0].n_trials == 8 and "(some over 8)" in found.lines()[0]


def test_too_few_trials_are_reported():
    found = compute_proxy_correlations(table(MIN_TRIALS - 1), "bleu")
    assert not found.correlations and found.lines() == [
        "Early measurements: 5 finished trials are " "needed to say whether they rank trials as "
        "bleu does; there are 4."]
    assert compute_proxy_correlations(table(0), "bleu").n_trials == 0
    assert not compute_proxy_correlations(pd.DataFrame(), "bleu").correlations


def test_a_record_gives_its_rung_or_its_first_validation():
    curve = [{"validation_loss": 5.0}, {"validation_loss": 4.0}]
    assert early_measurements({"rungs": [{"loss": 6.0}], "curve": curve})["proxy.first_loss"] == 6.0
    # a reference
    assert early_measurements({"rungs": [], "curve": curve})["proxy.first_loss"] is None
    assert early_measurements({"curve": curve, "metrics": {"proxies": {"snip": 2.0}}}) == {
        "proxy.first_loss": 5.0, "proxy.snip": 2.0}
    assert early_measurements({"curve": curve[:1]})["proxy.first_loss"] is None  # that is the end
