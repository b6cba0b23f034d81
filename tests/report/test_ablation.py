"""Tests of ablation tables: differences, intervals, and export."""

import io
import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.report.ablation import build_ablation
from tests.errors import refuses
from tests.report.trial_records import record, replicate

scores = st.lists(st.floats(0, 60, width=32), min_size=1, max_size=4)


def records(*samples):
    """Records of rows r0, r1, … with the given scores over seeds."""
    trials = []
    for number, sample in enumerate(samples):
        first = record(number, sample[0], 1000 + number, 9000 + number, label=f"r{number}")
        trials += [first,
                 *(replicate(first, 100 + 10 * number + extra, score)
                   for extra, score in enumerate(sample[1:]))]
    return trials


@settings(max_examples=40)
@given(st.lists(scores, min_size=1, max_size=5), st.data())
def test_difference_is_antisymmetric(samples, data):
    base = data.draw(st.integers(0, len(samples) - 1))
    ablation = build_ablation(records(*samples), "bleu", f"r{base}")
    assert (ablation.rows[0].name, ablation.rows[0].difference, ablation.rows[0].half_width) == (
        f"r{base}", 0, 0)
    assert [row.n_seeds for row in sorted(ablation.rows, key=lambda row: row.name)] == [
        len(sample) for sample in samples]
    for row in ablation.rows[1:]:
        reverse_rows = build_ablation(records(*samples), "bleu", row.name).rows
        base_row = next(other for other in reverse_rows if other.name == f"r{base}")
        assert base_row.difference == pytest.approx(-row.difference)
        assert base_row.half_width == row.half_width


def test_interval_equals_pooled_t_test():
    from scipy.stats import ttest_ind

    base_scores = [20.0, 21.0, 22.5]
    scores_of_row = [24.0, 23.0]
    row = build_ablation(records(base_scores, scores_of_row), "bleu", confidence=0.95).rows[1]
    interval = ttest_ind(scores_of_row, base_scores).confidence_interval(0.95)
    assert (row.difference - row.half_width,
            row.difference + row.half_width) == pytest.approx((interval.low, interval.high))
    assert row.sd == pytest.approx(math.sqrt(0.5)) and (row.params, row.macs) == (1001, 9001)


def test_interval_of_a_score_is_that_of_its_mean_by_pooled_noise():
    cells = build_ablation(records([20.0, 21.0], [24.0]), "bleu").format_cells()["bleu"]
    t_95_1 = 6.3138  # quantile of Student's distribution with one degree of freedom
    half_widths = [t_95_1 * math.sqrt(0.5 / n) for n in (2, 1)]
    assert cells.tolist() == [f"20.50 ± {half_widths[0]:.2f}", f"24.00 ± {half_widths[1]:.2f}"]


def test_single_seeds_have_no_interval():
    ablation = build_ablation(records([20.0], [24.0]), "bleu")
    assert ablation.rows[1].half_width is None
    assert ablation.format_cells().iloc[1, -1] == "+4.00"
    assert ablation.format_cells()["bleu"].tolist() == ["20.00", "24.00"]
    assert "scores and differences have no intervals" in ablation.notes()[0]
    table, comment = ablation.to_latex().split(r"\end{tabular}")
    assert r"\pm" not in table and "No architecture has a second seed" in comment


def test_noise_is_pooled_over_all_trials_of_the_study():
    named = records([20.0], [24.0])
    searched = record(7, 22.0, 1007, 9007)
    runs = [*named, searched, replicate(searched, 170, 23.0)]
    ablation = build_ablation(runs, "bleu")
    assert [row.name for row in ablation.rows] == ["r0", "r1"]
    assert (ablation.noise.sd, ablation.noise.df) == (pytest.approx(math.sqrt(0.5)), 1)


def test_rows_without_noise_are_not_the_same_run():
    """Such as untrained models, whose BLEU is 0 with all seeds."""
    cells = build_ablation(records([0.0, 0.0], [2.0], [0.0]), "bleu").format_cells()
    assert cells.iloc[1:, -1].tolist() == ["+2.00 ± 0.00", "+0.00 ± 0.00"]


def test_unknown_metric_is_refused():
    with refuses("unknown-metric", "blue", "bleu"):
        build_ablation(records([20.0], [24.0]), "blue")
    flagged = records([20.0], [24.0])
    for flagged_record in flagged:
        flagged_record["metrics"]["synthetic"] = True
    with refuses("unknown-metric", "synthetic") as caught:
        build_ablation(flagged, "synthetic")
    assert str(caught.value).count("synthetic") == 1


def test_duplicate_has_scores_of_original():
    duplicate = {**record(9, None, 1000, 9000, "duplicate", label="twin"), "original": 0}
    ablation = build_ablation([*records([20.0, 21.0], [24.0]), duplicate], "bleu")
    row = ablation.rows[-1]
    assert (row.name, row.score, row.n_seeds, row.difference) == (
        "twin", 20.5, 2, 0) and ablation.noise.df == 1
    assert list(ablation.format_cells().iloc[[0, -1], -1]) == ["–", "same run"]


def test_csv_and_markdown_contain_all_rows():
    ablation = build_ablation(records([20.0, 21.0], [24.0]), "bleu")
    read = pd.read_csv(io.StringIO(ablation.frame().to_csv(index=False)))
    assert read["name"].tolist() == ["r0", "r1"] and read["params"].tolist() == [1000, 1001]
    assert read["difference"].tolist() == pytest.approx([0.0, 3.5])
    lines = [line for line in ablation.to_markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1


def test_small_scores_have_more_decimals():
    trials = records([0.3464, 0.3472], [0.3401])
    for trial in trials:
        trial["metrics"]["bits_per_byte"] = trial["metrics"].pop("bleu")
    cells = build_ablation(trials, "bits_per_byte").format_cells()
    assert cells["bits_per_byte"].tolist() == ["0.3468 ± 0.0025", "0.3401 ± 0.0036"]
    assert cells.iloc[1, -1] == "-0.0067 ± 0.0044"


def test_latex_is_escaped():
    rows = records([20.0, 21.0], [18.0], [24.0])
    rows[-1]["label"] = r"no_gate & 50% {x}\#"
    rows[-2]["label"] = "3-3"
    text = build_ablation(rows, "bleu").to_latex()
    assert (r"no\_gate \& 50\% \{x\}\textbackslash \# "
            r"& 1.00 & 9.00 & 24.00 $\pm$ 4.46 & 1 & +3.50 ") in text
    assert "3-3 &" in text and "& $-$2.50 " in text
    assert text.startswith(r"\begin{tabular}{@{}lrrrrr@{}}")
    assert " & Params & MACs & BLEU &  & Difference" in text
    assert "Name & (k) & (k) & (validation) & Seeds & to r0" in text
    assert "interval of a mean" in text.splitlines()[-1]


def test_missing_base_and_unfinished_rows():
    with refuses("no-named-architecture"):
        build_ablation([record(0, 20.0, 10, 10)], "bleu")
    with refuses("unknown-architecture", "`r0` or `r1`", place="--base big:"):
        build_ablation(records([20.0], [21.0]), "bleu", "big")
    failed = record(5, None, 10, 10, "failed", label="broken")
    assert build_ablation([*records([20.0]), failed], "bleu").unfinished == ("broken",)
    with refuses("base-unfinished", place="broken:"):
        build_ablation([*records([20.0]), failed], "bleu", "broken")
