"""Anthe's gates: of query, key and value one gates another, the third is projected as ever (Anthe, section 2 and 3.2).

``YgX``: Y gates X. With the three maps W_Q, W_K, W_V as slots that keep their parameters,

    X' = W_V (X ⊙ σ(W_Q Y)),  Y' = Y,  Z' = W_K Z

and then heads are split. That is what happens where X and Y come from one sequence, position by
position. In cross-attention a gate across the two sequences has no common position, and aligning
them by index (as the published code does for QgV and QgK) lets a decoder position see the later
ones. There X' is gated *after* its projection, pair by pair, X'_tj = (W_V X) ⊙ σ(W_Q Y) for query t
and key j, which never meets another target position: what depends on t goes to the query's side (of
the scores for QgK, of the mixed values for QgV), what depends on j to the key's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.elementwise import multiply_promoted

if TYPE_CHECKING:
    from torch import Tensor

GATES = ("none", "QgV", "KgV", "VgQ", "VgK", "KgQ", "QgK")
SLOT_OF_ROLE = {"Q": "query", "K": "key", "V": "value"}
Projection = Callable[[str, Any], Any]  # the map in a slot, applied


@dataclass(frozen=True)
class Gating:
    """The computation of query, key and value under one of ``GATES``."""

    gate: str
    cross: bool

    @property
    def gating_role(self) -> str:
        """The role that gates and stays raw: Q, K or V."""
        return self.gate[0]

    @property
    def gated_role(self) -> str:
        """The role that is gated."""
        return self.gate[-1]

    @property
    def projected_role(self) -> str:
        """The role that is only projected."""
        return next(role for role in "QKV" if role not in (self.gating_role, self.gated_role))

    @property
    def is_cross_sequence(self) -> bool:
        """True if gate and gated come from different sequences."""
        return self.cross and "Q" in (self.gating_role, self.gated_role)

    def slots(self) -> dict[str, tuple[str, str]]:
        """Slot to (role it reads, role it makes); ``gate``: as wide as its target."""
        if self.gate == "none":
            return {"query": ("Q", "Q"), "key": ("K", "K"), "value": ("V", "V")}
        return {"query": (self.gating_role, "gate"),
                "key": (self.projected_role, self.projected_role),
                "value": (self.gated_role, self.gated_role)}

    @property
    def key_stream_slots(self) -> tuple[str, ...]:
        """The slots that the keys' stream goes through."""
        if self.gate == "none":
            return ("key", "value")
        projected = ("key",) if self.projected_role != "Q" else ()
        return projected + (("query", "value") if self.gated_role != "Q" else ())

    def features(self, project: Projection, role: str, x: Tensor) -> Tensor:
        """The features of a role (Q, K or V) from its sequence, (batch, positions, d)."""
        if self.gate == "none":
            return project(SLOT_OF_ROLE[role], x)
        if role == self.projected_role:
            return project("key", x)
        if role == self.gated_role:
            return project("value", x if self.is_cross_sequence else _gated(project, x, x))
        # Across sequences a gate acts on the side of its own position: Σ (q ⊙ σ(W_Q q)) K' = Σ q
        # (K' ⊙ σ(W_Q q)).
        return _gated(
            project, x, x) if self.is_cross_sequence and self.gate in ("QgK", "KgQ") else x

    def gate_after_projection(self, gate: str, project: Projection, features: Tensor, x: Tensor) -> Tensor:
        """``features`` gated by ``x`` where this is ``gate`` across sequences: keys by VgQ, mixed values by QgV."""
        return _gated(project, features,
                      x) if self.is_cross_sequence and self.gate == gate else features


def _gated(project: Projection, features: Tensor, x: Tensor) -> Tensor:
    return multiply_promoted(features, project("query", x).sigmoid())
