"""The examples in the docstrings of the front door hold."""

import doctest
from importlib import import_module

import pytest

MODULES = ("api.files", "api.display", "api.space", "api.study", "report.trial_filter")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_hold(name):
    found = doctest.testmod(import_module(f"scalesearch.{name}"))
    assert found.attempted and not found.failed
