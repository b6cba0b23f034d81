"""``scalesearch reference``: three papers' tables beside our trials."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from scalesearch.cli.reference import command
from tests.errors import refuses


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_json_is_exact_and_names_both_protocols() -> None:
    found = json.loads(run("--paper", "edgeformer", "--json"))
    assert found["verdicts"] == {"edgeformer": {"equal": 97, "rounding": 0, "no fit": 15}}
    rows = {(row["table"], row["model"], row["quantity"]): row for row in found["rows"]}
    plain = rows["2", "EdgeFormer w/o LA", "params.non_embedding"]
    assert (plain["reported"], plain["recomputed"], plain["agreement"]) == ("8.6M", 8_564_352, "equal")
    assert plain["protocol"]["name"] == "edgeformer" and plain["file"] == "reference/edgeformer"
    assert plain["common"]["flops.total"] == 2 * plain["common"]["macs.total"]
    assert plain["common"]["protocol"]["vocab"] == 32768
    prompt = rows["2", "EdgeFormer (Prompt-LA L=8)", "macs.total"]
    assert prompt["recomputed"] == 1_847_820_288 and prompt["agreement"] == "no fit" and prompt["mismatch_reason"]
    assert found["left_out"]["edgeformer"]


def test_the_common_ruler_is_the_same_for_all_papers() -> None:
    found = json.loads(run("--json"))
    assert set(found["verdicts"]) == {"partialformer", "anthe", "edgeformer", "second-tier"}
    assert {json.dumps(row["common"]["protocol"])
            for row in found["rows"]} == {json.dumps(found["common"])}
    sixes = {row["common"]["macs.total"]
             for row in found["rows"] if row["model"] in ("B", "6+6 full enc, " "full dec")}
    assert len(
        sixes) == 1, "the two papers' baselines are one network to the ruler, but for what is tied"


def test_the_table_shows_what_does_not_fit_and_says_why() -> None:
    printed = run("--paper", "PartialFormer")
    assert "68,079,912" in printed and "7,225,095,600" in printed
    assert "rounding (floor)" in printed and "no fit: no vocabulary fits both rows" in printed
    assert "70 reported numbers: 43 equal, 19 rounding, 8 no fit" in printed
    assert "protocol forward (S=30, T=30, V=32768)" in printed


@pytest.mark.parametrize(
    ("paper", "said"), [("anth", "did you mean anthe"), ("bert", "expected one of partialformer, anthe")]
)
def test_an_unknown_paper_is_a_user_error(paper: str, said: str) -> None:
    with refuses("unknown-paper", said):
        CliRunner().invoke(command, ["--paper", paper], catch_exceptions=False)


def test_it_imports_no_torch_and_exits_with_2_on_a_bad_paper() -> None:
    code = ("import sys; from scalesearch.cli.main import main; sys.argv[1:] = ['reference', "
            "'--paper', 'anthe']\ntry: main()\nexcept SystemExit as end: assert not "
            "end.code\nheavy = {'torch', 'pandas', 'optuna', 'ray', 'matplotlib'} & "
            "set(sys.modules); assert not heavy, heavy")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bad = subprocess.run([sys.executable, "-m", "scalesearch", "reference", "--paper", "edge"],
                         capture_output=True)
    assert bad.returncode == 2 and b"did you mean edgeformer" in bad.stderr
