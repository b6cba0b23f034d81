"""Scaling studies of which the truth is known: what is claimed is true, and nothing is claimed of what is not known."""

import io
import json
import math

import numpy as np
import pandas as pd
import pytest

from scalesearch.pareto.noise import pool_noise
from scalesearch.report.figures.style import save_figure
from scalesearch.report.scaling.architectures import Slope
from scalesearch.report.scaling.figures import plot_laws, plot_means
from scalesearch.report.scaling.formatting import (
    format_interval,
    format_share,
    format_size,
    format_slope,
    ranking_sentences,
    score_decimals,
)
from scalesearch.report.scaling.study import analyze_scaling, next_size
from scalesearch.report.scaling.tables import notes, scaling_frame, scaling_tables, to_json, to_markdown
from tests.errors import refuses
from tests.report.growing import BASE, RULES, STEPS, law, study, without
from tests.report.made_up import record


def found(records, meta, metric="bleu", direction="max", **how):
    return analyze_scaling(records, meta, metric, direction, **how)


def said(result):
    return " ".join(line for ranking in result.rankings
                    for line in ranking_sentences(result, ranking))


def test_studies_find_the_laws_that_they_were_made_of():
    """Of 10 studies 9 on average, at 90 %; fewer than 6 would happen once in 600 times."""
    held = dict.fromkeys(((cost, rule) for cost in ("params.total", "macs.total")
                          for rule in RULES), np.zeros(4))
    for rng in range(10):
        result = found(*study(rng=rng))
        for curve in result.curves:
            truth = RULES[curve.rule]
            unit = 1 if curve.cost == "params.total" else 20
            (low, high), ahead = curve.fit.exponent_interval, curve.next_prediction
            assert ahead.size == pytest.approx(unit * BASE * 1.6 * STEPS[-1], rel=1e-5)
            right = law(ahead.size / unit, truth)
            new = right + np.random.default_rng(100 + rng).normal(0, 0.15)
            checks = (low <= truth <= high, curve.holdout_check.is_inside_interval,
                      ahead.low <= right <= ahead.high,
                      ahead.training_low <= new <= ahead.training_high)
            held[curve.cost, curve.rule] = held[curve.cost, curve.rule] + checks
    assert all((counts >= 6).all() for counts in held.values()), held
    assert result.noise.sd == pytest.approx(0.15, rel=0.5) and result.noise.df == 18


def test_the_steeper_rule_is_the_one_to_follow_and_the_reason_is_given():
    result = found(*study(), ranking_sizes=[("params.total", 5e6)])
    (ranking,) = result.rankings
    assert [choice.rule for choice in ranking.ranked_rules] == ["wider", "deeper"]
    assert ranking.is_decided and not ranking.extrapolated_rules
    assert "At 5M params (as requested) follow wider: its law says bleu 34" in said(result)
    assert "> 99 % of draws" in said(result)


@pytest.mark.parametrize("rng", range(4))
def test_of_equal_rules_none_is_called_best(rng):
    result = found(*study({"wider": 0.4, "deeper": 0.4, "heads": 0.4}, rng=rng))
    assert not any(ranking.is_decided for ranking in result.rankings) and len(result.rankings) == 2
    assert "no rule can be called best, which takes 95 % of draws" in said(
        result) and "follow" not in said(result)


def test_equal_rules_are_told_apart_no_more_often_than_the_confidence_allows():
    """Of 30 studies of two equal rules, 3 on average at 90 %; more than 8 would happen once in 500 times."""
    equal = (study({"wider": 0.4, "deeper": 0.4}, rng=rng, held_out="none") for rng in range(30))
    assert sum(found(*one, ranking_sizes=[("params.total", 4e6)]).rankings[0].is_decided for one in equal) <= 8


def test_rules_are_ranked_at_the_budget_or_where_all_have_been():
    short = without(study()[0], "deeper: 4", "deeper: 3")
    budget = found(short, study(bounds={"params.total": 5e6, "params.embedding": 1})[1])
    first, second = budget.rankings
    assert (first.cost, first.size, first.size_source) == ("params.total", 5e6, "budget")
    assert first.extrapolated_rules == {
        "deeper": round(BASE * 1.6**2)} and "deeper (largest 2.56M)" in said(budget)
    assert (second.cost, second.size_source, second.size) == (
        "macs.total", "reached", round(20 * BASE * 1.6**2))
    assert not second.extrapolated_rules


def test_any_cost_of_the_budget_or_asked_for_has_its_curves():
    records, meta = study(bounds={"params.non_embedding": 2e6})
    result = found(records, meta)
    assert result.costs == ("params.total", "macs.total", "params.non_embedding")
    assert result.rankings[2].size == 2e6 and len(result.curves_for("params.non_embedding")) == 2
    asked = found(records, meta, ranking_sizes=[("params.non_embedding", 3e6), ("params.non_embedding", 4e6)])
    assert [ranking.size for ranking in asked.rankings] == [3e6, 4e6]
    for wrong in ("params.nothing", "load.mean"):
        with refuses("unknown-cost", wrong):
            found(records, meta, ranking_sizes=[(wrong, 3e6)])


def test_a_loss_is_the_same_study_turned_round():
    up = found(*study())
    down = found(*study(metric="loss", sign=-1), "loss", "min")
    for one, other in zip(up.curves, down.curves):
        assert other.fit.law.c == pytest.approx(one.fit.law.c, rel=1e-6)
        assert other.next_prediction.score == pytest.approx(-one.next_prediction.score, rel=1e-6)
    assert [ranking.best_rule.rule for ranking in down.rankings] == [
        "wider", "wider"] and down.rankings[0].is_decided
    assert "loss = a + b · size^-c" in " ".join(notes(down))
    assert all(gain.slope_from_base.value < 0 for gain in down.slopes)


def test_a_law_that_does_not_hold_is_told_by_its_largest_size():
    records, meta = study(rng=2)
    for one in records:
        if one["label"] == "wider: 4":
            one["metrics"] = {"bleu": one["metrics"]["bleu"] - 8}
    result = found(records, meta, ranking_sizes=[("params.total", 3e6)])
    assert not result.curves_for("params.total")["wider"].holdout_check.is_inside_interval and result.curves_for(
        "params.total")["deeper"].holdout_check.is_inside_interval
    assert "Doubtful, since their laws against params failed the check by their largest size: wider." in said(result)
    assert found(
        *study(held_out="none")).curves[0].no_check_reason == "the study file asks for no check"


def test_score_a_million_is_that_of_the_papers_section():
    first = {**record(0, 27.88, 36_000_000, 1, label="small"), "origin": "reference"}
    last = {**record(1, 29.56, 68_000_000, 2, label="large"), "origin": "reference"}
    meta = study()[1] | {"architectures": ["small", "large"],
                         "scaling": {"base": "small", "rules": {"heads": ["large"]}}}
    (gain,) = found([first, last], meta).slopes
    assert (gain.previous_label, gain.slope_from_base.value) == (
        "small", pytest.approx(0.0525)) and gain.slope_from_base.half_width is None
    assert "| heads | large | +0.0525 ± – |" in " ".join(
        to_markdown(found([first, last], meta)).split())


def test_gains_have_the_intervals_of_the_noise_between_seeds():
    records, meta = study()
    samples = {}
    for one in records:
        samples.setdefault(one["label"], []).append(one["metrics"]["bleu"])
    result = found(records, meta, confidence=0.8)
    gain = next(gain for gain in result.slopes if gain.label == "deeper: 2")
    millions = (round(BASE * 1.6**2) - round(BASE * 1.6)) / 1e6
    assert gain.previous_label == "deeper: 1"
    assert gain.slope_from_previous.value == pytest.approx(
        (np.mean(samples["deeper: 2"]) - np.mean(samples["deeper: 1"])) / millions)
    half = pool_noise(samples.values()).interval_half_width(0.8, 3, 3)
    assert gain.slope_from_previous.half_width == pytest.approx(half / millions)


def test_too_little_is_said_and_not_fitted():
    result = found(*study(seeds=1, steps=STEPS[:2]))
    assert all(curve.fit is None and curve.next_prediction is None
               for curve in result.curves) and not result.rankings
    assert ("No law, since there are 3 trainings of 3 sizes, where a law takes at least 4 of 3: wider against params, "
            "deeper against params, wider against MACs, deeper against MACs.") in notes(result)
    assert any("No row has a second seed" in line for line in notes(result))
    assert plot_laws(result, "params.total") is None and plot_means(result) is not None
    flat, meta = study(steps=np.ones(3))
    assert "12 trainings of 1 size," in found(flat, meta).curves[0].no_fit_reason
    assert all(gain.slope_from_base is None for gain in found(flat, meta).slopes)
    four = found(*study(seeds=1, steps=STEPS[:3]))
    assert four.curves[0].fit is not None and four.curves[0].no_check_reason.startswith(
        "3 trainings of 3 sizes are left")


def test_rows_that_are_not_finished_are_named_with_why_and_left_out():
    records, meta = study()
    done = without(records, "wider: 3", "wider: 4", "deeper: 4", "deeper: 3")
    failed = record(90, None, 9e6, 9e7, "failed",
                    label="wider: 3") | {"reason": "loss is nan\nTraceback"}
    pending = record(91, None, 9e6, 9e7, "pending", label="deeper: 4") | {"origin": "reference"}
    none = {**record(93, None, 9e6, 9e7, label="deeper: 3"), "metrics": {"chrf": 3.0}}
    begun = {**done[1], "trial": 92, "state": "pending", "metrics": {}}
    over = found(done, meta | {"excluded": {"wider: 4": "not params.total <= 2M (by 3.1%)"}})
    assert {one.missing_reason for one in over.unfinished if one.label == "wider: 4"} == {
        "not trained: not params.total <= 2M (by 3.1%)"}
    result = found([*done, failed, pending, none, begun], meta)
    assert {one.label: one.missing_reason for one in result.unfinished} == {
        "wider: 3": "failed (loss is nan)", "wider: 4": "not begun", "deeper: 4": "in training",
        "deeper: 3": "has no bleu"}
    text = to_markdown(result)
    assert "4 of 9 rows have no score" in text and "wider: 3: failed (loss is nan)" in text
    assert "Replicates without a score: base (1)." in text and len(
        result.curves_for("params.total")["wider"].architectures) == 3
    rows = scaling_frame(result)
    assert set(rows.loc[rows["note"].notna(), "label"]) == {
        "wider: 3", "wider: 4", "deeper: 3", "deeper: 4"}
    nothing = found([], meta)
    assert len(nothing.unfinished) == 9 and plot_means(nothing) is None
    assert "9 of 9 rows have no score" in to_markdown(nothing)


def test_without_its_base_a_rule_goes_on():
    records, meta = study()
    result = found(without(records, "base"), meta)
    assert all(gain.slope_from_base is None and gain.slope_from_previous is not None
               for gain in result.slopes)
    assert result.curves[0].fit is not None and plot_means(result) is not None


def test_one_architecture_under_two_labels_counts_once():
    records, meta = study()
    twin = {**record(99, None, round(BASE), round(20 * BASE), "duplicate", label="twin"), "original": 0}
    more = {**meta, "architectures": [*meta["architectures"], "twin"],
            "scaling": {**meta["scaling"],
                        "rules": {**meta["scaling"]["rules"], "hybrid": ["twin", "wider: 3"]}}}
    more["scaling"]["rules"]["wider"] = ["twin", *meta["scaling"]["rules"]["wider"]]
    plain = found(records, meta)
    result = found([*records, twin], more)
    assert result.noise == plain.noise
    row = next(row for row in result.finished if row.label == "twin")
    assert len(row.scores) == 3 and result.rules_containing("twin") == ("wider", "hybrid")
    one = result.curves_for("params.total")["wider"]
    other = plain.curves_for("params.total")["wider"]
    assert one.size_score_pairs == other.size_score_pairs and one.fit.law == other.fit.law and len(
        one.architectures) == len(other.architectures) + 1
    assert next(gain for gain in result.slopes if gain.label == "twin").slope_from_base is None
    broken = {**twin, "original": 98}
    failed = record(98, None, 5, 5, "failed", label="other") | {"reason": "no memory"}
    assert found([*records, failed, broken], more).unfinished[0].missing_reason == "failed (no memory)"


def test_what_is_no_scaling_study_or_no_metric_is_refused():
    records, meta = study()
    with refuses("wrong-type", "type: scaling", place="growth:"):
        found(records, {"name": "growth"})
    with refuses("unknown-metric", "rouge", "bleu, test.bleu"):
        found(records, meta, "rouge")
    assert found(records, meta,
                 "test.bleu").finished[0].mean_score == pytest.approx(found(records, meta).finished[0].mean_score - 1)


def test_tables_are_read_by_others():
    result = found(*study(), ranking_sizes=[("params.total", 3e6)], signature="sig|v:1")
    read = pd.read_csv(io.StringIO(scaling_frame(result).to_csv(index=False)))
    assert len(read) == 2 * 2 * 5 and read.groupby(["cost", "rule"]).size().eq(5).all()
    assert (read["law_low"] <= read["law"] + 0.2).all() and read["seeds"].eq(3).all()
    document = json.loads(json.dumps(to_json(result), allow_nan=False))
    assert document["rankings"][0]["first"] == "wider" and document["curves"][0]["held_out"][
        "inside"] is True
    assert json.loads(json.dumps(to_json(found(*study(seeds=1))), allow_nan=False))["noise"] is None
    for table in to_markdown(result).split("\n\n"):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1
    titles = [sheet.title for sheet in scaling_tables(result)]
    assert titles == ["Sizes", "Laws", "Checks: the largest size, predicted from the others",
                      "The next size", "bleu per million parameters",
                      "The rules at 3M params (as requested)"]
    assert any("protocol forward, 20 source and 18 target tokens, vocabulary 1,000" in line
               for line in notes(result))


def test_numbers_have_no_more_digits_than_they_deserve():
    assert [format_size(size) for size in (999, 2000, 1_234_567, 999_999, 2.5e9)] == [
        "999", "2k", "1.23M", "1M", "2.5G"]
    assert [score_decimals("bleu", half) for half in (0.0001, 0.2, 0.8, 40, math.inf)] == [
        2, 2, 1, 0, 2]
    assert score_decimals("loss", 0.0021) == 4 and score_decimals(
        "test.bleu", 1e-9) == 2 and score_decimals("perplexity", 0.001) == 2
    assert [format_share(part) for part in (0, 0.004, 0.9499, 0.95, 0.999, 1)] == [
        "< 1 %", "< 1 %", "94 %", "95 %", "> 99 %", "> 99 %"]
    assert format_interval("bleu", -0.00001, 0.00001) == "0.00 to 0.00" and format_slope(
        Slope(-0.001, 0.5)) == "+0.0 ± 0.5"
    assert next_size([4.0, 1.0, 2.0, 4.0]) == 8.0


def covers_nothing(figure):
    """The legend lies below axes and labels, and with every label within the figure."""
    figure.draw_without_rendering()
    inside = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= inside.x0 and inside.x1 <= figure.bbox.x1
    for axes in figure.axes:
        for text in (axes.xaxis.label, axes.yaxis.label):
            label = text.get_window_extent()
            assert not text.get_text() or not inside.overlaps(label)
            assert figure.bbox.x0 <= label.x0 and label.x1 <= figure.bbox.x1
            assert figure.bbox.y0 <= label.y0 and label.y1 <= figure.bbox.y1
        assert not inside.overlaps(axes.get_window_extent())


@pytest.mark.parametrize(("metric", "rules"), [("bleu", 2), ("loss", 5)])
def test_long_names_and_labels_fit(metric, rules):
    named = {f"wider, with head_dim fixed {number}": 0.1 + number / 10 for number in range(rules)}
    result = found(*study(named, metric=metric, held_out="none"), metric)
    covers_nothing(plot_means(result))
    covers_nothing(plot_laws(result, "params.total"))


def test_figures_name_axes_and_rules_and_cover_nothing(tmp_path):
    result = found(*study(bounds={"params.non_embedding": 2e6}))
    figure = plot_means(result)
    assert [axes.get_xlabel().split(" (")[0].split("\n")[0] for axes in figure.axes] == [
        "Parameters", "Multiply-accumulates per sentence pair", "Non-embedding parameters"]
    assert figure.axes[0].get_ylabel() == "BLEU (validation)\non grammar (synthetic)"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["base", "wider", "deeper"]
    covers_nothing(figure)
    drawn = plot_laws(result, "macs.total")
    covers_nothing(drawn)
    ends = {round(line.get_xdata()[-1]) for line in drawn.axes[0].lines}
    assert round(result.curves_for("macs.total")["wider"].next_prediction.size) in ends
    assert [file.suffix for file in save_figure(figure, tmp_path / "scaling-curves")] == [
        ".png", ".svg"]
