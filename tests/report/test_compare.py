"""Two studies beside each other: what must hold of any two, and what may not be put beside each other."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.pareto.hypervolume import hypervolume
from scalesearch.report.compare import ComparedStudy, compare_studies, plot_comparison
from scalesearch.report.figures.style import save_figure
from scalesearch.report.table import trials_frame
from tests.errors import refuses
from tests.report.made_up import OBJECTIVES, PROTOCOL, record, records

TWO = {"bleu": "max", "params.total": "min"}


def side(name, rows, objectives=None, **more):
    objectives = objectives or TWO
    return ComparedStudy(name, trials_frame(rows, objectives), objectives, PROTOCOL, "abc",
                         "sig|v:1", **more)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(1, 12), st.integers(0, 99))
def test_a_study_differs_from_itself_by_nothing(rng, count, seed):
    one = side("one", records(count, rng, widest=6.2))
    found = compare_studies(one, replace(one, name="other"), n_resamples=200, seed=seed)
    assert found.difference == 0 and found.low <= 0 <= found.high
    assert "neither is shown to be better" in found.lines()[3]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(2, 10), st.floats(0.5, 20))
def test_a_study_that_dominates_is_ahead(rng, count, gain):
    rows = records(count, rng, widest=6.2)
    better = [{**row, "metrics": {**row["metrics"], "bleu": row["metrics"]["bleu"] + gain}}
              for row in rows]
    found = compare_studies(side("better", better), side("worse", rows), n_resamples=200)
    back = compare_studies(side("worse", rows), side("better", better), n_resamples=200)
    assert found.difference > 0 and back.difference == pytest.approx(-found.difference)
    assert found.reference_point == back.reference_point and 0 < found.studies[
        1].hypervolume < found.studies[0].hypervolume <= 1


def test_beyond_all_doubt_the_interval_leaves_nothing_out():
    rows = [record(number, 30.0 + number, 1000 - number, 10) for number in range(9)]
    worse = [record(number, 10.0 + number, 9000 - number, 10) for number in range(9)]
    found = compare_studies(side("good", rows), side("bad", worse))
    assert 0 < found.low < found.difference and "good is better" in found.lines()[3]
    assert "bad is better" in compare_studies(side("good", worse), side("bad", rows)).lines()[3]


def test_of_one_trial_there_is_no_interval_and_no_verdict():
    one, other = (side(name, [record(0, bleu, 1000, 10)])
                  for name, bleu in (("one", 36.7), ("other", 37.2)))
    found = compare_studies(one, other)
    assert found.difference < 0 and found.to_json()["interval"] is None
    assert "neither is shown to be better" in found.lines()[3] and "bootstrap" not in "".join(
        found.lines())


def test_bytes_of_two_formats_do_not_compare():
    one, other = (replace(side(name, records(3, 1)), protocol={**PROTOCOL, "artifact": format})
                  for name, format in (("one", "ctranslate2-int8"), ("other", "onnx-int8")))
    with refuses("not-comparable", "files of onnx-int8"):
        compare_studies(one, other)


def test_work_on_weights_alone_stands_beside_the_totals():
    one, other = (side(name, records(6, seed, widest=6.2), weight_only_macs=weight_only_macs)
                  for name, seed, weight_only_macs in (("one", 1, [4321]), ("other", 2, [])))
    found = compare_studies(one, other, n_resamples=100)
    assert any("macs.once 4,321" in line and "not in the total" in line for line in found.lines())
    assert "macs.once" in found.to_json()["conventions"]


def test_the_corner_is_beyond_both_and_volumes_are_shares_of_one_box():
    one = side("one", records(12, 1, widest=6.2))
    other = side("other", records(12, 2, widest=6.2))
    found = compare_studies(one, other)
    every = np.vstack([one.objective_values(TWO), other.objective_values(TWO)])
    assert found.reference_point[0] < every[:, 0].min() and found.reference_point[1] > every[
        :, 1].max()
    box = (every[:, 0].max() - found.reference_point[0]) * (
        found.reference_point[1] - every[:, 1].min())
    exact = hypervolume(one.objective_values(TWO), found.reference_point, ["max", "min"])
    first = found.studies[0]
    assert first.hypervolume_in_units == exact and first.hypervolume == pytest.approx(exact / box)


def test_the_same_seed_draws_the_same_and_more_confidence_is_wider():
    one = side("one", records(12, 1, widest=6.2))
    other = side("other", records(12, 2, widest=6.2))
    first, again, wide = (compare_studies(one, other, n_resamples=300, **more)
                          for more in ({}, {}, {"confidence": 0.99}))
    assert first == again and first.low >= wide.low and first.high <= wide.high
    assert compare_studies(one, other, n_resamples=300, seed=2).low != first.low


def test_objectives_may_be_written_in_another_order():
    rows = records(8, 3, widest=6.2)
    turned = dict(reversed(OBJECTIVES.items()))
    assert compare_studies(side("one", rows, OBJECTIVES), side("other", rows, turned),
                           n_resamples=100).difference == 0


@pytest.mark.parametrize(
    ("changed", "parts"),
    [({"data_hash": "xyz"}, ["data: hash abc in one, hash " "xyz in other"]),
     ({"protocol": {**PROTOCOL, "target": 99}}, ["protocol: ", "18 target", "99 target"]),
     ({"signature": "sig|v:2"}, ["metric: sig|v:1 in one, sig|v:2 in other"]),
     ({"objectives": {"bleu": "max"}},
      ["objectives: bleu: max, params.total: " "min in one, bleu: max in other"])])
def test_what_does_not_compare_is_refused(changed, parts):
    one = side("one", records(6, widest=6.2))
    with refuses("not-comparable", *parts):
        compare_studies(one, replace(one, name="other", **changed))


def test_a_study_without_a_finished_candidate_is_refused_and_another_recipe_said():
    one = side("one", records(6, widest=6.2), recipe={"steps": 5, "lr": 1})
    with refuses("nothing-finished", place="empty:"):
        compare_studies(one, side("empty", [record(0, None, 100, 10, "failed")]))
    found = compare_studies(one, replace(one, name="other", recipe={"steps": 9, "lr": 1}),
                            n_resamples=100)
    assert found.lines()[-1] == "Their recipes differ: steps 5 and 9."


def test_the_figure_has_both_fronts_and_the_corner_inside_it(tmp_path):
    sides = side("one", records(12, 1, widest=6.2)), side("other", records(12, 2, widest=6.2))
    found = compare_studies(*sides, n_resamples=100)
    axes = (figure := plot_comparison(sides, found, "params.total", "bleu", "grammar")).axes[0]
    said = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [word.split(":")[0] for word in said] == ["one", "other", "reference corner of both"]
    assert axes.get_xlim()[1] > found.reference_point[1] and axes.get_ylim()[
        0] < found.reference_point[0]
    assert axes.get_ylabel() == "BLEU (validation) on grammar"
    first = save_figure(figure, tmp_path / "a")
    second = save_figure(plot_comparison(sides, found, "params.total", "bleu", "grammar"),
                         tmp_path / "b")
    assert first[1].read_bytes() == second[1].read_bytes()
