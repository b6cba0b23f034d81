"""Tests of the comparison of two studies."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.pareto.front import hypervolume
from scalesearch.report.compare import ComparedStudy, compare_studies, plot_comparison
from scalesearch.report.figures.style import save_figure
from tests.errors import refuses
from tests.report.trial_records import OBJECTIVES, PROTOCOL, record, records, trials_table

OBJECTIVE_PAIR = {"bleu": "max", "params.total": "min"}


def compared_study(name, trials, objectives=None, **options):
    objectives = objectives or OBJECTIVE_PAIR
    table = trials_table(trials, objectives)
    eligible = table[table["is_feasible"] & table["is_in_space"] & (table["state"] == "complete")]
    return ComparedStudy(name, eligible, objectives, PROTOCOL, "abc", "sig|v:1", **options)


@settings(max_examples=20)
@given(st.integers(0, 999), st.integers(1, 12), st.integers(0, 99))
def test_equal_studies_have_no_difference(rng, count, seed):
    first = compared_study("one", records(count, rng, widest=6.2))
    comparison = compare_studies(first, replace(first, name="other"), n_resamples=200, seed=seed)
    assert comparison.difference == 0
    assert comparison.interval is None or comparison.interval.low <= 0 <= comparison.interval.high
    assert "neither is shown to be better" in comparison.lines()[3]


@settings(max_examples=20)
@given(st.integers(0, 999), st.integers(2, 10), st.floats(0.5, 20))
@pytest.mark.full
def test_dominating_study_has_larger_hypervolume(rng, count, gain):
    rows = records(count, rng, widest=6.2)
    better = [{**row, "metrics": {**row["metrics"], "bleu": row["metrics"]["bleu"] + gain}}
              for row in rows]
    first = compared_study("better", better)
    second = compared_study("worse", rows)
    comparison = compare_studies(first, second, n_resamples=200)
    reversed_comparison = compare_studies(second, first, n_resamples=200)
    assert comparison.difference > 0
    assert reversed_comparison.difference == pytest.approx(-comparison.difference)
    assert comparison.reference_point == reversed_comparison.reference_point
    assert 0 < comparison.studies[1].hypervolume < comparison.studies[0].hypervolume <= 1


def test_clear_difference_has_interval_above_zero():
    rows = [record(number, 30.0 + number, 1000 - number, 10) for number in range(9)]
    worse = [record(number, 10.0 + number, 9000 - number, 10) for number in range(9)]
    comparison = compare_studies(compared_study("good", rows), compared_study("bad", worse))
    assert 0 < comparison.interval.low < comparison.difference
    assert "good is better" in comparison.lines()[3]
    comparison = compare_studies(compared_study("good", worse), compared_study("bad", rows))
    assert "bad is better" in comparison.lines()[3]


@pytest.mark.parametrize("seed", range(4))
def test_interval_is_around_the_difference_of_studies_of_unequal_size(seed):
    """Resampling lowers the hypervolume of a study with few trials more than that of the other."""
    few = compared_study("few", records(5, seed, widest=6.2))
    many = compared_study("many", records(40, 100 + seed, widest=6.2))
    comparison = compare_studies(few, many, n_resamples=1000)
    low, high = comparison.interval.low, comparison.interval.high
    third = (high - low) / 3
    assert low + third / 2 < comparison.difference < high - third / 2


def test_study_with_one_trial_has_no_interval():
    first, second = (compared_study(name, [record(0, bleu, 1000, 10)])
                  for name, bleu in (("one", 36.7), ("other", 37.2)))
    comparison = compare_studies(first, second)
    assert comparison.difference < 0 and comparison.interval is None
    assert "neither is shown to be better" in comparison.lines()[3] and "bootstrap" not in "".join(
        comparison.lines())


def test_bytes_of_different_formats_are_not_comparable():
    first, second = (replace(compared_study(name, records(3, 1)),
                             protocol={**PROTOCOL, "artifact": artifact})
                  for name, artifact in (("one", "ctranslate2-int8"), ("other", "onnx-int8")))
    with refuses("not-comparable", "files of onnx-int8"):
        compare_studies(first, second)


def test_weight_only_work_is_reported_separately():
    first, second = (compared_study(name, records(6, seed, widest=6.2),
                                    weight_only_macs=weight_only_macs)
                  for name, seed, weight_only_macs in (("one", 1, [4321]), ("other", 2, [])))
    comparison = compare_studies(first, second, n_resamples=100)
    assert any("macs.once 4,321" in line and "not in the total" in line
               for line in comparison.lines())
    assert "macs.once" in msgspec.to_builtins(comparison)["conventions"]


def test_hypervolumes_are_shares_of_a_common_box():
    first = compared_study("one", records(12, 1, widest=6.2))
    second = compared_study("other", records(12, 2, widest=6.2))
    comparison = compare_studies(first, second)
    all_values = np.vstack([first.objective_values(OBJECTIVE_PAIR),
                            second.objective_values(OBJECTIVE_PAIR)])
    assert comparison.reference_point[0] < all_values[:, 0].min()
    assert comparison.reference_point[1] > all_values[:, 1].max()
    box = (all_values[:, 0].max() - comparison.reference_point[0]) * (
        comparison.reference_point[1] - all_values[:, 1].min())
    exact = hypervolume(first.objective_values(OBJECTIVE_PAIR), comparison.reference_point,
                        ["max", "min"])
    measured = comparison.studies[0]
    assert measured.hypervolume_in_units == exact
    assert measured.hypervolume == pytest.approx(exact / box)


def test_interval_depends_on_seed_and_confidence():
    first = compared_study("one", records(12, 1, widest=6.2))
    second = compared_study("other", records(12, 2, widest=6.2))
    comparison, repeated, wide = (compare_studies(first, second, n_resamples=300, **options)
                                  for options in ({}, {}, {"confidence": 0.99}))
    assert comparison == repeated
    interval = comparison.interval
    assert interval.low >= wide.interval.low and interval.high <= wide.interval.high
    assert compare_studies(first, second, n_resamples=300, seed=2).interval.low != interval.low


def test_order_of_objectives_is_irrelevant():
    rows = records(8, 3, widest=6.2)
    reversed_objectives = dict(reversed(OBJECTIVES.items()))
    comparison = compare_studies(compared_study("one", rows, OBJECTIVES),
                                 compared_study("other", rows, reversed_objectives),
                                 n_resamples=100)
    assert comparison.difference == 0


@pytest.mark.parametrize(
    ("changed", "parts"),
    [({"data_hash": "xyz"}, ["data: hash abc in one, hash xyz in other"]),
     ({"protocol": {**PROTOCOL, "target": 99}}, ["protocol: ", "18 target", "99 target"]),
     ({"signature": "sig|v:2"}, ["metric: sig|v:1 in one, sig|v:2 in other"]),
     ({"objectives": {"bleu": "max"}},
      ["objectives: bleu: max, params.total: min in one, bleu: max in other"])])
def test_different_setups_are_not_comparable(changed, parts):
    first = compared_study("one", records(6, widest=6.2))
    with refuses("not-comparable", *parts):
        compare_studies(first, replace(first, name="other", **changed))


def test_unfinished_study_is_an_error_and_different_recipe_is_a_note():
    first = compared_study("one", records(6, widest=6.2), recipe={"steps": 5, "lr": 1})
    with refuses("nothing-finished", place="empty:"):
        compare_studies(first, compared_study("empty", [record(0, None, 100, 10, "failed")]))
    comparison = compare_studies(first, replace(first, name="other", recipe={"steps": 9, "lr": 1}),
                            n_resamples=100)
    assert comparison.lines()[0] == "Their recipes differ: steps 5 and 9."


def test_figure_shows_fronts_and_reference_point(tmp_path):
    studies = (compared_study("one", records(12, 1, widest=6.2)),
               compared_study("other", records(12, 2, widest=6.2)))
    comparison = compare_studies(*studies, n_resamples=100)
    figure = plot_comparison(studies, comparison, "params.total", "bleu", "grammar")
    axes = figure.axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [label.split(":")[0] for label in labels] == ["one", "other", "reference point of both"]
    assert axes.get_xlim()[1] > comparison.reference_point[1] and axes.get_ylim()[
        0] < comparison.reference_point[0]
    assert axes.get_ylabel() == "BLEU (validation) on grammar"
    first = save_figure(figure, tmp_path / "a")
    second = save_figure(plot_comparison(studies, comparison, "params.total", "bleu", "grammar"),
                         tmp_path / "b")
    assert first[1].read_bytes() == second[1].read_bytes()
