"""How many units of the feed-forward networks are at work (PartialFormer, section 6.5, after Zhang et al. 2022).

Of one network, per token:

- ``n_act``: hidden units that are active, mean over tokens that are no padding. With a network inside every head
  (PartialFormer), over all heads together.
- ``R_act`` = n_act / hidden, where hidden is d_ffn, or H · r · head_dim with a network inside every head.
- ``eta_ffn`` = n_act / parameters. The paper does not say whose: PartialFormer's gate is as wide as its heads and has
  30 times the weights of its small network. So there are two: ``eta_ffn`` counts the network alone,
  ``eta_ffn_with_gate`` the gate of the heads as well. Elsewhere the two are equal.

A unit is active where its pre-activation is above zero, (batch, positions, hidden) or (batch,
positions, H, r · head_dim): with ReLU, where its output is. GELU and SiLU have the same sign; of a
gated network (GEGLU, SwiGLU) it is the gate's pre-activation. Parameters are all those that the
network uses, biases and weights of other layers that it shares among them. A network that is called
twice a pass (interleaved decoders) has the mean over both calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from scalesearch.analysis.probes import LayerInfo, Probe, RunningMean, find_layers
from scalesearch.blocks.ffn import FFN
from scalesearch.blocks.mixers.attention_extras import PartialFFN
from scalesearch.nn import Module, Seq2SeqModel


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
    hidden_size: int | None = None
    active_units: RunningMean = field(default_factory=RunningMean)

    def record(self, states: Tensor, mask: Tensor) -> None:
        """Counts active units of pre-activations (B, positions, …)."""
        self.hidden_size = states[0, 0].numel()
        self.active_units.add(count_active_units(states)[mask])

    def row(self) -> FFNRow:
        """Means over all that ran."""
        n = self.active_units.value
        ratios = [n / by if n is not None and by else None
                  for by in (self.hidden_size, self.params, self.params_with_gate)]
        return FFNRow(self.layer.stack, self.layer.number, self.part, self.hidden_size, n,
                      ratios[0], self.params, self.params_with_gate, ratios[1], ratios[2])


def ffn_probes(model: Seq2SeqModel) -> list[FFNProbe]:
    """Probes of every network of ``model`` that has hidden units."""
    return [probe for layer in find_layers(model) for probe in _networks(layer)]


def count_active_units(pre_activations: Tensor) -> Tensor:
    """(B, positions) how many of the pre-activations (B, positions, …) are above zero."""
    return (pre_activations > 0).flatten(2).sum(2)


def count_params(module: Module | None) -> int:
    """Weights that a module uses, wherever they are kept."""
    nodes = [] if module is None else [node
                                       for node in module.modules() if isinstance(node, Module)]
    return sum(weight.numel() for node in nodes for _, weight in node.weights())


def _networks(layer: LayerInfo) -> Iterator[FFNProbe]:
    gates: dict[str,
                Any] = {f"{path}.ffn": getattr(node, "gate", None)
                        for path, node in layer.modules_of_type(PartialFFN)}
    for path, node in layer.modules_of_type(FFN):
        if node.block.hidden_part is not None:  # type: ignore[attr-defined]
            params = count_params(node)
            before: Any = node.get_submodule(node.block.hidden_part)  # type: ignore[attr-defined]
            yield FFNProbe(layer, before, "output", path, params,
                           params + count_params(gates.get(path)))
