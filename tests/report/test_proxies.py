"""Audit of proxies against independent implementations of each measure, and rank correlations."""

import json
import random
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from scalesearch.pareto.front import default_reference_point, hypervolume, pareto_front
from scalesearch.report import proxies
from scalesearch.report.intervals import kendall_tau
from scalesearch.report.proxies import (
    MIN_TRIALS,
    audit_proxies,
    compute_proxy_correlations,
    leave_one_out_residuals,
    rank_correlation,
    read_table,
    split_direction,
)
from scalesearch.report.records import early_measurements
from tests.errors import refuses

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
    """About 90 % of the intervals contain the true correlation."""
    samples = np.random.default_rng(3).multivariate_normal(
        [0, 0], [[1, 0.6], [0.6, 1]], size=(600, 15))
    truth = 6 / np.pi * np.arcsin(0.3)  # Spearman's rho of a normal pair with correlation 0.6
    correlations = [rank_correlation("x", sample[:, 0], sample[:, 1]) for sample in samples]
    assert 0.86 < np.mean([correlation.low <= truth <= correlation.high
                           for correlation in correlations]) < 0.94


def test_significance_of_random_and_perfect_orders():
    rng = random.Random(1)
    random_orders = [rank_correlation("x", np.array(rng.sample(range(12), 12)), np.arange(12))
              for _ in range(400)]
    assert np.mean([correlation.significant for correlation in random_orders]) < 0.14
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


def test_correlation_of_a_loss_has_the_sign_of_its_use():
    losses = table(9).rename(columns={"proxy.snip": "proxy.first_loss"})
    (raw,) = compute_proxy_correlations(table(9), "bleu").correlations
    (loss,) = compute_proxy_correlations(losses, "bleu").correlations
    assert loss.rho == pytest.approx(-raw.rho)


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


def architectures(count=40, seed=0, noise=1.0):
    """Scores that grow with the logarithm of the cost, and a proxy with noise."""
    rng = np.random.default_rng(seed)
    cost = np.exp(rng.uniform(0, 3, count)).round(2)
    score = 4 * np.log(cost) + rng.normal(size=count)
    return pd.DataFrame({"bleu": score, "params": cost,
                         "good": score + noise * rng.normal(size=count),
                         "bits:x": rng.normal(size=count)})


def by_proxy(audit):
    return {row.proxy: row for row in audit.proxies}


def test_taus_equal_scipy_overall_and_within_groups():
    table = architectures()
    row = by_proxy(audit_proxies(table, "bleu", "params"))["good"]
    assert row.tau.value == pytest.approx(stats.kendalltau(table["good"], table["bleu"]).statistic)
    deciles = pd.qcut(table["params"], 10, labels=False)
    pairs = [len(group) * (len(group) - 1) // 2 for _, group in table.groupby(deciles)]
    concordance = [stats.kendalltau(group["good"], group["bleu"]).statistic
                   for _, group in table.groupby(deciles)]
    assert row.n_pairs == sum(pairs) == 60  # ten groups of four
    assert row.tau_at_equal_cost.value == pytest.approx(np.average(concordance, weights=pairs))


def test_groups_count_only_their_pairs():
    table = np.array([[1, 1], [2, 2], [9, 0], [8, 1.0]])
    assert kendall_tau(table, np.array([0, 0, 1, 1])) == pytest.approx(0)
    assert kendall_tau(table[:2].repeat(2, 0), np.array([0, 1, 0, 1])) == pytest.approx(1)
    assert kendall_tau(table, np.arange(4)) is None


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_residuals_equal_fits_without_each_point(scale):
    rng = np.random.default_rng(1)
    values = np.exp(scale * rng.uniform(0, 1, 12))  # the wider range enters as its logarithm
    scores = 2 * values + rng.normal(size=12)
    x = np.log(values) if scale > 1 else values
    expected = []
    for left_out in range(12):
        others = np.arange(12) != left_out
        expected.append(scores[left_out]
                        - np.polyval(np.polyfit(x[others], scores[others], 1), x[left_out]))
    assert leave_one_out_residuals(values, scores) == pytest.approx(expected)


@pytest.mark.parametrize("noise", [0.5, 8.0])
def test_recall_and_regret_of_a_chosen_front(noise):
    """If both fronts have the same size, the choice is the front by the proxy."""
    directions = ["max", "min"]
    for seed in range(6):
        table = architectures(30, seed, noise)
        row = by_proxy(audit_proxies(table, "bleu", "params"))["good"]
        scores = table[["bleu", "params"]].to_numpy()
        front = pareto_front(scores, directions)
        by_proxy_front = pareto_front(table[["good", "params"]].to_numpy(), directions)
        reference = default_reference_point(scores, directions)
        best = hypervolume(scores, reference, directions)
        assert 0 <= row.recall.low <= row.recall.value <= row.recall.high <= 1
        assert 0 <= row.regret.low <= row.regret.value <= row.regret.high <= 1
        assert round(row.recall.value * front.sum(), 6) % 1 == 0
        if by_proxy_front.sum() == front.sum():
            chosen = hypervolume(scores[by_proxy_front], reference, directions)
            assert row.recall.value == pytest.approx((front & by_proxy_front).sum() / front.sum())
            assert row.regret.value == pytest.approx(1 - chosen / best)


def test_fronts_of_subsets_equal_those_of_moocore():
    rng = np.random.default_rng(2)
    values, costs = rng.integers(0, 9, (2, 25)).astype(float)
    is_present = rng.random((50, 25)) < 0.6
    reference = default_reference_point(np.column_stack([values, costs]), ["max", "min"])
    fronts = proxies._front(values, costs, is_present)
    volumes = proxies._hypervolumes(values, costs, fronts)
    for rows, front, volume in zip(is_present, fronts, volumes):
        points = np.column_stack([values, costs])[rows]
        expected = points[pareto_front(points, ["max", "min"])]
        assert {*map(tuple, np.column_stack([values, costs])[front])} == {*map(tuple, expected)}
        assert front.sum() == len(np.unique(expected, axis=0))  # one of equal points
        assert volume == pytest.approx(hypervolume(points, reference, ["max", "min"]))


def test_cost_as_its_own_proxy_gets_no_front_for_free():
    """All architectures are on its front; it chooses a number equal to the size of the front."""
    cost = np.arange(1.0, 21)
    score = np.where(cost % 7 == 0, cost, 0)  # the front: 7, 14, and the cheapest
    audit = audit_proxies(pd.DataFrame({"bleu": score, "params": cost}), "bleu", "params")
    (row,) = audit.proxies
    assert audit.front == 3
    assert row.recall.value == pytest.approx(1 / 3)  # it chooses 1, 10 and 20
    assert row.regret.value > 0


def test_perfect_proxy_and_its_intervals():
    table = architectures(25)
    table["loss"] = 50 - table["bleu"]
    row = by_proxy(audit_proxies(table, "bleu", "params", ["loss"]))["loss"]
    assert (row.tau.value, row.tau.low, row.recall.value, row.regret.value) == (1, 1, 1, 0)
    assert row.rho == pytest.approx(1) and row.error.high == pytest.approx(0, abs=1e-9)


def test_intervals_cover_the_true_tau():
    truth = 2 / np.pi * np.arcsin(0.6)  # of a normal pair with correlation 0.6
    rng = np.random.default_rng(4)
    hits = []
    for _ in range(60):
        x, y = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=40).T
        tau = by_proxy(audit_proxies(pd.DataFrame({"bleu": y, "params": x - x.min() + 1}), "bleu",
                                     "params"))["params"].tau
        hits.append(tau.low <= truth <= tau.high)
    assert 0.78 < np.mean(hits) <= 1


def test_directions_of_names():
    names = ["bleu", "validation_loss", "dev_ppl", "loss at 25%", "params", "latency", "glosses",
             "bits:min", "loss:max"]
    assert [split_direction(name)[1] for name in names] == [1, -1, -1, -1, 1, 1, 1, -1, 1]
    assert split_direction("bits:min")[0] == "bits" and split_direction("a:b") == ("a:b", 1)


def test_rows_without_a_value_and_constant_columns_are_left_out():
    table = architectures(12).assign(constant=1.0, few=np.nan, word="a")
    table.loc[:3, "few"] = [1.0, 2, 3, 4]
    table.loc[0, "good"] = np.inf
    audit = audit_proxies(table, "bleu", "params")
    assert {name: row.n for name, row in by_proxy(audit).items()} == {
        "params": 12, "good": 11, "bits:x": 12}
    assert not audit_proxies(table[:4], "bleu", "params").proxies
    assert "needs 5 finished trials" in audit_proxies(table[:0], "bleu", "params").lines()[0]
    with refuses("unknown-metric", "blue"):
        audit_proxies(table, "blue", "params")


def test_large_tables_are_sampled(monkeypatch):
    monkeypatch.setattr(proxies, "MAX_AUDITED", 20)
    audit = audit_proxies(architectures(50), "bleu", "params")
    assert (audit.n, audit.n_available) == (20, 50) and "a sample of 50" in audit.lines()[0]


def test_table_with_comments_failures_and_curves(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("# recipe: 3\nasked encoder.depth,bleu,failed,curve\n"
                    "1,20.0,False,9 7 8 6\n2,0.0,True,\n3,30.0,False,5 4\n")
    table = read_table(file)
    assert table["param.encoder.depth"].tolist() == [1, 3]
    assert table[["loss at 10%", "loss at 25%", "loss at 50%"]].to_numpy().tolist() == [
        [9, 9, 7], [5, 5, 5]]
    with refuses("cannot-read"):
        read_table(tmp_path / "missing.csv")
    file.write_text("bleu,curve\n20.0,9 7\n30.0,5 x\n")
    with refuses("cannot-read"):
        read_table(file)


def test_rungs_and_predictions_are_proxies():
    record = {"rungs": [{"loss": 6.0}, {"loss": 5.0}, {"loss": 4.0}],
              "costs": {"params.total": 9, "predicted.loss": 3.5}}
    columns = early_measurements(record)
    assert columns == {"proxy.first_loss": 6.0, "proxy.rung_loss_2": 5.0, "proxy.rung_loss_3": 4.0,
                       "predicted.loss": 3.5}
    frame = pd.DataFrame([{**columns, "param.decoder.depth": 2, "seconds": 1}])
    assert set(proxies.proxy_columns(frame)) == {*columns, "param.decoder.depth"}
