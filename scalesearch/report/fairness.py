"""Fairness of a recipe: what each architecture loses by it, and whether it orders them as their own best recipes do.

A search ranks what it trains, and one learning rate suits some architectures better than others.
Here each of some architectures was trained at several rates, perhaps under several rules of how
rates follow sizes. An architecture's regret is what the study's recipe gives less than the best of
its trainings. The best of several noisy scores flatters (winner's curse), so regrets are a little
too large, for all alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from scalesearch.files import replace_non_finite
from scalesearch.pareto.noise import CONFIDENCE, format_percent
from scalesearch.report.intervals import (
    ConfidenceInterval,
    kendall_tau,
    kendall_tau_interval,
    mean_interval,
    welch_interval,
)

RecipeOption = tuple[str, float]  # a rule of rates, and the rate as a multiple of the study's


@dataclass(frozen=True)
class AuditRun:
    """One architecture trained by one recipe.

    Attributes:
        groups: what it is, such as ``norm post``.
        rule, rate_factor: how rates follow sizes, and the rate as a multiple of the study's.
        loss: validation loss at the end in nats a character, infinite where training failed; None
            where it was stopped,
            or is not done.
        score: the study's metric; None without one.
        rung_loss: validation loss where the worse rates were stopped; None where it has not come
            there.
    """

    architecture: str
    groups: tuple[str, ...]
    rule: str
    rate_factor: float
    loss: float | None = None
    score: float | None = None
    rung_loss: float | None = None

    @property
    def option(self) -> RecipeOption:
        """Rule and rate."""
        return self.rule, self.rate_factor


@dataclass(frozen=True)
class Regret:
    """What an architecture loses by the study's recipe: in the metric and in validation loss, 0 where it is its best.

    ``best_option`` is the option of least loss; ``is_best_at_edge``: it is the lowest or highest
    rate, so more may be lost. ``loss_regret_by_option``: the same of every option, for losses; of
    one that was stopped as far as can be told.
    """

    architecture: str
    groups: tuple[str, ...]
    loss_regret: float
    score_regret: float | None
    best_option: RecipeOption
    is_best_at_edge: bool
    loss_regret_by_option: tuple[tuple[RecipeOption, float], ...] = ()


@dataclass(frozen=True)
class GroupRegret:
    """Mean regret (loss) of a kind, and its difference to that of all others; ``is_disadvantaged``:
    that is above 0 for sure."""

    name: str
    n_architectures: int
    mean_regret: ConfidenceInterval
    difference_to_others: ConfidenceInterval | None

    @property
    def is_disadvantaged(self) -> bool:
        """Whether the recipe puts it at a disadvantage, beyond chance."""
        return (self.difference_to_others is not None and self.difference_to_others.low is not None
                and self.difference_to_others.low > 0)


@dataclass(frozen=True)
class Alternative:
    """One recipe for all: its mean regret (loss), and Kendall's tau of its order with that of the best recipes."""

    option: RecipeOption
    mean_regret: ConfidenceInterval
    kendall_tau: float | None


@dataclass(frozen=True)
class Fairness:
    """Findings of an audit.

    Attributes:
        metric: of the scores.
        study_option: the study's recipe.
        regrets: of each architecture, the largest first.
        kendall_tau: Kendall's, between the order by the study's recipe and the order by the best,
            in the metric.
        groups: the most disadvantaged first.
        alternatives: the fairest first.
        confidence: of all intervals; those of differences between kinds are Bonferroni's.
    """

    metric: str
    study_option: RecipeOption
    regrets: tuple[Regret, ...]
    kendall_tau: ConfidenceInterval | None
    groups: tuple[GroupRegret, ...]
    alternatives: tuple[Alternative, ...]
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """JSON of all fields; what is infinite is None."""
        made: dict[str, Any] = replace_non_finite(
            {**asdict(self),
             "disadvantaged": [kind.name for kind in self.groups if kind.is_disadvantaged]})
        return made

    def lines(self) -> list[str]:
        """The findings in sentences."""
        if not self.regrets:
            return ["No architecture has been trained by the study's recipe and another one yet."]
        losses = [regret.loss_regret for regret in self.regrets]
        scores = [regret.score_regret for regret in self.regrets if regret.score_regret is not None]
        in_score = f", {np.mean(scores):.3g} in {self.metric}" if scores else ""
        edge = sum(regret.is_best_at_edge for regret in self.regrets)
        unfair = [f"{kind.name} ({kind.difference_to_others} more than others)"
                  for kind in self.groups if kind.is_disadvantaged]
        known = ("Kendall's tau between its order and that of the best recipes: "
                 f"{self.kendall_tau}, {format_percent(self.confidence)} interval."
                 if self.kendall_tau else "Too few architectures for an order.")
        return [f"The study's recipe costs its {len(losses)} architectures {np.mean(losses):.3g} "
                f"of validation loss (nats a character) on average{in_score}; at most "
                f"{losses[0]:.3g} ({self.regrets[0].architecture}).", known,
                *([f"{edge} are best " "at the lowest or "
                   "highest rate tried, so they may lose more."] if edge else []),
                f"Unfair to: {'; '.join(unfair)}." if unfair
                else "It is unfair to no kind beyond chance.", *self._fairest()]

    def _fairest(self) -> list[str]:
        if not self.alternatives:
            return []
        best = self.alternatives[0]
        own = next((one for one in self.alternatives if one.option == self.study_option), None)
        beside = "" if own is None or own is best else f"; the study's has {own.mean_regret}"
        return [f"The fairest single recipe: {describe_option(best.option)}, mean regret "
                f"{best.mean_regret}{beside}."]


def describe_option(option: RecipeOption) -> str:
    """An option in words."""
    return f"{option[1]:g} times the study's rate, rule {option[0]}"


def assess_fairness(runs: Iterable[AuditRun], study_option: RecipeOption, metric: str,
                    direction: str, confidence: float = CONFIDENCE) -> Fairness:
    """What ``runs`` say of the recipe ``study_option``; architectures without a finished training by it are left out.

    Args:
        direction: ``min`` or ``max`` of the metric.
    """
    by_name: dict[str, list[AuditRun]] = {}
    for one in runs:
        by_name.setdefault(one.architecture, []).append(one)
    every = [each
             for each in by_name.values() if _of(each, study_option) is not None and len(each) > 1]
    sign = 1.0 if direction == "min" else -1.0
    regrets = sorted((_regret(each, study_option, sign) for each in every),
                     key=lambda one: -one.loss_regret)
    return Fairness(metric, study_option, tuple(regrets),
                    _tau(every, study_option, sign, confidence), tuple(_kinds(regrets, confidence)),
                    tuple(_alternatives(every, confidence)), confidence)


def _of(each: Iterable[AuditRun], option: RecipeOption) -> AuditRun | None:
    return next((one for one in each if one.option == option and one.loss is not None), None)


def _regret(each: Sequence[AuditRun], own: RecipeOption, sign: float) -> Regret:
    mine = _of(each, own)
    done = [one for one in each if one.loss is not None]
    assert mine is not None and mine.loss is not None, "others are left out"
    best = min(done, key=lambda one: (one.loss, one.option != own))
    scores = [one.score * sign for one in done if one.score is not None]
    factors = [one.rate_factor for one in each if one.rule == best.rule]
    lost = mine.loss - best.loss if best.loss is not None and np.isfinite(best.loss) else 0.0
    return Regret(mine.architecture, mine.groups, lost,
                  None if mine.score is None else mine.score * sign - min(scores), best.option,
                  len(factors) > 1 and best.rate_factor in (min(factors), max(factors)),
                  tuple((option, loss - best.loss)
                        for option, loss in final_losses(each).items()
                        if best.loss is not None and np.isfinite(best.loss)))


def _tau(rows: Sequence[Sequence[AuditRun]], own: RecipeOption, sign: float,
         confidence: float) -> ConfidenceInterval | None:
    """Kendall's tau with a percentile bootstrap over architectures; what failed by the study's recipe is last."""
    pairs = []
    for each in rows:
        mine = _of(each, own)
        scores = [one.score * sign for one in each if one.score is not None]
        if mine is not None and scores:
            pairs.append((np.inf if mine.score is None else mine.score * sign, min(scores)))
    return kendall_tau_interval(np.array(pairs, float).reshape(-1, 2), confidence)


def _kinds(regrets: Sequence[Regret], confidence: float) -> list[GroupRegret]:
    finite = [regret for regret in regrets if np.isfinite(regret.loss_regret)]
    # kinds of the same architectures are one question, not several
    groups: dict[tuple[bool, ...], list[str]] = {}
    for name in dict.fromkeys(kind for regret in finite for kind in regret.groups):
        groups.setdefault(tuple(name in one.groups for one in finite), []).append(name)
    split = {", ".join(names): ([one.loss_regret for one, there in zip(finite, inside) if there],
                                [one.loss_regret
                                 for one, there in zip(finite, inside) if not there])
             for inside, names in groups.items()}
    level = 1 - (1 - confidence) / max(1, len(split))
    found = [GroupRegret(name, len(inside), mean_interval(inside, confidence),
                         welch_interval(inside, outside, level))
             for name, (inside, outside) in split.items()]
    return sorted(found, key=lambda kind: (not kind.is_disadvantaged, -kind.mean_regret.value))


def _alternatives(rows: Sequence[Sequence[AuditRun]], confidence: float) -> list[Alternative]:
    """Every option that all architectures were trained by, at least as far as the rung."""
    losses = [final_losses(each) for each in rows]
    options = [option
               for option in (losses[0] if losses else ()) if all(option in one for one in losses)]
    best = [min(one.values()) for one in losses]
    found = []
    for option in options:
        mine = [one[option] for one in losses]
        table = np.column_stack([mine, best])
        found.append(Alternative(option,
                                 mean_interval([a - b if np.isfinite(b) else 0.0
                                                for a, b in zip(mine, best)], confidence),
                                 kendall_tau(table)))
    return sorted(found, key=lambda one: one.mean_regret.value)


def final_losses(runs: Sequence[AuditRun]) -> Mapping[RecipeOption, float]:
    """Loss of an architecture by option; one that was stopped is as far behind at the end as it was at the rung."""
    found = {one.option: one.loss for one in runs if one.loss is not None}
    for one in runs:
        done = [(other.rung_loss, other.loss)
                for other in runs
                if other.rule == one.rule and other.loss is not None
                and other.rung_loss is not None]
        if one.loss is None and one.rung_loss is not None and done:
            rung, loss = min(done)
            found[one.option] = loss + max(0.0, one.rung_loss - rung)
    return found
