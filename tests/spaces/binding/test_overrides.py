"""``--set``: overrides of a space file, written in the same language."""

import random

import pytest

from scalesearch.cli.options import load_space
from scalesearch.spaces import ConfigError, Space
from scalesearch.whatif.free_sizes import config_keys
from tests.errors import refuses
from tests.spaces.small import small

FILE = """
width: 4 | 8
encoder:
  depth: 2..6
  ffn: &ffn
    one of:
      relu: { hidden: 16 | 32 }
      pg: { ratio: 1 | 2 }
    dropout: 0.3
decoder.ffn: *ffn
"""


def changed(**sets):
    overrides = {key.replace("__", "."): value for key, value in sets.items()}
    return small(FILE).with_overrides(overrides)


def dimension(space, name):
    return str(dict(space.parameters()).get(name))


def test_override_accepts_any_expression():
    space = changed(width="64", encoder__depth="1 | 2 if light else 3", light="yes | no")
    assert dimension(space, "width") == "None"
    assert dimension(space, "encoder.depth") == "1 | 2"
    assert dimension(space, "light") == "yes | no"


def test_overrides_do_not_change_the_space():
    space = small(FILE)
    text = space.to_yaml()
    space.with_overrides({"width": "64"})
    assert space.to_yaml() == text


def test_override_of_a_variant_keeps_its_keys():
    space = changed(encoder__ffn="relu")
    assert dimension(space, "encoder.ffn") == "None"
    assert dimension(space, "encoder.ffn.relu.hidden") == "16 | 32"
    assert dimension(space, "decoder.ffn") == "relu | pg"
    assert space.sample(random.Random(0))["encoder.ffn.dropout"] == 0.3


def test_override_can_add_a_variant():
    space = small("width: 4\nencoder.ffn: { relu: { hidden: 7 } }\n").with_overrides(
        {"encoder.ffn": "none"})
    assert space.sample(random.Random(0))["encoder.ffn"] == "none"
    space = changed(encoder__ffn="relu | none")
    assert dimension(space, "encoder.ffn") == "relu | none"


def test_override_sets_a_key_in_all_variants_that_have_it():
    space = changed(encoder__ffn__hidden="3 | 5", encoder__ffn__pg__ratio="9")
    assert dimension(space, "encoder.ffn.relu.hidden") == "3 | 5"
    assert dimension(space, "encoder.ffn.pg.ratio") == "None"
    assert dimension(space, "decoder.ffn.relu.hidden") == "16 | 32"


def test_variant_is_overridden_before_its_keys_in_any_order():
    for sets in ({"decoder.ffn": "pg", "decoder.ffn.ratio": "5"},
                 {"decoder.ffn.ratio": "5", "decoder.ffn": "pg"}):
        space = small("width: 4\n").with_overrides(sets)
        assert space.sample(random.Random(0))["decoder.ffn.ratio"] == 5


def test_override_with_a_conditional_variant_keeps_group_keys():
    space = changed(encoder__ffn="relu if width > 4 else none")
    assert {(s["width"], s["encoder.ffn"], s["encoder.ffn.dropout"])
            for s in space.enumerate()} == {(4, "none", 0.3), (8, "relu", 0.3)}
    assert small(space.to_yaml()) == space


@pytest.mark.parametrize(
    "ffn", ["relu | pg if width > 4 else none", "{ one of: relu | pg if width > 4 else none }"])
def test_override_of_a_variant_key_keeps_its_condition(ffn):
    plain = small(f"width: 4 | 8\nencoder.ffn: {ffn}\n")
    space = plain.with_overrides({"encoder.ffn.relu.hidden": "3 | 5", "encoder.ffn.ratio": "9"})
    assert {(s["width"], s["encoder.ffn"], s.get("encoder.ffn.hidden"), s.get("encoder.ffn.ratio"))
            for s in space.enumerate()} == {(4, "none", None, None), (8, "relu", 3, None),
                                            (8, "relu", 5, None), (8, "pg", None, 9)}
    assert small(space.to_yaml()) == space and space.hash != plain.hash == small(
        plain.to_yaml()).hash
    only_relu = space.with_overrides({"encoder.ffn": "relu"})
    assert {s["encoder.ffn"] for s in only_relu.enumerate()} == {"relu"}


def test_keys_of_variants_outside_the_condition_are_rejected():
    with pytest.raises(ConfigError) as caught:
        small("width: 4 | 8\nencoder.ffn: { one of: relu if width > 4 else none, pg: { ratio: 2 } "
              "}\n")
    assert [problem.code for problem in caught.value.problems] == ["unused-key"]
    with pytest.raises(ConfigError) as caught:
        small("width: 4 | 8\nencoder.ffn: relu if width > 4 else none\n").with_overrides(
            {"encoder.ffn.pg.ratio": "2"})
    assert [problem.code for problem in caught.value.problems] == ["unknown-key"]


@pytest.mark.parametrize(("model", "key"), [
    ("decoder-only", "`decoder.depth`"), ("encoder-only", "`encoder.depth`"),
    ("encoder-decoder", "`encoder.depth` or `decoder.depth`"),
    ("decoder-only | encoder-decoder", "`encoder.depth` or `decoder.depth`")])
def test_suggested_keys_are_in_the_stacks_of_the_model(model: str, key: str) -> None:
    space = Space.parse(f"model: {model}\nwidth: 8\n")
    with pytest.raises(ConfigError) as caught:
        space.with_overrides({"num_hidden_layers": "3"})
    [problem] = caught.value.problems
    assert problem.code == "unknown-key"
    assert problem.help == f"the name is {key} here"
    with refuses("unknown-key", key.split()[0]):
        config_keys(space, ["num_hidden_layers"])


def test_override_of_a_key_written_as_call_argument():
    space = small("width: 4\nencoder.ffn: relu(3 | 5) | none\n").with_overrides(
        {"encoder.ffn.hidden": "7"})
    assert {(s["encoder.ffn"], s.get("encoder.ffn.hidden"))
            for s in space.enumerate()} == {("relu", 7), ("none", None)}


def test_call_keeps_the_keys_of_the_group():
    space = changed(encoder__ffn="relu(7) | none")
    config = next(config for config in space.enumerate() if config["encoder.ffn"] == "relu")
    assert (config["encoder.ffn.hidden"], config["encoder.ffn.dropout"]) == (7, 0.3)


def test_invalid_override_of_a_group_is_reported_next_to_overrides_of_its_keys():
    with pytest.raises(ConfigError) as caught:
        changed(encoder="4", encoder__depth="2")
    assert [problem.code for problem in caught.value.problems] == ["group-not-value"]


def test_override_accepts_mappings_in_braces():
    space = changed(encoder__ffn="{ pg: { ratio: 3 }, dropout: 0.5 }", adapter="{ rank: 2 }",
                    share="{ encoder.ffn: one }")
    config = space.sample(random.Random(0))
    assert (config["encoder.ffn.ratio"], config["encoder.ffn.dropout"], config["adapter.rank"]) == (
        3, 0.5, 2)
    assert config["share.encoder.ffn"] == "one"


def test_override_accepts_lists_calls_and_references_without_quotes():
    space = changed(on="[query, value]", share__encoder__ffn="own | [0, 0]",
                    share__decoder__ffn="encoder.ffn[i]")
    config = space.sample(random.Random(1))
    assert config["on"] == ["query", "value"]
    assert config["share.decoder.ffn"] == "encoder.ffn[i]"


@pytest.mark.parametrize(
    ("sets", "message"),
    [({"encoder.dept": "4"},
      "--set: unknown key `encoder.dept`\n  --set "
      "encoder.dept=4\n        ^^^^^^^^^^^^\n  = help: did you mean `encoder.depth`?"),
     ({"encoder.depth": "foo"},
      "--set: expected a whole number >= 1, found the "
      "word `foo`\n  --set encoder.depth=foo\n                      ^^^"),
     ({"encoder.ffn": "relu | pgg"},
      "--set: `pgg` is not one of `relu`, `pg` or `none`\n  --set "
      "encoder.ffn=relu | pgg\n                           ^^^\n  = help: did you mean `pg`?"),
     ({"decoder.ffn": "none", "decoder.ffn.ratio": "4"},
      "--set: no variant of `decoder.ffn` that the space "
      "offers has `ratio`\n  --set decoder.ffn.ratio=4\n        "
      "^^^^^^^^^^^^^^^^^\n  = help: choose `pg` first, for example with `--set decoder.ffn=pg`"),
     ({"encoder": "4"},
      "--set: `encoder` is a group of keys, not a "
      "value\n  --set encoder=4\n                ^\n  = help: its keys are "
      "`depth`, `heads` or `ffn`"),
     ({"width": "8..4"},
      "--set: this range is empty: its start "
      "is above its end\n  --set width=8..4\n              ^^^^\n  = help: write `4..8`"),
     ({"adapter": "{ rank: 2"},
      "--set: not YAML: expected ',' or '}', but got "
      "'<stream end>' (while parsing a flow mapping)\n  { rank: 2\n           "
      "^\n  = help: close the bracket; inside { } and [ ], quote a value that "
      "contains a comma")])
def test_errors_show_the_position_in_the_option(sets, message):
    with pytest.raises(ConfigError) as caught:
        small(FILE).with_overrides(sets)
    assert str(caught.value) == message


@pytest.mark.parametrize("name, suggestion", [
    ("depth", "encoder.depth"), ("heads", "encoder.heads"), ("ffn", "encoder.ffn"),
    ("tie", "embedding.tie"), ("wdith", "width"), ("decodr.heads", "decoder.heads")])
def test_last_name_of_a_key_suggests_the_key(name, suggestion):
    with pytest.raises(ConfigError) as caught:
        load_space("transformer").with_overrides({name: "2"})
    assert f"did you mean `{suggestion}`?" in str(caught.value)


def test_all_errors_of_overrides_are_reported():
    with pytest.raises(ConfigError) as caught:
        small(FILE).with_overrides({"width": "x", "encoder.depth": "0", "norms": "pre",
                         "decoder.ffn": "geglu"})
    assert len(caught.value.problems) == 4
