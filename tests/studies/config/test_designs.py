"""Files of grids, ablations and scaling studies, and the positions of their errors."""

import pytest

from scalesearch.errors import UserError
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.config.sections import Seeds
from tests.errors import refuses

REST = """\
data: { builtin: grammar, pairs: 500, vocab: 400 }
recipe: { steps: 5 }
objectives: { bleu: max, params.total: min }
"""
EDGE = "base: { file: small/edgeformer, set: { width: 32, encoder.depth: 4 } }\n"
PARTIAL = ("base: { file: small/partialformer, set: { width: 32, encoder.depth: 1, decoder.depth: "
           "1 } }\n")


def read(folder, text, *sets):
    file = folder / "s.yaml"
    file.write_text(REST + text)
    return read_study(file, sets)


def problems(folder, text):
    with pytest.raises(UserError) as error:
        read(folder, text)
    return str(error.value).replace(f"{folder}/", "")


def configs(rows):
    return {row.label: row.architecture.config for row in rows.architectures}


def test_default_type_is_search(tmp_path):
    assert read(tmp_path, "space: small/plain\n").architectures is None
    assert read(tmp_path, "space: small/plain\ntype: search\ntrials: 3\n").trials == 3


def test_ablation_applies_each_change_to_the_base(tmp_path):
    spec = read(tmp_path, f"""\
type: ablation
{EDGE}changes:
  - share: none
  - adapt: nothing
  - adapt: {{ lora: {{ rank: 4 }} }}
  - share.encoder.ffn: [0, 0, 0, 1]
  - {{ name: wide, set: {{ width: 64 }} }}
  - {{ name: plain, file: small/plain }}
seeds: 3
""")
    by_label = configs(spec.architectures)
    assert list(by_label) == ["base", "share: none", "adapt: nothing", "adapt: {lora: {rank: 4}}",
                           "share.encoder.ffn: [0, 0, 0, 1]", "wide", "plain"]
    assert spec.architectures.base == "base"
    assert spec.trials == 0 and spec.seeds == Seeds(references=3)
    assert by_label["base"]["adapt"] == "bias" and by_label["adapt: nothing"]["adapt"] == "nothing"
    assert by_label["adapt: {lora: {rank: 4}}"]["adapt.rank"] == 4
    assert {by_label["share: none"].get(f"share.{key}", "own")
            for key in ("encoder.attention", "encoder.ffn", "decoder.self", "decoder.cross",
                        "decoder.ffn")} == {"own"}
    assert (by_label["wide"]["width"], by_label["plain"]["width"]) == (64, 128)


def test_grid_of_files_and_values(tmp_path):
    rows = read(tmp_path, """\
type: grid
architectures: [small/plain, {name: thin, file: small/plain, set: {width: 64}}]
""").architectures
    widths = {name: config["width"] for name, config in configs(rows).items()}
    assert widths == {"plain": 128, "thin": 64}
    based = read(tmp_path, f"""\
type: grid
{EDGE}architectures: [{{name: a, set: {{width: 64}}}}, small/anthe]
""").architectures
    assert [row.label for row in based.architectures] == ["a", "anthe"] and based.base == "a"


def test_grid_of_a_space_lists_each_feasible_network_once(tmp_path):
    rows = read(tmp_path,
                "type: grid\nspace: {file: small/edgeformer, set: {width: 32 | 48, adapt: bias | "
                "nothing, encoder.depth: 4}}\n").architectures.filter_by_limits(
        lambda architecture: "wide" * (architecture.config["width"] > 32))
    labels = [row.label for row in rows.architectures]
    assert labels == ["width 32, adapt nothing", "width 32, adapt bias"]
    assert [row.params for row in rows.architectures] == [
        {"width": 32, "adapt": kind} for kind in ("nothing", "bias")]


def test_grid_merges_configurations_of_one_network(tmp_path):
    """Without sharing, adaptation has no effect, so both types of it are one network."""
    rows = read(tmp_path, """\
type: grid
space:
  file: small/edgeformer
  set: {width: 32, share: none, adapt: bias | nothing, encoder.depth: 4 | 5}
""").architectures.filter_by_limits(lambda architecture: "")
    identities = [row.architecture.id for row in rows.architectures]
    assert len(identities) == len(set(identities)) == 2


def test_untrainable_grid_is_rejected(tmp_path):
    rows = read(tmp_path, "type: grid\nspace: papers\n").architectures
    with refuses("grid-too-large", "3,911,846,400", "type: search", key="space"):
        rows.filter_by_limits(lambda architecture: "")
    rows = read(tmp_path, "type: grid\nspace: slim\n").architectures
    with refuses("grid-too-large", "type: search", key="space"):
        rows.filter_by_limits(lambda architecture: "")
    with refuses("budget-unmet", 2, key="budget"):
        text = "type: grid\nspace: {file: small/plain, set: {width: 32 | 64}}\n"
        read(tmp_path, text).architectures.filter_by_limits(lambda architecture: "no")


def test_scaling_study_grows_its_base_by_rules(tmp_path):
    spec = read(tmp_path, f"""\
type: scaling
{PARTIAL}rules:
  deeper: 2..4 step 2
  wider: 48 | 64
  head_dim: {{ encoder.head_dim: 40, decoder.head_dim: 40 }}
  hybrid: [{{ deeper: 2 | 4 }}, {{ heads: 8 | 12 }}]
held_out: none
""")
    rules = spec.architectures.rules
    by_label = configs(spec.architectures)
    assert rules["deeper"] == ("deeper 2", "deeper 4") and rules["wider"] == (
        "wider 48", "wider 64")
    assert rules["hybrid"] == ("hybrid: deeper 2", "hybrid: deeper 4", "hybrid: deeper 4, heads 8",
                               "hybrid: deeper 4, heads 12")
    last = by_label["hybrid: deeper 4, heads 12"]
    assert [last[key]
            for key in ("encoder.depth", "encoder.heads", "decoder.heads", "decoder.depth")] == [
        4, 12, 12, 1]
    assert by_label["head_dim 40"]["decoder.head_dim"] == 40 or by_label["head_dim: head_dim 40"][
        "decoder.head_dim"] == 40
    rows = spec.architectures
    assert rows.type == "scaling"
    assert rows.architectures[0].label == rows.base == rows.scaling["base"] == "base"
    assert rows.scaling["held_out"] == "none" and set(rows.scaling["rules"]) == set(rules)


def test_deeper_adds_layers_to_the_only_stack(tmp_path):
    rows = read(tmp_path, "type: scaling\nbase: {model: decoder-only, width: 32}\n"
                "rules: {deeper: 3 | 4}\nheld_out: none\n").architectures
    assert [config["decoder.depth"] for config in configs(rows).values()] == [6, 3, 4]


def test_rule_without_effect_is_rejected(tmp_path):
    rule = "rules: {wider: 64, taller: {encoder.depth: 3 | 4}}\n"
    text = f"type: scaling\nbase: {{model: decoder-only, width: 32}}\n{rule}held_out: none\n"
    with refuses("bad-rule", "taller", place=f"{tmp_path / 's.yaml'}:6:"):
        read(tmp_path, text)


def test_base_is_overridden_by_keys_of_the_space_language(tmp_path):
    rows = read(tmp_path, f"type: ablation\n{EDGE}changes: [adapt: nothing]\n", "base.width=64",
                "seeds=2").architectures
    assert {config["width"] for config in configs(rows).values()} == {64}


@pytest.mark.parametrize(
    ("text", "parts"),
    [(f"type: ablation\n{EDGE}changes: [shar: none]\n",
      ("s.yaml:6:11: shar: none: unknown key `shar`", "did you mean `share`")),
     (f"type: ablation\n{EDGE}changes: [adapt: lorra]\n",
      ("s.yaml:6:11: adapt: lorra:", "lora")),
     (f"type: ablation\n{EDGE}changes: [share: none, share: none]\n",
      ("two rows are called `share: none`",)),
     (f"type: ablation\n{EDGE}", ("a study of type ablation needs the key `changes`",)),
     ("type: ablation\nbase:\n  width: 32\n  encodr: {depth: 1}\nchanges: [width: 48]\n",
      ("s.yaml:7:3: unknown key `encodr`", "encoder")),
     (f"type: ablation\n{EDGE}changes: share\n", ("s.yaml:6:10: changes are a list",)),
     (f"type: ablation\n{EDGE}changes: [width: 32 | 64]\n",
      ("s.yaml:6:11: width: 32 | 64: it leaves width open",)),
     ("type: ablation\nchanges: [adapt: nothing]\n", ("`base` is missing",)),
     (f"type: ablation\n{EDGE}changes: [encoder.heads: 5]\n",
      ("s.yaml:6:11: encoder.heads: 5: share.decoder.self:", "differ in shape")),
     (f"type: grid\n{EDGE}changes: [adapt: nothing]\n",
      ("s.yaml:6:1: `changes` does not belong", "`type: ablation`")),
     ("space: small/plain\nrules: {deeper: 2}\n",
      ("s.yaml:5:1: `rules` does not belong", "`type: scaling`")),
     ("type: grid\narchitectures: [small/plain]\ntrials: 4\n",
      ("s.yaml:6:1: `trials` does not belong", "`type: search`")),
     ("type: grid\narchitectures: [small/plain]\nrungs: {first: 0.1}\n",
      ("`rungs` belongs to a search",)),
     ("type: grid\narchitectures: [small/plian]\n",
      ("s.yaml:5:17: plian: small/plian: no such file", "small/plain")),
     ("type: grid\narchitectures: [{name: a}]\n",
      ("s.yaml:5:17: architectures: expected a file",)),
     ("type: grid\narchitectures: [{name: a, set: {width: 3}}]\n",
      ("`base` is missing",)),
     (f"type: scaling\n{PARTIAL}rules: {{deeper: {{}}}}\n",
      ("s.yaml:6:17: `deeper` is a mapping",)),
     (f"type: scaling\n{PARTIAL}rules: {{taller: 2 | 3}}\n",
      ("s.yaml:6:17: `taller` needs keys",)),
     (f"type: scaling\n{PARTIAL}rules: {{deeper: 2 |}}\n", ("s.yaml:6:17:",)),
     (f"type: scaling\n{PARTIAL}rules: {{a: {{encoder.depth: 2 | 3, width: 32 | 48 | 64}}}}\n",
      ("s.yaml:6:12: `encoder.depth` has 2 values",)),
     (f"type: scaling\n{PARTIAL}rules: {{ffn: {{width: 0.1..0.9}}}}\n", ("continuous range",)),
     (f"type: scaling\n{PARTIAL}rules: {{wider: 1..1000000}}\n", ("1,000,000 values",)),
     (f"type: scaling\n{PARTIAL}rules: {{wider: 64}}\nheld_out: smallest\n",
      ("expected one of `largest` or `none`",))])
def test_errors_have_positions(tmp_path, text, parts):
    message = problems(tmp_path, text)
    assert all(part in message for part in parts), message
