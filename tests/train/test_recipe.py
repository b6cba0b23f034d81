"""Recipes: read from files and command lines, written back, refused with what would be right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.space import ConfigError
from scalesearch.train.recipe import PRESETS, RECIPE_FIELDS, Recipe


@given(steps=st.integers(1, 10**6), lr=st.floats(0, 1), warmup=st.floats(0, 1e5),
       smoothing=st.floats(0, 0.99),
       schedule=st.sampled_from(RECIPE_FIELDS.fields["schedule"].words),
       patience=st.none() | st.integers(1, 9), bleu=st.booleans())
def test_a_recipe_survives_being_written_and_read(
        steps, lr, warmup, smoothing, schedule, patience, bleu) -> None:
    made = Recipe(steps=steps, lr=lr, warmup=warmup, label_smoothing=smoothing, schedule=schedule,
                  patience=patience, validate_metric=bleu)
    assert Recipe.from_mapping(made.to_json()) == made


def test_text_is_read_as_the_fields_type() -> None:
    found = Recipe.from_mapping({"steps": "2e3", "lr": "2e-3", "validate_metric": "yes",
                                 "patience": "none", "compile": True})
    assert found == Recipe(steps=2000, lr=0.002, validate_metric=True, compile="yes")
    assert isinstance(found.steps, int)


def problems(given_):
    """What is wrong with a recipe: the text that is underlined, and what would be right."""
    with pytest.raises(ConfigError) as error:
        Recipe.from_mapping(given_)
    found = {}
    for one in error.value.problems:
        line = one.position.source.lines[one.position.line]
        found[line[one.position.column : one.position.end]] = f"{one.message}; {one.help}"
    return found


@pytest.mark.parametrize(("given_", "underlined", "said"), [
    ({"stepz": 3}, "stepz", "`steps`"),
    ({"steps": 10, "schedule": "cos"}, "cos", "`cosine`"),
    ({"steps": "many"}, "many", "whole number"),
    ({"steps": 1.5}, "1.5", "whole number"),
    ({"steps": True}, "yes", "whole number"),
    ({"steps": [5]}, "[5]", "whole number"),
    ({"steps": 10, "lr": float("nan")}, "nan", "a number"),
    ({"steps": 10, "dropout": 1.0}, "1.0", "<= 0.9999"),
    ({"steps": 10, "lr": -1}, "-1", ">= 0"),
    ({"steps": 10, "threads": 10**9}, "1000000000", "<= 1024"),
    ({"lr": 0.1}, "{'lr': 0.1}", "`steps: 2000`"),
    ({"steps": 0}, "0", "budget"),
    ({"steps": 9, "monitor": "metric", "patience": 2}, "metric", "`validate_metric: yes`"),
    ({"steps": 9, "rdrop": 4, "dropout": 0}, "4", "`dropout`"),
    ("quik", "quik", "`quick`"),
    ({"steps": 9, "batch_size": 64}, "batch_size", "`max_tokens`"),
    ({"steps": 9, "learning_rate": 1}, "learning_rate", "`lr`"),
    ({"num_epochs": 9}, "num_epochs", "`epochs`"),
])
def test_what_is_wrong_is_underlined_and_what_is_right_said(given_, underlined, said) -> None:
    found = problems(given_)
    assert list(found) == [underlined] and said in found[underlined]


def test_all_problems_are_said_at_once() -> None:
    assert set(problems({"steps": -1, "lr": "x", "init": "no"})) == {"-1", "x", "no"}


def test_fields_given_in_python_are_checked_and_settled_alike() -> None:
    assert type(Recipe(steps=3, lr=1).lr.base) is float
    with pytest.raises(ConfigError):
        Recipe(steps=3, lr=-1)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_stand_and_describe_themselves(name: str) -> None:
    assert Recipe.from_mapping(name).name == name
    assert "lr" in Recipe.from_mapping(name).describe()


def test_a_budget_replaces_the_presets() -> None:
    found = Recipe.from_mapping({"preset": "quick", "steps": 5, "lr": 1e-3})
    assert (found.steps, found.cpu_minutes, found.lr.base, found.beam) == (5, None, 1e-3, 1)
    assert Recipe.from_mapping({"preset": "quick", "lr": 1e-3}).cpu_minutes == 1.0
