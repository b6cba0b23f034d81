"""Tests of fairness audits of synthetic runs with known results."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.report.fairness import AuditRun, assess_fairness, describe_option, final_losses
from scalesearch.report.figures.fairness import plot_regrets
from scalesearch.report.intervals import N_RESAMPLES, bootstrap_kendall_taus, kendall_tau

RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
STUDY_OPTION = ("none", 1.0)


def quadratic_runs(name, groups, best, floor=2.0, rule="none", slope=0.1):
    """Runs whose loss is quadratic in the base-2 logarithm of rate / best."""
    losses = {rate: floor + slope * math.log2(rate / best) ** 2 for rate in RATES}
    return [AuditRun(name, groups, rule, rate, loss, 50 - 10 * loss)
            for rate, loss in losses.items()]


def test_regret_is_difference_to_best_rate():
    table = (quadratic_runs("wide", ("width large",), 0.5)
             + quadratic_runs("narrow", ("width small",), 1.0, 3.0))
    fairness = assess_fairness(table, STUDY_OPTION, "bleu", "max")
    wide, narrow = fairness.regrets
    assert (
        wide.architecture, wide.best_option, wide.is_best_at_edge) == ("wide", ("none", 0.5), False)
    assert wide.loss_regret == pytest.approx(0.1) and wide.score_regret == pytest.approx(1.0)
    assert (narrow.loss_regret, narrow.score_regret, narrow.best_option) == (0.0, 0.0, STUDY_OPTION)


def test_best_rate_at_edge_is_reported():
    fairness = assess_fairness(quadratic_runs("a", (), 4.0), STUDY_OPTION, "bleu", "max")
    (regret,) = fairness.regrets
    assert regret.is_best_at_edge and regret.loss_regret == pytest.approx(0.4)


def test_kendall_tau_of_equal_and_reversed_orders():
    same = [run
            for index in range(6) for run in quadratic_runs(f"a{index}", (), 1.0, 2 + index / 10)]
    fairness = assess_fairness(same, STUDY_OPTION, "bleu", "max").kendall_tau
    assert (fairness.value, fairness.low) == (pytest.approx(1.0), pytest.approx(1.0))
    # architectures with a lower loss at their best rate have a higher loss at the study's rate
    reversed_order = [run for index in range(6)
                      for run in quadratic_runs(f"a{index}", (), 4.0, 2 + index / 1000,
                                                slope=0.2 - index * 0.03)]
    fairness = assess_fairness(reversed_order, STUDY_OPTION, "bleu", "max").kendall_tau
    assert fairness.value == pytest.approx(-1.0) == fairness.low
    assert assess_fairness(reversed_order[:10], STUDY_OPTION, "bleu", "max").kendall_tau is None


def test_disadvantaged_group_is_reported():
    table = [run for index in range(6)
             for run in quadratic_runs(f"pre{index}", ("norm pre", f"half {index % 2}"),
                                       1.0 + index / 50)]
    table += [run for index in range(6)
              for run in quadratic_runs(f"post{index}", ("norm post", f"half {index % 2}"),
                                        0.25 + index / 50)]
    fairness = assess_fairness(table, STUDY_OPTION, "bleu", "max")
    assert [group.name for group in fairness.groups if group.is_disadvantaged] == ["norm post"]
    worst = fairness.groups[0]
    regret = worst.mean_regret
    assert worst.n_architectures == 6 and regret.low <= regret.value <= regret.high
    assert worst.difference_to_others.value == pytest.approx(-next(
        group for group in fairness.groups if group.name == "norm pre").difference_to_others.value)
    assert "norm post" in " ".join(fairness.lines())
    assert "norm post" in fairness.disadvantaged


def test_groups_with_equal_members_are_merged():
    pre = ("norm pre", "gate none")
    post = ("norm post",)
    table = [run for index in range(4)
             for run in quadratic_runs(f"a{index}", pre if index < 2 else post, 1)]
    fairness = {group.name: group.n_architectures
             for group in assess_fairness(table, STUDY_OPTION, "bleu", "max").groups}
    assert fairness == {"norm pre, gate none": 2, "norm post": 2}


def test_figure_has_row_per_architecture_and_column_per_recipe():
    table = quadratic_runs("wide", (), 0.5) + quadratic_runs("narrow", (), 1.0)
    table[-1] = replace(table[-1], loss=math.inf)  # "narrow" with the largest rate
    fairness = assess_fairness(table, STUDY_OPTION, "bleu", "max")
    (axes, *_) = plot_regrets(fairness).axes
    cell_texts = [text.get_text() for text in axes.texts]
    assert cell_texts == ["0.10", "0.00", "0.10", "0.40", "0.90", "0.40", "0.10", "0.00", "0.10",
                          "failed", "none"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["wide", "narrow"]
    assert plot_regrets(assess_fairness([], STUDY_OPTION, "bleu", "max")) is None


def test_alternatives_are_sorted_by_mean_regret():
    table = [run for index, best in enumerate((0.25, 0.5, 0.5, 0.5))
             for run in quadratic_runs(f"a{index}", (), best)]
    fairness = assess_fairness(table, STUDY_OPTION, "bleu", "max")
    assert fairness.alternatives[0].option == ("none", 0.5)
    assert fairness.alternatives[-1].option == ("none", 4.0)
    # with another rule, all architectures have the same best rate
    other_rule = [run for index in range(4)
                  for run in quadratic_runs(f"a{index}", (), 2.0, 1.99, "mup")]
    fairness = assess_fairness(table + other_rule, STUDY_OPTION, "bleu", "max")
    assert fairness.alternatives[0].option == (
        "mup", 2.0) and fairness.alternatives[0].mean_regret.value == pytest.approx(0)
    assert describe_option(fairness.alternatives[0].option) in " ".join(fairness.lines())


def test_losses_of_stopped_and_failed_runs():
    table = [AuditRun("a", (), "none", 1.0, 2.0, 30.0, rung_loss=3.0),
             AuditRun("a", (), "none", 2.0, rung_loss=3.25),
             AuditRun("a", (), "none", 4.0, math.inf, None, rung_loss=9.0)]
    assert final_losses(table) == {STUDY_OPTION: 2.0, ("none", 2.0): 2.25, ("none", 4.0): math.inf}
    diverged = AuditRun("a", (), "none", 0.5, math.inf, rung_loss=2.5)  # the best at the rung
    assert final_losses([*table, diverged])["none", 2.0] == 2.25
    fairness = assess_fairness(table, STUDY_OPTION, "bleu", "max")
    assert [alternative.option[1] for alternative in fairness.alternatives] == [1.0, 2.0, 4.0]
    assert math.isinf(fairness.alternatives[-1].mean_regret.value)
    broken = [AuditRun("b", (), "none", 1.0, math.inf), AuditRun("b", (), "none", 0.5, 2.0, 30.0)]
    assert assess_fairness(broken, STUDY_OPTION, "bleu", "max").regrets[0].loss_regret == math.inf


def test_bootstrap_taus_equal_scipy():
    table = np.array([[1, 2], [2, 2], [3, 1], [4, 5], [np.inf, 4]], float)
    counts = np.random.default_rng(3).multinomial(5, np.full(5, 0.2), N_RESAMPLES)
    taus = [kendall_tau(np.repeat(table, row_counts, axis=0)) for row_counts in counts[:40]]
    expected = [tau for tau in taus if tau is not None]
    assert bootstrap_kendall_taus(table, 3)[:len(expected)] == pytest.approx(expected)


def test_architecture_without_study_recipe_is_ignored():
    runs = [run for run in quadratic_runs("a", (), 1.0) if run.rate_factor != 1.0]
    fairness = assess_fairness(runs, STUDY_OPTION, "bleu", "max")
    assert not fairness.regrets and fairness.kendall_tau is None and fairness.lines()
    assert fairness.regrets == ()


LOSSES = st.floats(1.0, 9.0).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(*[LOSSES] * 3), min_size=1, max_size=8), st.sampled_from(["min", "max"]))
@settings(max_examples=15)
def test_regrets_are_nonnegative_and_best_alternative_is_first(rows, direction):
    table = [AuditRun(f"a{index}", (f"kind {index % 2}",), "none", rate, loss,
                      loss if direction == "min" else -loss) for index, losses in enumerate(rows)
             for rate, loss in zip((0.5, 1.0, 2.0), losses)]
    fairness = assess_fairness(table, STUDY_OPTION, "score", direction)
    assert {regret.architecture for regret in fairness.regrets} == {
        f"a{index}" for index in range(len(rows))}
    for regret in fairness.regrets:
        losses = rows[int(regret.architecture[1:])]
        assert regret.loss_regret == regret.score_regret == losses[1] - min(losses) >= 0
    means = {rate: sum(losses[index] - min(losses) for losses in rows) / len(rows)
             for index, rate in enumerate((0.5, 1.0, 2.0))}
    assert fairness.alternatives[0].mean_regret.value == pytest.approx(min(means.values()))
    assert [regret.loss_regret for regret in fairness.regrets] == sorted(
        (regret.loss_regret for regret in fairness.regrets), reverse=True)
    tau = fairness.kendall_tau
    assert tau is None or -1.01 < tau.low <= tau.high < 1.01
    assert len(fairness.alternatives) == 3 and all(
        group.mean_regret.value >= 0 for group in fairness.groups)
    assert {alternative.option for alternative in fairness.alternatives} == set(
        product(["none"], (0.5, 1.0, 2.0)))
