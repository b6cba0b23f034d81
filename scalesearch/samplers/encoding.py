"""Conversion between parameters of a space and parameters of Optuna.

A list of numbers is encoded as an integer, the index in the sorted list. Samplers can then use the
order of the numbers, and old trials stay valid if the list grows at its end. The name of the Optuna
parameter is the path. If a path has different parameters depending on a condition, the later ones
are named ``path#2`` and so on, because an Optuna parameter has a single distribution.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from scalesearch.blocks.sizes import is_number
from scalesearch.samplers import candidate
from scalesearch.spaces.parameters.param_values import ParameterSpace
from scalesearch.spaces.syntax.parameters import Choice, FloatRange, IntRange, Parameter

Encoded = tuple[Parameter, str, BaseDistribution]


def suggest_params(space: Any, trial: Any) -> Any:
    """Return the values of ``space`` that ``trial`` suggests.

    ``partial(suggest_params, space)`` is a define-by-run function for samplers.

    Args:
        space: a space.
        trial: an object with the methods ``suggest_int``, ``suggest_float`` and
            ``suggest_categorical``.
    """
    def suggest(path: str, parameter: Parameter) -> Any:
        name, distribution = encode_parameter(space, path, parameter)
        return from_param(parameter, candidate.suggest_value(trial, name, distribution))

    return space.resolve(suggest)


def encode_params(space: Any, param_values: Any) -> tuple[
        dict[str, Any], dict[str, BaseDistribution]]:
    """Return parameters and distributions of the Optuna trial with ``param_values``.

    Args:
        space: a space.
        param_values: values by path, or an object with such ``params``.

    Raises:
        KeyError: the value of a parameter is missing.
    """
    values: Mapping[str, Any] = getattr(param_values, "params", param_values)
    params: dict[str, Any] = {}
    distributions: dict[str, BaseDistribution] = {}

    def replay(path: str, parameter: Parameter) -> Any:
        name, distribution = encode_parameter(space, path, parameter)
        params[name] = to_param(parameter, values[path])
        distributions[name] = distribution
        return values[path]

    space.resolve(replay)
    return params, distributions


def decode_params(space: Any, params: Mapping[str, Any]) -> Any:
    """Return the values of ``space`` for Optuna's ``params``.

    Other parameters are ignored.

    Raises:
        KeyError: a parameter of the space is missing.
    """
    return space.resolve(
        lambda path, parameter: from_param(parameter,
                                           params[encode_parameter(space, path, parameter)[0]]))


def encode_parameter(space: Any, path: str, parameter: Parameter) -> tuple[str, BaseDistribution]:
    """Return name and distribution of the Optuna parameter for ``parameter``."""
    encoded = _encoded_by_path(getattr(space, "parameter_space", space)).setdefault(path, [])
    for other, name, distribution in encoded:
        if other is parameter or other == parameter:
            return name, distribution
    return _encode_next(encoded, path, parameter)


@lru_cache(maxsize=16)
def _encoded_by_path(space_parameters: ParameterSpace) -> dict[str, list[Encoded]]:
    """Return the encoded parameters by path, in the order of the space."""
    encoded_by_path: dict[str, list[Encoded]] = {}
    for path, parameter in space_parameters.parameters():
        encoded = encoded_by_path.setdefault(path, [])
        if parameter not in [other for other, _, _ in encoded]:
            _encode_next(encoded, path, parameter)
    return encoded_by_path


def _encode_next(
        encoded: list[Encoded], path: str, parameter: Parameter) -> tuple[str, BaseDistribution]:
    """Append the encoding of a further parameter of ``path``."""
    name = f"{path}#{len(encoded) + 1}" if encoded else path
    encoded.append((parameter, name, to_distribution(parameter)))
    return encoded[-1][1:]


def to_distribution(parameter: Parameter) -> BaseDistribution:
    """Return the distribution of the Optuna parameter for ``parameter``."""
    match parameter:
        case Choice(options) if _is_ordinal(options):
            return IntDistribution(0, len(options) - 1)
        case Choice(options):
            return CategoricalDistribution(options)
        case IntRange(low, _, step, log):
            last = low + (parameter.count() - 1) * step
            return IntDistribution(low, last, step=step, log=log and step == 1)
        case FloatRange(low, high, None, log):
            return FloatDistribution(low, high, log=log)
        case FloatRange():
            return IntDistribution(0, len(parameter.values() or ()) - 1)
    raise TypeError(parameter)


def from_param(parameter: Parameter, param: Any) -> Any:
    """Return the value for Optuna's ``param``."""
    match parameter:
        case Choice(options) if _is_ordinal(options):
            return sorted(options, key=float)[param]
        case FloatRange(step=step) if step is not None:
            return (parameter.values() or ())[param]
        case FloatRange(low, high):
            # exp(log(high)) may be slightly larger than high
            return min(max(float(param), low), high)
    return param


def to_param(parameter: Parameter, value: Any) -> Any:
    """Return Optuna's parameter for ``value``; the inverse of :func:`from_param`."""
    match parameter:
        case Choice(options) if _is_ordinal(options):
            return sorted(options, key=float).index(value)
        case FloatRange(step=step) if step is not None:
            grid = parameter.values() or ()
            return min(range(len(grid)), key=lambda index: math.fabs(grid[index] - value))
    return value


def _is_ordinal(options: tuple[Any, ...]) -> bool:
    return all(map(is_number, options))
