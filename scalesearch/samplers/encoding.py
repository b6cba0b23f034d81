"""A space's parameters as Optuna's parameters, and back.

Numbers that are listed one by one become ordinals: the position in the sorted list. Samplers then
know that 8 lies between 4 and 16, and a list that grows at its end does not make old trials
unreadable, as it would with categoricals. Optuna's parameter is named by the path. Where one path
holds several parameters, depending on a condition, the later ones are ``path#2`` and so on, since a
parameter of Optuna's has one meaning.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from scalesearch.blocks.sizes import is_number
from scalesearch.samplers import candidate
from scalesearch.space.syntax.parameters import Choice, FloatRange, IntRange, Parameter

Encoded = tuple[Parameter, str, BaseDistribution]


def suggest_params(space: Any, trial: Any) -> Any:
    """The answers of ``space`` where ``trial`` suggests every parameter; anything with ``suggest_int`` and so on does.

    ``partial(suggest, space)`` is a define-by-run function for samplers.
    """
    def ask(path: str, parameter: Parameter) -> Any:
        name, distribution = encode_parameter(space, path, parameter)
        return from_param(parameter, candidate.suggest_value(trial, name, distribution))

    return space.resolve(ask)


def encode_params(space: Any, param_values: Any) -> tuple[
        dict[str, Any], dict[str, BaseDistribution]]:
    """Parameters and distributions of the trial that gives ``param_values``: a sheet, or parameter to answer.

    Raises:
        KeyError: a parameter that the space asks is not answered.
    """
    given: Mapping[str, Any] = getattr(param_values, "params", param_values)
    params: dict[str, Any] = {}
    distributions: dict[str, BaseDistribution] = {}

    def replay(path: str, parameter: Parameter) -> Any:
        name, its = encode_parameter(space, path, parameter)
        params[name], distributions[name] = to_param(parameter, given[path]), its
        return given[path]

    space.resolve(replay)
    return params, distributions


def decode_params(space: Any, params: Mapping[str, Any]) -> Any:
    """The answers of ``space`` that Optuna's ``params`` stand for; what it does not ask for is ignored.

    Raises:
        KeyError: a parameter that the space asks for is missing.
    """
    return space.resolve(
        lambda path, parameter: from_param(parameter,
                                           params[encode_parameter(space, path, parameter)[0]]))


def encode_parameter(space: Any, path: str, parameter: Parameter) -> tuple[str, BaseDistribution]:
    """Name and distribution of Optuna's parameter for ``parameter``."""
    known = _parameters(getattr(space, "parameter_space", space)).setdefault(path, [])
    for other, name, its in known:
        if other is parameter or other == parameter:
            return name, its
    return _numbered(known, path, parameter)


@lru_cache(maxsize=16)
def _parameters(space_parameters: Any) -> dict[str, list[Encoded]]:
    """Path to its parameters, encoded, in the order of the space; comparing forms takes no time."""
    found: dict[str, list[Encoded]] = {}
    for path, parameter in space_parameters.parameters():
        known = found.setdefault(path, [])
        if parameter not in [other for other, _, _ in known]:
            _numbered(known, path, parameter)
    return found


def _numbered(
        encoded: list[Encoded], path: str, parameter: Parameter) -> tuple[str, BaseDistribution]:
    name = f"{path}#{len(encoded) + 1}" if encoded else path
    encoded.append((parameter, name, to_distribution(parameter)))
    return encoded[-1][1:]


def to_distribution(parameter: Parameter) -> BaseDistribution:
    """What Optuna's parameter for ``parameter`` may be."""
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
    """The answer that Optuna's ``param`` stands for."""
    match parameter:
        case Choice(options) if _is_ordinal(options):
            return sorted(options, key=float)[param]
        case FloatRange(step=step) if step is not None:
            return (parameter.values() or ())[param]
        case FloatRange(low, high):
            # exp(log(high)) may round to a hair beyond high
            return min(max(float(param), low), high)
    return param


def to_param(parameter: Parameter, value: Any) -> Any:
    """Optuna's parameter for ``value``; the inverse of :func:`from_param`."""
    match parameter:
        case Choice(options) if _is_ordinal(options):
            return sorted(options, key=float).index(value)
        case FloatRange(step=step) if step is not None:
            grid = parameter.values() or ()
            return min(range(len(grid)), key=lambda index: math.fabs(grid[index] - value))
    return value


def _is_ordinal(options: tuple[Any, ...]) -> bool:
    return all(map(is_number, options))
