"""How much of the budget is used up, and the learning rate there."""

import math
from dataclasses import dataclass

from scalesearch.train.recipe import Recipe

FIRST = 0.01  # a warm-up that is a share of the budget starts here, so that no update is wasted at a rate of 0


@dataclass
class Spent:
    """What training has used so far; everything in it is kept in a checkpoint.

    ``cpu_seconds`` and ``seconds`` are those of updates (data included), not of validation, decoding or saving.
    """

    steps: int = 0
    tokens: int = 0
    pairs: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0

    def share(self, recipe: Recipe, pairs_an_epoch: int) -> float:
        """The largest share of any budget that is used up; from 1 on, training is over."""
        used = {"steps": self.steps, "tokens": self.tokens, "epochs": self.pairs / pairs_an_epoch,
                "cpu_minutes": self.cpu_seconds / 60, "minutes": self.seconds / 60}
        limits: dict[str, float | None] = {name: getattr(recipe, name) for name in used}
        return max(used[name] / limit for name, limit in limits.items() if limit is not None)


class Schedule:
    """The learning rate at each update.

    Positions are shares of the budget, so that one formula serves updates, tokens and minutes. A warm-up given in
    updates has its place in a budget of minutes only once it is over: ``warm_end`` is noted then, and kept.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.warm_end: float | None = recipe.warmup if recipe.warmup < 1 else None

    def rate(self, step: int, share: float) -> float:
        """The learning rate of the update after ``step`` others, at the position ``share`` of the budget."""
        warmup = self.recipe.warmup
        if warmup >= 1 and step < warmup:
            return self.recipe.lr * (step + 1) / warmup
        if warmup < 1 and share < warmup:
            return self.recipe.lr * max(share / warmup, FIRST)
        if self.warm_end is None:
            self.warm_end = share
        return self.recipe.lr * self._decay(min(share, 1.0), self.warm_end)

    def _decay(self, share: float, start: float) -> float:
        """What is left of the peak at ``share`` when decay began at ``start``."""
        kind = self.recipe.schedule
        if kind == "inverse_sqrt":
            return math.sqrt(start / share) if start and share else 1.0
        along = (share - start) / (1 - start) if start < 1 else 1.0
        if kind == "cosine":
            return 0.5 * (1 + math.cos(math.pi * along))
        return 1 - along if kind == "linear" else 1.0


@dataclass
class Marks:
    """Moments that recur: every so many updates, or at equal shares of the budget. ``done`` is kept."""

    every: float
    done: int = 0

    def count(self, step: int, share: float) -> int:
        """How many of them lie behind."""
        if not self.every:
            return 0
        position = step if self.every >= 1 else share + 1e-9
        return int(position / self.every)

    def due(self, step: int, share: float) -> bool:
        """Whether one has been passed that is not done yet."""
        return self.count(step, share) > self.done

    def tick(self, step: int, share: float) -> None:
        """Note that all moments up to here are done."""
        self.done = self.count(step, share)
