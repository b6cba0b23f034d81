"""Round trips between Python forms, canonical text and configurations."""

import itertools
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scalesearch.spaces import ConfigError, Space
from scalesearch.spaces.python_api import Computed, OneOf, Range, Variants, When
from scalesearch.spaces.schema.yaml_writer import config_to_yaml, format_scalar
from scalesearch.spaces.syntax.diagnostics import SourceText
from scalesearch.spaces.syntax.yaml_reader import parse_yaml
from tests.errors import refuses
from tests.spaces.small import SMALL, forms, small

QUICK = settings(max_examples=60)


def build(form):
    try:
        return Space.from_python(form, SMALL)
    except ConfigError as errors:  # unfitting schedules and unsatisfiable constraints
        assume(not all("fit" in problem.message or "no candidate" in problem.message
                       for problem in errors.problems))
        raise


@given(forms())
@QUICK
def test_space_round_trips_through_its_canonical_text(form):
    space = build(form)
    text = space.to_yaml()
    copy = small(text)
    assert copy == space
    assert copy.hash == space.hash
    assert copy.parameters() == space.parameters()
    assert copy.to_yaml() == text


@given(forms(), st.integers(0, 10**6))
@QUICK
def test_round_trip_keeps_samples(form, seed):
    space = build(form)
    config = space.sample(random.Random(seed))
    assert small(space.to_yaml()).sample(random.Random(seed)) == config


@given(forms(), st.integers(0, 10**6))
@QUICK
def test_configuration_is_replayed_from_params_and_from_values(form, seed):
    space = build(form)
    config = space.sample(random.Random(seed))
    assert space.resolve(space.replay_values(config)) == config
    assert space.resolve(space.replay_values(dict(config))) == config


@pytest.mark.full
@given(forms(continuous=False))
@QUICK
def test_size_equals_enumeration(form):
    space = build(form)
    size = space.n_configurations()
    assume(size <= 1500)
    configs = [tuple(config.params.items()) for config in space.enumerate()]
    assert len(configs) == size
    assert len(set(configs)) == size


@pytest.mark.full
@given(forms(continuous=False), st.integers(0, 10**6))
@QUICK
def test_samples_are_among_the_enumerated(form, seed):
    space = build(form)
    assume(space.n_configurations() <= 500)
    assert space.sample(random.Random(seed)) in list(space.enumerate())


@given(forms(), st.integers(0, 10**6))
@QUICK
def test_architecture_file_has_no_parameters_and_the_same_configuration(form, seed):
    config = build(form).sample(random.Random(seed))
    assume(not config.infeasible_values)
    fixed = small(config_to_yaml(config, "fixed", SMALL))
    assert fixed.parameters() == []
    assert fixed.n_configurations() == 1
    assert fixed.sample(random.Random(0)) == config


@given(forms())
@QUICK
def test_parameter_names_are_unique(form):
    space = build(form)
    dimensions = space.parameters()
    assert len(dict(dimensions)) == len(dimensions)
    params = {}

    def suggest(name, parameter):
        assert name not in params, "requested twice"
        params[name] = parameter
        return parameter.sample(random.Random(1))

    config = space.resolve(suggest)
    assert params.items() <= dict(dimensions).items()
    assert list(config.params) == list(params)


def test_enumeration_and_keys_have_a_fixed_order():
    space = small("width: 2 | 4\nencoder:\n  depth: 1..3\n  ffn: relu | none\n")
    first = [dict(config) for config in space.enumerate()]
    assert first == [dict(config) for config in space.enumerate()]
    assert [config["width"] for config in first] == [2] * 6 + [4] * 6
    keys = list(first[0])
    assert keys[:4] == ["width", "norm", "rate", "light"]
    assert keys.index("encoder.ffn") + 1 == keys.index("encoder.ffn.dropout")
    values = itertools.chain.from_iterable(map(str, config.values()) for config in first)
    assert len(set(values)) > 3


def test_python_forms_equal_their_yaml():
    space = Space.from_python(
        {"space": "forms: a test", "width": Range(256, 512, step=64), "norm": OneOf("post", "pre"),
         "rate": OneOf("off", Range(0.05, 0.5, log=True)), "light": True, "on": ["query", "value"],
         "encoder": {"depth": When("width > 256", OneOf(2, 3), 1),
                     "heads": Computed("2 * encoder.depth"),
                     "ffn": Variants(relu={"hidden": "= 4 * width"}, none={})},
         "share": {"encoder.ffn": "own | cycle(1..2)"}, "where": ["encoder.depth <= 3"],
         "cost": {"protocol": {"name": "decode", "source": 30},
                  "budgets": {"edge": "params.total <= 10M"}}}, SMALL)
    text = """
        space: 'forms: a test'
        width: 256..512 step 64
        norm: post | pre
        rate: off | 0.05..0.5 log
        light: yes
        on: [query, value]
        encoder:
          depth: 2 | 3 if width > 256 else 1
          heads: = 2 * depth
          ffn: { one of: { relu: {}, none: {} } }
        share.encoder.ffn: own | cycle(1..2)
        where: [encoder.depth <= 3]
        cost: { protocol: { name: decode, source: 30 }, budgets: { edge: params.total <= 10M } }
    """
    assert space == small(text)
    assert space.name == "forms: a test"


def test_hash_does_not_depend_on_notation():
    short = small("space: a\nwidth: 4\nencoder.heads: = depth\nwhere: [width > 3, norm == pre]\n")
    long = small("width: 4\nencoder: { heads: '= encoder.depth', depth: 6 }\nwhere:\n - norm == "
                 "pre\n - width > 3\n")
    assert short.hash == long.hash
    assert short.hash != small(
        "width: 5\nencoder.heads: = depth\nwhere: [width > 3, norm == pre]\n").hash


def test_aliased_nodes_are_separate_parameters():
    space = small(
        "width: 8\nencoder:\n  heads: &heads 2 | 4\n  ffn: &ffn { relu: { hidden: = heads | 3 } }\n"
        "decoder:\n  heads: *heads\n  ffn: *ffn\n"
    )
    names = [name for name, _ in space.parameters()]
    assert names == ["encoder.heads", "encoder.ffn.relu.hidden", "decoder.heads",
                     "decoder.ffn.relu.hidden"]
    pick = {"encoder.heads": 2, "decoder.heads": 4}
    config = space.resolve(
        lambda name, parameter: pick.get(name,
                                         "= encoder.heads" if "enc" in name else "= decoder.heads"))
    assert (config["encoder.ffn.hidden"], config["decoder.ffn.hidden"]) == (2, 4)


@given(st.text(max_size=30))
def test_any_text_round_trips_through_yaml(text):
    table, _ = parse_yaml(SourceText("t", f"key: {format_scalar(text)}\n"))
    assert table.get("key").text == text


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_names_and_labels_round_trip(text):
    space = Space.from_python({"space": text, "notes": text, "label": text, "width": 4}, SMALL)
    assert (space.name, space.notes, space.sample(random.Random(0))["label"]) == (text, text, text)
    assert small(space.to_yaml()) == space


def test_unsupported_python_objects_are_rejected():
    with refuses("not-serializable"):
        Space.from_python({"width": {1, 2}}, SMALL)


def test_explicit_defaults_do_not_change_the_hash():
    plain = Space.parse("width: 64\nencoder: { depth: 2..6 }\n")
    assert plain.hash == Space.parse("width: 64\nnorm: pre\nmatrices: { ffn: dense }\nencoder: { "
                                     "depth: 2..6 }\n").hash
    others = ("width: 64\nnorm: post\nencoder: { depth: 2..6 }\n", "width: 64\n", "width: 64..65\n")
    assert len({plain.hash, *(Space.parse(text).hash for text in others)}) == 4
