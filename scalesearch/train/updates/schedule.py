"""Share of the budget used, and the learning rate there."""

import math
from dataclasses import dataclass

from scalesearch.train.recipe import Recipe

# of the peak rate, where a warm-up given as a share of the budget starts: 0 would learn nothing
MIN_WARMUP_LR_FACTOR = 0.01


@dataclass
class BudgetUsed:
    """Budget used so far, as checkpoints store it.

    ``cpu_seconds`` and ``seconds`` are those of updates (data included), without validation,
    decoding and saving.
    """

    steps: int = 0
    tokens: int = 0
    pairs: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0

    def budget_share(self, recipe: Recipe, pairs_per_epoch: int) -> float:
        """Largest used share of any budget; from 1 on, training is over."""
        used = {"steps": self.steps, "tokens": self.tokens, "epochs": self.pairs / pairs_per_epoch,
                "cpu_minutes": self.cpu_seconds / 60, "minutes": self.seconds / 60}
        limits: dict[str, float | None] = {name: getattr(recipe, name) for name in used}
        return max(used[name] / limit for name, limit in limits.items() if limit is not None)


class LearningRateSchedule:
    """Learning rate schedule.

    Positions are shares of the budget, so that one formula serves updates, tokens and minutes. The
    position at which a warm-up given in updates ends is known once it is over: ``warm_end`` stores
    it, for checkpoints too.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.warmup_end_share: float | None = recipe.warmup if recipe.warmup < 1 else None

    def learning_rate(self, step: int, share: float) -> float:
        """Learning rate of the update after ``step`` others, at the position ``share`` of the budget."""
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
        along = (share - start) / (1 - start) if start < 1 else 1.0
        match self.recipe.schedule:
            case "inverse_sqrt":
                return peak * (math.sqrt(start / share) if start and share else 1.0)
            case "wsd":
                return peak * min(1.0, (1 - share) / max(self.recipe.cooldown, 1e-9))
            case "cosine":
                return peak * (0.5 * (1 + math.cos(math.pi * along)))
            case "linear":
                return peak * (1 - along)
        return peak


@dataclass
class IntervalTrigger:
    """Interval of ``length`` so many updates, or below 1 a share of the budget.

    ``n_passed`` counts those over.
    """

    length: float
    n_passed: int = 0

    def count_passed(self, step: int, share: float) -> int:
        """Number of intervals passed."""
        if not self.length:
            return 0
        position = step if self.length >= 1 else share + 1e-9
        return int(position / self.length)

    def is_due(self, step: int, share: float) -> bool:
        """Whether an interval has passed since the last :meth:`tick`."""
        return self.count_passed(step, share) > self.n_passed

    def mark_passed(self, step: int, share: float) -> None:
        """Marks all intervals up to here as done."""
        self.n_passed = self.count_passed(step, share)
