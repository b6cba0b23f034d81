"""Fairness of a recipe: what each architecture loses by it, and whether it orders them as their own best recipes do.

A search ranks what it trains, and one learning rate suits some architectures better than others. Here each of some
architectures was trained at several rates, perhaps under several rules of how rates follow sizes. An architecture's
regret is what the study's recipe gives less than the best of its trainings. The best of several noisy scores flatters
(winner's curse), so regrets are a little too large, for all alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from scalesearch.files import replace_non_finite
from scalesearch.pareto.noise import CONFIDENCE, format_percent
from scalesearch.report.intervals import Interval, difference, kendall, mean, tau

Option = tuple[str, float]  # a rule of rates, and the rate as a multiple of the study's


@dataclass(frozen=True)
class Training:
    """One architecture trained by one recipe.

    Attributes:
        kinds: what it is, such as ``norm post``.
        rule, factor: how rates follow sizes, and the rate as a multiple of the study's.
        loss: validation loss at the end in nats a character, infinite where training failed; None where it was stopped,
            or is not done.
        score: the study's metric; None without one.
        rung: validation loss where the worse rates were stopped; None where it has not come there.
    """

    architecture: str
    kinds: tuple[str, ...]
    rule: str
    factor: float
    loss: float | None = None
    score: float | None = None
    rung: float | None = None

    @property
    def option(self) -> Option:
        """Rule and rate."""
        return self.rule, self.factor


@dataclass(frozen=True)
class Regret:
    """What an architecture loses by the study's recipe: in the metric and in validation loss, 0 where it is its best.

    ``best`` is the option of least loss; ``at_the_edge``: it is the lowest or highest rate, so more may be lost.
    ``by_option``: the same of every option, for losses; of one that was stopped as far as can be told.
    """

    architecture: str
    kinds: tuple[str, ...]
    loss: float
    score: float | None
    best: Option
    at_the_edge: bool
    by_option: tuple[tuple[Option, float], ...] = ()


@dataclass(frozen=True)
class Kind:
    """Mean regret (loss) of a kind, and its difference to that of all others; ``unfair``: that is above 0 for sure."""

    name: str
    architectures: int
    regret: Interval
    difference: Interval | None

    @property
    def unfair(self) -> bool:
        """Whether the recipe puts it at a disadvantage, beyond chance."""
        return self.difference is not None and self.difference.low is not None and self.difference.low > 0


@dataclass(frozen=True)
class Alternative:
    """One recipe for all: its mean regret (loss), and Kendall's tau of its order with that of the best recipes."""

    option: Option
    regret: Interval
    tau: float | None


@dataclass(frozen=True)
class Fairness:
    """Findings of an audit.

    Attributes:
        metric: of the scores.
        own: the study's recipe.
        regrets: of each architecture, the largest first.
        tau: Kendall's, between the order by the study's recipe and the order by the best, in the metric.
        kinds: the most disadvantaged first.
        alternatives: the fairest first.
        confidence: of all intervals; those of differences between kinds are Bonferroni's.
    """

    metric: str
    own: Option
    regrets: tuple[Regret, ...]
    tau: Interval | None
    kinds: tuple[Kind, ...]
    alternatives: tuple[Alternative, ...]
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """JSON of all fields; what is infinite is None."""
        made: dict[str, Any] = replace_non_finite({**asdict(self), "unfair": [kind.name for kind in self.kinds if kind.unfair]})
        return made

    def lines(self) -> list[str]:
        """The findings in sentences."""
        if not self.regrets:
            return ["No architecture has been trained by the study's recipe and another one yet."]
        losses = [regret.loss for regret in self.regrets]
        scores = [regret.score for regret in self.regrets if regret.score is not None]
        in_score = f", {np.mean(scores):.3g} in {self.metric}" if scores else ""
        edge = sum(regret.at_the_edge for regret in self.regrets)
        unfair = [f"{kind.name} ({kind.difference} more than others)" for kind in self.kinds if kind.unfair]
        known = f"Kendall's tau between its order and that of the best recipes: {self.tau}, " \
                f"{format_percent(self.confidence)} interval." if self.tau else "Too few architectures for an order."
        return [f"The study's recipe costs its {len(losses)} architectures {np.mean(losses):.3g} of validation loss "
                f"(nats a character) on average{in_score}; at most {losses[0]:.3g} ({self.regrets[0].architecture}).",
                known,
                *([f"{edge} are best at the lowest or highest rate tried, so they may lose more."] if edge else []),
                f"Unfair to: {'; '.join(unfair)}." if unfair else "It is unfair to no kind beyond chance.",
                *self._fairest()]

    def _fairest(self) -> list[str]:
        if not self.alternatives:
            return []
        best, own = self.alternatives[0], next((one for one in self.alternatives if one.option == self.own), None)
        beside = "" if own is None or own is best else f"; the study's has {own.regret}"
        return [f"The fairest single recipe: {words(best.option)}, mean regret {best.regret}{beside}."]


def words(option: Option) -> str:
    """An option in words."""
    return f"{option[1]:g} times the study's rate, rule {option[0]}"


def fairness(trainings: Iterable[Training], own: Option, metric: str, direction: str,
             confidence: float = CONFIDENCE) -> Fairness:
    """What ``trainings`` say of the recipe ``own``; architectures without a finished training by it are left out.

    Args:
        direction: ``min`` or ``max`` of the metric.
    """
    by_name: dict[str, list[Training]] = {}
    for one in trainings:
        by_name.setdefault(one.architecture, []).append(one)
    every = [each for each in by_name.values() if _of(each, own) is not None and len(each) > 1]
    sign = 1.0 if direction == "min" else -1.0
    regrets = sorted((_regret(each, own, sign) for each in every), key=lambda one: -one.loss)
    return Fairness(metric, own, tuple(regrets), _tau(every, own, sign, confidence),
                    tuple(_kinds(regrets, confidence)), tuple(_alternatives(every, confidence)), confidence)


def _of(each: Iterable[Training], option: Option) -> Training | None:
    return next((one for one in each if one.option == option and one.loss is not None), None)


def _regret(each: Sequence[Training], own: Option, sign: float) -> Regret:
    mine, done = _of(each, own), [one for one in each if one.loss is not None]
    assert mine is not None and mine.loss is not None, "others are left out"
    best = min(done, key=lambda one: (one.loss, one.option != own))
    scores = [one.score * sign for one in done if one.score is not None]
    factors = [one.factor for one in each if one.rule == best.rule]
    lost = mine.loss - best.loss if best.loss is not None and np.isfinite(best.loss) else 0.0
    return Regret(mine.architecture, mine.kinds, lost, None if mine.score is None else mine.score * sign - min(scores),
                  best.option, len(factors) > 1 and best.factor in (min(factors), max(factors)),
                  tuple((option, loss - best.loss) for option, loss in final_losses(each).items()
                        if best.loss is not None and np.isfinite(best.loss)))


def _tau(rows: Sequence[Sequence[Training]], own: Option, sign: float, confidence: float) -> Interval | None:
    """Kendall's tau with a percentile bootstrap over architectures; what failed by the study's recipe is last."""
    pairs = []
    for each in rows:
        mine, scores = _of(each, own), [one.score * sign for one in each if one.score is not None]
        if mine is not None and scores:
            pairs.append((np.inf if mine.score is None else mine.score * sign, min(scores)))
    return tau(np.array(pairs, float).reshape(-1, 2), confidence)


def _kinds(regrets: Sequence[Regret], confidence: float) -> list[Kind]:
    finite = [regret for regret in regrets if np.isfinite(regret.loss)]
    groups: dict[tuple[bool, ...], list[str]] = {}  # kinds of the same architectures are one question, not several
    for name in dict.fromkeys(kind for regret in finite for kind in regret.kinds):
        groups.setdefault(tuple(name in one.kinds for one in finite), []).append(name)
    split = {", ".join(names): ([one.loss for one, there in zip(finite, inside) if there],
                                [one.loss for one, there in zip(finite, inside) if not there])
             for inside, names in groups.items()}
    level = 1 - (1 - confidence) / max(1, len(split))
    found = [Kind(name, len(inside), mean(inside, confidence), difference(inside, outside, level))
             for name, (inside, outside) in split.items()]
    return sorted(found, key=lambda kind: (not kind.unfair, -kind.regret.value))


def _alternatives(rows: Sequence[Sequence[Training]], confidence: float) -> list[Alternative]:
    """Every option that all architectures were trained by, at least as far as the rung."""
    losses = [final_losses(each) for each in rows]
    options = [option for option in (losses[0] if losses else ()) if all(option in one for one in losses)]
    best = [min(one.values()) for one in losses]
    found = []
    for option in options:
        mine = [one[option] for one in losses]
        table = np.column_stack([mine, best])
        found.append(Alternative(option, mean([a - b if np.isfinite(b) else 0.0 for a, b in zip(mine, best)],
                                              confidence), kendall(table)))
    return sorted(found, key=lambda one: one.regret.value)


def final_losses(each: Sequence[Training]) -> Mapping[Option, float]:
    """Loss of an architecture by option; one that was stopped is as far behind at the end as it was at the rung."""
    found = {one.option: one.loss for one in each if one.loss is not None}
    for one in each:
        done = [(other.rung, other.loss) for other in each
                if other.rule == one.rule and other.loss is not None and other.rung is not None]
        if one.loss is None and one.rung is not None and done:
            rung, loss = min(done)
            found[one.option] = loss + max(0.0, one.rung - rung)
    return found
