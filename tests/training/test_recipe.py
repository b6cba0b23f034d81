"""Recipes: reading, writing and validation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.config.model import schema_of
from scalesearch.spaces import ConfigError
from scalesearch.training.input_files import load_recipe
from scalesearch.training.recipe import PRESETS, LearningRate, Recipe
from tests.errors import refuses


@given(steps=st.integers(1, 10**6), lr=st.floats(0, 1), warmup=st.floats(0, 1e5),
       smoothing=st.floats(0, 0.99),
       schedule=st.sampled_from(schema_of(Recipe).fields["schedule"].words),
       patience=st.none() | st.integers(1, 9), bleu=st.booleans())
def test_recipe_round_trip(steps, lr, warmup, smoothing, schedule, patience, bleu) -> None:
    recipe = Recipe(steps=steps, lr=lr, warmup=warmup, label_smoothing=smoothing, schedule=schedule,
                  patience=patience, validate_metric=bleu)
    assert Recipe.from_mapping(recipe.model_dump()) == recipe


def test_text_is_converted_to_the_type_of_the_field() -> None:
    result = Recipe.from_mapping({"steps": "2e3", "lr": "2e-3", "validate_metric": "yes",
                                 "patience": "none", "compile": True})
    assert result == Recipe(steps=2000, lr=0.002, validate_metric=True, compile="yes")
    assert isinstance(result.steps, int)


def problems(given_):
    """Map the underlined text of each problem of a recipe to message and help."""
    with pytest.raises(ConfigError) as error:
        Recipe.from_mapping(given_)
    result = {}
    for problem in error.value.problems:
        line = problem.position.source.lines[problem.position.line]
        result[line[problem.position.column : problem.position.end]] = (
            f"{problem.message}; {problem.help}")
    return result


@pytest.mark.parametrize(("given_", "underlined", "expected_text"), [
    ({"stepz": 3}, "stepz", "`steps`"),
    ({"steps": 10, "schedule": "cos"}, "cos", "`cosine`"),
    ({"steps": "many"}, "many", "whole number"),
    ({"steps": 1.5}, "1.5", "whole number"),
    ({"steps": True}, "yes", "whole number"),
    ({"steps": [5]}, "[5]", "whole number"),
    ({"steps": 10, "lr": float("nan")}, "nan", "a number"),
    ({"steps": 10, "dropout": 1.0}, "1.0", "<= 0.9999"),
    ({"steps": 10, "lr": -1}, "-1", ">= 0"), ({"steps": 10, "dropout": "0,1"}, "0,1", "`0.1`"),
    ({"steps": 10, "threads": 10**9}, "1000000000", "<= 1024"),
    ({"lr": 0.1}, "{'lr': 0.1}", "`steps: 2000`"),
    ({"steps": 0}, "0", ">= 1"), ({"minutes": 0}, "0", "> 0"),
    ({"steps": 9, "monitor": "metric", "patience": 2}, "metric", "`validate_metric: yes`"),
    ({"steps": 9, "rdrop": 4, "dropout": 0}, "4", "`dropout`"),
    ("quik", "quik", "`quick`"),
    ({"steps": 9, "batch_size": 64}, "batch_size", "`max_tokens`"),
    ({"steps": 9, "learning_rate": 1}, "learning_rate", "`lr`"),
    ({"num_epochs": 9}, "num_epochs", "`epochs`"),
])
def test_problems_have_position_and_help(given_, underlined, expected_text) -> None:
    result = problems(given_)
    assert list(result) == [underlined] and expected_text in result[underlined]


def test_all_problems_are_reported_together() -> None:
    assert set(problems({"steps": -1, "lr": "x", "init": "no"})) == {"-1", "x", "no"}


def test_python_arguments_are_validated_and_converted() -> None:
    assert type(Recipe(steps=3, lr=1).lr.base) is float
    with pytest.raises(ConfigError):
        Recipe(steps=3, lr=-1)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name: str) -> None:
    assert Recipe.from_mapping(name).name == name
    assert "lr" in Recipe.from_mapping(name).describe()


def test_budget_overrides_the_budget_of_a_preset() -> None:
    result = Recipe.from_mapping({"preset": "quick", "steps": 5, "lr": 1e-3})
    assert (result.steps, result.cpu_minutes, result.lr.base, result.beam) == (5, None, 1e-3, 1)
    assert Recipe.from_mapping({"preset": "quick", "lr": 1e-3}).cpu_minutes == 1.0


@pytest.mark.parametrize("lr", [2e-3, {"base": 2e-3}])
def test_a_learning_rate_keeps_the_rule_of_the_preset(lr):
    preset = Recipe.from_mapping({"preset": "short"}).lr
    result = Recipe.from_mapping({"preset": "short", "lr": lr}).lr
    assert result == preset.model_copy(update={"base": 2e-3}) and result.rule == "layerwise"
    assert Recipe(preset="short", lr=lr).lr == result


def test_a_rule_replaces_that_of_the_preset():
    fixed = LearningRate(base=2e-3)
    for lr in (fixed, {"base": 2e-3, "rule": "none"}):
        assert Recipe(preset="short", lr=lr).lr.rule == "none"
    assert Recipe(preset="base", lr=2e-3).lr == fixed


def test_misspelled_preset_is_suggested():
    with refuses("no-such-file", "`quick`", ", ".join(PRESETS)) as caught:
        load_recipe("quik")
    assert str(caught.value).count("help:") == 1


def test_description_has_singular_and_grouped_numbers():
    few = Recipe(steps=1, average="best", average_count=1).describe()
    assert few.startswith("1 step; 512 tokens") and few.endswith("the best checkpoint")
    many = Recipe(tokens=10**7, epochs=2.5, average_count=3, max_tokens=4096).describe()
    assert many.startswith("10,000,000 tokens or 2.5 epochs; 4,096 tokens")
    assert many.endswith("average of at most 3 last checkpoints")
