"""Parameters: a choice, a range of whole numbers, a range of real numbers."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalesearch.errors import UserError

Constant = int | float | str | bool


@dataclass(frozen=True)
class Choice:
    """One of ``options``; the order is the file's."""

    options: tuple[Constant, ...]

    def values(self) -> Sequence[Constant]:
        """All legal values."""
        return self.options

    def count(self) -> int:
        """The number of legal values."""
        return len(self.options)

    def coerce(self, value: object) -> Constant:
        """The option equal to ``value``. Raises UserError if no option is equal."""
        for option in self.options:
            if option == value and isinstance(option, bool) == isinstance(value, bool):
                return option
        raise UserError(f"{value!r} is not one of {self}", code="illegal-value")

    def sample(self, rng: random.Random) -> Constant:
        """A uniform draw."""
        return rng.choice(self.options)

    def __str__(self) -> str:
        return " | ".join(format_constant(option) for option in self.options)


@dataclass(frozen=True)
class IntRange:
    """A whole number from ``low`` to ``high``, in steps or on a log scale.

    Both ends are included.
    """

    low: int
    high: int
    step: int = 1
    log: bool = False

    def values(self) -> Sequence[int]:
        """All legal values."""
        return range(self.low, self.high + 1, self.step)

    def count(self) -> int:
        """The number of legal values (a Python int of any size, unlike ``len``)."""
        return (self.high - self.low) // self.step + 1

    def coerce(self, value: Any) -> int:
        """``value`` as an int of the range. Raises UserError if it is not in the range."""
        if not isinstance(value, bool) and value % 1 == 0 and int(value) in self.values():
            return int(value)
        raise UserError(f"{value!r} is not in {self}", code="illegal-value")

    def sample(self, rng: random.Random) -> int:
        """A uniform draw, or a log-uniform one."""
        if not self.log:
            return self.low + self.step * rng.randrange(self.count())
        drawn = round(math.exp(rng.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5))))
        return min(max(drawn, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" + (f" step {self.step}" if self.step != 1
                                             else "") + " log" * self.log


@dataclass(frozen=True)
class FloatRange:
    """A real number from ``low`` to ``high``, in steps if ``step`` is set.

    Both ends are included.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def values(self) -> Sequence[float] | None:
        """All legal values, or ``None`` if it is infinite."""
        return [self._at(index)
                for index in range(count)] if (count := self.count()) is not None else None

    def count(self) -> int | None:
        """The number of legal values, or ``None`` if it is infinite."""
        return None if self.step is None else round((self.high - self.low) / self.step) + 1

    def coerce(self, value: Any) -> float:
        """``value`` as a float on the grid of the range.

        Raises UserError if it is not in the range.
        """
        number = float(value)
        if self.step is not None and self.low - self.step / 2 < number < self.high + self.step / 2:
            nearest = self._at(round((number - self.low) / self.step))
            if math.isclose(nearest, number, rel_tol=1e-9, abs_tol=self.step * 1e-6):
                return nearest
        elif self.step is None and self.low <= number <= self.high:
            return number
        raise UserError(f"{value!r} is not in {self}", code="illegal-value")

    def sample(self, rng: random.Random) -> float:
        """A uniform draw, or a log-uniform one."""
        if (count := self.count()) is not None:
            return self._at(rng.randrange(count))
        if not self.log:
            return rng.uniform(self.low, self.high)
        return min(max(math.exp(rng.uniform(math.log(self.low), math.log(self.high))), self.low),
                   self.high)

    def _at(self, index: int) -> float:
        assert self.step is not None
        return float(f"{self.low + index * self.step:.12g}")  # 0.3, not 0.30000000000000004

    def __str__(self) -> str:
        step = "" if self.step is None else f" step {format_constant(self.step)}"
        return (f"{format_constant(self.low)}..{format_constant(self.high)}{step}"
                + " log" * self.log)


Parameter = Choice | IntRange | FloatRange


def format_constant(value: object) -> str:
    """A constant as it is written in the language."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(format_constant(item) for item in value)}]"
    return str(value)
