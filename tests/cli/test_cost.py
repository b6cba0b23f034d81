"""``scalesearch cost``: table, JSON, ``--set``, and errors for invalid input."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scalesearch.cli.cost import command
from scalesearch.cli.main import app
from tests.errors import refuses


def run(*arguments: str) -> dict:
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_json_has_costs_protocol_and_architecture() -> None:
    cost = run("transformer", "--protocol", "edgeformer")
    for quantity in ("params", "macs", "flops"):
        assert {"total", "embedding", "encoder", "decoder", "output"} <= set(cost[quantity])
    assert cost["params"]["non_embedding"] == 44_138_496
    assert cost["macs"]["total"] == 1_843_415_040 and cost["flops"][
        "total"] == 2 * 1_843_415_040 - 5 * 512 * 30 * 30
    assert cost["protocol"]["name"] == "edgeformer" and cost["protocol"]["vocab"] == 32768
    assert len(cost["architecture"]["id"]) == 12 and cost["architecture"]["config"][
        "encoder.depth"] == 6
    assert sum(row["macs"]
               for row in cost["modules"] if "." not in row["path"]) == cost["macs"]["total"]


def test_artifact_bytes_are_in_all_views_or_refused() -> None:
    small = ("small/plain", "--vocab", "500", "--artifact", "ctranslate2-int8")
    alone = run(*small)["artifact"]["bytes"]
    assert run(*small, "--sweep", "width=64 | 128")["rows"][0]["artifact.bytes"] == \
        run(*small, "--set", "width=64")["artifact"]["bytes"]
    comparison = CliRunner().invoke(command, [*small, "--against", "width=128"])
    assert f"plain: artifact.bytes {alone:,} of ctranslate2-int8" in comparison.output
    with refuses("options-conflict", "artifact"):
        raise CliRunner().invoke(command, [*small, "--formula"]).exception


def test_lengths_above_the_positions_of_a_model_are_noted(tmp_path: Path) -> None:
    learned = ("small/plain", "--set", "embedding.positions=learned", "--set",
               "embedding.max_length=50")
    assert "notes" not in run(*learned, "--length", "50")
    assert "50 positions" in run(*learned, "--length", "51")["notes"][0]
    assert "notes" not in run("small/plain", "--length", "5k")
    file = tmp_path / "llama.json"
    file.write_text(json.dumps({
        "model_type": "llama", "vocab_size": 99, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 2048}))
    assert "notes" not in run(str(file), "--length", "2048")
    assert "notes" not in run(str(file), "--source", "1024", "--target", "1024")
    for lengths in (("--length", "2049"), ("--source", "2000", "--target", "49")):
        [note] = run(str(file), *lengths)["notes"]
        assert "2,049" in note and "2,048" in note


def test_sizes_may_have_units() -> None:
    costs = run("small/plain", "--vocab", "8k", "--source", "1e1")
    assert costs["protocol"]["vocab"] == 8000 and costs["protocol"]["source"] == 10
    for size in ("8x", "3 4", "0.5", "k", "8kB"):
        result = CliRunner().invoke(command, ["small/plain", "--vocab", size])
        assert result.exit_code == 2 and f"'{size}'" in result.output


@pytest.mark.parametrize(("change", "code", "place"), [
    ("widht=3", "unknown-key", "--against: "), ("width=abc", "bad-value", "--against: "),
    ("other.yaml", "not-key-value", "--against other.yaml: ")])
def test_errors_of_a_change_name_its_option(change: str, code: str, place: str) -> None:
    with refuses(code, place=place):
        raise CliRunner().invoke(command, ["small/plain", "--against", change]).exception


def test_violated_constraints_and_active_params_are_printed(tmp_path: Path) -> None:
    file = tmp_path / "mixture.yaml"
    file.write_text("width: 16\nvocab: 100\ndecoder: { depth: 1, heads: 2 }\nencoder: { depth: 2, "
                    "heads: 2, ffn: { mixture: { experts: 4, active: 1, expert_hidden: 8 } } }\n"
                    "where: [params.total <= 1k, macs.total >= 1, width <= 16]\n")
    costs = run(str(file))
    excess = costs["params"]["total"] - 1000
    assert [limit["limit"] for limit in costs["violated"]] == ["params.total <= 1000"]
    output = CliRunner().invoke(command, [str(file)]).output
    assert f"where params.total <= 1000: violated by {excess:,}" in output
    assert f"params.active {costs['params']['active']:,}" in output
    assert costs["params"]["active"] < costs["params"]["total"]
    plain = run("small/plain")
    assert "violated" not in plain and "params.active" not in CliRunner().invoke(
        command, ["small/plain"]).output


def test_figure_has_the_format_of_its_suffix(tmp_path: Path) -> None:
    def plot(name: str) -> Any:
        return CliRunner().invoke(command, ["small/plain", "--sweep", "width=64 | 128", "--plot",
                                            str(tmp_path / name)])

    assert plot("w.pdf").exit_code == plot("v.svg").exit_code == plot("u").exit_code == 0
    assert {file.name for file in tmp_path.iterdir()} == {"w.pdf", "v.svg", "u.png", "u.svg"}
    assert (tmp_path / "w.pdf").read_bytes().startswith(b"%PDF")
    with refuses("cannot-write", "w.jpg"):
        raise plot("w.jpg").exception


QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
         "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
         "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
         "tie_word_embeddings": True, "rope_theta": 10000}


def test_costs_of_a_context(tmp_path: Path) -> None:
    """Qwen3 0.6B: 28 layers cache 2 · 8 heads of 128 numbers per token."""
    config = tmp_path / "qwen3.json"
    config.write_text(json.dumps(QWEN3))
    costs = run(str(config), "--length", "4096", "--cache", "int8")
    assert costs["memory"]["cache"] == 4096 * 28 * 2 * 8 * 128
    assert costs["protocol"]["length"] == 4096 and costs["protocol"]["cache"] == "int8"
    products = 2 * 28 * 16 * 128 * 4096
    matrices = costs["params"]["total"] - 1024 * (2 * 28 + 1) - 2 * 28 * 128  # without gains
    assert costs["macs"]["decode_step"] == matrices + products
    assert costs["macs"]["prefill"] == (matrices - 151936 * 1024) * 4096 + 151936 * 1024 + (
        4096 * products)
    output = CliRunner().invoke(command, [str(config), "--length", "20M"]).output
    assert "cache 4.2 TiB" in output
    output = CliRunner().invoke(command, [str(config), "--length", "4096"]).output
    assert f"{costs['macs']['decode_step']:,}" in output


def test_encoder_only_models_have_a_note_on_unequal_lengths(tmp_path: Path) -> None:
    file = tmp_path / "bert.yaml"
    text = "model: encoder-only\nwidth: 8\nencoder: { depth: 1, heads: 2 }\n"
    file.write_text(text)
    lengths = ("--source", "12", "--vocab", "50")
    assert "--target 12" in run(str(file), *lengths)["notes"][0]
    assert "notes" not in run(str(file), *lengths, "--target", "12")
    assert "notes" not in run(str(file), "--length", "12", "--vocab", "50")
    file.write_text(text + "classes: 3\n")
    assert "notes" not in run(str(file), *lengths)


def test_compared_models_have_their_own_vocabulary(tmp_path: Path) -> None:
    config = tmp_path / "qwen3.json"
    config.write_text(json.dumps(QWEN3))
    for files in itertools.permutations([str(config), "transformer"]):
        for file, costs in zip(files, run(*files)["architectures"]):
            alone = run(file)
            assert costs["protocol"]["vocab"] == alone["protocol"]["vocab"]
            assert costs["params"] == alone["params"] and costs["macs"] == alone["macs"]
    output = CliRunner().invoke(command, [*files, "--sweep", "length=30"]).output
    assert "macs.prefill" in output and "V=own" not in output
    rows = run(*files, "--sweep", "length=30")["rows"]
    assert {row["name"]: row["macs.prefill"] for row in rows} == {
        Path(file).name: run(file, "--length", "30")["macs"]["prefill"] for file in files}


@pytest.mark.parametrize(("n_changes", "width"), [(2, 80), (3, 80), (5, 80), (1, 60), (2, 60)])
def test_comparison_fits_the_terminal(n_changes: int, width: int,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", f"{width}")
    options = [f"--against=encoder.depth={depth}" for depth in range(7, 7 + n_changes)]
    output = CliRunner().invoke(command, ["transformer", *options]).output
    tables, _ = output.split("differences to")
    assert max(map(len, tables.splitlines())) <= width and "cross_attention_norm " in tables
    totals = "".join(line for line in tables.splitlines() if line.startswith(" total"))
    for row in run("transformer", *options)["architectures"]:
        for size in (row["params"]["total"], row["macs"]["total"]):
            assert f" {size:,} " in totals


@pytest.mark.full
def test_architectures_are_compared_over_the_context(tmp_path: Path) -> None:
    options = ("transformer", "--set", "model=decoder-only", "--against", "decoder.window=64",
               "--sweep", "length=32 | 64 | 128")
    plot, csv = tmp_path / "figure.png", tmp_path / "costs.csv"
    record = run(*options, "--plot", str(plot), "--csv", str(csv))
    assert plot.is_file() and len(csv.read_text().splitlines()) == 1 + 6
    assert [row["length"] for row in record["rows"]] == [32, 32, 64, 64, 128, 128]
    crossings = {(crossing["cost"], crossing["lower"]): crossing["ranges"]
                 for crossing in record["crossings"]}
    assert crossings == {("macs.prefill", "decoder.window=64"): [[65, None]],
                         ("macs.decode_step", "decoder.window=64"): [[65, None]],
                         ("memory.cache", "decoder.window=64"): [[64, None]]}
    output = CliRunner().invoke(command, options).output
    assert "macs.prefill: decoder.window=64 < transformer" in output
    for more in (("--sweep", "width=64"), ("--formula",)):
        with refuses("options-conflict"):
            raise CliRunner().invoke(command, [*options, *more]).exception


EDGE = ("encoder.depth=12 decoder.depth=2 decoder.interleaved=yes decoder.ffn.hidden=128 "
        "share.encoder.attention=cycle(4) share.encoder.ffn=6-6 "
        "share.decoder.self=encoder.attention[2*i] share.decoder.cross=encoder.attention[2*i+1] "
        "share.decoder.ffn=one")


def test_edgeformer_by_settings_of_transformer() -> None:
    settings = [part for setting in EDGE.split() for part in ("--set", setting)]
    cost = run("transformer", *settings, "--protocol", "edgeformer")
    assert cost["params"]["non_embedding"] == 8_564_352


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [("width=256", "width", 256), ("norm=pre", "norm", "pre"),
     ("model=decoder-only", "model", "decoder-only"),
     ("embedding.tie=none", "embedding.tie", "none"),
     ("embedding.positions=learned", "embedding.positions", "learned"),
     ("encoder.heads=4", "encoder.head_dim", 128), ("encoder.head_dim=32", "encoder.head_dim", 32),
     ("encoder.score_heads=4", "encoder.score_heads", 4),
     ("encoder.ffn.hidden=99", "encoder.ffn.hidden", 99),
     ("decoder.ffn=geglu", "decoder.ffn", "geglu"), ("decoder.ffn=none", "decoder.ffn", "none"),
     ("share.encoder.ffn=6-6", "share.encoder.ffn", "load(6, 6)"),
     ("share.encoder.ffn=[0,0,1,0,0,1,0,0,1,0,0,1]", "share.encoder.ffn",
      "[0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1]"), ("share.norms=follow", "share.norms", "follow")])
def test_set_changes_sizes_and_types(setting: str, path: str, value: object) -> None:
    depth = ("--set", "encoder.depth=12")
    changed = run("transformer", *depth, "--set", setting)
    plain = run("transformer", *depth)
    value_found = changed["architecture"]["config"][path]
    assert value_found == value or str(value_found) == str(value)
    assert changed["architecture"]["id"] != plain["architecture"]["id"] or path == "share.norms"


def test_options_override_lengths_and_vocabulary() -> None:
    cost = run("transformer", "--source", "7", "--target", "9", "--vocab", "100")
    assert cost["macs"]["output"] == 9 * 512 * 100
    assert cost["params"]["embedding"] == 100 * 512


def test_setting_that_the_model_does_not_read_is_named() -> None:
    decoder_only = "reference/partialformer-lm"
    (note,) = run(decoder_only, "--set", "encoder.depth=9")["notes"]
    assert "encoder.depth" in note
    assert "notes" not in run(decoder_only, "--set", "decoder.depth=9")


def test_table_names_the_protocol() -> None:
    result = CliRunner().invoke(command, ["small/edgeformer", "--verify", "--set", "width=16",
                                          "--vocab", "64"])
    assert result.exit_code == 0
    assert "protocol forward (S=30, T=30, V=64)" in result.output
    assert "unexplained" not in result.output and "fvcore" in result.output


@pytest.mark.parametrize("file", ["reference/anthe-gpt2", "small/plain"])
def test_verified_macs_of_a_length_are_those_of_the_table(file: str) -> None:
    cost = run(file, "--length", "9", "--vocab", "50", "--verify")
    for check in cost["verify"]:
        assert check["agrees"] and check["expected"] == cost[check["quantity"].lower()]["total"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["no-such-file"], ("no-such-file",)),
        (["transformer", "--set", "encoder.dept=3"], ("unknown-key", "encoder.depth")),
        (["transformer", "--set", "encoder.depth"], ("not-key-value",)),
        (["transformer", "--set", "encoder.depth=2..6"], ("open-parameters", "--smallest")),
        (["transformer", "--protocol", "forwrd"], ("unknown-protocol", "did you mean forward")),
        (["transformer", "--set", "share.encoder.ffn=1-11"], ("no-depth-fits", "has 12 layers")),
        (["transformer", "--protocol", "decode", "--shortlist", "100k"],
         ("bad-value", "100,000", "32,768")),
        (["transformer", "--against", ""], ("not-key-value", "--against")),
        (["transformer", "--against", " ; "], ("not-key-value", "--against")),
        (["transformer", "--latency", ""], ("bad-value", "--latency")),
        (["transformer", "--pairs", "9"], ("recipe-missing", "--pairs")),
        (["transformer", "--pairs", "9", "--recipe", "base"], ("options-conflict", "--pairs")),
    ],
)
def test_bad_input_is_a_user_error(arguments: list[str], error: tuple[str, ...]) -> None:
    with refuses(*error):
        CliRunner().invoke(command, arguments, catch_exceptions=False)


@pytest.mark.parametrize(("protocol", "words"),
                         [("forward",
                           ("macs.once 198,", "not in the total",
                            "flops = 2 · macs; not in macs: softmax", "residual sums, norms")),
                          ("edgeformer", ("in the total as well", "norm elements not doubled")),
                          ("delight", ("bias elements not doubled", "products across heads")),
                          ("decode-uncached", ("cross keys and values are kept",))])
def test_omitted_and_shared_costs_are_reported(protocol: str, words: tuple[str, ...]) -> None:
    output = CliRunner().invoke(command, ["reference/anthe", "--protocol", protocol],
                                catch_exceptions=False).output
    assert all(word in output for word in words), output[-600:]


@pytest.mark.parametrize("options", [
    ["--set", "width=64", "--set", "width = 32"], ["--against", "width=64; width=32"]])
def test_key_is_set_once(options: list[str]) -> None:
    with refuses("given-twice", place=options[-2]):
        run("small/plain", *options)


def test_key_is_swept_once() -> None:
    with refuses("given-twice", place="--sweep"):
        run("small/plain", "--sweep", "width=64 | 128", "--sweep", "width = 32")
    with refuses("given-twice", place="--for"):
        CliRunner().invoke(app, ["solve", "small/plain", "max width", "--for=encoder.depth=1",
                                 "--for=encoder.depth=2"], catch_exceptions=False)


def test_sweep_prints_why_a_row_has_no_costs() -> None:
    sweep = ["small/plain", "--sweep", "decoder.ffn_groups=1 | 2 | 3"]
    output = CliRunner().invoke(command, sweep, catch_exceptions=False).output
    (reason,) = [row["error"] for row in run(*sweep)["rows"] if row["error"]]
    assert "1 of 3 rows" in output and "decoder.ffn_groups=3" in output
    assert "".join(reason.split()) in "".join(output.split())


ANTHE = "reference/anthe"
PRINTS = {  # of an architecture with work on weights alone
    "cost": ["cost", ANTHE],
    "compare": ["cost", ANTHE, "--against", "encoder.depth=1"],
    "sweep": ["cost", ANTHE, "--sweep", "encoder.depth=1 | 2"],
    "formulas": ["cost", ANTHE, "--formula"],
    "solve": ["solve", ANTHE, "max encoder.depth", "--budget", "params.total <= 50M"],
    "trade": [
        "solve",
        ANTHE,
        "--trade",
        "encoder.depth,decoder.depth",
        "--hold",
        "macs.total within 30%",
    ],
    "feasible": [
        "feasible",
        ANTHE,
        "--set",
        "encoder.depth=1 | 2",
        "--budget",
        "params.total <= 100M",
    ],
    "reference": ["reference", "--paper", "anthe"],
}


@pytest.mark.full
@pytest.mark.parametrize("verb", PRINTS)
def test_all_commands_report_omitted_and_shared_costs(verb: str) -> None:
    output = CliRunner().invoke(app, PRINTS[verb], catch_exceptions=False).output
    assert "once" in output and "not in macs: softmax" in output, output[-900:]
    record = json.loads(CliRunner().invoke(app, [*PRINTS[verb], "--json"],
                                           catch_exceptions=False).stdout)
    assert "once" in json.dumps(record) and "not in macs: softmax" in record["conventions"]
    plain = [word.replace(ANTHE, "transformer") for word in PRINTS[verb]]
    assert verb == "reference" or "macs.once" not in CliRunner().invoke(
        app, plain, catch_exceptions=False).output


@pytest.mark.full
def test_space_is_costed_at_random_smallest_or_largest_candidate(tmp_path: Path) -> None:
    file = tmp_path / "open.yaml"
    file.write_text("width: 16 | 32\nencoder: { depth: 1..3, heads: 2 }\ndecoder: { depth: 1 | 2, "
                    "heads: 2 }\nwhere: [encoder.depth + decoder.depth <= 4]\n")
    costs = [run(str(file), "--set", f"width={w}", "--set", f"encoder.depth={e}", "--set",
                  f"decoder.depth={d}") for w in (16, 32) for e in (1, 2, 3)
              for d in (1, 2) if e + d <= 4]
    sizes = [candidate_costs["params"]["total"] for candidate_costs in costs]
    assert run(str(file), "--smallest")["params"]["total"] == min(sizes)
    assert run(str(file), "--largest")["params"]["total"] == max(sizes)
    drawn = [run(str(file), "--random", str(seed)) for seed in (3, 3, 4, 5, 6)]
    assert drawn[0] == drawn[1] and len({item["architecture"]["id"] for item in drawn}) > 1
    assert all(item["params"]["total"] in sizes for item in drawn)
    chosen = run(str(file), "--largest")["picked"]
    params = {"width": "32", "encoder.depth": "2", "decoder.depth": "2"}
    assert chosen["params"] == params and "largest" in chosen["how"]
    shown = CliRunner().invoke(command, [str(file), "--largest"],
                               catch_exceptions=False).output.splitlines()
    assert set(params.items()) <= {tuple(row.split()) for row in shown}
    fixed = [str(file), "--random", "--set", "width=16", "--set", "encoder.depth=1", "--set",
             "decoder.depth=1"]
    assert len(run(*fixed)["notes"]) == 1 and not run(*fixed)["picked"]["params"]
    assert "Selected" not in CliRunner().invoke(command, fixed).output
    for two in itertools.combinations(("--random", "--smallest", "--largest"), 2):
        with refuses("options-conflict"):
            CliRunner().invoke(command, [str(file), *two], catch_exceptions=False)


def test_unbuildable_candidate_is_reported_with_position(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("width: 100\nmatrices: { ffn: { group: { groups: 4 } } }\n")
    with refuses("unbuildable", "matrices.ffn.group.groups", place="--set"):
        run(str(file), "--set", "matrices.ffn.group.groups=7")
    file.write_text(file.read_text().replace("4", "7"))
    with refuses("unbuildable", "matrices.ffn.group.groups", place=f"{file}:2:37"):
        run(str(file))
