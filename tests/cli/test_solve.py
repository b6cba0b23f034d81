"""``scalesearch solve``, and comparisons and sweeps of ``cost``."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from scalesearch.cli.cost import command as cost
from scalesearch.cli.solve import command as solve
from tests.errors import refuses


def ask(*arguments: str, of: object = solve) -> Result:
    return CliRunner().invoke(of, [*arguments], catch_exceptions=False)  # type: ignore[arg-type]


WIDTH = ("transformer", "max width", "--budget", "params.total <= 10M and macs.total <= 2G")


def test_solution_has_slack_and_next_violation() -> None:
    result = ask(*WIDTH)
    assert result.exit_code == 0
    for words in ("max width = 165", "encoder.ffn.relu.hidden = 660",
                  "params.total <= 10M: 47,470 left",
                  "166 violates params.total <= 10M by 28,732", "7 of which cannot be built",
                  "protocol forward (S=30"):
        assert words in result.output, words


def test_costs_in_bytes_have_a_unit() -> None:
    budget = ("transformer", "max width", "--budget", "memory.weights <= 40MB")
    output = ask(*budget).output
    assert re.search(r"memory.weights [\d,]+ bytes\n  memory.weights <= 40M: [\d,]+ bytes left\n"
                     r"next: \d+ violates memory.weights <= 40M by [\d,]+ bytes\n", output)
    assert "(bytes)" in " ".join(
        ask(*budget, "--for", "encoder.depth=5..6").output.split())


def test_json_and_csv_have_all_solutions(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    question = ("transformer", "max encoder.ffn.relu.hidden", "--budget", "params.total <= 68M",
                "--for", "encoder.depth=5..7")  # fmt: skip
    result = ask(*question, "--csv", str(file), "--json")
    solutions = json.loads(result.output)["solutions"]
    assert [solution["for"]["encoder.depth"] for solution in solutions] == [5, 6, 7]
    assert [solution["best"]["value"] for solution in solutions] == [4045, 3199, 2596]
    assert all(
        solution["next"]["limits"][0]["slack"] < 0
        and solution["violates"] == ["params.total <= 68M"]
        for solution in solutions
    )
    assert pd.read_csv(file)["encoder.ffn.relu.hidden"].tolist() == [4045, 3199, 2596]
    table = ask(*question)
    assert "4,045" in table.output and "68M by 512" in table.output


def test_range_of_the_file_is_kept() -> None:
    result = ask(*WIDTH, "--set", "width=64..128 step 32")
    assert "max width = 128" in result.output and (
        "128 is the largest value of the range" in result.output)
    result = ask("transformer", "min width", "--budget", "params.total >= 10M", "--set",
                 "width=512 | 1024")
    assert "512 is the smallest value of the range" in result.output


def test_no_solution_exits_with_1() -> None:
    result = ask("transformer", "max width", "--budget", "params.total <= 10k")
    assert (
        result.exit_code == 1
        and "the nearest, 8, violates params.total <= 10k by 264,432" in result.output
    )


def test_trades_list_pairs_and_differences() -> None:
    question = ("transformer", "--trade", "encoder.depth,decoder.depth", "--hold",
                "macs.total within 1%")
    result = ask(*question)
    assert result.exit_code == 0 and "3 trade" in result.output
    assert "1,842,954,240  +0.100" in result.output
    report = json.loads(ask(*question, "--for", "decoder.depth=1..6", "--json").output)
    assert [(row["encoder.depth"], row["decoder.depth"]) for row in report["trades"]] == [
        (6, 6), (10, 3)]
    other = ask(*question, "--set", "encoder.depth=2", "--of", "transformer")
    assert "of transformer (params.total 60,915,712" in other.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["transformer"], "no-goal"),
        (["transformer", "max width", "--trade", "a,b"], "no-goal"),
        (["transformer", "max width", "--hold", "macs.total within 1%"], "options-conflict"),
        (["transformer", "max width", "--budget", "params.totl <= 1M"], "unknown-name"),
        (["transformer", "max width", "--budget", "params.total <= 10 million"], "bad-syntax"),
        (["transformer", "max width", "--budget", "params.total <= 1M and params.total > 2M"],
         "budgets-contradict"),
        (["transformer", "max width", "--budget", "macs.total <= 1G", "--for", "depth=1..3"],
         "unknown-key"),
        (["transformer", "--trade", "width,encoder.depth", "--hold", "macs within 1%"],
         "unknown-cost"),
        (["transformer", "--trade", "width,encoder.depth", "--hold", "macs.total within 1%",
          "--set", "width=1..9"],
         "open-parameters"),
        (["edgeformer", "max width", "--budget", "device"], "open-parameters"),
    ],
)  # fmt: skip
def test_invalid_requests_are_user_errors(arguments: list[str], code: str) -> None:
    with refuses(code):
        ask(*arguments)


def test_all_open_parameters_are_listed_at_once() -> None:
    with refuses("open-parameters", "vocab", "encoder.depth", "decoder.depth"):
        ask("small/device", "max width", "--budget", "params.total <= 2M")


# -- cost A B, --sweep, --formula


def test_architectures_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    result = ask("transformer", "--against", "encoder.depth=12; decoder.depth=2", "--csv",
                 str(file), of=cost)
    assert "+2,098,176" in result.output and "differences to transformer" in result.output
    assert pd.read_csv(file)["module"].iloc[-1] == "total"
    report = json.loads(ask("transformer", "transformer", "--json", of=cost).output)
    assert [item["name"] for item in report["architectures"]] == [
        "transformer (1)",
        "transformer (2)",
    ]
    assert report["modules"][-1]["differences"] == {"params": [0], "macs": [0]}


def test_modules_of_only_one_architecture_are_marked(tmp_path: Path) -> None:
    files = [tmp_path / "equal.yaml", tmp_path / "local.yaml"]
    for file, extra in zip(files, ("", ", window: 4, global_every: 2")):
        file.write_text("model: decoder-only\nwidth: 16\nvocab: 50\n"
                        f"decoder: {{ depth: 3, heads: 2{extra} }}\n"
                        "cost: { protocol: { length: 20 } }\n")
    assert "training activations per text: about" in ask(str(files[0]), of=cost).output
    output = ask(*map(str, files), of=cost).output
    assert re.search(r"\n   0 +- +[\d,]+ +\+[\d,]+ +only here *\n", output)
    assert re.search(r"\n   self_attention +[\d,]+ +- +-[\d,]+ +not here *\n", output)


@pytest.mark.full
def test_sweep_gives_table_and_figure(tmp_path: Path) -> None:
    result = ask("transformer", "--sweep", "length=10 | 5000", "--plot",
                 str(tmp_path / "curve.png"), of=cost)
    assert result.exit_code == 0 and "from S = T = 3,300 (V = 32,768)" in result.output
    assert "params.total is 60,915,712 in all rows" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {"curve.png"}
    report = json.loads(ask("transformer", "--sweep", "width=64 | 128", "--sweep",
                            "encoder.depth=1 | 2", "--json",
                           "--plot", str(tmp_path / "grid"), of=cost).output)  # fmt: skip
    assert [(row["width"], row["encoder.depth"]) for row in report["rows"]] == [
        (64, 1), (64, 2), (128, 1), (128, 2)]
    assert (tmp_path / "grid.svg").exists() and len(report["files"]) == 2


def test_sweep_is_rounded_only_if_exact_costs_do_not_fit() -> None:
    arguments = ["small/plain", "--sweep", "length=10 | 12345"]
    exact = f"{json.loads(ask(*arguments, '--json', of=cost).output)['rows'][1]['macs.total']:,}"
    for columns in (80, 200):
        output = CliRunner(env={"COLUMNS": str(columns)}).invoke(cost, arguments).output
        table = output.split("\n\n")[0]
        assert max(map(len, table.splitlines())) <= columns
        assert (exact in table) == (columns == 200) == ("exact costs: --json" not in output)


def test_formulas_are_printed_with_fixed_values() -> None:
    result = ask("transformer", "--formula", "--set", "encoder.depth=12", "--set",
                 "share.encoder.ffn=6-6", of=cost)
    assert (
        "output = T * V * width" in result.output and "(in this file = 4 * width)" in result.output
    )
    assert "share.encoder.ffn load(6, 6)" in result.output
    record = json.loads(ask("transformer", "--formula", "--json", of=cost).output)
    assert record["costs"]["params.total"]["value"] == 60_915_712


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["transformer", "transformer", "--formula"], "options-conflict"),
        (["transformer", "--formula", "--sweep", "width=1..2"], "options-conflict"),
        (["transformer", "--plot", "x.png"], "option-missing"),
        (["transformer", "--csv", "x.csv"], "option-missing"),
        (["transformer", "transformer", "--against", "width=64"], "options-conflict"),
        (["transformer", "--against", "width"], "not-key-value"),
        (["transformer", "--sweep", "width"], "not-key-value"),
        (["transformer", "--sweep", "widht=1..3"], "unknown-key"),
    ],
)
def test_conflicting_options_are_user_errors(arguments: list[str], code: str) -> None:
    with refuses(code):
        ask(*arguments, of=cost)


def test_three_sweeps_cannot_be_plotted(tmp_path: Path) -> None:
    sweeps = [part for key in ("width", "source", "vocab") for part in ("--sweep", f"{key}=8 | 16")]
    with refuses("too-many-sweeps", 3):
        ask("transformer", *sweeps, "--plot", str(tmp_path / "x"), of=cost)


def test_trade_ends_where_the_budget_is_exceeded() -> None:
    trade = ("transformer", "--trade", "decoder.depth,encoder.depth", "--hold",
             "params.encoder within 1%")  # fmt: skip
    with refuses("no-limit", "decoder.depth"):
        ask(*trade)
    report = json.loads(ask(*trade, "--budget", "params.total <= 70M", "--json").output)
    # decoder layers have 4.2M params, and the six in the file leave 9.1M of the budget
    assert [tuple(row.values())[:2] for row in report["trades"]] == [
        (depth, 6) for depth in range(1, 9)]


def test_trade_of_a_large_size_ends_at_the_costs_to_keep() -> None:
    hidden = "encoder.ffn.relu.hidden"
    report = json.loads(ask(
        "transformer", "--set", f"{hidden}=700k", "--trade", f"{hidden},encoder.heads", "--hold",
        "params.total within 1%", "--step", "20000", "--for", "encoder.heads=8", "--json").output)
    assert [row[hidden] for row in report["trades"]] == [700_000]


def test_width_that_the_heads_do_not_divide_gets_a_note() -> None:
    width = "transformer", "--set", "width=100"
    [note] = json.loads(ask(*width, "--json", of=cost).output)["notes"]
    assert all(number in note for number in ("100", "96")) and note in ask(*width, of=cost).output
    assert "notes" not in json.loads(ask("transformer", "--json", of=cost).output)
    [solution] = json.loads(ask(*WIDTH, "--json").output)["solutions"]
    assert all(number in solution["notes"][0] for number in ("165", "160"))
    assert not json.loads(ask(*WIDTH, "--step", "8", "--json").output)["solutions"][0]["notes"]


@pytest.mark.parametrize(("arguments", "command", "extra", "width"), [
    ((*WIDTH, "--for", "encoder.depth=4..5"), solve, "slack", 80),
    (("transformer", "small/plain", "small/edgeformer"), cost, "difference", 60)])
def test_tables_fit_narrow_terminals_without_their_extra_columns(
        arguments, command, extra, width, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert extra in ask(*arguments, of=command).output
    monkeypatch.setenv("COLUMNS", f"{width}")
    rows = [line for line in ask(*arguments, of=command).output.splitlines()
            if line.startswith(" ")]
    assert rows and all(len(line) <= width for line in rows)
    assert extra not in "\n".join(rows)
    assert any(re.search(r"\d,\d{3},\d{3}", line) for line in rows)
