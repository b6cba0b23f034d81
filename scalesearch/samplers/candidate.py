"""Candidates of define-by-run functions: sample, mutate and enumerate them.

The parameters of a candidate may depend on the values of other parameters. A candidate is therefore
made by running the function to its end.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from scalesearch.errors import UserError

DefineByRun = Callable[[Any], Any]  # suggests all parameters from the trial that is its argument
ValueChooser = Callable[[str, BaseDistribution], Any]
# a string caches its hash, unlike a tuple; a proposal looks up thousands of candidates
CandidateKey = str


@dataclass(frozen=True)
class Candidate:
    """Parameters of one trial and their distributions.

    Attributes:
        params: values by name, as Optuna's ``trial.params``.
        distributions: distributions by name.
    """

    params: Mapping[str, Any]
    distributions: Mapping[str, BaseDistribution]

    @cached_property
    def key(self) -> CandidateKey:
        """Text that is equal for equal candidates."""
        return candidate_key(self.params)


def candidate_key(params: Mapping[str, Any]) -> CandidateKey:
    """Return a text that is equal for equal parameters, in any order."""
    return "\n".join(f"{name}={value!r}" for name, value in sorted(params.items()))


class CandidateTrial:
    """Trial without a study.

    ``choose_value(name, distribution)`` returns each suggestion.
    """

    def __init__(self, choose_value: ValueChooser) -> None:
        self.choose = choose_value
        self.number = 0
        self.params: dict[str, Any] = {}
        self.distributions: dict[str, BaseDistribution] = {}
        self.user_attrs: dict[str, Any] = {}

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None = None,
                      log: bool = False) -> float:
        """Suggest a real number."""
        return float(self._suggest(name, FloatDistribution(low, high, log=log, step=step)))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1,
                    log: bool = False) -> int:
        """Suggest an integer."""
        return int(self._suggest(name, IntDistribution(low, high, log=log, step=step)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Suggest one of ``choices``."""
        return self._suggest(name, CategoricalDistribution(choices))

    def set_user_attr(self, key: str, value: Any) -> None:
        """Set a user attribute."""
        self.user_attrs[key] = value

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if name not in self.params:
            self.params[name] = self.choose(name, distribution)
            self.distributions[name] = distribution
        return self.params[name]


def build_candidate(define: DefineByRun, choose_value: ValueChooser) -> Candidate:
    """Return the candidate whose values ``choose_value(name, distribution)`` returns."""
    trial = CandidateTrial(choose_value)
    define(trial)
    return Candidate(trial.params, trial.distributions)


def sample_candidate(define: DefineByRun, rng: random.Random) -> Candidate:
    """Sample a candidate: every parameter uniformly, or log-uniformly for log ranges."""
    return build_candidate(define, lambda name, distribution: sample_value(distribution, rng))


def mutate_candidate(define: DefineByRun, parent: Mapping[str, Any], rng: random.Random,
                     choose_value: ValueChooser | None = None) -> Candidate:
    """Return a candidate with the values of ``parent``.

    Missing and invalid values are sampled.

    Args:
        choose_value: returns a replacement for a valid value of the parent.
    """
    def choose(name: str, distribution: BaseDistribution) -> Any:
        if name not in parent or not contains(distribution, parent[name]):
            return sample_value(distribution, rng)
        return choose_value(name, distribution) if choose_value else parent[name]

    return build_candidate(define, choose)


def define_from_distributions(search_space: Mapping[str, BaseDistribution]) -> DefineByRun:
    """Return the define-by-run function of all parameters in ``search_space``."""
    def define(trial: Any) -> None:
        for name, distribution in search_space.items():
            suggest_value(trial, name, distribution)

    return define


def suggest_value(trial: Any, name: str, distribution: BaseDistribution) -> Any:
    """Suggest a value of a distribution.

    Args:
        trial: a trial of Optuna or a :class:`CandidateTrial`.
    """
    match distribution:
        case CategoricalDistribution():
            return trial.suggest_categorical(name, distribution.choices)
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case FloatDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_float(name, low, high, step=step, log=log)
    raise TypeError(distribution)


def enumerate_candidates(define: DefineByRun) -> Iterator[Candidate]:
    """Yield every candidate, in the order of the values.

    Raises:
        UserError: a range is continuous.
    """
    script: list[int] = []  # index of the value of the first, second, … parameter
    while True:
        sizes: list[int] = []

        def choose(name: str, distribution: BaseDistribution, sizes: list[int] = sizes) -> Any:
            values = distribution_values(distribution)
            if values is None:
                raise UserError(f"{name}: a grid cannot enumerate a continuous range; give it a "
                                "step, or choose another sampler",
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
    """Return all values of a parameter; None for a continuous range."""
    match distribution:
        case CategoricalDistribution():
            return distribution.choices
        case IntDistribution(low=low, high=high, step=step):
            return range(low, high + 1, step)
        case FloatDistribution(low=low, high=high, step=step) if step is not None:
            return [min(float(f"{low + index * step:.12g}"), high)
                    for index in range(round((high - low) / step) + 1)]
    return [distribution.low] if distribution.single() else None  # type: ignore[attr-defined]


def sample_value(distribution: BaseDistribution, rng: random.Random) -> Any:
    """Sample a value uniformly, or log-uniformly for log ranges."""
    match distribution:
        case IntDistribution(low=low, high=high, log=True):
            sample = round(math.exp(rng.uniform(math.log(low - 0.5), math.log(high + 0.5))))
            return min(max(sample, low), high)
        case FloatDistribution(low=low, high=high, step=None, log=log):
            if log:
                number = math.exp(rng.uniform(math.log(low), math.log(high)))
            else:
                number = rng.uniform(low, high)
            return min(max(number, low), high)
    values = distribution_values(distribution)
    assert values is not None
    return values[rng.randrange(len(values))]


def contains(distribution: BaseDistribution, value: Any) -> bool:
    """Return whether ``value`` is a value of ``distribution``."""
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
    """Return another value: a near number, or any other word.

    The number differs by at least one step.

    Args:
        step_share: standard deviation of a step in a list of numbers, as a share of the list.
    """
    values = distribution_values(distribution)
    if values is None:  # move by a share of the range, or of the logarithm of a log range
        share = rng.gauss(0, step_share)
        low = distribution.low  # type: ignore[attr-defined]
        high = distribution.high  # type: ignore[attr-defined]
        is_log = distribution.log  # type: ignore[attr-defined]
        moved = value * (high / low) ** share if is_log else value + share * (high - low)
        return float(min(max(moved, low), high))
    if len(values) < 2:
        return value
    if isinstance(distribution, CategoricalDistribution):
        return rng.choice([choice for choice in values if choice is not value and choice != value])
    index = index_of(values, value)
    last = len(values) - 1
    step = max(1, round(abs(rng.gauss(0, step_share)) * last))
    neighbors = [neighbor for neighbor in (index - step, index + step) if 0 <= neighbor <= last]
    if neighbors:
        return values[rng.choice(neighbors)]
    return values[0 if index > last - index else last]


def index_of(values: Sequence[Any], value: float) -> int:
    """Return the index of a number in an evenly spaced list that contains it."""
    return 0 if len(values) < 2 else round((value - values[0]) / (values[1] - values[0]))
