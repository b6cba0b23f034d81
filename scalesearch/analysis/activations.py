"""How many units of the feed-forward networks are at work (PartialFormer, section 6.5, after Zhang et al. 2022).

Of one network, per token:

- ``n_act``: hidden units that are active, mean over tokens that are no padding. With a network inside every head
  (PartialFormer), over all heads together.
- ``R_act`` = n_act / hidden, where hidden is d_ffn, or H · r · head_dim with a network inside every head.
- ``eta_ffn`` = n_act / parameters. The paper does not say whose: PartialFormer's gate is as wide as its heads and has
  30 times the weights of its small network. So there are two: ``eta_ffn`` counts the network alone,
  ``eta_ffn_with_gate`` the gate of the heads as well. Elsewhere the two are equal.

A unit is active where its pre-activation is above zero, (batch, positions, hidden) or (batch, positions, H, r ·
head_dim): with ReLU, where its output is. GELU and SiLU have the same sign; of a gated network (GEGLU, SwiGLU) it is
the gate's pre-activation. Parameters are all those that the network uses, biases and weights of other layers that it
shares among them. A network that is called twice a pass (interleaved decoders) has the mean over both calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from scalesearch.analysis.taps import Layer, Mean, Probe, layers_of
from scalesearch.blocks.ffn import FFN
from scalesearch.blocks.mixers.inside import PartialFFN
from scalesearch.nn import Model, Module


@dataclass(frozen=True)
class FFNRow:
    """One feed-forward network; None where no token came, or where it has no parameters."""

    stack: str
    layer: int
    part: str
    hidden: int | None
    n_act: float | None
    r_act: float | None
    params: int
    params_with_gate: int
    eta_ffn: float | None
    eta_ffn_with_gate: float | None


@dataclass
class FFNProbe(Probe):
    """Measures the pre-activations of a feed-forward network."""

    part: str
    params: int
    params_with_gate: int
    hidden: int | None = None
    active: Mean = field(default_factory=Mean)

    def take(self, x: Tensor, real: Tensor) -> None:
        """Counts active units of pre-activations (B, positions, …)."""
        self.hidden = x[0, 0].numel()
        self.active.add(active_units(x)[real])

    def row(self) -> FFNRow:
        """Means over all that ran."""
        n = self.active.value
        ratios = [n / by if n is not None and by else None for by in (self.hidden, self.params, self.params_with_gate)]
        return FFNRow(self.layer.stack, self.layer.number, self.part, self.hidden, n, ratios[0], self.params,
                      self.params_with_gate, ratios[1], ratios[2])


def ffn_probes(model: Model) -> list[FFNProbe]:
    """Probes of every network of ``model`` that has hidden units."""
    return [probe for layer in layers_of(model) for probe in _networks(layer)]


def active_units(before: Tensor) -> Tensor:
    """(B, positions) how many of the pre-activations (B, positions, …) are above zero."""
    return (before > 0).flatten(2).sum(2)


def params_of(module: Module | None) -> int:
    """Weights that a module uses, wherever they are kept."""
    nodes = [] if module is None else [node for node in module.modules() if isinstance(node, Module)]
    return sum(weight.numel() for node in nodes for _, weight in node.weights())


def _networks(layer: Layer) -> Iterator[FFNProbe]:
    gates: dict[str, Any] = {f"{path}.ffn": getattr(node, "gate", None) for path, node in layer.parts(PartialFFN)}
    for path, node in layer.parts(FFN):
        if node.block.units is not None:  # type: ignore[attr-defined]
            params = params_of(node)
            before: Any = node.get_submodule(node.block.units)  # type: ignore[attr-defined]
            yield FFNProbe(layer, before, "output", path, params, params + params_of(gates.get(path)))
