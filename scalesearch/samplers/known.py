"""What is known of a sheet of parameters before its trial runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalesearch.samplers.sheet import Key, Sheet, key_of

MAX_REMEMBERED = 10_000  # sheets


@dataclass(frozen=True)
class Known:
    """What is exact before a trial runs.

    Attributes:
        values: one an objective, in the study's order; None where only running the trial tells.
        constraints: name to how far it is missed; 0 or less is met.
        identity: of what the sheet describes: two sheets of one identity are one thing. None: as the sheet.
        buildable: whether the sheet describes anything at all.
    """

    values: Sequence[float | None] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)
    identity: str | None = None
    buildable: bool = True

    @property
    def feasible(self) -> bool:
        """Whether nothing known forbids the trial."""
        return self.buildable and all(value <= 0 for value in self.constraints.values())

    @property
    def excess(self) -> float:
        """The sum of what the constraints are missed by."""
        return sum(value for value in self.constraints.values() if value > 0)


NOTHING = Known()
Knows = Callable[[Mapping[str, Any]], "Known | None"]


class Knowledge:
    """What ``known`` says of sheets, each asked of once; it may be asked of thousands for one proposal."""

    def __init__(self, known: Knows | None) -> None:
        self.known = known
        self._found: dict[Key, Known] = {}
        self._billed: dict[Key, Known] = {}

    @classmethod
    def of(cls, known: Knows | None) -> Knowledge:
        """``known`` with its memory, shared where it has one already."""
        return known if isinstance(known, Knowledge) else cls(known)

    def __call__(self, params: Mapping[str, Any]) -> Known:
        return self._of(key_of(params), params)

    def of_sheet(self, sheet: Sheet) -> Known:
        """The same of a sheet, which knows its key; of one that was :meth:`billed` no more than its values."""
        return self._billed.get(sheet.key) or self._of(sheet.key, sheet.params)

    def billed(self, sheet: Sheet, known: Known) -> None:
        """Takes in what is known of a feasible sheet that was billed among many."""
        if len(self._billed) >= MAX_REMEMBERED:
            del self._billed[next(iter(self._billed))]
        self._billed[sheet.key] = known

    def _of(self, key: Key, params: Mapping[str, Any]) -> Known:
        if self.known is None:
            return NOTHING
        if key not in self._found:
            if len(self._found) >= MAX_REMEMBERED:
                del self._found[next(iter(self._found))]
            self._found[key] = self.known(params) or NOTHING
        return self._found[key]

    def identity(self, params: Mapping[str, Any]) -> str:
        """What the sheet describes; a text of the sheet itself where nothing is known of it."""
        return self(params).identity or key_of(params)
