"""Tests of the analysis of synthetic scaling studies with known laws."""

import io
import json
import math
import re

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
    format_slopes,
    ranking_sentences,
    score_decimals,
)
from scalesearch.report.scaling.study import analyze_scaling, next_size
from scalesearch.report.scaling.tables import (
    notes,
    scaling_frame,
    scaling_tables,
    scaling_to_json,
    to_markdown,
)
from tests.errors import refuses
from tests.report.scaling_records import BASE, RULES, STEPS, law, study, without
from tests.report.trial_records import record


def analyze(records, meta, metric="bleu", direction="max", **options):
    return analyze_scaling(records, meta, metric, direction, **options)


def sentences(result):
    return " ".join(line for ranking in result.rankings
                    for line in ranking_sentences(result, ranking))


@pytest.mark.full
def test_analysis_recovers_known_laws():
    """Coverage is 9 of 10 studies on average; fewer than 6 occur in 1 of 600 runs."""
    covered = dict.fromkeys(((cost, rule) for cost in ("params.total", "macs.total")
                          for rule in RULES), np.zeros(4))
    for rng in range(10):
        result = analyze(*study(rng=rng))
        for curve in result.curves:
            truth = RULES[curve.rule]
            unit = 1 if curve.cost == "params.total" else 20
            (low, high), prediction = curve.fit.exponent_interval, curve.next_prediction
            assert prediction.size == pytest.approx(unit * BASE * 1.6 * STEPS[-1], rel=1e-5)
            true_score = law(prediction.size / unit, truth)
            new_score = true_score + np.random.default_rng(100 + rng).normal(0, 0.15)
            checks = (low <= truth <= high, curve.holdout_check.is_inside_interval,
                      prediction.low <= true_score <= prediction.high,
                      prediction.training_low <= new_score <= prediction.training_high)
            covered[curve.cost, curve.rule] = covered[curve.cost, curve.rule] + checks
    assert all((counts >= 6).all() for counts in covered.values()), covered
    assert result.noise.sd == pytest.approx(0.15, rel=0.5) and result.noise.df == 18


def test_ranking_decides_for_steeper_rule():
    result = analyze(*study(), ranking_sizes=[("params.total", 5e6)])
    (ranking,) = result.rankings
    assert [ranked.rule for ranked in ranking.ranked_rules] == ["wider", "deeper"]
    assert ranking.is_decided and not ranking.extrapolated_rules
    assert "At 5M params (as requested) use wider: its law predicts bleu 34" in sentences(result)
    assert "> 99 % of bootstrap resamples" in sentences(result)


@pytest.mark.parametrize("rng", range(4))
def test_ranking_is_undecided_for_equal_rules(rng):
    result = analyze(*study({"wider": 0.4, "deeper": 0.4, "heads": 0.4}, rng=rng))
    assert not any(ranking.is_decided for ranking in result.rankings) and len(result.rankings) == 2
    assert "no rule is significantly better" in sentences(
        result) and " use " not in sentences(result)


@pytest.mark.full
def test_ranking_has_nominal_error_rate():
    """At 90 %, 3 of 30 studies are decided on average; more than 8 occur in 1 of 500 runs."""
    equal = (study({"wider": 0.4, "deeper": 0.4}, rng=rng, held_out="none") for rng in range(30))
    results = (analyze(*records_and_meta, ranking_sizes=[("params.total", 4e6)])
               for records_and_meta in equal)
    assert sum(result.rankings[0].is_decided for result in results) <= 8


def test_rules_are_ranked_at_budget_or_reached_size():
    short = without(study()[0], "deeper: 4", "deeper: 3")
    budget = analyze(short, study(bounds={"params.total": 5e6, "params.embedding": 1})[1])
    first, second = budget.rankings
    assert (first.cost, first.size, first.size_source) == ("params.total", 5e6, "budget")
    assert first.extrapolated_rules == {
        "deeper": round(BASE * 1.6**2)} and "deeper (largest 2.56M)" in sentences(budget)
    assert (second.cost, second.size_source, second.size) == (
        "macs.total", "reached", round(20 * BASE * 1.6**2))
    assert not second.extrapolated_rules


def test_limited_and_requested_costs_have_curves():
    records, meta = study(bounds={"params.non_embedding": 2e6})
    result = analyze(records, meta)
    assert result.costs == ("params.total", "macs.total", "params.non_embedding")
    assert result.rankings[2].size == 2e6 and len(result.curves_for("params.non_embedding")) == 2
    sizes = [("params.non_embedding", 3e6), ("params.non_embedding", 4e6)]
    requested = analyze(records, meta, ranking_sizes=sizes)
    assert [ranking.size for ranking in requested.rankings] == [3e6, 4e6]
    for invalid in ("params.nothing", "load.mean"):
        with refuses("unknown-cost", invalid):
            analyze(records, meta, ranking_sizes=[(invalid, 3e6)])


def test_loss_gives_mirrored_study():
    up = analyze(*study())
    down = analyze(*study(metric="loss", sign=-1), "loss", "min")
    for curve, mirrored in zip(up.curves, down.curves):
        assert mirrored.fit.law.c == pytest.approx(curve.fit.law.c, rel=1e-6)
        assert mirrored.next_prediction.score == pytest.approx(
            -curve.next_prediction.score, rel=1e-6)
    assert [ranking.best_rule.rule for ranking in down.rankings] == [
        "wider", "wider"] and down.rankings[0].is_decided
    assert "loss = a + b · size^-c" in " ".join(notes(down))
    assert all(slopes.slope_from_base.value < 0 for slopes in down.slopes)


def test_check_detects_deviation_from_law():
    records, meta = study(rng=2)
    for trial in records:
        if trial["label"] == "wider: 4":
            trial["metrics"] = {"bleu": trial["metrics"]["bleu"] - 8}
    result = analyze(records, meta, ranking_sizes=[("params.total", 3e6)])
    curves = result.curves_for("params.total")
    assert not curves["wider"].holdout_check.is_inside_interval
    assert curves["deeper"].holdout_check.is_inside_interval
    assert ("Unreliable, since their laws against params failed the check by their largest size: "
            "wider.") in sentences(result)
    assert "disables" in analyze(*study(held_out="none")).curves[0].no_check_reason


def test_slopes_have_intervals_by_pooled_noise():
    records, meta = study()
    samples = {}
    for trial in records:
        samples.setdefault(trial["label"], []).append(trial["metrics"]["bleu"])
    result = analyze(records, meta, confidence=0.8)
    slopes = next(slopes for slopes in result.slopes if slopes.label == "deeper: 2")
    millions = (round(BASE * 1.6**2) - round(BASE * 1.6)) / 1e6
    assert slopes.previous_label == "deeper: 1"
    assert slopes.slope_from_previous.value == pytest.approx(
        (np.mean(samples["deeper: 2"]) - np.mean(samples["deeper: 1"])) / millions)
    half = pool_noise(samples.values()).interval_half_width(0.8, 3, 3)
    assert slopes.slope_from_previous.half_width == pytest.approx(half / millions)


def test_missing_laws_have_reasons():
    result = analyze(*study(seeds=1, steps=STEPS[:2]))
    assert all(curve.fit is None and curve.next_prediction is None
               for curve in result.curves) and not result.rankings
    assert ("No law, since there are 3 training runs of 3 sizes, but a law needs at least 4 runs "
            "of 3 sizes: wider against params, deeper against params, wider against MACs, "
            "deeper against MACs.") in notes(result)
    assert any("No architecture has a second seed" in line for line in notes(result))
    assert plot_laws(result, "params.total") is None and plot_means(result) is not None
    flat, meta = study(steps=np.ones(3))
    assert "12 training runs of 1 size," in analyze(flat, meta).curves[0].no_fit_reason
    assert all(slopes.slope_from_base is None for slopes in analyze(flat, meta).slopes)
    four = analyze(*study(seeds=1, steps=STEPS[:3]))
    assert four.curves[0].fit is not None and four.curves[0].no_check_reason.startswith(
        "3 training runs of 3 sizes remain")


def test_unfinished_architectures_have_reasons():
    records, meta = study()
    done = without(records, "wider: 3", "wider: 4", "deeper: 4", "deeper: 3")
    failed = record(90, None, 9e6, 9e7, "failed",
                    label="wider: 3") | {"reason": "loss is nan\nTraceback"}
    pending = record(91, None, 9e6, 9e7, "pending", label="deeper: 4") | {"origin": "reference"}
    without_score = {**record(93, None, 9e6, 9e7, label="deeper: 3"), "metrics": {"chrf": 3.0}}
    running = {**done[1], "trial": 92, "state": "pending", "metrics": {}}
    over = analyze(done, meta | {"excluded": {"wider: 4": "not params.total <= 2M (by 3.1%)"}})
    reasons = {architecture.label: architecture.missing_reason for architecture in over.unfinished}
    assert reasons["wider: 4"] == "not trained: not params.total <= 2M (by 3.1%)"
    result = analyze([*done, failed, pending, without_score, running], meta)
    assert {architecture.label: architecture.missing_reason
            for architecture in result.unfinished} == {
        "wider: 3": "failed (loss is nan)", "wider: 4": "not started", "deeper: 4": "in training",
        "deeper: 3": "has no bleu"}
    text = to_markdown(result)
    assert "4 of 9 architectures have no score" in text and "wider: 3: failed (loss is nan)" in text
    assert "Replicates without a score: base (1)." in text and len(
        result.curves_for("params.total")["wider"].architectures) == 3
    rows = scaling_frame(result)
    assert set(rows.loc[rows["note"].notna(), "label"]) == {
        "wider: 3", "wider: 4", "deeper: 3", "deeper: 4"}
    nothing = analyze([], meta)
    assert len(nothing.unfinished) == 9 and plot_means(nothing) is None
    assert "9 of 9 architectures have no score" in to_markdown(nothing)


def test_rule_without_base_is_analyzed():
    records, meta = study()
    result = analyze(without(records, "base"), meta)
    assert all(slopes.slope_from_base is None and slopes.slope_from_previous is not None
               for slopes in result.slopes)
    assert result.curves[0].fit is not None and plot_means(result) is not None


def test_architecture_with_two_labels_counts_once():
    records, meta = study()
    twin = {**record(99, None, round(BASE), round(20 * BASE), "duplicate", label="twin"),
            "original": 0}
    more = {**meta, "architectures": [*meta["architectures"], "twin"],
            "scaling": {**meta["scaling"],
                        "rules": {**meta["scaling"]["rules"], "hybrid": ["twin", "wider: 3"]}}}
    more["scaling"]["rules"]["wider"] = ["twin", *meta["scaling"]["rules"]["wider"]]
    plain = analyze(records, meta)
    result = analyze([*records, twin], more)
    assert result.noise == plain.noise
    row = next(row for row in result.finished if row.label == "twin")
    assert len(row.scores) == 3 and result.rules_containing("twin") == ("wider", "hybrid")
    curve = result.curves_for("params.total")["wider"]
    plain_curve = plain.curves_for("params.total")["wider"]
    assert curve.size_score_pairs == plain_curve.size_score_pairs
    assert curve.fit.law == plain_curve.fit.law
    assert len(curve.architectures) == len(plain_curve.architectures) + 1
    slopes = next(slopes for slopes in result.slopes if slopes.label == "twin")
    assert slopes.slope_from_base is None
    broken = {**twin, "original": 98}
    failed = record(98, None, 5, 5, "failed", label="other") | {"reason": "no memory"}
    unfinished = analyze([*records, failed, broken], more).unfinished
    assert unfinished[0].missing_reason == "failed (no memory)"


def test_analysis_reports_wrong_type_and_unknown_metric():
    records, meta = study()
    with refuses("wrong-type", "type: scaling", place="growth:"):
        analyze(records, {"name": "growth"})
    with refuses("unknown-metric", "rouge", "bleu, test.bleu"):
        analyze(records, meta, "rouge")
    validation_score = analyze(records, meta).finished[0].mean_score
    test_score = analyze(records, meta, "test.bleu").finished[0].mean_score
    assert test_score == pytest.approx(validation_score - 1)


def test_tables_are_valid_csv_json_and_markdown():
    result = analyze(*study(), ranking_sizes=[("params.total", 3e6)], signature="sig|v:1")
    read = pd.read_csv(io.StringIO(scaling_frame(result).to_csv(index=False)))
    assert len(read) == 2 * 2 * 5 and read.groupby(["cost", "rule"]).size().eq(5).all()
    assert (read["law_low"] <= read["law"] + 0.2).all() and read["seeds"].eq(3).all()
    document = json.loads(json.dumps(scaling_to_json(result), allow_nan=False))
    assert document["rankings"][0]["first"] == "wider" and document["curves"][0]["held_out"][
        "inside"] is True
    single_seed = json.dumps(scaling_to_json(analyze(*study(seeds=1))), allow_nan=False)
    assert json.loads(single_seed)["noise"] is None
    for table in to_markdown(result).split("\n\n"):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1
    titles = [table.title for table in scaling_tables(result)]
    assert titles == ["Sizes", "Laws", "Checks: the largest size, predicted from the others",
                      "Next size", "bleu per million parameters",
                      "Rules at 3M params (as requested)"]
    assert any("protocol forward, 20 source and 18 target tokens, vocabulary 1,000" in line
               for line in notes(result))


def test_numbers_have_significant_digits():
    assert [score_decimals("bleu", [half]) for half in (0.0001, 0.2, 0.8, 40, math.inf)] == [
        2, 2, 1, 0, 2]
    assert score_decimals("loss", [0.0021]) == 4 and score_decimals(
        "test.bleu", [1e-9]) == 2 and score_decimals("perplexity", [0.001]) == 2
    assert score_decimals("bleu", [40, math.inf, 0.8]) == 1
    assert [format_share(part) for part in (0, 0.004, 0.9499, 0.95, 0.999, 1)] == [
        "< 1 %", "< 1 %", "94 %", "95 %", "> 99 %", "> 99 %"]
    assert format_interval(-0.00001, 0.00001, 2) == "0.00 to 0.00"
    assert format_slopes([Slope(-0.001, 0.5), None]) == ["+0.0 ± 0.5", "–"]
    assert format_slopes([Slope(2.5, None), Slope(0.125, None)]) == ["+2.500", "+0.125"]
    assert next_size([4.0, 1.0, 2.0, 4.0]) == 8.0


def test_scores_of_a_column_have_equal_decimals():
    records, meta = study(sd=1.5)
    result = analyze([record for record in records  # the base has all seeds
                      if record["label"] == "base" or record.get("original") is None], meta)
    for table in scaling_tables(result):
        for name in table.cells:
            numbers = re.findall(r"[-+]?\d+\.\d+(?![kMG\d])", " ".join(table.cells[name]))
            assert len({len(number.partition(".")[2]) for number in numbers}) <= 1, name


def assert_legend_covers_nothing(figure):
    """The legend is below axes and labels, and all labels are inside the figure."""
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


@pytest.mark.full
@pytest.mark.parametrize(("metric", "rules"), [("bleu", 2), ("loss", 5)])
def test_figures_fit_long_names_and_labels(metric, rules):
    named = {f"wider, with head_dim fixed {number}": 0.1 + number / 10 for number in range(rules)}
    result = analyze(*study(named, metric=metric, held_out="none"), metric)
    assert_legend_covers_nothing(plot_means(result))
    assert_legend_covers_nothing(plot_laws(result, "params.total"))


@pytest.mark.full
def test_figures_label_axes_and_rules(tmp_path):
    result = analyze(*study(bounds={"params.non_embedding": 2e6}))
    figure = plot_means(result)
    assert [axes.get_xlabel().split(" (")[0].split("\n")[0] for axes in figure.axes] == [
        "Parameters", "Multiply-accumulates per example", "Non-embedding parameters"]
    assert figure.axes[0].get_ylabel() == "BLEU (validation)\non grammar (synthetic)"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["base", "wider", "deeper"]
    assert_legend_covers_nothing(figure)
    drawn = plot_laws(result, "macs.total")
    assert_legend_covers_nothing(drawn)
    ends = {round(line.get_xdata()[-1]) for line in drawn.axes[0].lines}
    assert round(result.curves_for("macs.total")["wider"].next_prediction.size) in ends
    assert [file.suffix for file in save_figure(figure, tmp_path / "scaling-curves")] == [
        ".png", ".svg"]
