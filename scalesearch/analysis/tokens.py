"""How alike the tokens of a sentence become, layer by layer: token uniformity (PartialFormer, appendix H).

The paper names Pearson's correlation and no more. Here: of a layer's output X (positions, d) each
token is centered over its d features, c_t = x_t - mean(x_t), and

    ρ_ts = c_t · c_s / (‖c_t‖ ‖c_s‖)

is averaged over all pairs t ≠ s of tokens that are no padding, then over sentences of two tokens or
more. 1 is all tokens alike (up to scale and shift); lower is better. Two readings: ``uniformity``
takes ρ with its sign, which is our choice, ``uniformity_absolute`` without. A token all of whose
features are equal has no direction: its ρ count as 0.

Layer 0 is what the first layer is given. A layer that is evaluated several times a pass (ODE
solvers) has the mean over its evaluations. With pre-norm, outputs are those of the residual stream,
before any norm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import normalize

from scalesearch.analysis.probes import Probe, RunningMean, find_layers
from scalesearch.nn import Seq2SeqModel


@dataclass(frozen=True)
class TokenRow:
    """One layer's output; layer 0 is the first layer's input."""

    stack: str
    layer: int
    uniformity: float | None
    uniformity_absolute: float | None


@dataclass
class TokenProbe(Probe):
    """Measures a layer's output, or the input of the first of a stack as that of layer 0."""

    signed: RunningMean = field(default_factory=RunningMean)
    absolute: RunningMean = field(default_factory=RunningMean)

    def record(self, states: Tensor, mask: Tensor) -> None:
        """Measures states (B, positions, d)."""
        for mean, values in zip((self.signed, self.absolute), token_uniformity(states, mask)):
            mean.add(values)

    def row(self) -> TokenRow:
        """Means over all that ran."""
        number = self.layer.number if self.hook_side == "output" else 0
        return TokenRow(self.layer.stack, number, self.signed.value, self.absolute.value)


def token_probes(model: Seq2SeqModel) -> list[TokenProbe]:
    """Probes of every layer of ``model``, and one before the first of each stack."""
    return [TokenProbe(layer, layer.module, side) for layer in find_layers(model)
            for side in (["input"] if layer.number == 1 else []) + ["output"]]


def token_uniformity(states: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Signed and absolute mean correlation, (sentences,) each, of sentences with two tokens or more.

    Args:
        states: (B, positions, d). real: (B, positions), where there is no padding.
    """
    x = states.double()
    unit = normalize(x - x.mean(-1, keepdim=True), dim=-1, eps=1e-9) * real[..., None]
    correlation = unit @ unit.transpose(1, 2)
    others = ~torch.eye(correlation.shape[1], dtype=torch.bool, device=x.device)
    count = real.sum(1)
    kept = count > 1
    pairs = (count * (count - 1)).clamp(min=1)
    means = [(kind * others).sum((1, 2)) / pairs for kind in (correlation, correlation.abs())]
    return means[0][kept], means[1][kept]
