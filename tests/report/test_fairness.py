"""An audit's findings from tables of trainings of which the answer is known."""

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
OWN = ("none", 1.0)


def bowl(name, kinds, best, floor=2.0, rule="none", steep=0.1):
    """An architecture whose loss grows with the square of the distance to its best rate, in doublings."""
    losses = {rate: floor + steep * math.log2(rate / best) ** 2 for rate in RATES}
    return [AuditRun(name, kinds, rule, rate, loss, 50 - 10 * loss)
            for rate, loss in losses.items()]


def test_regret_is_what_the_study_s_rate_loses_to_the_best():
    table = bowl("wide", ("width large",), 0.5) + bowl("narrow", ("width small",), 1.0, 3.0)
    found = assess_fairness(table, OWN, "bleu", "max")
    wide, narrow = found.regrets
    assert (
        wide.architecture, wide.best_option, wide.is_best_at_edge) == ("wide", ("none", 0.5), False)
    assert wide.loss_regret == pytest.approx(0.1) and wide.score_regret == pytest.approx(1.0)
    assert (narrow.loss_regret, narrow.score_regret, narrow.best_option) == (0.0, 0.0, OWN)


def test_a_best_rate_at_the_end_is_said_to_be_one():
    (one, *_) = assess_fairness(bowl("a", (), 4.0), OWN, "bleu", "max").regrets
    assert one.is_best_at_edge and one.loss_regret == pytest.approx(0.4)


def test_tau_is_one_where_the_order_stays_and_less_where_it_turns():
    same = [one for at in range(6) for one in bowl(f"a{at}", (), 1.0, 2 + at / 10)]
    found = assess_fairness(same, OWN, "bleu", "max").kendall_tau
    assert (found.value, found.low) == (pytest.approx(1.0), pytest.approx(1.0))
    # The better by their own best rates, the worse at the study's.
    turned = [one for at in range(6)
              for one in bowl(f"a{at}", (), 4.0, 2 + at / 1000, steep=0.2 - at * 0.03)]
    found = assess_fairness(turned, OWN, "bleu", "max").kendall_tau
    assert found.value == pytest.approx(-1.0) == found.low
    assert assess_fairness(turned[:10], OWN, "bleu", "max").kendall_tau is None


def test_a_kind_at_a_disadvantage_is_named_and_others_are_not():
    table = [one for at in range(6)
             for one in bowl(f"pre{at}", ("norm pre", f"half {at % 2}"), 1.0 + at / 50)]
    table += [one for at in range(6)
              for one in bowl(f"post{at}", ("norm post", f"half {at % 2}"), 0.25 + at / 50)]
    found = assess_fairness(table, OWN, "bleu", "max")
    assert [kind.name for kind in found.groups if kind.is_disadvantaged] == ["norm post"]
    worst = found.groups[0]
    assert worst.n_architectures == 6 and worst.mean_regret.low <= worst.mean_regret.value <= worst.mean_regret.high
    assert worst.difference_to_others.value == pytest.approx(-next(
        kind for kind in found.groups if kind.name == "norm pre").difference_to_others.value)
    assert "norm post" in " ".join(found.lines()) and "norm post" in found.to_json()["disadvantaged"]


def test_kinds_of_the_same_architectures_are_one_question():
    pre = ("norm pre", "gate none")
    post = ("norm post",)
    table = [one for at in range(4) for one in bowl(f"a{at}", pre if at < 2 else post, 1)]
    found = {kind.name: kind.n_architectures
             for kind in assess_fairness(table, OWN, "bleu", "max").groups}
    assert found == {"norm pre, gate none": 2, "norm post": 2}


def test_the_figure_has_a_row_an_architecture_with_what_each_recipe_loses():
    table = bowl("wide", (), 0.5) + bowl("narrow", (), 1.0)
    table[-1] = replace(table[-1], loss=math.inf)  # of "narrow", at the largest rate
    found = assess_fairness(table, OWN, "bleu", "max")
    (axes, *_) = plot_regrets(found).axes
    said = [text.get_text() for text in axes.texts]
    assert said == ["0.10", "0.00", "0.10", "0.40", "0.90", "0.40", "0.10", "0.00", "0.10", "fails",
                    "none"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["wide", "narrow"]
    assert plot_regrets(assess_fairness([], OWN, "bleu", "max")) is None


def test_the_fairest_rate_and_rule_are_found():
    table = [one for at, best in enumerate((0.25, 0.5, 0.5, 0.5))
             for one in bowl(f"a{at}", (), best)]
    found = assess_fairness(table, OWN, "bleu", "max")
    assert found.alternatives[0].option == ("none", 0.5)
    assert [one.option for one in found.alternatives[-1:]] == [("none", 4.0)]
    # Under another rule all have the same best rate.
    ruled = [one for at in range(4) for one in bowl(f"a{at}", (), 2.0, 1.99, "mup")]
    found = assess_fairness(table + ruled, OWN, "bleu", "max")
    assert found.alternatives[0].option == (
        "mup", 2.0) and found.alternatives[0].mean_regret.value == pytest.approx(0)
    assert describe_option(found.alternatives[0].option) in " ".join(found.lines())


def test_what_was_stopped_is_as_far_behind_as_it_was_and_what_failed_is_last():
    table = [AuditRun("a", (), "none", 1.0, 2.0, 30.0, rung_loss=3.0),
             AuditRun("a", (), "none", 2.0, rung_loss=3.25),
             AuditRun("a", (), "none", 4.0, math.inf, None, rung_loss=9.0)]
    assert final_losses(table) == {OWN: 2.0, ("none", 2.0): 2.25, ("none", 4.0): math.inf}
    found = assess_fairness(table, OWN, "bleu", "max")
    assert [one.option[1] for one in found.alternatives] == [1.0, 2.0, 4.0]
    assert found.to_json()["alternatives"][-1]["mean_regret"]["value"] is None
    broken = [AuditRun("b", (), "none", 1.0, math.inf), AuditRun("b", (), "none", 0.5, 2.0, 30.0)]
    assert assess_fairness(broken, OWN, "bleu", "max").regrets[0].loss_regret == math.inf


def test_resampled_correlations_are_scipy_s():
    table = np.array([[1, 2], [2, 2], [3, 1], [4, 5], [np.inf, 4]], float)
    counts = np.random.default_rng(3).multinomial(5, np.full(5, 0.2), N_RESAMPLES)
    drawn = (np.repeat(table, one, axis=0) for one in counts[:40])
    wanted = [value for one in drawn if (value := kendall_tau(one)) is not None]
    assert bootstrap_kendall_taus(table, 3)[:len(wanted)] == pytest.approx(wanted)


def test_without_the_study_s_own_training_nothing_is_said():
    found = assess_fairness([one for one in bowl("a", (), 1.0) if one.rate_factor != 1.0], OWN,
                            "bleu", "max")
    assert not found.regrets and found.kendall_tau is None and found.lines() and found.to_json()[
        "regrets"] == []


LOSSES = st.floats(1.0, 9.0).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(*[LOSSES] * 3), min_size=1, max_size=8), st.sampled_from(["min", "max"]))
@settings(max_examples=15, deadline=None)
def test_regrets_are_never_negative_and_nothing_is_fairer_than_the_fairest(rows, direction):
    table = [AuditRun(f"a{at}", (f"kind {at % 2}",), "none", rate, loss,
                      loss if direction == "min" else -loss) for at, losses in enumerate(rows)
             for rate, loss in zip((0.5, 1.0, 2.0), losses)]
    found = assess_fairness(table, OWN, "score", direction)
    assert {one.architecture for one in found.regrets} == {f"a{at}" for at in range(len(rows))}
    for regret in found.regrets:
        losses = rows[int(regret.architecture[1:])]
        assert regret.loss_regret == regret.score_regret == losses[1] - min(losses) >= 0
    means = {rate: sum(losses[at] - min(losses) for losses in rows) / len(rows)
             for at, rate in enumerate((0.5, 1.0, 2.0))}
    assert found.alternatives[0].mean_regret.value == pytest.approx(min(means.values()))
    assert [one.loss_regret for one in found.regrets] == sorted(
        (one.loss_regret for one in found.regrets), reverse=True)
    assert found.kendall_tau is None or -1.01 < found.kendall_tau.low <= found.kendall_tau.high < 1.01
    assert len(found.alternatives) == 3 and all(
        kind.mean_regret.value >= 0 for kind in found.groups)
    assert {one.option for one in found.alternatives} == set(product(["none"], (0.5, 1.0, 2.0)))
