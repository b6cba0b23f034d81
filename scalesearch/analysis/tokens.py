"""Token uniformity: similarity of the tokens of a sentence by layer.

Source: PartialFormer, appendix H. The paper only names Pearson's correlation. Here, each token of
the output X (positions, d) of a layer is centered over its d features, c_t = x_t - mean(x_t), and

    ρ_ts = c_t · c_s / (‖c_t‖ ‖c_s‖)

is averaged over all pairs t ≠ s of tokens that are not padding, then over sentences with at least
two tokens. 1 means that all tokens are equal up to scale and shift; lower is better. Two
interpretations are reported: ``uniformity`` uses ρ with its sign, ``uniformity_absolute`` uses |ρ|.
A token with equal features has no direction: its ρ count as 0.

Layer 0 is the input of the first layer. A layer that is evaluated several times per pass (ODE
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
    """Measures of the output of a layer; layer 0 is the input of the first layer."""

    stack: str
    layer: int
    uniformity: float | None
    uniformity_absolute: float | None


@dataclass
class TokenProbe(Probe):
    """Probe of the output of a layer, or of the input of the first layer of a stack."""

    signed: RunningMean = field(default_factory=RunningMean)
    absolute: RunningMean = field(default_factory=RunningMean)

    def record(self, states: Tensor, mask: Tensor) -> None:
        """Measure states (B, positions, d)."""
        signed, absolute = token_uniformity(states, mask)
        self.signed.add(signed)
        self.absolute.add(absolute)

    def row(self) -> TokenRow:
        """Return the means of all recorded sentences."""
        number = self.layer.number if self.hook_side == "output" else 0
        return TokenRow(self.layer.stack, number, self.signed.value, self.absolute.value)


def token_probes(model: Seq2SeqModel) -> list[TokenProbe]:
    """Make probes of every layer of ``model``, and of the input of each stack."""
    probes = []
    for layer in find_layers(model):
        if layer.number == 1:
            probes.append(TokenProbe(layer, layer.module, "input"))
        probes.append(TokenProbe(layer, layer.module, "output"))
    return probes


def token_uniformity(states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean signed and absolute correlation of tokens per sentence.

    Sentences with fewer than two tokens are left out.


    Args:
        states: (B, positions, d).
        mask: (B, positions), False at padding.

    Returns:
        Two tensors (sentences,).
    """
    x = states.double()
    unit = normalize(x - x.mean(-1, keepdim=True), dim=-1, eps=1e-9) * mask[..., None]
    correlation = unit @ unit.transpose(1, 2)  # (B, positions, positions)
    off_diagonal = ~torch.eye(correlation.shape[1], dtype=torch.bool, device=x.device)
    count = mask.sum(1)
    has_pairs = count > 1
    n_pairs = (count * (count - 1)).clamp(min=1)
    signed = (correlation * off_diagonal).sum((1, 2)) / n_pairs
    absolute = (correlation.abs() * off_diagonal).sum((1, 2)) / n_pairs
    return signed[has_pairs], absolute[has_pairs]
