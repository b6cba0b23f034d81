"""``scalesearch reference``: tables of three papers next to computed costs."""

import json

import pytest
from click.testing import CliRunner

from scalesearch.cli.reference import command
from scalesearch.reference import load_reported_costs
from tests.errors import refuses


def run(*arguments: str, columns: int = 160) -> str:
    environment = {"COLUMNS": str(columns)}
    result = CliRunner(env=environment).invoke(command, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_json_has_exact_costs_and_both_protocols() -> None:
    report = json.loads(run("--paper", "edgeformer", "--json"))
    assert report["verdicts"] == {"edgeformer": {"equal": 97, "rounding": 0, "no fit": 15}}
    rows = {(row["table"], row["model"], row["quantity"]): row for row in report["rows"]}
    plain = rows["2", "EdgeFormer w/o LA", "params.non_embedding"]
    assert (plain["reported"], plain["recomputed"], plain["agreement"]) == (
        "8.6M",
        8_564_352,
        "equal",
    )
    assert plain["protocol"]["name"] == "edgeformer" and plain["file"] == "reference/edgeformer"
    assert plain["common"]["flops.total"] == 2 * plain["common"]["macs.total"]
    assert plain["common"]["protocol"]["vocab"] == 32768
    prompt = rows["2", "EdgeFormer (Prompt-LA L=8)", "macs.total"]
    assert (
        prompt["recomputed"] == 1_847_820_288
        and prompt["agreement"] == "no fit"
        and prompt["mismatch_reason"]
    )
    assert report["left_out"]["edgeformer"]


@pytest.mark.full
def test_common_protocol_is_the_same_for_all_papers() -> None:
    report = json.loads(run("--json"))
    assert set(report["verdicts"]) == {"partialformer", "anthe", "edgeformer", "second-tier"}
    assert {json.dumps(row["common"]["protocol"])
            for row in report["rows"]} == {json.dumps(report["common"])}
    sixes = {row["common"]["macs.total"]
             for row in report["rows"] if row["model"] in ("B", "6+6 full enc, full dec")}
    assert len(
        sixes) == 1, "the two papers' baselines are one network to the ruler, but for what is tied"


def test_table_explains_differences() -> None:
    printed = run("--paper", "PartialFormer")
    assert "68,079,912" in printed and "7,225,095,600" in printed
    assert "rounding (floor)" in printed
    reasons = {row.mismatch_reason for row in load_reported_costs("partialformer")} - {""}
    text = " ".join(printed.split())
    assert len(reasons) >= 6 and all(f"no fit: {reason}" in text for reason in reasons)
    assert "70 reported numbers: 43 equal, 19 rounding, 8 no fit" in printed
    assert "protocol forward (S=30, T=30, V=32768)" in printed


def test_tables_fit_narrow_terminals() -> None:
    printed = run("--paper", "anthe", columns=80)
    tables = [line for line in printed.splitlines() if "," in line and line.startswith(" ")]
    assert len(tables) > 50 and max(map(len, tables)) <= 80
    assert "30,695,032" in printed, "no number is folded"


@pytest.mark.parametrize(
    ("paper", "text"),
    [("anth", "did you mean anthe"), ("bert", "expected one of partialformer, anthe")],
)
def test_unknown_paper_is_a_user_error(paper: str, text: str) -> None:
    with refuses("unknown-paper", text):
        CliRunner().invoke(command, ["--paper", paper], catch_exceptions=False)
