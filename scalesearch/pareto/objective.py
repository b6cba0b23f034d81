"""Objectives of a study."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Objective:
    """A named quantity that is minimized or maximized.

    Attributes:
        name: name of the metric or cost.
        direction: ``min`` or ``max``.
        is_measured: whether training measures it; otherwise its exact value is known before.

    Raises:
        ValueError: the direction is neither ``min`` nor ``max``.
    """

    name: str
    direction: Literal["min", "max"]
    is_measured: bool

    def __post_init__(self) -> None:
        if self.direction not in ("min", "max"):
            raise ValueError(
                f"{self.name}: the direction is `min` or `max`, not `{self.direction}`")

    @property
    def sign(self) -> int:
        """Factor with which smaller values are better."""
        return -1 if self.direction == "max" else 1

    @property
    def optuna_direction(self) -> Literal["minimize", "maximize"]:
        """The direction as Optuna names it."""
        return "maximize" if self.direction == "max" else "minimize"

    def __str__(self) -> str:
        return f"{self.name}: {self.direction}"
