"""How different the heads of an attention are: D_output (PartialFormer, equation 7 and appendix D).

    D = exp(-(1 / H²) Σ_i Σ_j |O_i · O_j| / (‖O_i‖ ‖O_j‖)),   i, j = 1 … H, the terms i = j among them

averaged over samples. Larger is more diverse. All heads alike, or opposite, give e⁻¹ ≈ 0.368,
whatever H; orthogonal ones e^(-1/H), 0.882 for 8 heads and 0.967 for 30: values at different H are
not on one scale, so H stands beside them.

The paper leaves open what O_i is, and where it is taken. Both readings of the first are given, the
first is our choice:

- ``diversity``: O_i is head i's output at one position, (head_dim,); the mean over a sentence's positions that are no
  padding, then over sentences.
- ``diversity_sentence``: O_i is head i's output over the whole sentence, (positions · head_dim,).

It is taken where the heads are joined, before the output map: after A_i V_i in a Transformer, after
a gate there is (PartialFormer's FFN and gate within heads, Anthe's across two sequences). A hard
gate can make a head zero, which then has no direction: its cosines count as 0, with itself too, so
D may pass e^(-1/H). ``silent`` says how often that is so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from scalesearch.analysis.probes import Probe, RunningMean, find_layers
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.nn import Seq2SeqModel

MIN_DIVERSITY = math.exp(-1)  # of equal heads


@dataclass(frozen=True)
class HeadRow:
    """One attention.

    ``silent_share``: share of (position, head) pairs whose output is zero. ``max_diversity``:
    e^(-1/H), of orthogonal heads.
    """

    stack: str
    layer: int
    part: str
    heads: int
    diversity: float | None
    diversity_sentence: float | None
    silent_share: float | None
    max_diversity: float


@dataclass
class HeadProbe(Probe):
    """Measures the input of an attention's output map."""

    part: str
    heads: int
    diversity_by_position: RunningMean = field(default_factory=RunningMean)
    diversity_by_sentence: RunningMean = field(default_factory=RunningMean)
    silent_share: RunningMean = field(default_factory=RunningMean)

    def record(self, states: Tensor, mask: Tensor) -> None:
        """Measures the joined heads (B, positions, H · n)."""
        heads = states.double().reshape(*states.shape[:2], self.heads, -1) * mask[..., None, None]
        self.diversity_by_position.add(sentence_means(head_diversity(heads), mask))
        self.diversity_by_sentence.add(head_diversity(heads.transpose(1, 2).flatten(2)))
        self.silent_share.add((heads[mask] == 0).all(-1).double())

    def row(self) -> HeadRow:
        """Means over all that ran."""
        return HeadRow(self.layer.stack, self.layer.number, self.part, self.heads,
                       self.diversity_by_position.value, self.diversity_by_sentence.value,
                       self.silent_share.value, math.exp(-1 / self.heads))


def head_probes(model: Seq2SeqModel) -> list[HeadProbe]:
    """Probes of every attention of ``model``."""
    return [HeadProbe(layer, node.out, "input", part, node.block.heads)  # type: ignore[attr-defined]
            for layer in find_layers(model) for part, node in layer.modules_of_type(Attention)]


def head_diversity(heads: Tensor) -> Tensor:
    """D of heads (…, H, n): (…)."""
    norms = heads.norm(dim=-1, keepdim=True)
    unit = heads / norms.masked_fill(norms == 0, 1.0)
    mean: Tensor = (unit @ unit.transpose(-1, -2)).abs().mean((-2, -1))
    return (-mean).exp()


def sentence_means(values: Tensor, real: Tensor) -> Tensor:
    """(B,) means of ``values`` (B, positions) over each sentence's positions that are no padding."""
    kept = real.any(1)
    return ((values * real).sum(1) / real.sum(1).clamp(min=1))[kept]
