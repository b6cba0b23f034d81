"""Optuna trials as samplers and schedulers read them."""

import optuna

from scalesearch.samplers.trial_history import COSTS, PAUSED, RUNGS


def frozen(number, state, params=None, rungs=(), costs=None, values=None, constraints=None,
           **attributes):
    """A trial; ``state`` is one of Optuna's, or PAUSED."""
    trial = optuna.create_trial(
        state=optuna.trial.TrialState["RUNNING" if state == "PAUSED" else state], values=values,
        params=params or {},
        distributions={name: optuna.distributions.CategoricalDistribution([value])
                       for name, value in (params or {}).items()},
        user_attrs={RUNGS: list(rungs), COSTS: costs or {}, PAUSED: state == "PAUSED",
                    **attributes}, constraints=constraints or {})
    trial.number = number
    return trial
