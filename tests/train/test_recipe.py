"""Recipes: read from files and command lines, written back, refused with what would be right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.errors import UserError
from scalesearch.train.recipe import CHOICES, PRESETS, Recipe


@given(
    steps=st.integers(1, 10**6), lr=st.floats(0, 1), warmup=st.floats(0, 1e5), smoothing=st.floats(0, 0.99),
    schedule=st.sampled_from(CHOICES["schedule"]), patience=st.none() | st.integers(1, 9), bleu=st.booleans(),
)
def test_a_recipe_survives_being_written_and_read(steps, lr, warmup, smoothing, schedule, patience, bleu) -> None:
    made = Recipe(steps=steps, lr=lr, warmup=warmup, label_smoothing=smoothing, schedule=schedule, patience=patience,
                  validate_bleu=bleu)
    assert Recipe.from_mapping(made.to_json()) == made


def test_text_is_read_as_the_fields_type() -> None:
    found = Recipe.from_mapping({"steps": "2e3", "lr": "2e-3", "validate_bleu": "yes", "patience": "none",
                                 "compile": True})
    assert found == Recipe(steps=2000, lr=0.002, validate_bleu=True, compile="yes")
    assert isinstance(found.steps, int)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"stepz": 3}, "unknown key `stepz`; did you mean `steps`?"),
        ({"steps": 10, "schedule": "cos"}, "schedule: expected one of cosine, linear, inverse_sqrt, constant, found"),
        ({"steps": "many"}, "steps: expected a whole number, found 'many'"),
        ({"steps": 1.5}, "steps: expected a whole number, found 1.5"),
        ({"steps": True}, "steps: expected a whole number, found True"),
        ({"steps": 10, "lr": float("nan")}, "lr: expected a number, found nan"),
        ({"steps": 10, "dropout": 1.0}, "dropout: expected from 0 to below 1, found 1.0"),
        ({"steps": 10, "lr": -1}, "lr: expected at least 0, found -1"),
        ({"lr": 0.1}, "no budget: give at least one of steps"),
        ({"steps": 0}, "steps: a budget of 0 trains nothing"),
        ({"steps": 9, "watch": "bleu", "patience": 2}, "watch: bleu is only known with `validate_bleu: true`"),
        ("quik", "no preset `quik`; did you mean `quick`?"),
        (["steps"], "expected fields such as"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(given_, said: str) -> None:
    with pytest.raises(UserError) as error:
        Recipe.from_mapping(given_)
    assert said in str(error.value)


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(UserError) as error:
        Recipe.from_mapping({"steps": -1, "lr": "x", "init": "no"})
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize("name", PRESETS)
def test_presets_stand_and_describe_themselves(name: str) -> None:
    assert Recipe.from_mapping(name).name == name
    assert "lr" in Recipe.from_mapping(name).describe()


def test_a_budget_replaces_the_presets() -> None:
    found = Recipe.from_mapping({"preset": "quick", "steps": 5, "lr": 1e-3})
    assert (found.steps, found.cpu_minutes, found.lr, found.beam) == (5, None, 1e-3, 1)
    assert Recipe.from_mapping({"preset": "quick", "lr": 1e-3}).cpu_minutes == 1.0
