"""Fairness audit of a training recipe: regret per architecture and per group.

A search ranks architectures that are trained with one recipe, but a learning rate suits some
architectures better than others. For the audit, each architecture is trained with several learning
rates, and optionally with several rules for scaling the rate with the size of the model.

The regret of an architecture is the difference between its result with the study's recipe and its
best result with any recipe. The best of several noisy results is biased (winner's curse), so all
regrets are slightly too large.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scalesearch.pareto.noise import CONFIDENCE, format_percent
from scalesearch.report.intervals import (
    ConfidenceInterval,
    kendall_tau,
    kendall_tau_interval,
    mean_interval,
    welch_interval,
)
from scalesearch.terminal import format_count

RecipeOption = tuple[str, float]  # rule for learning rates, and multiple of the study's rate


@dataclass(frozen=True)
class AuditRun:
    """Training run of one architecture with one recipe.

    Attributes:
        groups: properties of the architecture, such as ``norm post``.
        rule: rule for scaling the learning rate with the size.
        rate_factor: learning rate as a multiple of the study's rate.
        loss: final validation loss in nats per character; infinite if training failed, None if it
            was stopped or is not finished.
        score: the study's metric; None if it was not measured.
        rung_loss: validation loss at the rung at which the worse rates were stopped; None if the
            run has not reached it.
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
        """Rule and rate factor."""
        return self.rule, self.rate_factor


@dataclass(frozen=True)
class Regret:
    """Regret of one architecture under the study's recipe, at least 0.

    Attributes:
        loss_regret: in validation loss.
        score_regret: in the study's metric; None if it was not measured.
        best_option: the option with the lowest loss.
        is_best_at_edge: whether ``best_option`` has the lowest or highest rate, so that the regret
            may be larger.
        loss_regret_by_option: loss regret of every option; estimated for stopped runs (see
            :func:`final_losses`).
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
    """Mean loss regret of a group of architectures, and its difference to all others."""

    name: str
    n_architectures: int
    mean_regret: ConfidenceInterval
    difference_to_others: ConfidenceInterval | None

    @property
    def is_disadvantaged(self) -> bool:
        """Whether the interval of ``difference_to_others`` is above 0."""
        return (self.difference_to_others is not None and self.difference_to_others.low is not None
                and self.difference_to_others.low > 0)


@dataclass(frozen=True)
class Alternative:
    """One recipe for all architectures.

    Attributes:
        option: rule and rate factor.
        mean_regret: mean loss regret over all architectures.
        kendall_tau: Kendall's tau between the order of losses with this recipe and the order with
            the best recipe of each architecture.
    """

    option: RecipeOption
    mean_regret: ConfidenceInterval
    kendall_tau: float | None


@dataclass(frozen=True)
class Fairness:
    """Results of an audit.

    Attributes:
        metric: name of the scores.
        study_option: the study's recipe.
        regrets: one per architecture, the largest first.
        kendall_tau: Kendall's tau between the order of scores with the study's recipe and the
            order with the best recipe of each architecture.
        groups: the most disadvantaged first.
        alternatives: recipes for all architectures, the lowest mean regret first.
        disadvantaged: names of the groups that are disadvantaged.
        confidence: confidence level of all intervals; differences between groups have a Bonferroni
            correction.
    """

    metric: str
    study_option: RecipeOption
    regrets: tuple[Regret, ...]
    kendall_tau: ConfidenceInterval | None
    groups: tuple[GroupRegret, ...]
    alternatives: tuple[Alternative, ...]
    disadvantaged: tuple[str, ...]
    confidence: float

    def lines(self) -> list[str]:
        """Lines for the terminal."""
        if not self.regrets:
            return ["No architecture has been trained with the study's recipe and with another "
                    "recipe yet."]
        losses = [regret.loss_regret for regret in self.regrets]
        scores = [regret.score_regret for regret in self.regrets if regret.score_regret is not None]
        in_score = f" and {np.mean(scores):.3g} in {self.metric}" if scores else ""
        n_at_edge = sum(regret.is_best_at_edge for regret in self.regrets)
        disadvantaged = [f"{group.name} ({group.difference_to_others} more than others)"
                         for group in self.groups if group.is_disadvantaged]
        agreement = ("Kendall's tau between the order with the study's recipe and the order with "
                     f"the best recipes: {self.kendall_tau}, {format_percent(self.confidence)} "
                     "interval."
                     if self.kendall_tau else "Too few architectures for a rank correlation.")
        at_edge = (f"For {n_at_edge} of them, the best rate is the lowest or highest one, so their "
                   "regret may be larger.")
        fairest = []
        if self.alternatives:
            best = self.alternatives[0]
            study_regret = next((alternative.mean_regret for alternative in self.alternatives[1:]
                                 if alternative.option == self.study_option), None)
            comparison = f"; that of the study's recipe is {study_regret}" if study_regret else ""
            fairest = [f"Fairest recipe for all: {describe_option(best.option)}, mean regret "
                       f"{best.mean_regret}{comparison}."]
        return [f"Mean regret of the study's recipe over "
                f"{format_count(len(losses), 'architecture')}: {np.mean(losses):.3g} in validation "
                f"loss (nats per character){in_score}; at most "
                f"{losses[0]:.3g} ({self.regrets[0].architecture}).", agreement,
                *([at_edge] if n_at_edge else []),
                f"Disadvantaged groups: {'; '.join(disadvantaged)}." if disadvantaged
                else "No group has a significantly larger regret than the others.",
                *fairest]


def describe_option(option: RecipeOption) -> str:
    """Describe an option, such as ``2 times the study's rate, rule fixed``."""
    return f"{option[1]:g} times the study's rate, rule {option[0]}"


def assess_fairness(runs: Iterable[AuditRun], study_option: RecipeOption, metric: str,
                    direction: str, confidence: float = CONFIDENCE) -> Fairness:
    """Assess the recipe ``study_option`` from the runs of an audit.

    Args:
        runs: all runs; architectures without a finished run with ``study_option``, or with only
            one run, are ignored.
        metric: name of the scores.
        direction: ``min`` or ``max`` of the metric.
        confidence: confidence level of the intervals.
    """
    runs_by_architecture: dict[str, list[AuditRun]] = {}
    for run in runs:
        runs_by_architecture.setdefault(run.architecture, []).append(run)
    assessed = [architecture_runs
                for architecture_runs in runs_by_architecture.values()
                if _find_finished(architecture_runs, study_option) is not None
                and len(architecture_runs) > 1]
    sign = 1.0 if direction == "min" else -1.0
    regrets = sorted((_compute_regret(architecture_runs, study_option, sign)
                      for architecture_runs in assessed),
                     key=lambda regret: -regret.loss_regret)
    # Groups with the same members are merged, because the Bonferroni correction counts them as one
    # comparison.
    finite = [regret for regret in regrets if np.isfinite(regret.loss_regret)]
    names_by_members: dict[tuple[bool, ...], list[str]] = {}
    for name in dict.fromkeys(group for regret in finite for group in regret.groups):
        members = tuple(name in regret.groups for regret in finite)
        names_by_members.setdefault(members, []).append(name)
    level = 1 - (1 - confidence) / max(1, len(names_by_members))
    groups = []
    for members, names in names_by_members.items():
        inside = [regret.loss_regret for regret, is_member in zip(finite, members) if is_member]
        outside = [regret.loss_regret
                   for regret, is_member in zip(finite, members) if not is_member]
        groups.append(GroupRegret(", ".join(names), len(inside), mean_interval(inside, confidence),
                                  welch_interval(inside, outside, level)))
    groups.sort(key=lambda group: (not group.is_disadvantaged, -group.mean_regret.value))
    # Kendall's tau of scores with the study's recipe and with the best recipe, with a percentile
    # bootstrap over architectures; failed runs rank last.
    score_pairs = []
    for architecture_runs in assessed:
        study_run = _find_finished(architecture_runs, study_option)
        scores = [run.score * sign for run in architecture_runs if run.score is not None]
        if study_run is not None and scores:
            study_score = np.inf if study_run.score is None else study_run.score * sign
            score_pairs.append((study_score, min(scores)))
    order_agreement = kendall_tau_interval(np.array(score_pairs, float).reshape(-1, 2), confidence)
    return Fairness(metric, study_option, tuple(regrets), order_agreement, tuple(groups),
                    tuple(_alternatives(assessed, confidence)),
                    tuple(group.name for group in groups if group.is_disadvantaged), confidence)


def _find_finished(runs: Iterable[AuditRun], option: RecipeOption) -> AuditRun | None:
    return next((run for run in runs if run.option == option and run.loss is not None), None)


def _compute_regret(runs: Sequence[AuditRun], study_option: RecipeOption, sign: float) -> Regret:
    """Regret of the architecture with these runs.

    ``sign`` is -1 if a larger score is better.
    """
    study_run = _find_finished(runs, study_option)
    assert study_run is not None and study_run.loss is not None, "excluded by assess_fairness"
    finished = [run for run in runs if run.loss is not None]
    best = min(finished, key=lambda run: (run.loss, run.option != study_option))
    loss_regret = 0.0
    loss_regret_by_option = []
    if best.loss is not None and np.isfinite(best.loss):
        loss_regret = study_run.loss - best.loss
        loss_regret_by_option = [(option, loss - best.loss)
                                 for option, loss in final_losses(runs).items()]
    scores = [run.score * sign for run in finished if run.score is not None]
    score_regret = None if study_run.score is None else study_run.score * sign - min(scores)
    factors = [run.rate_factor for run in runs if run.rule == best.rule]
    is_at_edge = len(factors) > 1 and best.rate_factor in (min(factors), max(factors))
    return Regret(study_run.architecture, study_run.groups, loss_regret, score_regret, best.option,
                  is_at_edge, tuple(loss_regret_by_option))


def _alternatives(runs_by_architecture: Sequence[Sequence[AuditRun]],
                  confidence: float) -> list[Alternative]:
    """Options with which all architectures were trained at least up to the rung."""
    losses = [final_losses(runs) for runs in runs_by_architecture]
    first_options = losses[0] if losses else ()
    options = [option
               for option in first_options if all(option in by_option for by_option in losses)]
    best = [min(by_option.values()) for by_option in losses]
    alternatives = []
    for option in options:
        option_losses = [by_option[option] for by_option in losses]
        regrets = [loss - best_loss if np.isfinite(best_loss) else 0.0
                   for loss, best_loss in zip(option_losses, best)]
        alternatives.append(Alternative(option, mean_interval(regrets, confidence),
                                        kendall_tau(np.column_stack([option_losses, best]))))
    return sorted(alternatives, key=lambda alternative: alternative.mean_regret.value)


def final_losses(runs: Sequence[AuditRun]) -> Mapping[RecipeOption, float]:
    """Final loss of an architecture by option; estimated for stopped runs.

    A stopped run is assumed to keep the distance that it had at the rung to the best run with the
    same rule, of those that finished with a finite loss.
    """
    losses = {run.option: run.loss for run in runs if run.loss is not None}
    for run in runs:
        finished = [(other.rung_loss, other.loss)
                    for other in runs
                    if other.rule == run.rule and other.rung_loss is not None
                    and other.loss is not None and np.isfinite(other.loss)]
        if run.loss is None and run.rung_loss is not None and finished:
            best_rung_loss, final_loss = min(finished)
            losses[run.option] = final_loss + max(0.0, run.rung_loss - best_rung_loss)
    return losses
