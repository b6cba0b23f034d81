"""The table of an ablation: laws of its differences, and that others can read what it writes."""

import io
import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.report.ablation import build_ablation
from tests.errors import refuses
from tests.report.made_up import again, record

scores = st.lists(st.floats(0, 60, width=32), min_size=1, max_size=4)


def records(*samples):
    """Rows r0, r1, …, each with these scores."""
    made = []
    for number, sample in enumerate(samples):
        first = record(number, sample[0], 1000 + number, 9000 + number, label=f"r{number}")
        made += [first,
                 *(again(first, 100 + 10 * number + extra, score)
                   for extra, score in enumerate(sample[1:]))]
    return made


@settings(max_examples=40, deadline=None)
@given(st.lists(scores, min_size=1, max_size=5), st.data())
def test_the_base_differs_by_nothing_and_differences_turn_round(samples, data):
    base = data.draw(st.integers(0, len(samples) - 1))
    found = build_ablation(records(*samples), "bleu", f"r{base}")
    assert (found.rows[0].name, found.rows[0].difference, found.rows[0].half_width) == (
        f"r{base}", 0, 0)
    assert [row.n_seeds for row in sorted(found.rows, key=lambda row: row.name)] == [
        len(one) for one in samples]
    for row in found.rows[1:]:
        back = next(one
                    for one in build_ablation(records(*samples), "bleu", row.name).rows
                    if one.name == f"r{base}")
        assert back.difference == pytest.approx(
            -row.difference) and back.half_width == row.half_width


def test_the_interval_is_that_of_the_pooled_t_test():
    from scipy.stats import ttest_ind

    one = [20.0, 21.0, 22.5]
    other = [24.0, 23.0]
    row = build_ablation(records(one, other), "bleu", confidence=0.95).rows[1]
    interval = ttest_ind(other, one).confidence_interval(0.95)
    assert (row.difference - row.half_width,
            row.difference + row.half_width) == pytest.approx((interval.low, interval.high))
    assert row.sd == pytest.approx(math.sqrt(0.5)) and (row.params, row.macs) == (1001, 9001)


def test_without_a_second_seed_no_interval_is_claimed():
    found = build_ablation(records([20.0], [24.0]), "bleu")
    assert found.rows[1].half_width is None and found.format_cells().iloc[1, -1] == "+4.00 ± –"
    assert "no difference has an interval" in found.notes()[1]


def test_a_reference_that_repeats_another_has_its_scores():
    twin = {**record(9, None, 1000, 9000, "duplicate", label="twin"), "original": 0}
    found = build_ablation([*records([20.0, 21.0], [24.0]), twin], "bleu")
    row = found.rows[-1]
    assert (row.name, row.score, row.n_seeds, row.difference) == (
        "twin", 20.5, 2, 0) and found.noise.df == 1


def test_pandas_reads_the_csv_and_markdown_has_every_row():
    found = build_ablation(records([20.0, 21.0], [24.0]), "bleu")
    read = pd.read_csv(io.StringIO(found.frame().to_csv(index=False)))
    assert read["name"].tolist() == ["r0", "r1"] and read["params"].tolist() == [1000, 1001]
    assert read["difference"].tolist() == pytest.approx([0.0, 3.5])
    lines = [line for line in found.to_markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1


def test_latex_escapes_what_it_would_read():
    rows = records([20.0, 21.0], [24.0])
    rows[-1]["label"] = r"no_gate & 50% {x}\#"
    text = build_ablation(rows, "bleu").to_latex()
    assert r"no\_gate \& 50\% \{x\}\textbackslash \# & 1,001 & 9,001 & 24.00 & 1 & +3.50 $\pm$ " in text
    assert text.startswith(r"\begin{tabular}{lrrrrr}") and "± of a score" in text.splitlines()[-2]


def test_what_is_missing_is_said():
    with refuses("no-named-architecture"):
        build_ablation([record(0, 20.0, 10, 10)], "bleu")
    with refuses("unknown-architecture", "r0, r1", place="--base big:"):
        build_ablation(records([20.0], [21.0]), "bleu", "big")
    failed = record(5, None, 10, 10, "failed", label="broken")
    assert build_ablation([*records([20.0]), failed], "bleu").unfinished == ("broken",)
    with refuses("base-unfinished", place="broken:"):
        build_ablation([*records([20.0]), failed], "bleu", "broken")
