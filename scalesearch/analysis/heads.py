"""Diversity of attention heads: D_output (PartialFormer, eq. 7 and appendix D).

    D = exp(-(1 / H²) Σ_i Σ_j |O_i · O_j| / (‖O_i‖ ‖O_j‖)),   i, j = 1 … H, including i = j

averaged over samples. Larger is more diverse. Equal or opposite heads give e⁻¹ ≈ 0.368 for any H;
orthogonal heads give e^(-1/H), which is 0.882 for 8 heads and 0.967 for 30. Values for different H
are not comparable, so H is reported too.

The paper does not define O_i exactly. Both interpretations are reported; the first is the default:

- ``diversity``: O_i is the output of head i at one position, (head_dim,). It is averaged over the
  positions of a sentence without padding, then over sentences.
- ``diversity_sentence``: O_i is the output of head i over the whole sentence, (positions ·
  head_dim,).

Outputs are taken where the heads are joined, before the output map: after A_i V_i in a Transformer,
after a gate if there is one (PartialFormer's FFN and gate within heads, Anthe's gate across two
sequences). A hard gate can make the output of a head zero, which has no direction. Its cosines
count as 0, also with itself, so D may exceed e^(-1/H). ``silent_share`` is the share of such
outputs.
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
    """Measures of one attention.

    Attributes:
        silent_share: share of (position, head) pairs with zero output.
        max_diversity: e^(-1/H), of orthogonal heads.
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
    """Probe of the input of an attention's output map."""

    part: str
    heads: int
    diversity_by_position: RunningMean = field(default_factory=RunningMean)
    diversity_by_sentence: RunningMean = field(default_factory=RunningMean)
    silent_share: RunningMean = field(default_factory=RunningMean)

    def record(self, states: Tensor, mask: Tensor) -> None:
        """Measure joined heads (B, positions, H · n)."""
        heads = states.double().reshape(*states.shape[:2], self.heads, -1) * mask[..., None, None]
        self.diversity_by_position.add(sentence_means(head_diversity(heads), mask))
        self.diversity_by_sentence.add(head_diversity(heads.transpose(1, 2).flatten(2)))
        self.silent_share.add((heads[mask] == 0).all(-1).double())

    def row(self) -> HeadRow:
        """Return the means of all recorded tokens."""
        return HeadRow(self.layer.stack, self.layer.number, self.part, self.heads,
                       self.diversity_by_position.value, self.diversity_by_sentence.value,
                       self.silent_share.value, math.exp(-1 / self.heads))


def head_probes(model: Seq2SeqModel) -> list[HeadProbe]:
    """Make probes of every attention of ``model``."""
    probes = []
    for layer in find_layers(model):
        for part, node in layer.modules_of_type(Attention):
            n_heads = node.block.heads  # type: ignore[attr-defined]
            probes.append(HeadProbe(layer, node.out, "input", part, n_heads))
    return probes


def head_diversity(heads: Tensor) -> Tensor:
    """Compute D of heads (…, H, n); the result is (…)."""
    norms = heads.norm(dim=-1, keepdim=True)
    unit = heads / norms.masked_fill(norms == 0, 1.0)
    mean: Tensor = (unit @ unit.transpose(-1, -2)).abs().mean((-2, -1))
    return (-mean).exp()


def sentence_means(values: Tensor, mask: Tensor) -> Tensor:
    """Average ``values`` (B, positions) per sentence, without padding.

    ``mask`` (B, positions) is False at padding. Sentences without tokens are left out.
    """
    has_tokens = mask.any(1)
    return ((values * mask).sum(1) / mask.sum(1).clamp(min=1))[has_tokens]
