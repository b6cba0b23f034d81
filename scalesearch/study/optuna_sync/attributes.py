"""A trial as Optuna's dashboard should show it: answers as they are, costs and names beside them.

Samplers want numbers that are listed one by one as their positions (:mod:`scalesearch.samplers.encoding`); people want
the numbers. The dashboard does not read the named constraints of Optuna 5, so each limit is an attribute as well.
"""

from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from scalesearch.samplers.encoding import Encoding, distribution, encode
from scalesearch.space.syntax.parameters import Choice, FloatRange, Question
from scalesearch.study.trials.trials import Trial

NUMBER = "trial"  # the attribute of an Optuna trial that holds our number
COSTS = ("params.total", "params.non_embedding", "macs.total", "flops.total", "memory.weights", "memory.cache",
         "memory.activations")


class Values(Encoding):
    """Names of a space's questions, with the answers themselves as Optuna's parameters wherever they are numbers."""

    def shape(self, question: Question) -> BaseDistribution:
        """What the answers to ``question`` may be."""
        match question:
            case Choice(options) if isinstance(distribution(question), IntDistribution):
                whole = all(isinstance(option, int) for option in options)
                return IntDistribution(min(options), max(options)) if whole else \
                    FloatDistribution(float(min(options)), float(max(options)))
            case FloatRange(low, high):
                return FloatDistribution(low, high, log=question.log)
        return distribution(question)

    def param(self, question: Question, value: Any) -> Any:
        """The answer ``value``, inside of what :meth:`shape` says."""
        match self.shape(question):
            case FloatDistribution(low=low, high=high):
                return min(max(float(value), low), high)
        return value if isinstance(question, Choice) else encode(question, value)


def attributes(trial: Trial) -> dict[str, Any]:
    """Our number, whose idea it was, its architecture, costs, and by how much it misses each limit (above 0)."""
    found: dict[str, Any] = {NUMBER: trial.number, "origin": trial.origin, "feasible": trial.feasible}
    found |= {key: value for key, value in (("label", trial.label), ("architecture", trial.id)) if value}
    for name in COSTS:
        group, _, section = name.partition(".")
        value = ((trial.cost or {}).get(group) or {}).get(section)
        found |= {} if value is None else {name: value}
    return found | {f"misses {name}": slack for name, slack in trial.slacks.items()}
