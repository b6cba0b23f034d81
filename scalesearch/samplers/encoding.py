"""A space's questions as Optuna's parameters, and back.

Numbers that are listed one by one become ordinals: the position in the sorted list. Optuna's samplers then know
that 8 lies between 4 and 16, and a list that grows at its end does not make old trials unreadable, as it would
with categoricals.
"""

import math
from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import BaseTrial

from scalesearch.space.syntax.parameters import Choice, FloatRange, IntRange, Question


class Encoding:
    """Names and distributions of a space's questions.

    A question's parameter is named by its path. Where one path holds several questions, depending on a condition,
    the later ones are ``path#2`` and so on, since a parameter of Optuna's has one meaning.
    """

    def __init__(self, space: Any) -> None:
        self.space = space
        self._asked: dict[str, list[Question]] = {}
        for path, question in space.dimensions():
            self._number(path, question)

    def suggest(self, trial: BaseTrial, path: str, question: Question) -> Any:
        """Asks Optuna: the value of ``question`` that ``trial`` proposes."""
        name, shape = self._name(path, question), distribution(question)
        match shape:
            case CategoricalDistribution():
                return decode(question, trial.suggest_categorical(name, shape.choices))
            case IntDistribution():
                number = trial.suggest_int(name, shape.low, shape.high, step=shape.step, log=shape.log)
                return decode(question, number)
            case FloatDistribution():
                real = trial.suggest_float(name, shape.low, shape.high, step=shape.step, log=shape.log)
                return decode(question, real)
        raise TypeError(shape)

    def encode(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Parameters and distributions of the trial that gave the answers ``params``.

        Raises:
            KeyError: a question that the space asks is not among ``params``.
        """
        encoded: dict[str, Any] = {}
        shapes: dict[str, BaseDistribution] = {}

        def replay(path: str, question: Question) -> Any:
            name = self._name(path, question)
            encoded[name], shapes[name] = self.param(question, params[path]), self.shape(question)
            return params[path]

        self.space.answer(replay)
        return encoded, shapes

    def shape(self, question: Question) -> BaseDistribution:
        """What Optuna's parameter may be."""
        return distribution(question)

    def param(self, question: Question, value: Any) -> Any:
        """What Optuna's parameter is for the answer ``value``."""
        return encode(question, value)

    def _name(self, path: str, question: Question) -> str:
        number = self._number(path, question)
        return path if number == 1 else f"{path}#{number}"

    def _number(self, path: str, question: Question) -> int:
        known = self._asked.setdefault(path, [])
        if question not in known:
            known.append(question)
        return known.index(question) + 1


def distribution(question: Question) -> BaseDistribution:
    """How Optuna is to sample ``question``."""
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


def decode(question: Question, param: Any) -> Any:
    """The answer that Optuna's ``param`` stands for."""
    match question:
        case Choice(options) if _ordinal(options):
            return sorted(options, key=float)[param]
        case FloatRange(step=step) if step is not None:
            return (question.values() or ())[param]
        case FloatRange(low, high):
            return min(max(float(param), low), high)  # exp(log(high)) may round to a hair beyond high
    return param


def encode(question: Question, value: Any) -> Any:
    """Optuna's parameter for the answer ``value``; the inverse of :func:`decode`."""
    match question:
        case Choice(options) if _ordinal(options):
            return sorted(options, key=float).index(value)
        case FloatRange(step=step) if step is not None:
            grid = question.values() or ()
            return min(range(len(grid)), key=lambda index: math.fabs(grid[index] - value))
    return value


def _ordinal(options: tuple[Any, ...]) -> bool:
    return all(isinstance(option, int | float) and not isinstance(option, bool) for option in options)
