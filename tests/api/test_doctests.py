"""Docstring examples of the Python API."""

import doctest
from importlib import import_module

import pytest

MODULES = ("training.input_files", "api.base", "api.space", "api.study", "report.trial_filter")


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    result = doctest.testmod(import_module(f"scalesearch.{name}"))
    assert result.attempted and not result.failed
