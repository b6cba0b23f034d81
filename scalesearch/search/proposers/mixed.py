"""``mixed``: a model's proposals and small changes to the front in turn; each finds what the other overlooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalesearch.search.history import History
from scalesearch.search.proposers.base import Askable, Proposer, Settings
from scalesearch.search.proposers.local import Local
from scalesearch.search.proposers.samplers import TPE


class Mixed(Proposer):
    """TPE on even numbers, local changes on odd ones."""

    name = "mixed"

    def __init__(self, space: Askable, limits: Any, goals: Any, settings: Settings) -> None:
        super().__init__(space, limits, goals, settings)
        self.parts = [kind(space, limits, goals, settings) for kind in (TPE, Local)]

    def ask(self, number: int, history: History) -> Mapping[str, Any] | None:
        return self.parts[number % 2].ask(number, history)
