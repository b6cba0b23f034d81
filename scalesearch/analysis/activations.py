"""Active units of feed-forward networks.

Source: PartialFormer, section 6.5, after Zhang et al. (2022).

For each network, per token:

- ``n_act``: mean number of active hidden units, without padding. If each head has its own network
  (PartialFormer), over all heads together.
- ``R_act`` = n_act / hidden, with hidden = d_ffn, or H · r · head_dim if each head has its own
  network.
- ``eta_ffn`` = n_act / parameters. The paper does not define which parameters: the gate of
  PartialFormer is as wide as its heads and has 30 times the weights of its small network.
  Therefore, ``eta_ffn`` counts the network only, and ``eta_ffn_with_gate`` also the gate of the
  heads. Without such a gate the two are equal.

A unit is active if its pre-activation is positive. Pre-activations are (batch, positions, hidden)
or (batch, positions, H, r · head_dim). With ReLU, the output is then positive; GELU and SiLU have
the same sign. In a gated network (GEGLU, SwiGLU), the pre-activation of the gate counts. Parameters
are all weights that the network uses, including biases and weights that other layers share. A
network that is called twice per pass (interleaved decoders) has the mean over both calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from scalesearch.analysis.probes import Probe, RunningMean, find_layers
from scalesearch.blocks.ffn import FFN
from scalesearch.blocks.mixers.attention_extras import PartialFFN
from scalesearch.blocks.mixture import Mixture
from scalesearch.nn import Module, Seq2SeqModel


@dataclass(frozen=True)
class FFNRow:
    """Measures of one feed-forward network; None without tokens or parameters."""

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
    """Probe of the pre-activations of a feed-forward network."""

    part: str
    params: int
    params_with_gate: int
    hidden_size: int | None = None
    active_units: RunningMean = field(default_factory=RunningMean)

    def record(self, states: Tensor, mask: Tensor) -> None:
        """Count active units of pre-activations (B, positions, …)."""
        self.hidden_size = states[0, 0].numel()
        self.active_units.add(count_active_units(states)[mask])

    def row(self) -> FFNRow:
        """Return the means of all recorded tokens."""
        n_act = self.active_units.value

        def ratio(denominator: int | None) -> float | None:
            return n_act / denominator if n_act is not None and denominator else None

        return FFNRow(self.layer.stack, self.layer.number, self.part, self.hidden_size, n_act,
                      ratio(self.hidden_size), self.params, self.params_with_gate,
                      ratio(self.params), ratio(self.params_with_gate))


def ffn_probes(model: Seq2SeqModel) -> list[FFNProbe]:
    """Make probes of every network of ``model`` that has hidden units.

    The experts of a mixture have none: they read selected tokens, without their positions.
    """
    probes = []
    for layer in find_layers(model):
        gates: dict[str, Any] = {f"{path}.ffn": getattr(node, "gate", None)
                                 for path, node in layer.modules_of_type(PartialFFN)}
        mixtures = tuple(f"{path}." for path, _ in layer.modules_of_type(Mixture))
        for path, node in layer.modules_of_type(FFN):
            hidden_part = node.block.hidden_part  # type: ignore[attr-defined]
            if hidden_part is not None and not path.startswith(mixtures):
                params = count_params(node)
                module: Any = node.get_submodule(hidden_part)
                probes.append(FFNProbe(layer, module, "output", path, params,
                                       params + count_params(gates.get(path))))
    return probes


def count_active_units(pre_activations: Tensor) -> Tensor:
    """Count positive pre-activations (B, positions, …) per position (B, positions)."""
    return (pre_activations > 0).flatten(2).sum(2)


def count_params(module: Module | None) -> int:
    """Count the weights that a module uses, including those of other layers."""
    nodes = () if module is None else module.modules()
    return sum(weight.numel() for node in nodes if isinstance(node, Module)
               for _, weight in node.weights())
