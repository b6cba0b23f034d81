"""Trials as Optuna's dashboard displays them.

Params have their own values, costs are attributes.

Samplers encode the options of a choice of numbers as positions
(:mod:`scalesearch.samplers.encoding`); the dashboard displays the numbers. It does not read the
named constraints of Optuna 5, so each limit is also a user attribute.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from optuna import create_trial
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from scalesearch.pareto import Objective
from scalesearch.samplers.encoding import encode_parameter, to_distribution, to_param
from scalesearch.spaces.space import Space
from scalesearch.spaces.syntax.parameters import Choice, FloatRange, Parameter
from scalesearch.studies.trials.evaluator import JointSpace
from scalesearch.studies.trials.trial import State, Trial

TRIAL_NUMBER_ATTR = "trial"  # user attribute with the study's trial number
# states of trials that samplers read; other states are RUNNING
OPTUNA_STATES = {State.COMPLETE: TrialState.COMPLETE, State.FAILED: TrialState.FAIL,
                 State.INFEASIBLE: TrialState.PRUNED, State.DUPLICATE: TrialState.FAIL}
EXPORTED_COSTS = ("params.total", "params.non_embedding", "macs.total", "flops.total",
                  "memory.weights", "memory.cache", "memory.activations")


def export_distribution(parameter: Parameter) -> BaseDistribution:
    """Return the distribution of ``parameter``, in its own values if they are numbers."""
    match parameter:
        case Choice(options) if isinstance(to_distribution(parameter), IntDistribution):
            if all(isinstance(option, int) for option in options):
                return IntDistribution(int(min(options)), int(max(options)))
            return FloatDistribution(float(min(options)), float(max(options)))
        case FloatRange(low, high):
            return FloatDistribution(low, high, log=parameter.log)
    return to_distribution(parameter)


def export_value(parameter: Parameter, value: Any) -> Any:
    """Return ``value``, clipped to the range of :func:`export_distribution`."""
    match export_distribution(parameter):
        case FloatDistribution(low=low, high=high):
            return min(max(float(value), low), high)
    return value if isinstance(parameter, Choice) else to_param(parameter, value)


class TrialExporter:
    """Converts trials of a study for the export."""

    def __init__(self, space: Space | JointSpace, objectives: tuple[Objective, ...]) -> None:
        self.space = space
        self.objectives = objectives

    def to_frozen_trial(self, trial: Trial) -> FrozenTrial:
        """Return ``trial`` as an Optuna trial with its times, pruned if it was not trained."""
        params, distributions = self.params(trial.params) if trial.params else ({}, {})
        state = TrialState.PRUNED if trial.state == State.DUPLICATE else OPTUNA_STATES[trial.state]
        exported = create_trial(state=state, values=values_of(trial, self.objectives),
                                params=params, distributions=distributions,
                                user_attrs=user_attributes(trial),
                                constraints=dict(trial.constraints))
        if trial.ended_at and trial.wall_seconds:
            end = datetime.fromisoformat(trial.ended_at).astimezone().replace(tzinfo=None)
            exported.datetime_complete = end  # Optuna uses local time
            exported.datetime_start = end - timedelta(seconds=trial.wall_seconds)
        return exported

    def params(self, values: Mapping[str, Any]) -> tuple[
            dict[str, Any], dict[str, BaseDistribution]]:
        """Return the parameters and their distributions."""
        params: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}

        def replay(path: str, parameter: Parameter) -> Any:
            name = encode_parameter(self.space, path, parameter)[0]
            params[name] = export_value(parameter, values[path])
            distributions[name] = export_distribution(parameter)
            return values[path]

        self.space.resolve(replay)
        return params, distributions


def values_of(trial: Trial, objectives: tuple[Objective, ...]) -> list[float] | None:
    """Return the values of a complete trial, in the order of the objectives; else None."""
    if trial.state != State.COMPLETE or not trial.values:
        return None
    return [trial.values[objective.name] for objective in objectives]


def user_attributes(trial: Trial) -> dict[str, Any]:
    """Return the user attributes of a trial: number, origin, costs, slack of limits.

    A limit is violated if its slack is above 0.
    """
    attributes: dict[str, Any] = {TRIAL_NUMBER_ATTR: trial.number, "origin": trial.origin,
                             "feasible": trial.is_feasible}
    names = {"label": trial.label, "architecture": trial.architecture}
    attributes |= {key: name for key, name in names.items() if name}
    if trial.state == State.DUPLICATE:
        attributes["duplicate of trial"] = trial.original
    attributes |= {name: trial.costs[name] for name in EXPORTED_COSTS if name in trial.costs}
    return attributes | {f"violation {name}": slack for name, slack in trial.constraints.items()}
