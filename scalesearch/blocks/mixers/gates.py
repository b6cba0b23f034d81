"""Anthe's gates: of query, key and value one gates another, the third is projected as ever (Anthe, section 2 and 3.2).

``YgX``: Y gates X. With the three maps W_Q, W_K, W_V as slots that keep their parameters,

    X' = W_V (X ⊙ σ(W_Q Y)),  Y' = Y,  Z' = W_K Z

and then heads are split. That is what happens where X and Y come from one sequence, position by position. In
cross-attention a gate across the two sequences has no common position, and aligning them by index (as the published
code does for QgV and QgK) lets a decoder position see the later ones. There X' is gated *after* its projection, pair
by pair, X'_tj = (W_V X) ⊙ σ(W_Q Y) for query t and key j, which never meets another target position: what depends on t
goes to the query's side (of the scores for QgK, of the mixed values for QgV), what depends on j to the key's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scalesearch.blocks.elementwise import times

GATES = ("none", "QgV", "KgV", "VgQ", "VgK", "KgQ", "QgK")
Project = Callable[[str, Any], Any]  # the map in a slot, applied


@dataclass(frozen=True)
class Gating:
    """The computation of query, key and value under one of ``GATES``."""

    gate: str
    cross: bool

    @property
    def gating(self) -> str:
        """The role that gates and stays raw: Q, K or V."""
        return self.gate[0]

    @property
    def gated(self) -> str:
        """The role that is gated."""
        return self.gate[-1]

    @property
    def other(self) -> str:
        """The role that is only projected."""
        return next(role for role in "QKV" if role not in (self.gating, self.gated))

    @property
    def across(self) -> bool:
        """True if gate and gated come from different sequences."""
        return self.cross and "Q" in (self.gating, self.gated)

    def slots(self) -> dict[str, tuple[str, str]]:
        """Slot to (role it reads, role it makes); ``gate``: as wide as its target."""
        if self.gate == "none":
            return {"query": ("Q", "Q"), "key": ("K", "K"), "value": ("V", "V")}
        return {"query": (self.gating, "gate"), "key": (self.other, self.other), "value": (self.gated, self.gated)}

    @property
    def on_keys(self) -> tuple[str, ...]:
        """The slots that the keys' stream goes through."""
        if self.gate == "none":
            return ("key", "value")
        projected = ("key",) if self.other != "Q" else ()
        return projected + (("query", "value") if self.gated != "Q" else ())

    def query(self, project: Project, x: Any) -> Any:
        """(batch, queries, d) to the query's features, its own gate applied."""
        if self.gate == "none":
            return project("query", x)
        if self.other == "Q":
            return project("key", x)
        if self.gating == "Q":
            # Of a gate over keys, query t's own share: Σ (q ⊙ σ(W_Q q)) K' = Σ q (K' ⊙ σ(W_Q q)).
            return times(x, project("query", x).sigmoid()) if self.gated == "K" and self.across else x
        return project("value", x) if self.across else project("value", times(x, project("query", x).sigmoid()))

    def key(self, project: Project, y: Any) -> Any:
        """(batch, keys, d) to the key's features."""
        if self.gate == "none" or self.other == "K":
            return project("key", y)
        if self.gated == "K":
            return project("value", y if self.across else times(y, project("query", y).sigmoid()))
        # Raw, but for a gate over queries that must stand on the key's side.
        return times(y, project("query", y).sigmoid()) if self.gated == "Q" and self.across else y

    def value(self, project: Project, y: Any) -> Any:
        """(batch, keys, d) to the value's features."""
        if self.gate == "none":
            return project("value", y)
        if self.other == "V":
            return project("key", y)
        if self.gated == "V":
            return project("value", y if self.across else times(y, project("query", y).sigmoid()))
        return y

    def key_gate(self, project: Project, key: Any, y: Any) -> Any:
        """The key's features, gated where VgQ spans two sequences."""
        needed = self.gate == "VgQ" and self.across
        return times(key, project("query", y).sigmoid()) if needed else key

    def mixed(self, project: Project, mixed: Any, x: Any) -> Any:
        """The mixed values (batch, queries, width), gated where QgV spans two sequences."""
        needed = self.gate == "QgV" and self.across
        return times(mixed, project("query", x).sigmoid()) if needed else mixed
