"""Sheets of parameters in Optuna's words: drawing, changing and listing what a define-by-run function asks for.

Which parameters are asked for may depend on the values given, so a sheet is made by running the
function to its end.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from scalesearch.errors import UserError

DefineByRun = Callable[[Any], Any]  # suggests everything that it needs from the trial it is given
ValueChooser = Callable[[str, BaseDistribution], Any]
# which knows its hash, as a tuple does not; thousands of sheets are looked up for each proposal
CandidateKey = str


@dataclass(frozen=True)
class Candidate:
    """The parameters of one trial, external values, and what they are drawn from."""

    params: Mapping[str, Any]
    distributions: Mapping[str, BaseDistribution]

    @cached_property
    def key(self) -> CandidateKey:
        """What equal sheets have in common."""
        return candidate_key(self.params)


def candidate_key(params: Mapping[str, Any]) -> CandidateKey:
    """What makes two sheets the same, whatever their order."""
    return "\n".join(f"{name}={value!r}" for name, value in sorted(params.items()))


class CandidateTrial:
    """A trial whose suggestions ``choose_value`` makes; what a define-by-run function needs of one, without a study."""

    def __init__(self, choose_value: ValueChooser, number: int = 0) -> None:
        self.choose = choose_value
        self.number = number
        self.params: dict[str, Any] = {}
        self.distributions: dict[str, BaseDistribution] = {}
        self.user_attrs: dict[str, Any] = {}

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None = None,
                      log: bool = False) -> float:
        """A real number, as Optuna's."""
        return float(self._suggest(name, FloatDistribution(low, high, log=log, step=step)))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1,
                    log: bool = False) -> int:
        """A whole number, as Optuna's."""
        return int(self._suggest(name, IntDistribution(low, high, log=log, step=step)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of ``choices``, as Optuna's."""
        return self._suggest(name, CategoricalDistribution(choices))

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keeps an attribute, as Optuna's."""
        self.user_attrs[key] = value

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if name not in self.params:
            self.params[name], self.distributions[name] = self.choose(
                name, distribution), distribution
        return self.params[name]


def build_candidate(define: DefineByRun, choose_value: ValueChooser) -> Candidate:
    """The sheet that ``define`` asks for where ``choose(name, distribution)`` gives every value."""
    trial = CandidateTrial(choose_value)
    define(trial)
    return Candidate(trial.params, trial.distributions)


def sample_candidate(define: DefineByRun, rng: random.Random) -> Candidate:
    """A random sheet: every parameter uniform, log-uniform for log ranges."""
    return build_candidate(define, lambda name, distribution: sample_value(distribution, rng))


def mutate_candidate(define: DefineByRun, parent: Mapping[str, Any], rng: random.Random,
                     choose_value: ValueChooser | None = None) -> Candidate:
    """The sheet of ``parent``'s values, those that it lacks or that are no longer legal being drawn.

    Args:
        choose_value: what a legal value of the parent is replaced by.
    """
    def choose(name: str, distribution: BaseDistribution) -> Any:
        if name not in parent or not contains(distribution, parent[name]):
            return sample_value(distribution, rng)
        return choose_value(name, distribution) if choose_value else parent[name]

    return build_candidate(define, choose)


def define_from_distributions(search_space: Mapping[str, BaseDistribution]) -> DefineByRun:
    """The define-by-run function that asks for everything in ``search_space``."""
    def define(trial: Any) -> None:
        for name, distribution in search_space.items():
            suggest_value(trial, name, distribution)

    return define


def suggest_value(trial: Any, name: str, distribution: BaseDistribution) -> Any:
    """What ``trial``, Optuna's or a :class:`CandidateTrial`, suggests for a distribution."""
    match distribution:
        case CategoricalDistribution():
            return trial.suggest_categorical(name, distribution.choices)
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case FloatDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_float(name, low, high, step=step, log=log)
    raise TypeError(distribution)


def enumerate_candidates(define: DefineByRun) -> Iterator[Candidate]:
    """Every sheet, in the order of the values.

    Raises:
        UserError: a continuous range, of which there is no end.
    """
    script: list[int] = []  # which value the first, second, … parameter has
    while True:
        sizes: list[int] = []

        def choose(name: str, distribution: BaseDistribution, sizes: list[int] = sizes) -> Any:
            values = distribution_values(distribution)
            if values is None:
                raise UserError(f"{name}: a continuous range cannot be enumerated; give it a step",
                                code="continuous-range")
            if len(sizes) == len(script):
                script.append(0)
            sizes.append(len(values))
            return values[script[len(sizes) - 1]]

        yield build_candidate(define, choose)
        while script and script[-1] + 1 == sizes[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


def distribution_values(distribution: BaseDistribution) -> Sequence[Any] | None:
    """Everything that a parameter may be; None where there is no end of it."""
    match distribution:
        case CategoricalDistribution():
            return distribution.choices
        case IntDistribution(low=low, high=high, step=step):
            return range(low, high + 1, step)
        case FloatDistribution(low=low, high=high, step=step) if step is not None:
            return [min(float(f"{low + at * step:.12g}"), high)
                    for at in range(round((high - low) / step) + 1)]
    return [distribution.low] if distribution.single() else None  # type: ignore[attr-defined]


def sample_value(distribution: BaseDistribution, rng: random.Random) -> Any:
    """A uniform draw, or a log-uniform one."""
    match distribution:
        case IntDistribution(low=low, high=high, log=True):
            drawn = round(math.exp(rng.uniform(math.log(low - 0.5), math.log(high + 0.5))))
            return min(max(drawn, low), high)
        case FloatDistribution(low=low, high=high, step=None, log=log):
            real = math.exp(
                rng.uniform(math.log(low), math.log(high))) if log else rng.uniform(low, high)
            return min(max(real, low), high)
    values = distribution_values(distribution)
    assert values is not None
    return values[rng.randrange(len(values))]


def contains(distribution: BaseDistribution, value: Any) -> bool:
    """Whether ``value`` is one of ``distribution``'s."""
    if isinstance(distribution, CategoricalDistribution):
        return any(choice == value and type(choice) is type(value)
                   for choice in distribution.choices)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    low = distribution.low
    high = distribution.high
    step = distribution.step  # type: ignore[attr-defined]
    steps = (value - low) / step if step else 0.0
    return bool(low <= value <= high and abs(steps - round(steps)) < 1e-6)


def sample_neighbor(distribution: BaseDistribution, value: Any, rng: random.Random,
                    step_share: float) -> Any:
    """Another value: of numbers one near by, at least the next one; of words any other.

    Args:
        step_share: standard deviation of a step along a list of numbers, as a share of the list.
    """
    values = distribution_values(distribution)
    if values is None:
        return _shift_value(distribution, value, rng.gauss(0, step_share))
    if len(values) < 2:
        return value
    if isinstance(distribution, CategoricalDistribution):
        return rng.choice([choice for choice in values if choice is not value and choice != value])
    at = index_of(values, value)
    last = len(values) - 1
    step = max(1, round(abs(rng.gauss(0, step_share)) * last))
    places = [place for place in (at - step, at + step) if 0 <= place <= last]
    return values[rng.choice(places) if places else (0 if at > last - at else last)]


def _shift_value(distribution: Any, value: float, share: float) -> float:
    """``value`` moved by a share of its range, of the range's logarithm for log ranges."""
    low = distribution.low
    high = distribution.high
    moved = value * (high / low) ** share if distribution.log else value + share * (high - low)
    return float(min(max(moved, low), high))


def index_of(values: Sequence[Any], value: float) -> int:
    """The place of a number in an evenly spaced list that holds it."""
    return 0 if len(values) < 2 else round((value - values[0]) / (values[1] - values[0]))
