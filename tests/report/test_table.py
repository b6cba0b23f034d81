"""Tests of tables of trials: front, order, and text cells."""

import io
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from matplotlib.ft2font import FT2Font

from scalesearch.report.table import (
    architecture_lines,
    differing_columns,
    drop_empty_columns,
    format_for_paper,
    format_number,
    format_trials,
    merge_names,
    select_front,
    with_integers,
)
from scalesearch.report.text_tables import to_latex
from tests.report.trial_records import OBJECTIVES, record, records, replicate, trials_table


def test_front_excludes_ineligible_trials():
    table = trials_table([
        record(0, 20.0, 100, 1000),
        record(1, 30.0, 200, 2000),
        record(2, 19.0, 150, 1500),
        record(3, 99.0, 10, 10, state="failed"),
        record(4, 50.0, 300, 3000, feasible=False, label="large"),
        record(5, 60.0, 50, 500, in_space=False, label="foreign"),
        record(6, None, 5, 5, state="infeasible", feasible=False),
    ], OBJECTIVES)
    assert table["trial"][table["front"]].tolist() == [0, 1]
    assert select_front(table, OBJECTIVES)["trial"].tolist() == [0, 1]


def test_front_is_sorted_by_cost():
    rows = select_front(trials_table(records(), OBJECTIVES), OBJECTIVES)
    assert rows["params.total"].is_monotonic_increasing and len(rows) > 3
    assert rows["bleu"].is_monotonic_increasing  # both costs increase together


def test_table_without_records_is_empty():
    table = trials_table([], OBJECTIVES)
    assert list(table.columns)[:3] == [
        "trial", "state", "front"] and select_front(table, OBJECTIVES).empty


def test_csv_round_trip():
    table = trials_table(records(), OBJECTIVES)
    back = pd.read_csv(io.StringIO(table.to_csv(index=False)))
    assert back["params.total"].tolist() == table["params.total"].tolist()
    assert back["param.width"].tolist() == table["param.width"].tolist()


def test_empty_columns_are_dropped():
    table = trials_table([record(0, 1.0, 10, 10, depth=2),
                          record(1, None, 20, 20, state="infeasible")], OBJECTIVES)
    dropped = set(table.columns) - set(drop_empty_columns(table).columns)
    assert {"label", "reason", "memory.weights"} <= dropped and not {
        "bleu", "param.depth", "is_feasible"} & dropped
    assert list(drop_empty_columns(trials_table([], OBJECTIVES)).columns) == list(
        trials_table([], OBJECTIVES).columns)


def test_lines_list_differing_and_shared_params():
    table = trials_table([record(0, 1.0, 10, 10, depth=2), record(1, 2.0, 20, 20, depth=3)],
                         OBJECTIVES)
    assert differing_columns(table) == ["param.width", "param.depth"]
    assert architecture_lines(table, ["depth", "norm"]) == [
        "trial 0: depth 2", "trial 1: depth 3", "all: norm pre"]
    assert architecture_lines(table[:1], ["depth", "norm"]) == ["trial 0: norm pre, depth 2"]
    assert architecture_lines(table[:0], ["depth", "norm"]) == []


def test_params_of_a_type_follow_it_in_all_trials():
    sizes = [{"ffn": "relu", "relu.hidden": 64, "depth": 2},
             {"ffn": "geglu", "geglu.hidden": 32, "depth": 1}]
    table = trials_table([record(number, 1.0, 10, 10, **params)
                          for number, params in enumerate(sizes)], OBJECTIVES)
    assert architecture_lines(table, [*sizes[0], *sizes[1]]) == [
        "trial 0: ffn relu, relu.hidden 64, depth 2",
        "trial 1: ffn geglu, geglu.hidden 32, depth 1"]


@pytest.mark.parametrize("count", [2, 40])
def test_all_differing_params_are_shown(count):
    trials = [record(number, 20.0 + number, 10 + number, 10,
                     **{f"key{index}": number + index for index in range(count)})
              for number in range(3)]
    lines = architecture_lines(trials_table(trials, OBJECTIVES),
                               [f"key{index}" for index in range(count)])
    assert [line.count("key") for line in lines] == [count] * 3 and lines[2].endswith(
        f"key{count - 1} {count + 1}")


def test_numbers_are_formatted_by_unit():
    numbers = {"params.total": 1234567, "bleu": 27.128, "chrf": None, "wall_seconds": 3.04,
               "artifact.bytes": 605690, "bits_per_byte": 0.34642, "test.loss": 1.13903}
    assert [format_number(value, name) for name, value in numbers.items()] == [
        "1,234,567", "27.13", "", "3.0", "605,690", "0.3464", "1.139"]


def test_training_time_is_cpu_time_unless_a_gpu_trained():
    trials = [record(number, 20.0 + number, 100 * number, 1000 * number) for number in (1, 2)]
    for device, cell in ((("cpu, 1 thread", "cpu, 1 thread"), "7.0"),
                         (("cpu, 1 thread", "cuda"), "30.0")):
        for trial, name in zip(trials, device):
            trial |= {"device": name, "seconds": 30.0, "cpu_seconds": 7.0}
        table = format_trials(trials_table(trials, OBJECTIVES), OBJECTIVES)
        assert list(table.iloc[:, -1]) == [cell, cell]
        assert "CPU" in table.columns[-1] or "wall" in table.columns[-1]


def test_table_shows_test_score_and_front_of_validation():
    trials = [record(1, 20.0, 100, 1000), record(2, 30.0, 200, 2000)]
    for trial, bleu in zip(trials, (29.0, 21.0)):
        trial["metrics"]["test"] = {"bleu": bleu}
    table = trials_table(trials, OBJECTIVES)
    assert list(table["test.bleu"]) == [29.0, 21.0] and list(table["bleu"]) == [20.0, 30.0]
    assert list(table["front"]) == [True, True], "test scores would exclude the second trial"
    assert "test bleu" in format_trials(table, OBJECTIVES)


def test_shown_test_score_follows_objective():
    trial = record(1, 20.0, 100, 1000)
    trial["metrics"] |= {"tokenized_bleu": 21.0,
                       "test": {"bleu": 29.0, "tokenized_bleu": 30.0, "loss": 1.0}}
    for objectives, shown in (({"tokenized_bleu": "max"}, "test tokenized bleu"),
                              ({"bleu": "max"}, "test bleu"), ({"loss": "min"}, "test bleu"),
                              ({"params.total": "min"}, "test bleu")):
        columns = [name
                 for name in format_trials(trials_table([trial], objectives), objectives)
                 if name.startswith("test")]
        assert columns == [shown]


def test_replicates_are_averaged():
    first = record(0, 20.0, 100, 1000)
    other = record(1, 30.0, 200, 2000)
    failed = record(2, None, 5, 5, state="failed")
    table = trials_table([first, other, failed, replicate(first, 3, 24.0),
                          replicate(other, 4, None, "failed")], OBJECTIVES)
    assert table["trial"].tolist() == [0, 1, 2] and table["bleu"].tolist()[:2] == [22.0, 30.0]
    assert table["seeds"].tolist()[:2] == [2, 1] and pd.isna(table["seeds"][2])
    assert table["bleu.sd"].tolist()[0] == pytest.approx(8**0.5) and pd.isna(table["bleu.sd"][1])
    # one degree of freedom: Student's t is 6.314 at 90 %
    assert table["bleu.half_width"].tolist()[:2] == pytest.approx(
        [6.3138 * 2, 6.3138 * 8**0.5], abs=1e-3)
    assert table["chrf"][0] == 32.0 and pd.isna(table["bleu.half_width"][2])


def test_front_uses_means():
    overestimated = record(0, 30.0, 100, 1000)
    other = record(1, 29.0, 200, 2000)
    assert trials_table([overestimated, other], OBJECTIVES)["front"].tolist() == [True, False]
    table = trials_table([overestimated, other, replicate(overestimated, 2, 20.0)], OBJECTIVES)
    assert table["front"].tolist() == [True, True]
    assert format_trials(select_front(table, OBJECTIVES),
                         OBJECTIVES)["bleu"].tolist() == ["25 ± 32 (2)", "29 ± 45 (1)"]


def test_decimals_are_equal_within_a_column():
    trials = [record(number, bleu, 100 * number, 1000 * number) | {
        "costs": {"params.total": 100 * number, "macs.total": 1000, "load.mean": load}}
        for number, bleu, load in ((1, 38.3, 9.5), (2, 38.27, 12.25))]
    objectives = OBJECTIVES | {"load.mean": "min"}
    cells = format_trials(trials_table(trials, objectives), objectives)
    assert cells["bleu"].tolist() == ["38.30", "38.27"]
    assert cells["load mean"].tolist() == ["9.5", "12.2"]
    table = trials_table(trials).assign(**{"bleu.half_width": [0.4, 0.23], "seeds": [1, 3]})
    cells = format_trials(table, OBJECTIVES)
    assert cells["bleu"].tolist() == ["38.30 ± 0.40 (1)", "38.27 ± 0.23 (3)"]


def test_table_for_a_paper_has_labels_and_scaled_costs():
    trials = [record(1, 20.0, 94_464, 1_911_616) | {"cpu_seconds": 7.0, "device": "cpu"},
              record(2, 30.0, 2_129_920, 43_024_640) | {"cpu_seconds": 8.0, "device": "cpu"}]
    trials[0]["costs"]["memory.weights"] = trials[1]["costs"]["memory.weights"] = 3_000_000
    objectives = OBJECTIVES | {"params.non_embedding": "min", "memory.weights": "min"}
    cells = format_for_paper(trials_table(trials, objectives), objectives, "state")
    assert cells.to_dict("list") == {
        "Trial": ["1", "2"], "State": ["complete"] * 2, "BLEU (validation)": ["20.00", "30.00"],
        "Params (M)": ["0.094", "2.130"], "MACs (M)": ["1.91", "43.02"],
        "Params, non-embedding (M)": ["0.047", "1.065"], "Weights (MB, float32)": ["3.00", "3.00"]}
    trials[0]["costs"]["memory.cache"] = trials[1]["costs"]["memory.cache"] = 1_920
    objectives = {"bleu": "max", "memory.cache": "min"}
    cells = format_for_paper(trials_table(trials, objectives), objectives,
                             protocol={"cache": "bf16"})
    assert cells.columns[-1] == "Key-value cache (kB, bf16)"
    assert "memory cache (bytes)" in format_trials(trials_table(trials, objectives), objectives)
    trials[0]["costs"]["latency.predicted"] = 1.5
    objectives = {"bleu": "max", "latency.predicted": "min"}
    assert "latency predicted (ms)" in format_trials(trials_table(trials, objectives), objectives)


def test_latex_table_fits_the_text_width_of_an_article():
    """The widths of the cells are those of Computer Modern at 10 pt, as matplotlib has it."""
    font = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts/ttf/cmr10.ttf"))
    font.set_size(10, 72)

    def width(cell):
        font.set_text(cell.strip().replace(r"$\pm$", "+"), 0)
        return font.get_width_height()[0] / 64

    trials = [record(number, 20.0 + number, 94_464 * number, 1_911_616_000 * number)
              for number in (8, 12)]
    for trial in trials:
        trial["metrics"]["test"] = {"bleu": 25.0}
    objectives = OBJECTIVES | {"params.non_embedding": "min"}
    table = trials_table([*trials, *(replicate(trial, 13 + index, 28.0)
                                     for index, trial in enumerate(trials))], objectives)
    table = table.assign(**{"test.bleu.half_width": table["bleu.half_width"]})
    latex = to_latex(format_for_paper(table, objectives))
    rows = [line.removesuffix(r"\\").split(" & ")
            for line in latex.splitlines() if line.endswith(r"\\")]
    widths = [max(map(width, column)) for column in zip(*rows)]
    column_spacing = 12  # 2 \tabcolsep
    assert latex.count(r"\pm") == 4 and len(widths) == 6
    assert sum(widths) + column_spacing * (len(widths) - 1) <= 345, "\\textwidth"


def test_counts_are_integers_in_all_selections_of_rows():
    trials = [record(0, 20.0, 100, 1000), record(1, None, 200, 2000, "failed")]
    trials[1] |= {"seed": None, "costs": {"macs.total": 2000.5}}
    table = trials_table(trials)
    for rows in (table, select_front(table, OBJECTIVES), table[:0]):
        types = with_integers(rows, table).dtypes.astype(str)
        assert types[["seed", "params.total"]].tolist() == ["Int64"] * 2
        assert types[["bleu", "macs.total"]].tolist() == ["float64"] * 2


@pytest.mark.parametrize("rows, merged", [
    ([["ffn", "relu.hidden", "depth"], ["ffn", "geglu.hidden", "depth"]],
     ["ffn", "geglu.hidden", "relu.hidden", "depth"]),
    ([["ffn", "relu.hidden", "depth"], ["ffn", "depth", "heads"]],
     ["ffn", "relu.hidden", "depth", "heads"])])
def test_new_names_follow_the_name_before_them(rows, merged):
    assert merge_names(rows) == merged
