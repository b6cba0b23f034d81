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
from functools import partial
from typing import Any

from torch import Tensor

from scalesearch.analysis.taps import Layer, Mean, Tap, layers_of
from scalesearch.blocks.ffn import FFN
from scalesearch.blocks.mixers.partial import PartialFFN
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
class _Probe:
    layer: Layer
    part: str
    before: Module  # what makes the pre-activations
    params: int
    params_with_gate: int
    hidden: int | None = None
    active: Mean = field(default_factory=Mean)


class Activations:
    """Measures the pre-activations of each feed-forward network."""

    def __init__(self, model: Model) -> None:
        self.probes = [probe for layer in layers_of(model) for probe in _networks(layer)]

    def taps(self) -> Iterator[Tap]:
        """The maps that make pre-activations."""
        for probe in self.probes:
            yield Tap(probe.before, "output", probe.layer.stack, partial(_take, probe))

    def rows(self) -> list[FFNRow]:
        """One a layer and network; networks without hidden units have none."""
        return [_row(probe) for probe in self.probes]


def active_units(before: Tensor) -> Tensor:
    """(B, positions) how many of the pre-activations (B, positions, …) are above zero."""
    return (before > 0).flatten(2).sum(2)


def params_of(module: Module | None) -> int:
    """Weights that a module uses, wherever they are kept."""
    nodes = [] if module is None else [node for node in module.modules() if isinstance(node, Module)]
    return sum(weight.numel() for node in nodes for _, weight in node.weights())


def _networks(layer: Layer) -> Iterator[_Probe]:
    gates: dict[str, Any] = {f"{path}.ffn": getattr(node, "gate", None) for path, node in layer.parts(PartialFFN)}
    for path, node in layer.parts(FFN):
        if node.block.units is not None:  # type: ignore[attr-defined]
            params = params_of(node)
            before = node.get_submodule(node.block.units)  # type: ignore[attr-defined]
            assert isinstance(before, Module)
            yield _Probe(layer, path, before, params, params + params_of(gates.get(path)))


def _take(probe: _Probe, before: Tensor, real: Tensor) -> None:
    probe.hidden = before[0, 0].numel()
    probe.active.add(active_units(before)[real])


def _row(h: _Probe) -> FFNRow:
    n = h.active.value
    ratios = [n / by if n is not None and by else None for by in (h.hidden, h.params, h.params_with_gate)]
    return FFNRow(h.layer.stack, h.layer.number, h.part, h.hidden, n, ratios[0], h.params, h.params_with_gate,
                  ratios[1], ratios[2])
