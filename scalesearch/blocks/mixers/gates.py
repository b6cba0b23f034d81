"""Gates between query, key and value (Anthe, sections 2 and 3.2).

``YgX`` means that Y gates X; the third role Z is projected as usual. With the three maps W_Q, W_K
and W_V as slots, whose number of parameters does not change,

    X' = W_V (X ⊙ σ(W_Q Y)),  Y' = Y,  Z' = W_K Z

and then heads are split. This applies if X and Y come from the same sequence, at each position.

In cross-attention, gate and gated sequence have different positions. The published code aligns them
by index for QgV and QgK, so a decoder position depends on later ones. Here X' is instead gated
*after* its projection for each pair of query t and key j: X'_tj = (W_V X) ⊙ σ(W_Q Y), which does
not depend on other target positions. Factors that depend on t are moved to the query side (to the
queries for QgK, to the mixed values for QgV), factors that depend on j to the key side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.elementwise import multiply_promoted

if TYPE_CHECKING:
    from torch import Tensor

GATES = ("none", "QgV", "KgV", "VgQ", "VgK", "KgQ", "QgK")
SLOT_OF_ROLE = {"Q": "query", "K": "key", "V": "value"}
Projection = Callable[[str, Any], Any]  # applies the map in a slot


@dataclass(frozen=True)
class Gating:
    """The computation of query, key and value features with one of ``GATES``."""

    gate: str
    cross: bool

    @cached_property
    def gating_role(self) -> str:
        """The role that gates and is not projected: Q, K or V."""
        return self.gate[0]

    @cached_property
    def gated_role(self) -> str:
        """The role that is gated."""
        return self.gate[-1]

    @cached_property
    def projected_role(self) -> str:
        """The role that is only projected."""
        return next(role for role in "QKV" if role not in (self.gating_role, self.gated_role))

    @cached_property
    def is_cross_sequence(self) -> bool:
        """Whether the gate and the gated role come from different sequences."""
        return self.cross and "Q" in (self.gating_role, self.gated_role)

    def slots(self) -> dict[str, tuple[str, str]]:
        """Return the input and the output role of each slot.

        The role ``gate`` has the width that it gates.
        """
        if self.gate == "none":
            return {"query": ("Q", "Q"), "key": ("K", "K"), "value": ("V", "V")}
        return {"query": (self.gating_role, "gate"),
                "key": (self.projected_role, self.projected_role),
                "value": (self.gated_role, self.gated_role)}

    @property
    def key_stream_slots(self) -> tuple[str, ...]:
        """Slots that project the sequence of the keys."""
        if self.gate == "none":
            return ("key", "value")
        projected = ("key",) if self.projected_role != "Q" else ()
        return projected + (("query", "value") if self.gated_role != "Q" else ())

    def features(self, project: Projection, role: str, x: Tensor) -> Tensor:
        """Return the features of a role.

        Args:
            project: applies the map in a slot.
            role: ``Q``, ``K`` or ``V``.
            x: the sequence of the role, (batch, positions, d).
        """
        if self.gate == "none":
            return project(SLOT_OF_ROLE[role], x)
        if role == self.projected_role:
            return project("key", x)
        if role == self.gated_role:
            return project("value", x if self.is_cross_sequence else _gated(project, x, x))
        # Across sequences a gate is applied at its own positions:
        # Σ q (K' ⊙ σ(W_Q q)) = Σ (q ⊙ σ(W_Q q)) K'.
        if self.is_cross_sequence and self.gate in ("QgK", "KgQ"):
            return _gated(project, x, x)
        return x

    def gate_after_projection(self, gate: str, project: Projection, features: Tensor,
                              x: Tensor) -> Tensor:
        """Gate projected features by ``x`` if this is ``gate`` across sequences.

        This applies to keys with VgQ and to mixed values with QgV.
        """
        if self.is_cross_sequence and self.gate == gate:
            return _gated(project, features, x)
        return features


def _gated(project: Projection, features: Tensor, x: Tensor) -> Tensor:
    return multiply_promoted(features, project("query", x).sigmoid())
