"""``--set``: the language again, in place of what the file says."""

import random

import pytest

from scalesearch.space import ConfigError
from tests.space.small import small

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
    return small(FILE).with_overrides({key.replace("__", "."): value for key, value in sets.items()})


def dimension(space, name):
    return str(dict(space.parameters()).get(name))


def test_a_value_is_replaced_by_anything_the_language_can_say():
    space = changed(width="64", encoder__depth="1 | 2 if light else 3", light="yes | no")
    assert dimension(space, "width") == "None"
    assert dimension(space, "encoder.depth") == "1 | 2"
    assert dimension(space, "light") == "yes | no"


def test_the_file_itself_is_left_as_it_was():
    space = small(FILE)
    text = space.to_yaml()
    space.with_overrides({"width": "64"})
    assert space.to_yaml() == text


def test_a_variant_is_chosen_and_keeps_what_belongs_to_it():
    space = changed(encoder__ffn="relu")
    assert dimension(space, "encoder.ffn") == "None"
    assert dimension(space, "encoder.ffn.relu.hidden") == "16 | 32"
    assert dimension(space, "decoder.ffn") == "relu | pg"
    assert space.sample(random.Random(0))["encoder.ffn.dropout"] == 0.3


def test_a_new_variant_takes_over_what_has_the_same_name():
    space = small("width: 4\nencoder.ffn: { relu: { hidden: 7 } }\n").with_overrides({"encoder.ffn": "none"})
    assert space.sample(random.Random(0))["encoder.ffn"] == "none"
    space = changed(encoder__ffn="relu | none")
    assert dimension(space, "encoder.ffn") == "relu | none"


def test_a_key_is_set_in_every_variant_that_has_it():
    space = changed(encoder__ffn__hidden="3 | 5", encoder__ffn__pg__ratio="9")
    assert dimension(space, "encoder.ffn.relu.hidden") == "3 | 5"
    assert dimension(space, "encoder.ffn.pg.ratio") == "None"
    assert dimension(space, "decoder.ffn.relu.hidden") == "16 | 32"


def test_a_kind_comes_before_its_sizes_whatever_the_order():
    for sets in ({"decoder.ffn": "pg", "decoder.ffn.ratio": "5"},
                 {"decoder.ffn.ratio": "5", "decoder.ffn": "pg"}):
        assert small("width: 4\n").with_overrides(sets).sample(random.Random(0))["decoder.ffn.ratio"] == 5


def test_a_kind_may_depend_on_a_condition_and_keep_its_neighbors():
    space = changed(encoder__ffn="relu if width > 4 else none")
    assert {(s["width"], s["encoder.ffn"], s["encoder.ffn.dropout"])
            for s in space.enumerate()} == {(4, "none", 0.3), (8, "relu", 0.3)}
    assert small(space.to_yaml()) == space


@pytest.mark.parametrize(
    "ffn", ["relu | pg if width > 4 else none", "{ one of: relu | pg if width > 4 else none }"])
def test_a_key_inside_a_kind_leaves_the_condition_that_offers_the_kind(ffn):
    plain = small(f"width: 4 | 8\nencoder.ffn: {ffn}\n")
    space = plain.with_overrides({"encoder.ffn.relu.hidden": "3 | 5", "encoder.ffn.ratio": "9"})
    assert {(s["width"], s["encoder.ffn"], s.get("encoder.ffn.hidden"), s.get("encoder.ffn.ratio"))
            for s in space.enumerate()} == {(4, "none", None, None), (8, "relu", 3, None),
                                            (8, "relu", 5, None), (8, "pg", None, 9)}
    assert small(space.to_yaml()) == space and space.hash != plain.hash == small(
        plain.to_yaml()).hash
    assert {s["encoder.ffn"] for s in space.with_overrides({"encoder.ffn": "relu"}).enumerate()} == {"relu"}


def test_a_kind_that_a_condition_does_not_offer_has_no_keys():
    with pytest.raises(ConfigError) as caught:
        small("width: 4 | 8\nencoder.ffn: { one of: relu if width > 4 else none, pg: { ratio: 2 } "
              "}\n")
    assert [problem.code for problem in caught.value.problems] == ["unused-key"]
    with pytest.raises(ConfigError) as caught:
        small("width: 4 | 8\nencoder.ffn: relu if width > 4 else none\n").with_overrides(
            {"encoder.ffn.pg.ratio": "2"})
    assert [problem.code for problem in caught.value.problems] == ["unknown-key"]


def test_calls_are_kinds_with_keys_too():
    space = small("width: 4\nencoder.ffn: relu(3 | 5) | none\n").with_overrides({"encoder.ffn.hidden": "7"})
    assert {(s["encoder.ffn"], s.get("encoder.ffn.hidden"))
            for s in space.enumerate()} == {("relu", 7), ("none", None)}


def test_a_mapping_is_given_in_braces():
    space = changed(encoder__ffn="{ pg: { ratio: 3 }, dropout: 0.5 }", adapter="{ rank: 2 }",
                    share="{ encoder.ffn: one }")
    sheet = space.sample(random.Random(0))
    assert (sheet["encoder.ffn.ratio"], sheet["encoder.ffn.dropout"], sheet["adapter.rank"]) == (
        3, 0.5, 2)
    assert sheet["share.encoder.ffn"] == "one"


def test_lists_calls_and_references_need_no_quotes():
    space = changed(on="[query, value]", share__encoder__ffn="own | [0, 0]",
                    share__decoder__ffn="encoder.ffn[i]")
    sheet = space.sample(random.Random(1))
    assert sheet["on"] == ["query", "value"]
    assert sheet["share.decoder.ffn"] == "encoder.ffn[i]"


@pytest.mark.parametrize(
    ("sets", "message"),
    [({"encoder.dept": "4"},
      "--set: unknown key `encoder.dept`\n  --set "
      "encoder.dept=4\n        ^^^^^^^^^^^^\n  = help: did you mean " "`encoder.depth`?"),
     ({"encoder.depth": "foo"},
      "--set: expected a whole number >= 1, found the "
      "word `foo`\n  --set encoder.depth=foo\n                      ^^^"),
     ({"encoder.ffn": "relu | pgg"},
      "--set: `pgg` is not one of `relu`, `pg` or `none`\n  --set "
      "encoder.ffn=relu | pgg\n                           ^^^\n  = help: did " "you mean `pg`?"),
     ({"decoder.ffn": "none", "decoder.ffn.ratio": "4"},
      "--set: no variant of `decoder.ffn` that the space "
      "offers has `ratio`\n  --set decoder.ffn.ratio=4\n        "
      "^^^^^^^^^^^^^^^^^\n  = help: choose `pg` first, for example with " "`--set decoder.ffn=pg`"),
     ({"encoder": "4"},
      "--set: `encoder` is a group of keys, not a "
      "value\n  --set encoder=4\n                ^\n  = help: its keys are "
      "`depth`, `heads` or `ffn`"),
     ({"width": "8..4"},
      "--set: this range is empty: its start "
      "is above its end\n  --set width=8..4\n              ^^^^\n  " "= help: " "write `4..8`"),
     ({"adapter": "{ rank: 2"},
      "--set: not YAML: expected ',' or '}', but got "
      "'<stream end>' (while parsing a flow mapping)\n  { rank: 2\n           "
      "^\n  = help: close the bracket; inside { } and [ ], quote a value that "
      "contains a comma")])
def test_errors_point_into_the_option(sets, message):
    with pytest.raises(ConfigError) as caught:
        small(FILE).with_overrides(sets)
    assert str(caught.value) == message


def test_all_errors_are_shown_together():
    with pytest.raises(ConfigError) as caught:
        small(FILE).with_overrides({"width": "x", "encoder.depth": "0", "norms": "pre",
                         "decoder.ffn": "geglu"})
    assert len(caught.value.problems) == 4
