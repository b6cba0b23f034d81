"""Errors of the Python interface, which name arguments instead of options."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from scalesearch.errors import python_arguments
from scalesearch.library import import_errors_named

P = ParamSpec("P")
T = TypeVar("T")


def python_error_messages(**argument_names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function whose errors name arguments.

    Args:
        argument_names: option to argument, if their names differ.
    """
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with python_arguments(argument_names), import_errors_named():
                return function(*args, **kwargs)

        return call

    return decorate
