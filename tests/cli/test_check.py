"""The command ``scalesearch check``."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from scalesearch.cli.check import command
from scalesearch.cli.cost import command as cost
from scalesearch.spaces import ConfigError
from tests.errors import refuses

FILE = """
space: tiny
width: 32 | 64
encoder.depth: 2..4
decoder.depth: 1..3
where:
  - decoder.depth < encoder.depth
cost:
  protocol: { source: 10, target: 10, vocab: 100 }
  budgets:
    small: params.total <= 300k
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(FILE)
    return str(path)


def check(*arguments):
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_tables(file):
    output = check(file, "--samples", "50")
    assert "tiny is valid: 3 parameters, 18 configurations" in output
    assert "encoder.depth" in output
    assert "2..4" in output
    assert "50 random candidates (seed 0), protocol forward (S=10, T=10, V=100)" in output
    assert "decoder.depth < encoder.depth" in output
    assert "small: params.total <= 300k" in output


def test_json(file):
    report = json.loads(check(file, "--samples", "200", "--json"))
    assert (report["name"], report["size"], report["n_samples"]) == ("tiny", 18, 200)
    assert report["parameters"][0] == {"name": "width", "values": "32 | 64", "count": 2}
    assert report["buildable"]["rate"] == 1.0
    assert 0.5 < report["constraints"][0]["rate"] < 0.9
    assert 0 < report["budgets"][0]["rate"] < 1
    assert report["all_conditions"]["rate"] <= min(
        report["constraints"][0]["rate"], report["budgets"][0]["rate"]
    )
    again = json.loads(check(file, "--samples", "200", "--json"))
    assert again == report


def test_several_budgets_are_alternatives(tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text("""
width: 32 | 64
encoder: { depth: 1, heads: 4, ffn: { relu: { hidden: 64 } } }
decoder: { depth: 1, heads: 4, ffn: { relu: { hidden: 64 } } }
cost:
  protocol: { source: 10, target: 10, vocab: 100 }
  budgets: { small: width <= 32, large: width >= 64 }
""")
    report = json.loads(check(str(file), "--samples", "50", "--json"))
    small, large = (rate["n_passed"] for rate in report["budgets"])
    assert small and large and small + large == 50
    assert report["all_conditions"]["rate"] == 1


def test_infeasible_budget_is_reported_with_position(file):
    text = FILE.replace("300k", "1k")
    with open(file, "w") as out:
        out.write(text)
    done = CliRunner().invoke(command, [file, "--samples", "20"])
    assert isinstance(done.exception, ConfigError)
    assert "is valid" not in done.output and "small: params.total <= 1000" in done.output
    line = text.splitlines().index("    small: params.total <= 1k") + 1
    message = str(done.exception)
    assert (
        f"{file}:{line}:12: none of the 20 random candidates satisfies this constraint" in message
    )
    assert "^" * len("params.total <= 1k") in message
    assert re.search(
        r"help: the nearest candidate has params.total = [\d,]+: [\d,]+ \([\d.,]+ %\) above 1,000",
        message)
    done = CliRunner().invoke(command, [file, "--samples", "20", "--json"])
    assert done.exit_code == 2
    assert json.loads(done.stdout)["problems"][0]["line"] == line


@pytest.mark.parametrize(("section", "place"), [
    ("cost: { budgets: { b: params.total <= 10M and params.total >= 20M } }", "3:23"),
    ("where: [params.total <= 10M, params.total >= 20M]", "3:30"),
    ("where: [params.total <= 10M]\ncost: { budgets: { b: params.total >= 20M } }", "4:23"),
])
def test_contradicting_limits_are_reported_with_position(tmp_path: Path, section: str,
                                                         place: str) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(f"width: 32 | 64\nencoder.depth: 2\n{section}\n")
    with refuses("budgets-contradict", "params.total <= 10M", place=f"{file}:{place}"):
        CliRunner().invoke(command, [str(file)], catch_exceptions=False)


def test_contradictions_are_reported_with_the_other_errors_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("""width: 32 | 6x4
encoder.depth: 2
where: [params.total <= 10M, params.total >= 20M]
cost: { budgets: {
  a: macs.total <= 1M and macs.total >= 2M, b: params.total >= 15M, c: macs.total <= 3M } }
""")
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(command, [str(file)], catch_exceptions=False)
    assert [(problem.position.line + 1, problem.code == "budgets-contradict")
            for problem in caught.value.problems] == [(1, False), (3, True), (5, True), (5, True)]


@pytest.mark.parametrize(("decoder", "is_unread"), [
    ("{ depth: 2, cross_heads: 0 }", True), ("{ depth: 2, heads: 0 }", True),
    ("{ depth: 1 | 2, cross_heads: 0 }", True), ("{ depth: 2, cross_heads: [0, 4] }", False),
    ("{ depth: 2, cross_heads: 0 | 4 }", False), ("{ depth: 2, heads: 0, cross: gated }", False)])
def test_encoder_that_no_decoder_layer_reads_is_reported(tmp_path: Path, decoder: str,
                                                         is_unread: bool) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(f"width: 32\ndecoder: {decoder}\n")
    message = "the encoder has no effect and is not trained"
    checked = CliRunner().invoke(command, [str(file), "--samples", "0"], catch_exceptions=False)
    costed = CliRunner().invoke(cost, [str(file), "--random", "1"], catch_exceptions=False)
    assert checked.exit_code == costed.exit_code == 0, checked.output + costed.output
    assert (message in checked.output) == is_unread
    assert (message in costed.output) == is_unread or "|" in decoder


def test_constraint_over_large_space_is_estimated_by_samples(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text("width: 1000..900000\nencoder.depth: 1..900\ndecoder.depth: 1\n"
                    "where:\n  - encoder.depth > width\n  - width < 1000\n")
    done = CliRunner().invoke(command, [str(path), "--samples", "50"])
    assert isinstance(done.exception, ConfigError) and "is valid" not in done.output
    assert [(problem.position.line, problem.position.column)
            for problem in done.exception.problems] == [(4, 4), (5, 4)]



def test_architecture_is_one_candidate_with_shares_0_or_1(file):
    report = json.loads(
        check(
            file,
            "--samples",
            "3",
            "--json",
            "--set",
            "width=32",
            "--set",
            "encoder.depth=4",
            "--set",
            "decoder.depth=2",
        )
    )
    assert (report["size"], report["parameters"]) == (1, [])
    assert report["constraints"][0]["rate"] == 1.0


def test_unbuildable_candidates_are_counted_by_reason(file):
    sets = ("--set", "encoder.depth=2 | 4", "--set", "share.encoder.attention=runs(1, 3)")
    report = json.loads(check(file, "--samples", "100", "--json", *sets))
    assert 0.3 < report["buildable"]["rate"] < 0.7
    assert report["budgets"][0]["n_tested"] == report["buildable"]["n_passed"]
    assert [reason.split(": ")[:2] for reason in report["build_errors"]] == [
        ["--set", "share.encoder.attention"]]
    shown = " ".join(check(file, "--samples", "100", *sets).split())
    assert f"% of {report['buildable']['n_passed']} that can be built" in shown


def test_reference_to_a_key_of_another_variant_is_reported_at_its_place(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("width: 64\nencoder: { mixer: attention | lightweight, heads: 2 }\n"
                    "decoder.heads: = encoder.heads\n")
    reason, = json.loads(check(str(path), "--samples", "20", "--json"))["build_errors"]
    assert "s.yaml:3:16: decoder.heads: " in reason
    assert "encoder.heads exists only with `encoder.mixer: attention`" in reason


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [("width: 64\nembedding: h-softpos\n",
      "s.yaml:2:12: the only candidate cannot be built: embedding:", "embedding.tie"),
     ("encoder.depth: 1 | 2\nwidth: = 64 / 0\n",
      "s.yaml:2:8: none of the 9 random candidates can be built: width:", "divides by zero")])
def test_space_without_buildable_candidates_is_refused(tmp_path, text, place, reason):
    (tmp_path / "s.yaml").write_text(text)
    with refuses("unbuildable", place, reason):
        check(str(tmp_path / "s.yaml"), "--samples", "9")
    printed = CliRunner().invoke(command, [str(tmp_path / "s.yaml"), "--samples", "9"]).output
    assert reason not in printed  # only the error names the reason


def test_exportable_share_per_format(file):
    shares = json.loads(check(file, "--set", "encoder.gate=none | QgV", "--samples", "60",
                              "--exportable", "--json"))
    exportable, generating, everything = shares["exportable"]
    assert exportable["condition"] == "exportable to ctranslate2" and 0.3 < exportable["rate"] < 0.7
    assert (
        everything["condition"] == "exportable to torch"
        and everything["rate"] == generating["rate"] == shares["buildable"]["rate"]
    )
    shown = check(file, "--exportable", "--samples", "20")
    assert re.search(r"exportable to ctranslate2 +100 %", shown), shown
    assert "exportable" not in check(file, "--samples", "20")


def test_encoder_only_models_are_exportable_to_torch_only(tmp_path: Path) -> None:
    """100 % was printed for onnx and huggingface, and `export` refused them."""
    space = tmp_path / "s.yaml"
    space.write_text("model: encoder-only\nwidth: 8 | 16\nencoder: { depth: 1, heads: 2 }\n")
    shares = json.loads(check(str(space), "--samples", "9", "--exportable", "--json"))
    assert {row["condition"].removeprefix("exportable to "): row["rate"]
            for row in shares["exportable"]} == {
        "ctranslate2": 0, "onnx, huggingface": 0, "torch": 1}


def test_parameters_and_written_keys_that_no_model_uses_are_named(tmp_path: Path) -> None:
    text = ("model: {}\nwidth: 64\nencoder: {{ depth: 1..3, heads: 4 }}\n"
            "decoder: {{ depth: 1 | 2, heads: 4 }}\n")
    for model, unused in (("decoder-only", ["encoder.depth, encoder.heads"]),
                          ("encoder-only", ["decoder.depth, decoder.heads"]),
                          ("encoder-decoder", []), ("encoder-decoder | decoder-only", [])):
        file = tmp_path / "space.yaml"
        file.write_text(text.format(model))
        output = CliRunner().invoke(command, [str(file)]).output
        notes = [f"warning: no effect in {model} models: {name};" for name in unused]
        assert all(note in output for note in notes) and ("warning" in output) == bool(unused)
        result = CliRunner().invoke(command, [str(file), "--json", "--samples", "0"])
        assert len(json.loads(result.output)["notes"]) == len(unused)
