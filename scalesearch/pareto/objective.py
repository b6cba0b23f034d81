"""One axis of a front."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Objective:
    """A named quantity that is minimized or maximized.

    Attributes:
        is_measured: whether only training tells it; otherwise it is known exactly before.

    Raises:
        ValueError: a direction other than ``min`` and ``max``.
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
        """The factor that makes smaller better."""
        return -1 if self.direction == "max" else 1

    def __str__(self) -> str:
        return f"{self.name}: {self.direction}"
