"""Which hyperparameters decide the score: PED-ANOVA over the feasible finished trials.

Watanabe, Bansal and Hutter (2023), "PED-ANOVA: Efficiently quantifying hyperparameter importance in arbitrary
subspaces", in Optuna's implementation, which also takes conditional hyperparameters. It compares the values of the
best quarter with those of all.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.report.labels import brief, direction, label
from scalesearch.report.style import FRONT, INK, canvas, name_in
from scalesearch.report.table import eligible
from scalesearch.study.results.page.facts import Facts, params_of
from scalesearch.study.results.page.parts import Part, Section, text
from scalesearch.study.results.page.svg import picture

Params = Mapping[str, Any]
QUANTILE = 0.25
MIN_TRIALS = 20  # PED-ANOVA needs five in its best quarter
DRAWS = 20  # bootstrap resamples of the trials


@dataclass(frozen=True)
class Importance:
    """A hyperparameter's share of all importance, 0 to 1; 90 % of resamples lie in ``low`` to ``high``.

    ``trials``: how many have a value for it.
    """

    name: str
    value: float
    low: float
    high: float
    trials: int


def importances(params: Sequence[Params], losses: Sequence[float]) -> list[Importance]:
    """Importance of each hyperparameter, largest first; ``losses`` (n,): smaller is better."""
    domains = _domains(params)
    if len(params) < MIN_TRIALS or not domains or len(set(losses)) < 2:
        return []
    whole = _evaluate(params, losses, domains)
    draws = [_evaluate([params[at] for at in rows], [losses[at] for at in rows], domains)
             for rows in np.random.default_rng(0).integers(len(params), size=(DRAWS, len(params)))]
    found = []
    for name, value in whole.items():
        low, high = np.quantile([one.get(name, 0.0) for one in draws], [0.05, 0.95])
        found.append(Importance(name, value, float(low), float(high), sum(name in one for one in params)))
    return sorted(found, key=lambda one: (-one.value, one.name))


def _domains(params: Sequence[Params]) -> dict[str, Any]:
    """Optuna's distribution over the values of each hyperparameter that has several."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    domains: dict[str, Any] = {}
    for name in sorted({name for one in params for name in one}):
        values = [one[name] for one in params if name in one]
        if len({brief(value) for value in values}) < 2:
            continue
        if all(type(value) is int for value in values):
            domains[name] = IntDistribution(min(values), max(values))
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            domains[name] = FloatDistribution(float(min(values)), float(max(values)))
        else:
            domains[name] = CategoricalDistribution(sorted({brief(value) for value in values}))
    return domains


def _evaluate(params: Sequence[Params], losses: Sequence[float], domains: dict[str, Any]) -> dict[str, float]:
    """Each hyperparameter's importance, in shares of their sum."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    words = optuna.distributions.CategoricalDistribution
    for one, loss in zip(params, losses):
        mine = {name: brief(one[name]) if isinstance(domain, words) else one[name]
                for name, domain in domains.items() if name in one}
        study.add_trial(optuna.create_trial(value=loss, params=mine, distributions={name: domains[name]
                                                                                    for name in mine}))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=QUANTILE, evaluate_on_local=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that few trials have some of them: the page says how many
        found = evaluator.evaluate(study)
    raw = {name: max(0.0, float(value)) for name, value in found.items() if np.isfinite(value)}
    total = sum(raw.values())
    return {name: value / total for name, value in raw.items()} if total else {}


def section(facts: Facts) -> Section | None:
    """The figure, or how many trials are missing; None where nothing was sampled."""
    return Section("importance", "Hyperparameter importance", [_body(facts)], "Importance") if facts.searched else None


def _body(facts: Facts) -> Part:
    sign = -1.0 if direction(facts.main) == "max" else 1.0
    done = facts.done
    rows = done[eligible(done)]
    pairs = [(params_of(facts.trials[int(trial)]), sign * float(score)) for trial, score in
             zip(rows["trial"], rows[facts.main])]
    pairs = [(params, loss) for params, loss in pairs
             if params and set(params) <= facts.sampled and np.isfinite(loss)]
    if len(pairs) < MIN_TRIALS:
        return text(f"{MIN_TRIALS} feasible finished trials are needed to say which hyperparameters decide "
                     f"{facts.main}; there are {len(pairs)}.")
    found = importances([params for params, _ in pairs], [loss for _, loss in pairs])
    return _picture(facts, found, len(pairs)) if found else \
        text("All finished trials have the same hyperparameters or the same score.")


def _picture(facts: Facts, found: list[Importance], trials: int) -> Part:
    with canvas(6.4, 0.9 + 0.24 * len(found)) as (figure, (axes,)):
        places = np.arange(len(found))[::-1]
        values = np.array([one.value for one in found])
        reach = np.array([[max(0.0, one.value - one.low), max(0.0, one.high - one.value)] for one in found]).T
        axes.barh(places, values, color=FRONT, height=0.6)
        axes.errorbar(values, places, xerr=reach, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2)
        axes.set_yticks(places, [name_in(one.name) + (f" ({one.trials})" if one.trials < trials else "")
                                 for one in found])
        axes.set_xlabel(f"Share of the importance for {label(facts.main)}")
        axes.set_xlim(left=0)
        axes.grid(False, axis="y")
    words = "; ".join(f"{one.name} {one.value:.2f} ({one.low:.2f} to {one.high:.2f})" for one in found)
    some = " In brackets: trials that have it, where not all do." if any(one.trials < trials for one in found) else ""
    caption = (f"PED-ANOVA (Optuna) over {trials} feasible finished trials: how differently the best quarter by "
               f"{label(facts.main)} chose each hyperparameter. Lines: 90 % of {DRAWS} bootstrap resamples.{some} It "
               "says what goes with a high score among the trials, and the search did not sample at random.")
    return picture(figure, "importance-figure", f"Bar chart of importances: {words}.", caption)
