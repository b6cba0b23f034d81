"""Enumerates the values of parameters by running a function once for each combination."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from scalesearch.space.syntax.parameters import Parameter

T = TypeVar("T")
AskFunction = Callable[[str, Parameter], Any]


class Endless(Exception):
    """Raised where a continuous parameter is asked."""


def explore(run: Callable[[AskFunction], T]) -> Iterator[T]:
    """Yields ``run(ask)`` for every combination of values that it asks for, in order.

    Which parameters are asked may depend on the answers. Raises Endless at a continuous range.
    """
    script: list[int] = []  # which answer to give to the first, second, ... parameter
    while True:
        sizes: list[int] = []

        def ask(name: str, parameter: Parameter, script: list[int] = script, sizes: list[int] = sizes) -> Any:
            values = parameter.values()
            if values is None:
                raise Endless(name)
            if len(sizes) == len(script):
                script.append(0)
            sizes.append(parameter.count() or 0)
            return values[script[len(sizes) - 1]]

        yield run(ask)
        while script and script[-1] + 1 == sizes[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1
