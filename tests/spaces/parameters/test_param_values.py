"""Resolution of configurations: conditions, order, replay and infeasible values."""

import random
from collections import Counter

import pytest

from scalesearch.errors import UserError
from scalesearch.spaces import (
    Choice,
    FloatRange,
    IntRange,
    LayerReference,
    ScheduleCall,
    parse_schedule,
)
from scalesearch.spaces.syntax.parser import parse_expression
from tests.errors import refuses
from tests.spaces.small import small


def resolve_config(text, **choices):
    return small(text).resolve(
        lambda name, parameter: choices.get(name.replace(".", "_"), parameter.values()[0]))


def test_configuration_includes_constants_and_defaults():
    config = resolve_config("width: 8\n")
    assert dict(config) == {
        "width": 8, "norm": "pre", "rate": "off", "light": False, "on": ["query"], "sizes": [1],
        "label": "plain",
        "encoder.depth": 6, "encoder.heads": 4, "encoder.ffn": "relu", "encoder.ffn.dropout": 0.1,
        "encoder.ffn.hidden": 32, "decoder.depth": 6, "decoder.heads": 4, "decoder.ffn": "relu",
        "decoder.ffn.dropout": 0.1, "decoder.ffn.hidden": 32,
        "share.encoder.ffn": "own", "share.decoder.ffn": "own",
    }
    assert not config.infeasible_values
    assert not config.params


def test_parameter_is_requested_only_if_its_condition_holds():
    text = "width: 2 | 4\nencoder.depth: 1 | 2 | 3 if width > 2 else 6\n"
    assert dict(resolve_config(text, width=2).params) == {"width": 2}
    assert dict(resolve_config(text, width=4).params) == {"width": 4, "encoder.depth": 1}


def test_condition_on_a_missing_key_is_false():
    text = ("width: 4\nencoder.ffn: { one of: { relu: { hidden: 64 }, none: {} } }\n"
            "decoder.depth: 1 if encoder.ffn.hidden > 32 else 2\n")
    assert resolve_config(text, encoder_ffn="relu")["decoder.depth"] == 1
    assert resolve_config(text, encoder_ffn="none")["decoder.depth"] == 2


def test_both_branches_of_a_condition_have_parameters():
    space = small("width: 2 | 4\nencoder.depth: 1 | 2 if width > 2 else 3..5\n")
    assert space.parameters()[1:] == [("encoder.depth", Choice((1, 2))),
                                      ("encoder.depth (else)", IntRange(3, 5))]
    assert space.n_configurations() == 5


def test_range_alternatives_are_two_parameters():
    space = small("width: 4\nrate: off | 0.05..0.5 log\n")
    assert space.parameters() == [
        ("rate", Choice(("off", "0.05..0.5 log"))),
        ("rate (0.05..0.5 log)", FloatRange(0.05, 0.5, None, True)),
    ]
    assert space.resolve(lambda name, parameter: "off" if "(" not in name else 0.1)["rate"] == "off"
    assert space.resolve(lambda name, parameter: 0.1 if "(" in name
                          else "0.05..0.5 log")["rate"] == 0.1
    assert space.n_configurations() is None


def test_arguments_of_calls_are_parameters():
    space = small("width: 4\nshare.encoder.ffn: own | runs(1..2, 4..5)\n")
    names = [name for name, _ in space.parameters()]
    base = "share.encoder.ffn (runs(1..2, 4..5))"
    assert names == ["share.encoder.ffn", f"{base}[1]", f"{base}[2]"]
    counts = Counter(config["share.encoder.ffn"] for config in space.enumerate())
    assert counts == {"own": 1, "runs(1, 4)": 1, "runs(1, 5)": 1, "runs(2, 4)": 1, "runs(2, 5)": 1}


def test_values_are_computed_in_order_of_dependency():
    text = "width: = 2 * encoder.depth\nencoder.depth: = decoder.depth + 1\ndecoder.depth: 1 | 2\n"
    assert resolve_config(text, decoder_depth=2)["width"] == 6


@pytest.mark.parametrize("alternatives",
                         ["= width | = 2 * width | 3", "= decoder.depth | = 2 * decoder.depth",
                          "= 2 * width | = width | 9 if width > 2 else 7 | = width"])
def test_configuration_is_replayed_from_its_values(alternatives):
    """If alternatives are computed, the alternative with that value is chosen."""
    space = small(f"width: 2 | 4\nencoder.depth: {alternatives}\ndecoder.depth: = width // 2\n")
    for config in space.enumerate():
        assert space.resolve(space.replay_values(dict(config))) == config


def test_names_refer_to_the_innermost_key():
    text = "width: 4\nencoder: { depth: 3, heads: = depth }\n"
    text += "decoder: { depth: 5, heads: = depth, ffn: { relu: { hidden: = heads } } }\n"
    config = resolve_config(text)
    assert (
        config["encoder.heads"], config["decoder.heads"], config["decoder.ffn.hidden"]) == (3, 5, 5)


def test_variant_can_be_computed_from_another():
    space = small("width: 4\nencoder.ffn: relu | pg | none\ndecoder.ffn: = encoder.ffn\n")
    assert [(s["encoder.ffn"], s["decoder.ffn"]) for s in space.enumerate()] == [
        (k, k) for k in ("relu", "pg", "none")]
    assert "decoder.ffn.ratio" in list(space.enumerate())[1]
    assert space.n_configurations() == 3


def test_optional_group_exists_only_if_set():
    assert "adapter.rank" not in resolve_config("width: 4\n")
    assert "adapter.rank" not in resolve_config("width: 4\nadapter: none\n")
    assert resolve_config("width: 4\nadapter: {}\n")["adapter.rank"] == 4


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [("width: 4\nencoder.heads: = width / 3\n", "encoder.heads", "not a whole number"),
     ("width: 4\nencoder.heads: = width - 4\n", "encoder.heads", "0 is out of bounds"),
     ("width: 4\nencoder.heads: = width // (width - 4)\n", "encoder.heads", "divides by zero"),
     ("width: 4\nencoder.ffn: none\ndecoder.heads: = encoder.ffn.hidden\n", "decoder.heads",
      "= encoder.ffn.hidden has no value"),
     ("width: 4\nencoder.depth: 4 | 5\nshare.encoder.ffn: cycle(5)\n", "share.encoder.ffn",
      "4 layers are not a multiple of 5"),
     ("width: 4\nencoder.depth: 4 | 2\nshare.encoder.ffn: [0, 1]\n", "share.encoder.ffn",
      "the list names 2 layers"),
     ("width: 4\ndecoder.depth: = 6\nshare.decoder.ffn: encoder.ffn[2*i]\n", "share.decoder.ffn",
      "layer 3 points to layer 6"),
     ("width: 4\ndecoder.depth: = 6\nshare.decoder.ffn: encoder.ffn[i - 1]\n",
      "share.decoder.ffn", "layer 0 points to layer -1"),
     ("width: 4\ndecoder.depth: = 6\nshare.decoder.ffn: encoder.ffn[i / 2]\n",
      "share.decoder.ffn", "layer 1 has no whole number")])
def test_infeasible_values_are_reported_and_resolution_continues(text, key, reason):
    config = resolve_config(text)
    assert [infeasible_key for infeasible_key, _ in config.infeasible_values] == [key]
    assert reason in config.infeasible_values[0][1]


def test_cause_of_a_missing_key_is_only_given_if_the_value_depends_on_it():
    text = "width: 4\nencoder.ffn: none\ndecoder.heads: = encoder.ffn.hidden if width > 4 else {}\n"
    assert resolve_config(text.format("width"))["decoder.heads"] == 4
    (_, reason), = resolve_config(text.format("width / 3")).infeasible_values
    assert "not a whole number" in reason and "exists only" not in reason


def test_illegal_values_are_rejected():
    space = small("width: 2 | 4\n")
    with refuses("illegal-value", 3, "2 | 4", place="width:"):
        space.resolve(lambda name, parameter: 3)
    with refuses("value-missing"):
        space.resolve(space.replay_values({"width": 3}))


def test_continuous_range_cannot_be_enumerated():
    with refuses("continuous-range", place="rate:"):
        list(small("width: 4\nrate: 0..1\n").enumerate())


def test_schedules_are_parsed_to_objects():
    config = resolve_config("width: 4\nshare.encoder.ffn: 3-3\n"
                            "share.decoder.ffn: encoder.ffn[(i+1)//2]\n")
    assert config["share.encoder.ffn"].form == ScheduleCall("load", (3, 3))
    reference = config["share.decoder.ffn"].form
    assert reference == LayerReference("encoder.ffn", parse_expression("(i + 1) // 2"))
    assert [reference.layer_index(layer) for layer in range(4)] == [0, 1, 1, 2]
    for text in ("own", "cycle(4)", "runs(1, 11)", "encoder.ffn[2*i + 1]", "[0, 0, 1]"):
        assert parse_schedule(text) == text
    assert parse_schedule("[0, 0, 1]").form == (0, 0, 1)
    with pytest.raises(ValueError, match="not a schedule"):
        parse_schedule("cycle(1..2)")


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        (IntRange(2, 8, 3), [2, 5, 8]),
        (FloatRange(0.1, 0.5, 0.1), [0.1, 0.2, 0.3, 0.4, 0.5]),
        (Choice(("a", 1, True)), ["a", 1, True]),
    ],
)
def test_parameters_coerce_and_sample_only_their_values(parameter, values):
    assert list(parameter.values()) == values
    assert parameter.count() == len(values)
    rng = random.Random(0)
    assert {str(parameter.sample(rng)) for _ in range(200)} == set(map(str, values))
    assert all(parameter.coerce(value) == value for value in values)
    for illegal in (7, float("inf"), float("nan")):
        with pytest.raises(UserError):
            parameter.coerce(illegal)
    assert len({parameter, parameter}) == 1


def test_coerce_ignores_rounding_errors():
    assert FloatRange(0.1, 0.5, 0.1).coerce(0.1 + 0.1 + 0.1) == 0.3


def test_log_ranges_are_sampled_log_uniformly():
    rng = random.Random(0)
    floats = [FloatRange(0.001, 1.0, None, True).sample(rng) for _ in range(4000)]
    assert 0.45 < sum(value < 0.0316 for value in floats) / 4000 < 0.55
    whole = [IntRange(1, 1000, 1, True).sample(rng) for _ in range(4000)]
    assert 1 in whole
    assert 0.40 < sum(value <= 31 for value in whole) / 4000 < 0.60
    assert all(1 <= value <= 1000 for value in whole)
