"""The bridge between spaces and Optuna: a space's questions as Optuna's parameters, and back.

Numbers that are listed one by one become ordinals: the position in the sorted list. Samplers then know that 8 lies
between 4 and 16, and a list that grows at its end does not make old trials unreadable, as it would with categoricals.
A question's parameter is named by its path. Where one path holds several questions, depending on a condition, the later
ones are ``path#2`` and so on, since a parameter of Optuna's has one meaning.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from scalesearch.samplers import sheet
from scalesearch.space.syntax.parameters import Choice, FloatRange, IntRange, Question

Parameter = tuple[Question, str, BaseDistribution]


def suggest(space: Any, trial: Any) -> Any:
    """The answers of ``space`` where ``trial`` suggests every parameter; anything with ``suggest_int`` and so on does.

    ``partial(suggest, space)`` is a define-by-run function for samplers.
    """
    def ask(path: str, question: Question) -> Any:
        name, distribution = parameter(space, path, question)
        return from_param(question, sheet.suggest(trial, name, distribution))

    return space.answer(ask)


def encode(space: Any, answers: Any) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Parameters and distributions of the trial that gives ``answers``: a sheet, or question to answer.

    Raises:
        KeyError: a question that the space asks is not answered.
    """
    given: Mapping[str, Any] = getattr(answers, "params", answers)
    params: dict[str, Any] = {}
    distributions: dict[str, BaseDistribution] = {}

    def replay(path: str, question: Question) -> Any:
        name, its = parameter(space, path, question)
        params[name], distributions[name] = to_param(question, given[path]), its
        return given[path]

    space.answer(replay)
    return params, distributions


def decode(space: Any, params: Mapping[str, Any]) -> Any:
    """The answers of ``space`` that Optuna's ``params`` stand for; what it does not ask for is ignored.

    Raises:
        KeyError: a parameter that the space asks for is missing.
    """
    return space.answer(lambda path, question: from_param(question, params[parameter(space, path, question)[0]]))


def parameter(space: Any, path: str, question: Question) -> tuple[str, BaseDistribution]:
    """Name and distribution of the parameter that stands for ``question``."""
    known = _parameters(getattr(space, "form", space)).setdefault(path, [])
    for other, name, distribution_of in known:
        if other is question or other == question:
            return name, distribution_of
    return _numbered(known, path, question)


@lru_cache(maxsize=16)
def _parameters(form: Any) -> dict[str, list[Parameter]]:
    """Path to the parameters of its questions, in the order of the space; comparing forms takes no time."""
    found: dict[str, list[Parameter]] = {}
    for path, question in form.dimensions():
        known = found.setdefault(path, [])
        if question not in [other for other, _, _ in known]:
            _numbered(known, path, question)
    return found


def _numbered(known: list[Parameter], path: str, question: Question) -> tuple[str, BaseDistribution]:
    name = f"{path}#{len(known) + 1}" if known else path
    known.append((question, name, distribution(question)))
    return known[-1][1:]


def distribution(question: Question) -> BaseDistribution:
    """What Optuna's parameter for ``question`` may be."""
    match question:
        case Choice(options) if _ordinal(options):
            return IntDistribution(0, len(options) - 1)
        case Choice(options):
            return CategoricalDistribution(options)
        case IntRange(low, _, step, log):
            last = low + (question.count() - 1) * step
            return IntDistribution(low, last, step=step, log=log and step == 1)
        case FloatRange(low, high, None, log):
            return FloatDistribution(low, high, log=log)
        case FloatRange():
            return IntDistribution(0, len(question.values() or ()) - 1)
    raise TypeError(question)


def from_param(question: Question, param: Any) -> Any:
    """The answer that Optuna's ``param`` stands for."""
    match question:
        case Choice(options) if _ordinal(options):
            return sorted(options, key=float)[param]
        case FloatRange(step=step) if step is not None:
            return (question.values() or ())[param]
        case FloatRange(low, high):
            return min(max(float(param), low), high)  # exp(log(high)) may round to a hair beyond high
    return param


def to_param(question: Question, answer: Any) -> Any:
    """Optuna's parameter for ``answer``; the inverse of :func:`from_param`."""
    match question:
        case Choice(options) if _ordinal(options):
            return sorted(options, key=float).index(answer)
        case FloatRange(step=step) if step is not None:
            grid = question.values() or ()
            return min(range(len(grid)), key=lambda index: math.fabs(grid[index] - answer))
    return answer


def _ordinal(options: tuple[Any, ...]) -> bool:
    return all(isinstance(option, int | float) and not isinstance(option, bool) for option in options)
