"""Which questions decide the score: PED-ANOVA over the feasible finished candidates.

Watanabe, Bansal and Hutter (2023), "PED-ANOVA: Efficiently quantifying hyperparameter importance in arbitrary
subspaces", in Optuna's implementation, which also takes questions that only some were asked. It compares how the best
quarter answered with how all did.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import Html, Section, tag
from scalesearch.report.page.svg import canvas, framed, inline
from scalesearch.report.page.words import brief, label
from scalesearch.report.plot import FRONT, direction

QUANTILE = 0.25
FEWEST = 20  # candidates: PED-ANOVA wants five in its best quarter
DRAWS = 20  # of the candidates with replacement, for how far an importance depends on who was trained


@dataclass(frozen=True)
class Importance:
    """The share of one question among all (0 to 1), the range of nine tenths of the draws, and how many were asked."""

    name: str
    value: float
    low: float
    high: float
    asked: int


def importances(answers: list[dict[str, Any]], losses: list[float]) -> list[Importance]:
    """From the most important; ``answers``: one sheet a candidate; ``losses`` (n,): smaller is better."""
    shapes = _shapes(answers)
    if len(answers) < FEWEST or not shapes or len(set(losses)) < 2:
        return []
    whole = _evaluate(answers, losses, shapes)
    draw = np.random.default_rng(0)
    draws = [_evaluate([answers[at] for at in rows], [losses[at] for at in rows], shapes)
             for rows in draw.integers(len(answers), size=(DRAWS, len(answers)))]
    found = []
    for name, value in whole.items():
        low, high = np.quantile([one.get(name, 0.0) for one in draws], [0.05, 0.95])
        found.append(Importance(name, value, float(low), float(high), sum(name in sheet for sheet in answers)))
    return sorted(found, key=lambda one: (-one.value, one.name))


def _shapes(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """A distribution over the answers that were given, for each question that has several."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    shapes: dict[str, Any] = {}
    for name in sorted({name for sheet in answers for name in sheet}):
        given = [sheet[name] for sheet in answers if name in sheet]
        if len({brief(value) for value in given}) < 2:
            continue
        if all(type(value) is int for value in given):
            shapes[name] = IntDistribution(min(given), max(given))
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
            shapes[name] = FloatDistribution(float(min(given)), float(max(given)))
        else:
            shapes[name] = CategoricalDistribution(sorted({brief(value) for value in given}))
    return shapes


def _evaluate(answers: list[dict[str, Any]], losses: list[float], shapes: dict[str, Any]) -> dict[str, float]:
    """Each question's importance, in shares of their sum."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    words = optuna.distributions.CategoricalDistribution
    for sheet, loss in zip(answers, losses):
        mine = {name: brief(sheet[name]) if isinstance(shape, words) else sheet[name]
                for name, shape in shapes.items() if name in sheet}
        theirs = {name: shapes[name] for name in mine}
        study.add_trial(optuna.create_trial(value=loss, params=mine, distributions=theirs))
    judge = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=QUANTILE, evaluate_on_local=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that some questions were asked of few: the page says of how many
        found = judge.evaluate(study)
    raw = {name: max(0.0, float(value)) for name, value in found.items() if np.isfinite(value)}
    total = sum(raw.values())
    return {name: value / total for name, value in raw.items()} if total else {}


def section(facts: Facts) -> Section | None:
    """The figure, or how many candidates are wanting; None where nothing was asked."""
    title = "Importance of each question"
    if not facts.searched:
        return None
    return Section("importance", title, _body(facts), "Importance")


def _body(facts: Facts) -> Html:
    rows = facts.eligible
    sign = -1.0 if direction(facts.main) == "max" else 1.0
    sheets = [(dict(facts.candidates[int(row["trial"])].answers), sign * float(row[facts.main]))
              for _, row in rows.iterrows() if set(facts.candidates[int(row["trial"])].answers) <= facts.asked]
    sheets = [(sheet, loss) for sheet, loss in sheets if sheet and np.isfinite(loss)]
    if len(sheets) < FEWEST:
        return tag("p", f"{FEWEST} feasible finished candidates are needed to say which questions decide "
                        f"{facts.main}; there are {len(sheets)}.")
    found = importances([sheet for sheet, _ in sheets], [loss for _, loss in sheets])
    if not found:
        return tag("p", "All finished candidates answer alike or score alike.")
    return _figure(facts, found, len(sheets))


def _figure(facts: Facts, found: list[Importance], count: int) -> Html:
    with canvas(6.4, 0.9 + 0.24 * len(found)) as (figure, (axes,)):
        places = np.arange(len(found))[::-1]
        values = np.array([one.value for one in found])
        reach = np.array([[max(0.0, one.value - one.low), max(0.0, one.high - one.value)] for one in found]).T
        axes.barh(places, values, color=FRONT, height=0.6)
        axes.errorbar(values, places, xerr=reach, fmt="none", ecolor="#222222", elinewidth=0.8, capsize=2)
        axes.set_yticks(places, [one.name + (f" ({one.asked})" if one.asked < count else "") for one in found])
        axes.set_xlabel(f"Share of the importance for {label(facts.main, {})}")
        axes.set_xlim(left=0)
        axes.grid(False, axis="y")
    said = "; ".join(f"{one.name} {one.value:.2f} ({one.low:.2f} to {one.high:.2f})" for one in found)
    few = " In brackets: of how many it was asked, where not of all." if any(one.asked < count for one in found) else ""
    caption = (f"PED-ANOVA (Optuna) over {count} feasible finished candidates: how differently the best quarter by "
               f"{label(facts.main, {})} answered each question. Lines: nine tenths of {DRAWS} draws of the candidates "
               f"with replacement.{few} It says what goes with a high score among those that were trained, and the "
               "search did not train at random.")
    return framed(inline(figure, "importance", f"Bar chart of importances: {said}."), caption)
