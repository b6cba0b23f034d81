"""``scalesearch feasible``: output, files and errors."""

import csv
import json
import re
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner

from scalesearch.cli.check import command as check
from scalesearch.cli.cost import command as cost
from scalesearch.cli.feasible import command
from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.feasible import tables
from scalesearch.feasible.limits import join_limits, read_budgets, split_limits
from scalesearch.feasible.report import MAX_FRONT_ROWS, select_spread_points
from scalesearch.report.trial_filter import filter_trials
from scalesearch.spaces import read_space
from scalesearch.spaces.syntax.parameters import format_constant
from tests.errors import refuses
from tests.feasible.test_counts import SPACES, enumerated
from tests.report.trial_records import record, trials_table

BUDGET = "params.non_embedding <= 70k and macs.total <= 3M"


@pytest.fixture
def space(tmp_path: Path) -> Path:
    file = tmp_path / "edge.yaml"
    protocol = "{ name: forward, source: 16, target: 16, vocab: 2000 }"
    cost = f"cost:\n  protocol: {protocol}\n  budgets: {{ small: params.total <= 150k }}\n"
    file.write_text("space: edge" + SPACES["edge"] + cost)
    return file


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(command, [*arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.full
def test_json_has_counts_and_tables(space: Path) -> None:
    report = json.loads(run(str(space), "--budget", BUDGET, "--samples", "100", "--json"))
    valid_costs = [evaluated for _, evaluated in enumerated("edge") if evaluated]
    fitting = [b
               for b in valid_costs
               if b[1]["params.non_embedding"] <= 70_000 and b[1]["macs.total"] <= 3_000_000]
    assert report["exact"] and (report["candidates"], report["valid"], report["feasible"]) == (
        len(enumerated("edge")), len(valid_costs), len(fitting))
    assert report["distinct_feasible"] == len({number for number, _ in fitting})
    assert report["extremes"]["most macs.total"]["costs"]["macs.total"] == max(
        b[1]["macs.total"] for b in fitting)
    assert sum(row["count"] for row in report["violations"]) == len(valid_costs)


def test_budget_in_flops_has_the_front_and_extremes_of_the_same_budget_in_macs(
        tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    stack = "{ depth: 1, heads: 2, ffn: { relu: { hidden: 8..20 } } }"
    file.write_text(f"width: 16\nencoder: {stack}\ndecoder: {stack}\n"
                    "cost: { protocol: { source: 8, target: 8, vocab: 100 } }\n")
    costs = [evaluated["costs"] for evaluated in json.loads(
        run(str(file), "--budget", "params.total <= 1M", "--json"))["extremes"].values()]
    middle = (min(c["macs.total"] for c in costs) + max(c["macs.total"] for c in costs)) // 2
    flops, macs = (json.loads(run(str(file), "--budget", f"params.total <= 1M and {limit}",
                                  "--json"))
                   for limit in (f"flops.total <= {2 * middle + 1}", f"macs.total <= {middle}"))
    assert flops["feasible"] == macs["feasible"] < flops["valid"]
    assert flops["front_params"] == macs["front_params"] != []
    assert {name: row["params"] for name, row in flops["extremes"].items()} == {
        name: row["params"] for name, row in macs["extremes"].items()}


@pytest.mark.full
def test_closed_space_has_no_shares_to_plot(tmp_path: Path) -> None:
    (tmp_path / "closed.yaml").write_text("width: 16\nencoder: { depth: 1 }\ndecoder: { depth: "
                                          "1 }\n")
    run(str(tmp_path / "closed.yaml"), "--budget", "params.total <= 1M", "--plot",
        str(tmp_path / "plots"))
    assert sorted(
        file.name for file in (tmp_path / "plots").iterdir()) == ["plane.png", "plane.svg"]


@pytest.mark.full
def test_tables_figure_and_csv(space: Path, tmp_path: Path) -> None:
    out = tmp_path / "plots"
    output = run(str(space), "--budget", BUDGET, "--samples", "200", "--plot", str(out), "--csv",
               str(tmp_path / "csv"))
    for words in ("Configurations: ", "(exact)", "Distinct networks: ", "Violated constraints",
                  "Feasible share among valid configurations by parameter value (exact)",
                  "least params.non_embedding", "candidates on the front (exact)"):
        assert words in " ".join(output.split())
    assert sorted(file.name for file in out.iterdir()) == [
        "plane.png", "plane.svg", "shares.png", "shares.svg"]
    files = "values.csv", "violations.csv", "sample.csv", "front.csv"
    assert {file.name for file in (tmp_path / "csv").iterdir()} == set(files)
    rows = list(csv.DictReader((tmp_path / "csv" / "front.csv").open()))
    report = json.loads(run(str(space), "--budget", BUDGET, "--samples", "200", "--json"))
    points = list(zip(report["front"], report["front_params"], strict=True))
    assert [{name: value for name, value in row.items() if value}
            for row in rows] == [{name: str(value) for name, value in (costs | params).items()}
                                 for costs, params in points]
    # Parameters are written in the syntax of space files, and so --set, takes them; `cycle(1..2)`
    # alone is a parameter inside another.
    costs, params = next(point for point in points if "(" not in "".join(point[1]))
    closed = read_space(space).with_overrides(params).single_architecture()
    cost = evaluate_cost(closed.block, load_protocol(closed.protocol))
    assert {name: cost[name] for name in costs} == costs


def test_tables_have_80_columns_and_all_parameters_of_the_front(tmp_path: Path) -> None:
    file = tmp_path / "idea.yaml"
    file.write_text("""
width: 64 | 96
encoder:
  depth: 2..6
  heads: 4
  ffn: { one of: { relu: { hidden: = 4 * width }, geglu: { hidden: 128..512 step 128 } } }
decoder: { depth: 1, heads: 4, ffn: { relu: { hidden: 128 | 256 } } }
cost: { protocol: { source: 20, target: 20, vocab: 8000 } }
""")
    output = run(str(file), "--budget", "params.total <= 1M and macs.total <= 30M")
    tables = [line for line in output.splitlines() if line[:1] in "│┃"]
    assert tables and max(map(len, tables)) <= 80
    start = output.index("candidates on")
    rows = [[cell.strip() for cell in line.split("│")[3:-1]]
            for line in output[start:].splitlines() if line.startswith("│")]
    assert "all have width=64" in output[start : output.index("┃", start)]
    assert len(rows) > 5 and len(set(map(tuple, rows))) == len(rows)
    assert any("geglu, hidden=" in cell for row in rows for cell in row)
    assert {row[-1] for row in rows} == {"128", "256"}


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_columns_that_do_not_fit_the_terminal_are_named(
        monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    fixed = [f"--set={key}" for key in ("vocab=4000", "matrices.ffn=dense",
                                        "matrices.attention=dense")]
    output = run("flagship", "--budget", "params.total <= 2M", *fixed)
    lines = output[output.index("candidates on the front"):].splitlines()
    table = [line for line in lines if line[:1] in "│┃"]
    assert max(map(len, table)) <= int(columns)
    (omitted,) = [line for line in lines if line.startswith("Not shown: ")]
    assert ("encoder.pg" in omitted) == (columns == "60")
    assert ("decoder.depth" in omitted) == (columns != "120")


def test_alternatives_in_a_budget_are_one_limit(space: Path) -> None:
    budget = "params.total <= 60k or params.total >= 70k and params.total <= 150k"
    output = run(str(space), "--budget", budget)
    assert "only (params.total <= 60k or params.total" in output


def test_limits_that_are_violated_together_can_be_split_again() -> None:
    limits = ["a <= 1", "b <= 1 and c <= 1 or d <= 1", "e <= 1"]
    text = join_limits(limits)
    assert text == "a <= 1 and (b <= 1 and c <= 1 or d <= 1) and e <= 1"
    assert [part.strip("()") for part in split_limits(text)] == limits


def test_parameters_without_a_column_are_named(tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_FRONT_PARAMS", 2)
    file = tmp_path / "wide.yaml"
    file.write_text("""
width: 64 | 96
vocab: 1k | 2k
encoder: { depth: 1..3, heads: 4, ffn: { relu: { hidden: 64 | 128 } } }
decoder: { depth: 1..3, heads: 4, ffn: { relu: { hidden: 64 } } }
""")
    output = run(str(file), "--budget", "params.total <= 400k")
    (line,) = [line for line in output.splitlines() if line.startswith("Not shown: ")]
    assert line == "Not shown: encoder.ffn.relu.hidden, decoder.depth. Use --csv or --json."
    (shared,) = [line for line in output.splitlines() if line.startswith("The candidates below")]
    extremes = output[output.index(shared):]
    for key in ("width", "vocab", "encoder.depth", "encoder.ffn.relu.hidden", "decoder.depth"):
        assert f"{key}=" in extremes


@pytest.mark.full
@pytest.mark.parametrize("budget", ["params.total <= 1e30", "params.total >= -1e30"])
def test_budget_beyond_64_bits_keeps_all_candidates(budget: str, space: Path) -> None:
    report = json.loads(run(str(space), "--budget", budget, "--samples", "100", "--json"))
    assert report["exact"] and report["feasible"] == report["valid"] > 0


TWO = """
space: two
width: 32 | 64
encoder: { depth: 1 | 2, heads: 2, ffn: { relu: { hidden: 64 } } }
decoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 64 } } }
where: [encoder.depth == 2 or width == 64]
"""


@pytest.mark.parametrize(("width", "budget", "columns", "n_valid"), [
    ("32 | 64", "params.non_embedding <= 80k", 4, 3),
    ("64 | 68", "68k <= params.non_embedding <= 95k", 3, 4),
])
def test_shares_name_their_total_without_empty_columns(
        tmp_path, width, budget, columns, n_valid) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO.replace("32 | 64", width).replace("== 64", ">= 64"))
    arguments = (str(file), "--budget", budget, "--samples", "100")
    report = json.loads(run(*arguments, "--json"))
    output = run(*arguments).splitlines()
    heading = next(line for line in output if line.startswith("┃ parameter"))
    assert "share" in heading and heading.count("┃") == columns + 1
    assert any(row["verdict"] for row in report["values"]) == (columns == 4)
    assert any(line.startswith("┃ violates") and f"share of {n_valid} " in line for line in output)
    assert report["estimator"] == "sections"


@pytest.mark.full
def test_budget_of_the_file_and_nearest_candidates(space: Path, tmp_path: Path) -> None:
    start = tmp_path / "big.yaml"
    start.write_text("""
space: big
width: 48
norm: pre
encoder: { depth: 4, heads: 3, head_dim: 16, ffn: { relu: { hidden: 192 } } }
decoder: { depth: 2, interleaved: no, heads: 3, head_dim: 16, ffn: { relu: { hidden: 12 } } }
share: { encoder.ffn: one }
""")
    report = json.loads(run(str(space), "--samples", "100", "--near", str(start), "--json"))
    assert report["budgets"] == ["params.total <= 150k"]
    assert report["near"] and all(near["costs"]["params.non_embedding"] > 0
                                 for near in report["near"])
    assert min(len(near["changes"]) for near in report["near"]) >= 1


@pytest.mark.parametrize("depth", ["2", "3"])  # 3 is not a value of the space
def test_changes_of_near_candidates_are_complete(tmp_path: Path, depth: str) -> None:
    file, start = tmp_path / "alt.yaml", tmp_path / "start.yaml"
    file.write_text("""
width: 64 | 128
embedding: { one of: { plain: {}, factorised: { rank: 16 | 32 } } }
encoder: { depth: 2..4, heads: 4 }
encoder.ffn: { one of: { relu: { hidden: 64 }, geglu: { hidden: 32 | 64 } } }
decoder: { depth: 1 | 2 if encoder.depth > 3 else 1, heads: 4 }
cost: { protocol: { source: 9, target: 9, vocab: 5000 } }
""")
    start.write_text("width: 128\nnorm: post\nencoder: { depth: 4, heads: 4 }\n"
                     f"encoder.ffn.relu.hidden: 64\ndecoder: {{ depth: {depth}, heads: 4 }}\n")
    arguments = [str(file), "--budget", "params.total <= 300k", "--near", str(start)]
    note = run(*arguments).splitlines()[0]
    assert "other values of norm" in note
    old = {"width": "128", "embedding": "plain", "encoder.depth": "4", "encoder.ffn": "relu",
           "decoder.depth": depth}
    report = json.loads(run(*arguments, "--json"))
    assert report["near"]
    for near in report["near"]:
        before = {name: str(value) for name, (value, _) in near["changes"].items() if name in old}
        assert before.items() <= old.items() and before["decoder.depth"] == depth
        values = old | {name: new for name, (_, new) in near["changes"].items()}
        settings = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
        result = CliRunner().invoke(cost, [str(file), *settings, "--json"], catch_exceptions=False)
        costs = json.loads(result.output)
        assert costs["params"]["total"] == near["costs"]["params.total"] <= 300_000


def test_values_of_conditional_parameters_are_explained(tmp_path: Path) -> None:
    file = tmp_path / "conditional.yaml"
    file.write_text("""
width: 64 | 256
encoder: { depth: 1, heads: 4, ffn: { one of: { relu: { hidden: 64 | 128 }, none: {} } } }
decoder: { depth: 1 | 2 if width > 99 else 1, heads: 4 }
cost: { protocol: { vocab: 500 } }
""")
    output = run(str(file), "--budget", "params.total <= 300k")
    (line,) = [line for line in output.splitlines() if line.startswith("Rows of these")]
    assert line.endswith("a choice: decoder.depth.")


def test_parameters_that_no_model_reads_are_named(tmp_path: Path) -> None:
    file = tmp_path / "lm.yaml"
    file.write_text("model: decoder-only\nwidth: 16\nadapt: lora | bias\ndecoder.depth: 1 | 2\n")
    output = run(str(file), "--budget", "params.non_embedding <= 5k")
    assert "warning: no effect in decoder-only models: adapt" in output


def test_continuous_space_is_sampled(tmp_path: Path) -> None:
    file = tmp_path / "endless.yaml"
    file.write_text(TWO + "tensor_chain: { length: 2, ffn: 0.05..0.5 log }\n")
    report = json.loads(
        run(str(file), "--budget", "params.non_embedding <= 60k", "--samples", "100", "--json")
    )
    assert not report["exact"] and report[
        "feasible"] is None and "a continuous range" in report["inexact_reason"]
    assert 0 < report["low"] <= report["share"] <= report["high"] < 1
    # The front of the samples: each member fits, and costs more for more parameters.
    sizes = [costs["params.non_embedding"] for costs in report["front"]]
    macs = [costs["macs.total"] for costs in report["front"]]
    assert len(sizes) > 1 and max(sizes) <= 60_000 and not report["front_complete"]
    assert sizes == sorted(set(sizes)) and macs == sorted(set(macs))
    for params, costs in zip(report["front_params"], report["front"]):
        settings = [f"{key}={value}" for key, value in params.items()]
        options = [part for setting in settings for part in ("--set", setting)]
        printed = CliRunner().invoke(cost, [str(file), *options, "--json"], catch_exceptions=False)
        exact = json.loads(printed.output)
        assert {f"{group}.{key}": exact[group][key]
                for group, key in (name.split(".") for name in costs)} == costs
    text = run(str(file), "--budget", "params.non_embedding <= 60k", "--samples", "100")
    assert not re.search(r"\d\.\d{7}", text)  # values of a continuous range are rounded
    run(str(file), "--budget", "params.non_embedding <= 1k", "--samples", "100", code=1)


def test_sizes_are_printed_in_place_of_the_ranges_that_have_them(tmp_path: Path) -> None:
    file = tmp_path / "ranges.yaml"
    file.write_text("""
width: 32
encoder: { depth: 1, heads: 4, ffn: { one of: {
  none: {}, swiglu: { hidden: 64..128 step 64 | = 8 * width // 3 } } } }
decoder: { depth: 1, heads: 4, ffn: { relu: { hidden: 64 } } }
cost: { protocol: { source: 20, target: 20, vocab: 500 } }
""")
    arguments = str(file), "--budget", "params.total <= 2M"
    output = run(*arguments)
    front = output[output.index("on the front"):]
    for size in (64, 85, 128):
        assert f"hidden={size}" in front
    assert "step 64" not in front and "8 * width" not in front
    report = json.loads(run(*arguments, "--json"))
    for params in report["front_params"]:  # with the names that --set accepts
        assert read_space(file).with_overrides(params).single_architecture()


@pytest.mark.slow
def test_large_space_is_sampled() -> None:
    report = json.loads(run("slim", "--set", "width=96..128 step 2", "--samples", "120", "--json"))
    assert not report["exact"] and report["low"] <= report["share"] <= report["high"]
    assert (
        report["feasible"] is None and "combinations" in report["inexact_reason"]
    ) or "structures" in report["inexact_reason"]


@pytest.mark.full
def test_infeasible_budget_reports_smallest_cost(space: Path) -> None:
    output = run(str(space), "--budget", "params.total <= 1k", "--samples", "100", code=1)
    least = min(evaluated[1]["params.total"] for _, evaluated in enumerated("edge") if evaluated)
    assert f"The smallest params.total of any candidate is {least:,}" in output
    most = max(evaluated[1]["params.encoder"] for _, evaluated in enumerated("edge") if evaluated)
    output = run(str(space), "--budget", "params.encoder >= 1M and params.total <= 2M", code=1)
    assert f"The largest params.encoder of any candidate is {most:,}" in output
    assert "smallest" not in output


def test_limits_that_no_candidate_meets_together_are_named(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    report = json.loads(run(str(file), "--budget", "params.total <= 100M", "--json"))
    small, large = (report["extremes"][f"{word} params.non_embedding"]["costs"]["params.total"]
                    for word in ("least", "most"))
    output = run(str(file), "--budget", f"params.total <= {small} and width >= 64", code=1)
    assert "not all limits together" in output
    budget = f"params.total >= {large + 1}"
    report = json.loads(run(str(file), "--budget", budget, "--json", code=1))
    assert report["max_costs"] == {"params.total": large} and report["min_costs"] == {}


def test_space_without_valid_candidates_refers_to_check(tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    file.write_text(TWO.replace("where: [", "where: [params.total <= 1k, "))
    assert "scalesearch check" in run(str(file), "--budget", "params.total <= 1M", code=1)


@pytest.mark.parametrize(
    ("budget", "code", "part"),
    [
        ("params.totl <= 1M", "unknown-name", "params.total"),
        *((f"{name} <= 1M", "unknown-name", "`params.total`")
          for name in ("parms.total", "param", "parameters", "params")),
        ("memory.kv <= 1MiB", "unknown-name", "`memory.cache`"),
        ("zzz <= 1M", "unknown-name", "`macs.once`"),
        ("flop <= 1M", "unknown-name", "`flops.total`"),
        ("smal and params.total <= 1M", "unknown-name", "`small`"),
        ("bleu >= 20", "unknown-name", "`objectives:`"),
        ("test.bleu >= 20", "unknown-name", "`objectives:`"),
        ("params.total <= 10Q", "bad-syntax", "10Q"),
        ("params.total <= 1M and params.total >= 2M", "budgets-contradict", "2M"),
        ("edgy", "unknown-budget", "edgy"),
        ("small + 1 <= 3", "bad-value", "small"),
    ],
)
def test_invalid_budgets_are_refused(space: Path, budget: str, code: str, part: str) -> None:
    with refuses(code, part):
        CliRunner().invoke(command, [str(space), "--budget", budget], catch_exceptions=False)


def test_expression_may_use_named_budgets(space: Path) -> None:
    limits = read_budgets(read_space(space), ["not (small or macs.total <= 3M) or small"])
    assert [limit.text for limit in limits] == [
        "not (params.total <= 150k or macs.total <= 3M) or params.total <= 150k"]
    limits = read_budgets(read_space(space), ["small and params.total >= 1k"])
    assert [limit.text for limit in limits] == ["params.total <= 150k", "params.total >= 1000"]


def test_missing_budget_is_refused() -> None:
    with refuses("no-budget", "--budget"):
        CliRunner().invoke(command, ["transformer"], catch_exceptions=False)


@pytest.mark.full
def test_outside_architecture_is_mapped_to_nearest_candidate(space: Path) -> None:
    """The shipped transformer: its width, depths and heads are not values of this space."""
    report = json.loads(run(str(space), "--samples", "100", "--near", "transformer", "--json"))
    assert report["start"]["width"] == ["512", "48"] and report["start"]["encoder.depth"] == [
        "6", "4"]
    assert report["near"] and all(near["costs"]["params.non_embedding"] < 150_000
                                 for near in report["near"])
    output = run(str(space), "--samples", "100", "--near", "transformer").splitlines()
    assert (
        output[0].startswith("transformer is not in this space") and "width 512 → 48" in output[0]
    )


@pytest.mark.parametrize("count", range(1, 26))
def test_shown_part_of_front_has_both_ends(count):
    shown = select_spread_points(list(range(count)))
    assert len(shown) == len(set(shown)) == min(count, MAX_FRONT_ROWS) and shown == sorted(shown)
    assert shown[0] == 0 and (shown[-1] == count - 1 or count == 1)


NAMED = """
width: 16 | 24
norm: pre | post
last_norm: yes | no if norm == pre else yes
encoder: {depth: 1..2, heads: 2, ffn: {one of: {
  relu: {hidden: "[16 | 32, 16 | 24]"}, geglu: {hidden: 16 | 32}}}}
decoder: {depth: 1, heads: 2, ffn: {relu: {hidden: 16}}}
share: {encoder.ffn: own | one}
cost: {protocol: {source: 8, target: 8, vocab: 200}}
"""


@pytest.mark.full
def test_printed_names_of_parameters_are_accepted_by_every_option(tmp_path: Path) -> None:
    file = tmp_path / "named.yaml"
    file.write_text(NAMED)
    report = json.loads(run(str(file), "--budget", "params.total <= 1M", "--json"))
    values = {row["parameter"]: row["value"] for row in report["values"]}
    checked = json.loads(CliRunner().invoke(check, [str(file), "--samples", "0", "--json"]).output)
    assert [row["name"] for row in checked["parameters"]] == [*values]
    settings = [*report["front_params"], *(row["params"] for row in report["extremes"].values())]
    for seed in range(1, 4):
        result = CliRunner().invoke(cost, [str(file), "--random", str(seed), "--json"])
        settings.append(json.loads(result.output)["picked"]["params"])
    for params in settings:  # `cost` needs a value per parameter, and so all names are accepted
        assert {*params} <= {*values}
        overrides = [("--set", f"{name}={value}") for name, value in params.items()]
        result = CliRunner().invoke(cost, [str(file), *chain(*overrides)])
        assert result.exit_code == 0, result.output
    space = read_space(file)
    for name, value in values.items():
        condition = f"{name} == {value}"
        counts = json.loads(run(str(file), "--budget", condition, "--samples", "100", "--json"))
        file.with_name("where.yaml").write_text(f"{NAMED}where: ['{condition}']\n")
        narrowed = json.loads(run(str(file.with_name("where.yaml")), "--budget", "width >= 1",
                                  "--samples", "100", "--json"))
        assert 0 < counts["feasible"] == narrowed["valid"]
        config = next(config for config in space.enumerate()
                      if name in config.params and format_constant(config.params[name]) == value)
        table = trials_table([record(0, 1.0, 10, 10, **config)])
        assert filter_trials(table, condition)["trial"].tolist() == [0]
