"""Files of grids, ablations and scaling studies: what they mean, and what is wrong with them, at its place."""

import pytest

from scalesearch.errors import UserError
from scalesearch.study.config.reader import read_study
from scalesearch.study.config.sections import Seeds
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


def answers(rows):
    return {row.label: row.architecture.config for row in rows.architectures}


def test_a_study_without_a_kind_searches(tmp_path):
    assert read(tmp_path, "space: small/plain\n").architectures is None
    assert read(tmp_path, "space: small/plain\ntype: search\ntrials: 3\n").trials == 3


def test_an_ablation_changes_its_base_one_by_one(tmp_path):
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
    found = answers(spec.architectures)
    assert list(found) == ["base", "share: none", "adapt: nothing", "adapt: {lora: {rank: 4}}",
                           "share.encoder.ffn: [0, 0, 0, 1]", "wide", "plain"]
    assert spec.architectures.base == "base" and spec.trials == 0 and spec.seeds == Seeds(references=3)
    assert found["base"]["adapt"] == "bias" and found["adapt: nothing"]["adapt"] == "nothing"
    assert found["adapt: {lora: {rank: 4}}"]["adapt.rank"] == 4
    assert {found["share: none"].get(f"share.{key}", "own")
            for key in ("encoder.attention", "encoder.ffn", "decoder.self", "decoder.cross",
                        "decoder.ffn")} == {"own"}
    assert (found["wide"]["width"], found["plain"]["width"]) == (64, 128)


def test_a_grid_lists_files_and_answers(tmp_path):
    rows = read(tmp_path,
                "type: grid\narchitectures: [small/plain, {name: thin, file: small/plain, set: {width: "
                "64}}]\n").architectures
    assert {name: one["width"] for name, one in answers(rows).items()} == {"plain": 128, "thin": 64}
    based = read(tmp_path,
                 f"type: grid\n{EDGE}architectures: [{{name: a, set: {{width: 64}}}}, small/anthe]\n").architectures
    assert [row.label for row in based.architectures] == ["a", "anthe"] and based.base == "a"


def test_a_grid_of_a_space_is_every_network_that_fits_once(tmp_path):
    rows = read(tmp_path,
                "type: grid\nspace: {file: small/edgeformer, set: {width: 32 | 48, adapt: bias | "
                "nothing, encoder.depth: 4}}\n").architectures.filter_by_limits(
        lambda one: "wide" * (one.config["width"] > 32))
    assert [row.label for row in rows.architectures] == ["width 32, adapt nothing", "width 32, adapt bias"]
    assert [row.params for row in rows.architectures] == [
        {"width": 32, "adapt": kind} for kind in ("nothing", "bias")]


def test_a_grid_trains_a_network_once_that_several_sheets_describe(tmp_path):
    """Without sharing there is nothing to adapt, so both kinds of adaptation are one network."""
    rows = read(tmp_path,
                "type: grid\nspace: {file: small/edgeformer, set: {width: 32, share: none, adapt: "
                "bias | nothing, encoder.depth: 4 | 5}}\n").architectures.filter_by_limits(lambda one: "")
    identities = [row.architecture.id for row in rows.architectures]
    assert len(identities) == len(set(identities)) == 2


def test_a_grid_that_nobody_could_train_is_refused(tmp_path):
    rows = read(tmp_path, "type: grid\nspace: papers\n").architectures
    with refuses("grid-too-large", "3,911,846,400", "type: search", key="space"):
        rows.filter_by_limits(lambda one: "")
    with refuses("budget-unmet", 2, key="budget"):
        read(tmp_path,
             "type: grid\nspace: {file: small/plain, set: {width: 32 | 64}}\n").architectures.filter_by_limits(
            lambda architecture: "no")


def test_a_scaling_study_grows_its_base_by_rules(tmp_path):
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
    found = answers(spec.architectures)
    assert rules["deeper"] == ("deeper 2", "deeper 4") and rules["wider"] == (
        "wider 48", "wider 64")
    assert rules["hybrid"] == ("hybrid: deeper 2", "hybrid: deeper 4", "hybrid: deeper 4, heads 8",
                               "hybrid: deeper 4, heads 12")
    last = found["hybrid: deeper 4, heads 12"]
    assert [last[key]
            for key in ("encoder.depth", "encoder.heads", "decoder.heads", "decoder.depth")] == [
        4, 12, 12, 1]
    assert found["head_dim 40"]["decoder.head_dim"] == 40 or found["head_dim: head_dim 40"][
        "decoder.head_dim"] == 40
    said = spec.architectures.to_json()
    assert said["type"] == "scaling" and said["architectures"][0] == said["base"] == said["scaling"][
        "base"] == "base"
    assert said["scaling"]["held_out"] == "none" and set(said["scaling"]["rules"]) == set(rules)


def test_settings_of_the_base_are_the_space_language_s(tmp_path):
    rows = read(tmp_path, f"type: ablation\n{EDGE}changes: [adapt: nothing]\n", "base.width=64",
                "seeds=2").architectures
    assert {one["width"] for one in answers(rows).values()} == {64}


@pytest.mark.parametrize(
    ("text", "said"),
    [(f"type: ablation\n{EDGE}changes: [shar: none]\n",
      ("s.yaml:6:11: shar: " "none: unknown key " "`shar`", "did you mean `share`")),
     (f"type: ablation\n{EDGE}changes: [adapt: " "lorra]\n",
      ("s.yaml:6:11: " "adapt: lorra:", "lora")),
     (f"type: ablation\n{EDGE}changes: [share: none, " "share: none]\n",
      ("two rows are called " "`share: none`",)),
     (f"type: ablation\n{EDGE}", ("a study of type " "ablation needs the " "key " "`changes`",)),
     ("type: ablation\nbase:\n  width: 32\n  encodr: {depth: 1}\nchanges: " "[width: 48]\n",
      ("s.yaml:7:3: unknown key `encodr`", "encoder")),
     (f"type: ablation\n{EDGE}changes: share\n", ("s.yaml:6:10: changes are a " "list",)),
     (f"type: ablation\n{EDGE}changes: [width: 32 | 64]\n",
      ("s.yaml:6:11: " "width: 32 | 64: " "it leaves width open",)),
     ("type: ablation\nchanges: " "[adapt: nothing]\n", ("`base` is missing",)),
     (f"type: ablation\n{EDGE}changes: " "[encoder.heads: 5]\n",
      ("s.yaml:6:11: " "encoder.heads: 5: " "share.decoder.self:", "differ in shape")),
     (f"type: grid\n{EDGE}changes: [adapt: nothing]\n",
      ("s.yaml:6:1: " "`changes` does not " "belong", "`type: ablation`")),
     ("space: small/plain\nrules: {deeper: 2}\n",
      ("s.yaml:5:1: `rules` does " "not belong", "`type: scaling`")),
     ("type: grid\narchitectures: " "[small/plain]\ntrials: 4\n",
      ("s.yaml:6:1: " "`trials` " "belongs to a search", "set `seeds`")),
     ("type: grid\narchitectures: " "[small/plain]\nrungs: " "{first: 0.1}\n",
      ("`rungs` belongs to a search",)),
     ("type: grid\narchitectures: [small/plian]\n",
      ("s.yaml:5:17: " "plian: small/plian: " "no such file", "small/plain")),
     ("type: grid\narchitectures: " "[{name: a}]\n", ("s.yaml:5:17: architectures: expected a " "file",)),
     ("type: grid\narchitectures: [{name: " "a, " "set: {width: 3}}]\n",
      ("`base` is missing",)),
     (f"type: scaling\n{PARTIAL}rules: {{deeper: {{}}}}\n",
      ("s.yaml:6:17: " "`deeper` is a " "mapping",)),
     (f"type: scaling\n{PARTIAL}rules: {{taller: " f"2 | 3}}\n",
      ("s.yaml:6:17: " "`taller` does " "not say which keys grow",)),
     (f"type: scaling\n{PARTIAL}rules: {{deeper: 2 |}}\n", ("s.yaml:6:17:",)),
     (f"type: scaling\n{PARTIAL}rules: {{a: {{encoder.depth: 2 | 3, width: 32 " f"| 48 | 64}}}}\n",
      ("s.yaml:6:12: `encoder.depth` has other than 3 " "values",)),
     (f"type: scaling\n{PARTIAL}rules: {{ffn: {{width: 0.1..0.9}}}}\n", ("continuous range",)),
     (f"type: scaling\n{PARTIAL}rules: {{wider: " f"1..1000000}}\n", ("1,000,000 values",)),
     (f"type: scaling\n{PARTIAL}rules: {{wider: " f"64}}\nheld_out: smallest\n",
      ("expected one of " "`largest` or " "`none`",))])
def test_what_is_wrong_is_said_at_its_place(tmp_path, text, said):
    found = problems(tmp_path, text)
    assert all(words in found for words in said), found
