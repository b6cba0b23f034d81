"""Trials as Optuna's dashboard shows them: params as they are, costs and names beside them.

Samplers want numbers that are listed one by one as their positions
(:mod:`scalesearch.samplers.encoding`); people want the numbers. The dashboard does not read the
named constraints of Optuna 5, so each limit is an attribute as well.
"""

from collections.abc import Mapping
from typing import Any

from optuna import create_trial
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from scalesearch.pareto.objective import Objective
from scalesearch.samplers.encoding import encode_parameter, to_distribution, to_param
from scalesearch.space.syntax.parameters import Choice, FloatRange, Parameter
from scalesearch.study.trials.trial import State, Trial

TRIAL_NUMBER_ATTR = "trial"  # the attribute of an Optuna trial that holds our number
EXPORT_STATES = {State.COMPLETE: TrialState.COMPLETE, State.FAILED: TrialState.FAIL, State.INFEASIBLE: TrialState.PRUNED,
          State.DUPLICATE: TrialState.FAIL}  # of a trial that is lost
EXPORTED_COSTS = ("params.total", "params.non_embedding", "macs.total", "flops.total",
                  "memory.weights", "memory.cache", "memory.activations")


def export_distribution(parameter: Parameter) -> BaseDistribution:
    """Distribution of ``parameter``, in its own values wherever they are numbers."""
    match parameter:
        case Choice(options) if isinstance(to_distribution(parameter), IntDistribution):
            whole = all(isinstance(option, int) for option in options)
            return IntDistribution(min(options), max(options)) if whole else \
                FloatDistribution(float(min(options)), float(max(options)))
        case FloatRange(low, high):
            return FloatDistribution(low, high, log=parameter.log)
    return to_distribution(parameter)


def export_value(parameter: Parameter, value: Any) -> Any:
    """``value``, inside of what :func:`export_distribution` says."""
    match export_distribution(parameter):
        case FloatDistribution(low=low, high=high):
            return min(max(float(value), low), high)
    return value if isinstance(parameter, Choice) else to_param(parameter, value)


class TrialExporter:
    """Trials of a study as its export shows them."""

    def __init__(self, space: Any, objectives: tuple[Objective, ...]) -> None:
        self.space = space
        self.objectives = objectives

    def to_frozen_trial(self, trial: Trial, outcome: Trial) -> FrozenTrial:
        """``trial`` for a dashboard; ``outcome`` is the trial whose result counts for it."""
        params, shapes = self.params(trial.params) if trial.params else ({}, {})
        state = EXPORT_STATES[trial.state if trial.state == State.INFEASIBLE else outcome.state]
        values = [outcome.values[one.name] for one in self.objectives] if outcome.values else None
        return create_trial(state=state, values=values, params=params, distributions=shapes,
                            user_attrs=user_attributes(trial), constraints=dict(trial.constraints))

    def params(self, values: Mapping[str, Any]) -> tuple[
            dict[str, Any], dict[str, BaseDistribution]]:
        """Parameters with their distributions."""
        params: dict[str, Any] = {}
        shapes: dict[str, BaseDistribution] = {}

        def replay(path: str, asked: Parameter) -> Any:
            name = encode_parameter(self.space, path, asked)[0]
            params[name], shapes[name] = export_value(
                asked, values[path]), export_distribution(asked)
            return values[path]

        self.space.resolve(replay)
        return params, shapes


def user_attributes(trial: Trial) -> dict[str, Any]:
    """User attributes of a trial: our number, origin, architecture, costs, excess over each limit (above 0)."""
    named: dict[str, Any] = {TRIAL_NUMBER_ATTR: trial.number, "origin": trial.origin,
                             "feasible": trial.is_feasible}
    named |= {key: value
              for key, value in (("label", trial.label), ("architecture", trial.architecture))
              if value}
    named |= {name: trial.costs[name] for name in EXPORTED_COSTS if name in trial.costs}
    return named | {f"violation {name}": slack for name, slack in trial.constraints.items()}
