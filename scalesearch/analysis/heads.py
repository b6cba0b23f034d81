"""How different the heads of an attention are: D_output (PartialFormer, equation 7 and appendix D).

    D = exp(-(1 / H²) Σ_i Σ_j |O_i · O_j| / (‖O_i‖ ‖O_j‖)),   i, j = 1 … H, the terms i = j among them

averaged over samples. Larger is more diverse. All heads alike, or opposite, give e⁻¹ ≈ 0.368, whatever H; orthogonal
ones e^(-1/H), 0.882 for 8 heads and 0.967 for 30: values at different H are not on one scale, so H stands beside them.

The paper leaves open what O_i is, and where it is taken. Both readings of the first are given, the first is our choice:

- ``diversity``: O_i is head i's output at one position, (head_dim,); the mean over a sentence's positions that are no
  padding, then over sentences.
- ``diversity_sentence``: O_i is head i's output over the whole sentence, (positions · head_dim,).

It is taken where the heads are joined, before the output map: after A_i V_i in a Transformer, after a gate there is
(PartialFormer's FFN and gate within heads, Anthe's across two sequences). A hard gate can make a head zero, which then
has no direction: its cosines count as 0, with itself too, so D may pass e^(-1/H). ``silent`` says how often that is so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from scalesearch.analysis.taps import Layer, Mean, Tap, layers_of
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.nn import Model, Module

MIN_DIVERSITY = math.exp(-1)  # of equal heads


@dataclass(frozen=True)
class HeadRow:
    """One attention. ``silent``: share of (position, head) pairs whose output is zero. ``max_diversity``: e^(-1/H), of
    orthogonal heads."""

    stack: str
    layer: int
    part: str
    heads: int
    diversity: float | None
    diversity_sentence: float | None
    silent: float | None
    max_diversity: float


@dataclass
class _Probe:
    layer: Layer
    part: str
    heads: int
    position: Mean = field(default_factory=Mean)
    sentence: Mean = field(default_factory=Mean)
    silent: Mean = field(default_factory=Mean)


class Heads:
    """Measures the inputs of each attention's output map."""

    def __init__(self, model: Model) -> None:
        self.probes: list[tuple[_Probe, Module]] = []
        for layer in layers_of(model):
            for part, node in layer.parts(Attention):
                self.probes.append((_Probe(layer, part, node.block.heads), node.out))  # type: ignore[attr-defined]

    def taps(self) -> Iterator[Tap]:
        """The inputs of the output maps."""
        for probe, out in self.probes:
            yield Tap(out, "input", probe.layer.stack, partial(_take, probe))

    def rows(self) -> list[HeadRow]:
        """One a layer and attention."""
        return [
            HeadRow(h.layer.stack, h.layer.number, h.part, h.heads, h.position.value, h.sentence.value,
                    h.silent.value, math.exp(-1 / h.heads))
            for h, _ in self.probes
        ]


def diversity(heads: Tensor) -> Tensor:
    """D of heads (…, H, n): (…)."""
    norms = heads.norm(dim=-1, keepdim=True)
    unit = heads / norms.masked_fill(norms == 0, 1.0)
    mean: Tensor = (unit @ unit.transpose(-1, -2)).abs().mean((-2, -1))
    return (-mean).exp()


def _take(probe: _Probe, joined: Tensor, real: Tensor) -> None:
    """``joined`` (B, positions, H · n)."""
    heads = joined.double().reshape(*joined.shape[:2], probe.heads, -1) * real[..., None, None]
    probe.position.add(sentence_means(diversity(heads), real))
    probe.sentence.add(diversity(heads.transpose(1, 2).flatten(2)))
    probe.silent.add((heads[real] == 0).all(-1).double())


def sentence_means(values: Tensor, real: Tensor) -> Tensor:
    """(B,) means of ``values`` (B, positions) over each sentence's positions that are no padding."""
    kept = real.any(1)
    return ((values * real).sum(1) / real.sum(1).clamp(min=1))[kept]
