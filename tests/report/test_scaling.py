"""Power laws on made-up trainings of which the law is known."""

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


def trainings(seed=0, sd=0.3, seeds=2, sizes=SIZES, **of):
    """Sizes and noisy scores, ``seeds`` of each size."""
    n = np.repeat(sizes, seeds)
    return n, law(n, **of) + np.random.default_rng(seed).normal(0, sd, len(n))


@pytest.mark.parametrize("c", [0.1, 0.34, 0.76, 1.5])
def test_a_law_without_noise_is_recovered(c) -> None:
    found = fit_power_law(SIZES, law(SIZES, c=c))
    assert (found.law.a, found.law.c) == pytest.approx((40, c), rel=1e-3)
    assert found.law.to_json()["b"] == pytest.approx(20 * 1e6**c, rel=2e-2)
    assert found.law.is_identified and found.sd < 1e-3
    assert np.allclose(found.law([1e8]), law([1e8], c=c), rtol=1e-3)


def test_a_loss_falls_by_the_same_law() -> None:
    found = fit_power_law(SIZES, -law(SIZES), direction="min")
    assert (found.law.a, found.law.c) == pytest.approx((-40, 0.4), rel=1e-3)
    assert found.law([2e6]) == pytest.approx(-law(2e6), rel=1e-4)


@pytest.mark.parametrize(("sizes", "seeds"), [(SIZES, 2), (SIZES[:4], 1), (SIZES[:4], 3)])
def test_intervals_hold_the_truth_as_often_as_they_say(sizes, seeds) -> None:
    """Of 100 studies 90 on average; below 82, or all 100, would happen to true intervals once in 200 times."""
    inside = {"law": 0, "exponent": 0, "next": 0, "training": 0}
    for seed in range(100):
        found = fit_power_law(*trainings(seed, seeds=seeds, sizes=sizes), n_resamples=300,
                              seed=seed)
        low, high = found.interval_at([4e6])
        ahead = found.predict(2 * sizes[-1])
        new = law(2 * sizes[-1]) + np.random.default_rng(1000 + seed).normal(0, 0.3)
        inside["law"] += low[0] <= law(4e6) <= high[0]
        inside["exponent"] += found.exponent_interval[0] <= 0.4 <= found.exponent_interval[1]
        inside["next"] += ahead.low <= law(2 * sizes[-1]) <= ahead.high
        inside["training"] += ahead.training_low <= new <= ahead.training_high
    assert all(82 <= count < 100 for count in inside.values()), inside


def test_equal_arguments_give_equal_fits_and_another_seed_others() -> None:
    one, two, other = (fit_power_law(*trainings(), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.bootstrap_samples,
                          two.bootstrap_samples) and one.predict(1e8) == two.predict(1e8)
    assert one.law == other.law and not np.array_equal(
        one.bootstrap_samples, other.bootstrap_samples)


def test_units_of_size_change_nothing() -> None:
    n, y = trainings()
    one = fit_power_law(n, y)
    two = fit_power_law(n / 1e6, y)
    assert one.law.c == pytest.approx(two.law.c, rel=1e-6)
    assert one.predict(5e7).low == pytest.approx(two.predict(50).low, rel=1e-6)


def test_further_away_is_less_sure_and_more_seeds_are_surer() -> None:
    found = fit_power_law(*trainings())
    near = found.predict(4e7)
    far = found.predict(1e9)
    assert far.high - far.low > near.high - near.low
    one = found.predict(4e7, 1)
    many = found.predict(4e7, 9)
    assert near.high - near.low < many.training_high - many.training_low < one.training_high - one.training_low


def test_scores_that_do_not_grow_identify_nothing() -> None:
    assert not fit_power_law(SIZES, [30.0, 30, 30, 30, 30, 30]).law.is_identified
    assert not fit_power_law(SIZES, -law(SIZES)).law.is_identified  # falls where it should rise
    assert not fit_power_law(SIZES, np.log(SIZES)).law.is_identified


def test_a_held_out_size_checks_the_law() -> None:
    n, y = trainings()
    good = check_largest_size(n, y)
    assert good.is_inside_interval and good.prediction.size == SIZES[
        -1] and good.prediction.n_seeds == 2
    assert good.measured_score == pytest.approx(
        y[-2:].mean()) and good.error == pytest.approx(good.measured_score - good.prediction.score)
    y[-2:] -= 8  # the data ran out
    bad = check_largest_size(n, y)
    assert not bad.is_inside_interval and bad.error < -4


def test_the_rule_to_follow_is_named_with_how_sure_that_is() -> None:
    rules = {"wider": fit_power_law(*trainings(1, a=38)), "deeper": fit_power_law(*trainings(2)),
             "twin": fit_power_law(*trainings(3))}
    first = rank_rules(rules, 5e7)
    assert [choice.rule for choice in first][2] == "wider" and sum(
        choice.best_share for choice in first) == pytest.approx(1)
    assert first[2].best_share < 0.05 < min(choice.best_share for choice in first[:2])
    losses = {name: fit_power_law(found.sizes, -found.scores, "min")
              for name, found in rules.items()}
    assert rank_rules(losses, 5e7)[2].rule == "wider"


def test_score_a_million_is_the_papers() -> None:
    params = (36_694_152, 68_079_912)
    scores = (27.88, 29.56)
    # the paper takes rounded millions
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
def test_too_little_or_bad_is_said(sizes, scores, code) -> None:
    with refuses(code):
        fit_power_law(sizes, scores)


def test_a_law_outside_of_its_own_narrow_interval_is_drawn() -> None:
    sizes = [1, 2, 4, 8]
    exact = fit_power_law(sizes, [40 - 10 * n**-0.5 for n in sizes])
    ahead = exact.predict(16)
    assert not ahead.training_low <= ahead.score <= ahead.training_high
    assert plot_law_panels({"deeper": exact}, "Parameters", "BLEU", {"deeper": [16]}, {}).axes


def test_the_figure_shows_each_rule_as_far_as_it_is_asked(tmp_path: Path) -> None:
    rules = {"deeper": fit_power_law(*trainings()), "wider": fit_power_law(*trainings(1, a=38))}
    ahead = {rule: [1e8] for rule in rules}
    figure = plot_law_panels(rules, "Parameters", "BLEU", ahead,
                             {"deeper": check_largest_size(*trainings())})
    axes = figure.axes[0]
    assert max(line.get_xdata()[-1] for line in axes.lines) == pytest.approx(1e8)
    assert [axes.get_title().split("\n")[0] for axes in figure.axes] == ["deeper", "wider"]
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert figure.legends[0].get_title().get_text().startswith("Parameters\n")
    assert {"trainings", "measured there", "largest size, predicted from the others"} <= set(said)
    (measured,) = [line for line in axes.lines if line.get_label() == "measured there"]
    assert measured.get_ydata()[0] == check_largest_size(*trainings()).measured_score
    assert [path.suffix for path in save_figure(figure, tmp_path / "scaling")] == [".png", ".svg"]
