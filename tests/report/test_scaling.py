"""Tests of power laws on synthetic training runs with a known law."""

from pathlib import Path

import numpy as np
import pytest

from scalesearch.pareto.noise import pool_noise
from scalesearch.report.figures.style import save_figure
from scalesearch.report.scaling.architectures import slope_per_million
from scalesearch.report.scaling.figures import plot_law_panels
from scalesearch.report.scaling.laws import check_largest_size, fit_power_law, rank_rules
from tests.errors import refuses

SIZES = np.geomspace(1e6, 3.2e7, 6)


def law(sizes, a=40.0, b=20.0, c=0.4):
    return a - b * (np.asarray(sizes) / 1e6) ** -c


def training_runs(seed=0, sd=0.3, seeds=2, sizes=SIZES, **law_options):
    """Sizes and noisy scores, ``seeds`` per size."""
    n = np.repeat(sizes, seeds)
    return n, law(n, **law_options) + np.random.default_rng(seed).normal(0, sd, len(n))


@pytest.mark.parametrize("c", [0.1, 0.34, 0.76, 1.5])
def test_fit_recovers_law_without_noise(c) -> None:
    fit = fit_power_law(SIZES, law(SIZES, c=c))
    assert (fit.law.a, fit.law.c) == pytest.approx((40, c), rel=1e-3)
    assert fit.law.absolute_b == pytest.approx(20 * 1e6**c, rel=2e-2)
    assert fit.law.is_identified and fit.sd < 1e-3
    assert np.allclose(fit.law([1e8]), law([1e8], c=c), rtol=1e-3)


def test_fit_of_loss_equals_fit_of_negated_score() -> None:
    fit = fit_power_law(SIZES, -law(SIZES), direction="min")
    assert (fit.law.a, fit.law.c) == pytest.approx((-40, 0.4), rel=1e-3)
    assert fit.law([2e6]) == pytest.approx(-law(2e6), rel=1e-4)


@pytest.mark.parametrize(("sizes", "seeds"), [(SIZES, 2), (SIZES[:4], 1), (SIZES[:4], 3)])
def test_intervals_have_nominal_coverage(sizes, seeds) -> None:
    """Coverage is 90 of 100 studies on average; correct intervals fail in 0.5 % of runs."""
    inside = {"law": 0, "exponent": 0, "next": 0, "training": 0}
    for seed in range(100):
        fit = fit_power_law(*training_runs(seed, seeds=seeds, sizes=sizes), n_resamples=300,
                              seed=seed)
        low, high = fit.interval_at([4e6])
        prediction = fit.predict(2 * sizes[-1])
        new = law(2 * sizes[-1]) + np.random.default_rng(1000 + seed).normal(0, 0.3)
        inside["law"] += low[0] <= law(4e6) <= high[0]
        inside["exponent"] += fit.exponent_interval[0] <= 0.4 <= fit.exponent_interval[1]
        inside["next"] += prediction.low <= law(2 * sizes[-1]) <= prediction.high
        inside["training"] += prediction.training_low <= new <= prediction.training_high
    assert all(82 <= count < 100 for count in inside.values()), inside


def test_fit_depends_on_arguments_and_seed() -> None:
    first, second, other = (fit_power_law(*training_runs(), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.bootstrap_samples,
                          second.bootstrap_samples) and first.predict(1e8) == second.predict(1e8)
    assert first.law == other.law and not np.array_equal(
        first.bootstrap_samples, other.bootstrap_samples)


def test_fit_is_invariant_to_unit_of_size() -> None:
    n, y = training_runs()
    fit = fit_power_law(n, y)
    rescaled = fit_power_law(n / 1e6, y)
    assert fit.law.c == pytest.approx(rescaled.law.c, rel=1e-6)
    assert fit.predict(5e7).low == pytest.approx(rescaled.predict(50).low, rel=1e-6)


def test_prediction_interval_grows_with_size_and_shrinks_with_seeds() -> None:
    fit = fit_power_law(*training_runs())
    near = fit.predict(4e7)
    distant = fit.predict(1e9)
    assert distant.high - distant.low > near.high - near.low
    one_seed = fit.predict(4e7, 1)
    many_seeds = fit.predict(4e7, 9)
    assert (near.high - near.low < many_seeds.training_high - many_seeds.training_low
            < one_seed.training_high - one_seed.training_low)


def test_law_is_not_identified_if_scores_do_not_improve() -> None:
    assert not fit_power_law(SIZES, [30.0, 30, 30, 30, 30, 30]).law.is_identified
    assert not fit_power_law(SIZES, -law(SIZES)).law.is_identified  # scores get worse with size
    assert not fit_power_law(SIZES, np.log(SIZES)).law.is_identified


def test_holdout_check_compares_largest_size() -> None:
    n, y = training_runs()
    good = check_largest_size(n, y)
    assert good.is_inside_interval and good.prediction.size == SIZES[
        -1] and good.prediction.n_seeds == 2
    assert good.measured_score == pytest.approx(
        y[-2:].mean()) and good.error == pytest.approx(good.measured_score - good.prediction.score)
    y[-2:] -= 8  # as if the data were exhausted
    bad = check_largest_size(n, y)
    assert not bad.is_inside_interval and bad.error < -4


def test_rank_rules_returns_shares() -> None:
    rules = {"wider": fit_power_law(*training_runs(1, a=38)),
             "deeper": fit_power_law(*training_runs(2)),
             "twin": fit_power_law(*training_runs(3))}
    first = rank_rules(rules, 5e7)
    assert [ranked.rule for ranked in first][2] == "wider" and sum(
        ranked.best_share for ranked in first) == pytest.approx(1)
    assert first[2].best_share < 0.05 < min(ranked.best_share for ranked in first[:2])
    losses = {name: fit_power_law(fit.sizes, -fit.scores, "min") for name, fit in rules.items()}
    assert rank_rules(losses, 5e7)[2].rule == "wider"


def test_slope_per_million_matches_paper() -> None:
    params = (36_694_152, 68_079_912)
    scores = (27.88, 29.56)
    # the paper uses rounded millions
    assert slope_per_million((36e6, 68e6), scores).value == pytest.approx(0.0525)
    assert slope_per_million(params, scores).value == pytest.approx(0.0535, abs=5e-5)
    noise = pool_noise([[30.0, 30.4], [31.0, 31.4]])
    half = noise.interval_half_width(0.9, 2, 2)
    assert slope_per_million((1e6, 3e6), scores, noise,
                             (2, 2)).half_width == pytest.approx(half / 2)
    assert slope_per_million(params, scores).half_width is None and slope_per_million(
        (68e6, 68e6), scores) is None


@pytest.mark.parametrize(("sizes", "scores", "code"), [
    ([1, 2, 3], [1, 2, 3], "too-few-measurements"),
    ([1, 1, 2, 2], [1, 2, 3, 4], "too-few-measurements"),
    ([0, 1, 2, 3], [1, 2, 3, 4], "bad-measurements"),
    ([1, 2, 3, 4], [1, 2, float("nan"), 4], "bad-measurements"),
])
def test_fit_reports_invalid_measurements(sizes, scores, code) -> None:
    with refuses(code):
        fit_power_law(sizes, scores)


def test_figure_shows_law_outside_its_interval() -> None:
    sizes = [1, 2, 4, 8]
    exact = fit_power_law(sizes, [40 - 10 * n**-0.5 for n in sizes])
    prediction = exact.predict(16)
    assert not prediction.training_low <= prediction.score <= prediction.training_high
    assert plot_law_panels({"deeper": exact}, "Parameters", "BLEU", {"deeper": [16]}, {}).axes


@pytest.mark.full
def test_figure_shows_rules_checks_and_next_sizes(tmp_path: Path) -> None:
    rules = {"deeper": fit_power_law(*training_runs()),
             "wider": fit_power_law(*training_runs(1, a=38))}
    prediction = {rule: [1e8] for rule in rules}
    figure = plot_law_panels(rules, "Parameters", "BLEU", prediction,
                             {"deeper": check_largest_size(*training_runs())})
    axes = figure.axes[0]
    assert max(line.get_xdata()[-1] for line in axes.lines) == pytest.approx(1e8)
    assert [axes.get_title().split("\n")[0] for axes in figure.axes] == ["deeper", "wider"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert figure.legends[0].get_title().get_text().startswith("Parameters\n")
    assert {"training runs", "largest size, measured",
            "largest size, predicted from the others"} <= set(legend)
    (measured,) = [line for line in axes.lines if line.get_label() == "largest size, measured"]
    assert measured.get_ydata()[0] == check_largest_size(*training_runs()).measured_score
    assert [path.suffix for path in save_figure(figure, tmp_path / "scaling")] == [".png", ".svg"]
