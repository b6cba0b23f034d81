"""Used share of the budget, and the learning rate schedule."""

import math
from dataclasses import dataclass

from scalesearch.training.recipe import Recipe

# Start of a warm-up that is a share of the budget, relative to the peak: with 0, the first update
# would change nothing.
MIN_WARMUP_LR_FACTOR = 0.01


@dataclass
class BudgetUsed:
    """Budget used so far, as stored in checkpoints.

    ``cpu_seconds`` and ``seconds`` count updates (including data), without validation, decoding and
    saving.
    """

    steps: int = 0
    tokens: int = 0
    pairs: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0

    def budget_share(self, recipe: Recipe, pairs_per_epoch: int) -> float:
        """Return the largest used share of a budget; training is over at 1."""
        used = {"steps": self.steps, "tokens": self.tokens, "epochs": self.pairs / pairs_per_epoch,
                "cpu_minutes": self.cpu_seconds / 60, "minutes": self.seconds / 60}
        budgets: dict[str, float | None] = {name: getattr(recipe, name) for name in used}
        return max(used[name] / budget for name, budget in budgets.items() if budget is not None)


class LearningRateSchedule:
    """Learning rate schedule.

    Positions are shares of the budget, so one formula serves updates, tokens and minutes. If the
    warm-up is a number of updates, its position is known when it ends; then it is stored in
    ``warmup_end_share``, and in checkpoints.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.warmup_end_share: float | None = recipe.warmup if recipe.warmup < 1 else None

    def learning_rate(self, step: int, share: float) -> float:
        """Return the learning rate after ``step`` updates, at ``share`` of the budget."""
        warmup = self.recipe.warmup
        peak = self.recipe.lr.base
        if warmup >= 1 and step < warmup:
            return peak * (step + 1) / warmup
        if warmup < 1 and share < warmup:
            return peak * max(share / warmup, MIN_WARMUP_LR_FACTOR)
        if self.warmup_end_share is None:
            self.warmup_end_share = share
        share = min(share, 1.0)
        start = self.warmup_end_share
        progress = (share - start) / (1 - start) if start < 1 else 1.0
        match self.recipe.schedule:
            case "inverse_sqrt":
                return peak * (math.sqrt(start / share) if start and share else 1.0)
            case "wsd":
                return peak * min(1.0, (1 - share) / max(self.recipe.cooldown, 1e-9))
            case "cosine":
                return peak * (0.5 * (1 + math.cos(math.pi * progress)))
            case "linear":
                return peak * (1 - progress)
        return peak


@dataclass
class IntervalTrigger:
    """Trigger at regular intervals.

    ``length`` is a number of updates, or below 1 a share of the budget. ``n_passed`` is the number
    of intervals that are marked as passed.
    """

    length: float
    n_passed: int = 0

    def count_passed(self, step: int, share: float) -> int:
        """Return the number of intervals until this position."""
        if not self.length:
            return 0
        position = step if self.length >= 1 else share + 1e-9
        return int(position / self.length)

    def is_due(self, step: int, share: float) -> bool:
        """Whether an interval has passed since the last :meth:`mark_passed`."""
        return self.count_passed(step, share) > self.n_passed

    def mark_passed(self, step: int, share: float) -> None:
        """Mark all intervals until this position as passed."""
        self.n_passed = self.count_passed(step, share)
