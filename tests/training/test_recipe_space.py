"""Recipe spaces: parameters, their defaults, and recipes of params."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.config.reader import ConfigReader
from scalesearch.errors import UserError
from scalesearch.spaces.syntax.diagnostics import SourceText
from scalesearch.spaces.syntax.yaml_reader import parse_yaml
from scalesearch.training.recipe import LearningRate, Recipe
from scalesearch.training.recipe_space import (
    build_recipe_space,
    default_value,
    extract_parameters,
    get_dotted,
    override_keys,
)
from tests.errors import refuses

PARAMETERS = {"lr.base": "1e-3..8e-3 log", "dropout": "0 | 0.1 | 0.3",
              "schedule": "linear | cosine", "max_tokens": "256..1024 step 256",
              "patience": "none | 4", "beta2": "0.9..0.99 if schedule == cosine else 0.98",
              "clip_norm": "= 10 * dropout"}


def space_of(text):
    """The space of a recipe file, and the reader that read it."""
    reader = ConfigReader(Recipe)
    table, problems = parse_yaml(SourceText("r.yaml", text))
    reader.problems += problems
    closed, leaves = extract_parameters(table, reader)
    base = reader.read(closed)
    return (build_recipe_space(base, leaves) if base is not None and not reader.problems
            else None), reader


def sampled_params(space, seed):
    rng = random.Random(seed)
    return space.resolve(lambda name, parameter: parameter.sample(rng)).params


def test_recipe_without_parameters_is_unchanged():
    space, _ = space_of("steps: 7\ndropout: 0.2\n")
    assert space.parameter_nodes == () and space.parameters() == [] and space.recipe_values(
        {}) == {} and space.default_params({}) == {}
    assert space.base_recipe == Recipe(steps=7, dropout=0.2)


def test_defaults_are_first_option_or_middle_of_range():
    space, _ = space_of("preset: quick\n"
                        + "\n".join(f"{key}: {text}" for key, text in PARAMETERS.items()))
    base = space.base_recipe
    assert (
        base.dropout, base.schedule, base.patience, base.cpu_minutes) == (0.0, "linear", None, 1.0)
    assert base.lr.base == pytest.approx((1e-3 * 8e-3) ** 0.5,
                                         rel=1e-2) and base.max_tokens in (512, 768)
    assert (base.beta2, base.clip_norm) == (0.98, 0.0)  # computed from defaults
    assert list(space.distribution_texts) == list(PARAMETERS)
    assert space.recipe_values(space.default_params({})) == {
        key: get_dotted(base.model_dump(), key) for key in PARAMETERS}


@given(st.sets(st.sampled_from(list(PARAMETERS)), min_size=1), st.integers(0, 2**20))
@settings(max_examples=30)
def test_params_and_recipe_round_trip(keys, seed):
    lines = {"steps": 9, "dropout": 0.1, **{key: PARAMETERS[key] for key in keys}}
    space, _ = space_of("\n".join(f"{key}: {text}" for key, text in lines.items()))
    params = sampled_params(space, seed)
    values = space.recipe_values(params)
    recipe = space.build_recipe(values)
    assert set(values) == keys
    recipe_json = recipe.model_dump()
    assert all(get_dotted(recipe_json, key) == value for key, value in values.items())
    assert recipe_json == override_keys(space.base_recipe.model_dump(), values)
    again = space.params_of_recipe(values)
    assert space.recipe_values(again) == values == space.recipe_values(
        space.params_of_recipe(recipe_json))


def test_group_parameters_in_short_and_long_form():
    space, _ = space_of("steps: 9\nlr: 1e-3 | 2e-3")
    assert space.distribution_texts == {
        "lr.base": "0.001 | 0.002"} and space.base_recipe.lr == LearningRate(base=1e-3)
    space, _ = space_of("steps: 9\nlr: {base: 1e-3..4e-3 log, rule: none | mup, reference_sizes: "
                        "{width: 128}}")
    recipe_json = space.build_recipe({"lr.base": 2e-3, "lr.rule": "mup"})
    assert (recipe_json.lr.base, recipe_json.lr.rule,
            recipe_json.lr.reference_sizes.width) == (2e-3, "mup", 128)
    space, _ = space_of("steps: 9\nlr: {base: 1e-3, rule: none | mup}")
    # mup needs the width
    assert [problem.position.line + 1 for problem in space.find_problems()] == [2]


def test_recipe_outside_the_space_has_no_params():
    space, _ = space_of("steps: 9\nlr: 1e-3..8e-3 log\ndropout: 0 | 0.1")
    assert space.params_of_recipe(Recipe(steps=9, lr=LearningRate(base=2e-3),
                                         dropout=0.1).model_dump()) is not None
    assert space.params_of_recipe(Recipe(steps=9, lr=LearningRate(base=2e-2),
                                         dropout=0.1).model_dump()) is None
    assert space.params_of_recipe({}) is None


def test_overrides_of_defaults_are_validated():
    space, _ = space_of("steps: 9\nlr: 1e-3..8e-3 log\ndropout: 0 | 0.1")
    assert space.recipe_values(
        space.default_params({"lr": "2e-3"})) == {"lr.base": 2e-3, "dropout": 0.0}
    with refuses("illegal-value", "0.2", "0.0 | 0.1"):
        space.default_params({"dropout": "0.2"})
    with refuses("unknown-key", "beta1", "lr.base, dropout"):
        space.default_params({"beta1": "0.9"})


@pytest.mark.parametrize(("line", "code", "position"),
                         [("steps: 5 | 50", "not-searchable", (2, 8)),
                          ("device: cpu | cuda", "not-searchable", (2, 9)),
                          ("lr: 1e-3..", None, (2, 11)), ("dropout: 0 | 2", "bad-value", (2, 14)),
                          ("schedule: cosine | cosin", None, (2, 20)),
                          ("warmup: = 2 * beta3", "unknown-name", (2, 15)),
                          ("lr: {base: 1e-3 | x}", "bad-value", (2, 19)),
                          ("beta1: = beta2\nbeta2: = beta1", "depends-on-itself", None)])
def test_invalid_parameter_is_reported_at_its_position(line, code, position):
    _, reader = space_of(f"tokens: 99\n{line}\n")
    problem, *others = reader.problems
    assert not others and problem.code == (code or problem.code)
    assert position is None or (problem.position.line + 1, problem.position.column + 1) == position


def test_incompatible_values_are_refused():
    space, _ = space_of("steps: 9\naverage: last | best\naverage_count: 1..5")
    assert list(space.find_problems()) == []
    space, _ = space_of("steps: 9\nlr: 2e-3 | 1e-3\nwarmup: = 1 / (lr.base - 1e-3)")
    assert {problem.position.line + 1 for problem in space.find_problems()} == {2}
    assert space.recipe_values({"recipe.lr.base": 2e-3}) == {"lr.base": 2e-3, "warmup": 1000}
    with pytest.raises(UserError):
        space.recipe_values({"recipe.lr.base": 1e-3})


@given(st.dictionaries(st.sampled_from(["a", "b.c", "b.d", "e.f.g"]), st.integers(), min_size=1))
def test_override_keys_sets_dotted_keys(values):
    recipe_json = override_keys({"a": 0, "b": {"c": 1, "x": 2}, "z": 3}, values)
    assert all(get_dotted(recipe_json, key) == value for key, value in values.items())
    assert recipe_json["z"] == 3 and recipe_json["b"]["x"] == 2


def test_default_of_a_range_is_in_the_range():
    for line in ("lr: 0.1..0.9 step 0.1", "accumulate: 1..100 log", "lr: 1e-4..1 log",
                 "dropout: 0..0.5"):
        space, _ = space_of(f"steps: 5\n{line}")
        ((_, parameter),) = space.parameters()
        assert parameter.coerce(default_value(parameter)) == default_value(parameter)
