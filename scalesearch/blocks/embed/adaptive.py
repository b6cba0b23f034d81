"""Adaptive input and softmax: bands of rarer tokens have narrower rows (Baevski & Auli 2019; Grave et al. 2017).

Token ids are taken to be in the order of frequency. PartialFormer's language models have bands ending at 20,000 and
60,000 and a factor of 4 (Table 20).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from scalesearch.blocks.core import TGT, VOCAB, Axes, Block, Extent, Size, Use, block
from scalesearch.blocks.leaves import Embedding, Linear, Transposed
from scalesearch.blocks.sizes import maximum


@block
class Bands(Block):
    """Bounds and widths of bands of tokens: ``d``, ``d`` / ``factor``, ``d`` / ``factor``² …"""

    d: Size
    cutoffs: tuple[int, ...]
    factor: int
    vocab: Extent = VOCAB

    def at(self, vocab: Size) -> Block:
        return replace(self, vocab=vocab)

    def bands(self) -> list[tuple[int, int, int]]:
        """(first token, one past the last, width) of every band that the vocabulary reaches."""
        assert isinstance(self.vocab, int), "bind the vocabulary first"
        edges = [0, *(cut for cut in self.cutoffs if cut < self.vocab), self.vocab]
        return [(a, b, maximum(1, self.d // self.factor**i)) for i, (a, b) in enumerate(pairwise(edges))]


@block
class AdaptiveTable(Bands):
    """Token ids (…) to (…, d). Every band looks up every token, and the right one is kept: shapes stay the same."""

    over: Axes = ()

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {}
        for i, (first, end, width) in enumerate(self.bands()):
            parts[f"table{i}"] = Embedding(width, self.over, end - first)
            parts[f"up{i}"] = Linear(width, self.d, self.over, bias=False)
        return parts

    def forward(self, m: Any, tokens: Any) -> Any:
        import torch

        looked_up: Any = None
        for i, (first, end, _) in enumerate(self.bands()):
            rows = getattr(m, f"up{i}")(getattr(m, f"table{i}")((tokens - first).clamp(0, end - first - 1)))
            inside = (tokens >= first)[..., None]
            looked_up = rows if looked_up is None else torch.where(inside, rows, looked_up)
        return looked_up


@block
class AdaptiveOutput(Bands):
    """Log-probabilities (…, V): first the band or one of the first band's tokens, then the token within its band.

    ``path``: the :class:`AdaptiveTable` whose matrices these are; None: they are its own.
    """

    path: str | None = None

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {}
        bands = self.bands()
        for i, (first, end, width) in enumerate(bands):
            ties = [None, None] if self.path is None else [f"{self.path}.{name}{i}" for name in ("up", "table")]
            parts[f"down{i}"] = Use(Transposed(self.d, width, (TGT,)), tied=ties[0])
            parts[f"table{i}"] = Use(Linear(width, end - first, (TGT,), bias=False), tied=ties[1])
        return parts | ({"clusters": Linear(self.d, len(bands) - 1, (TGT,), bias=False)} if len(bands) > 1 else {})

    def forward(self, m: Any, x: Any) -> Any:
        import torch

        bands = self.bands()
        scores = [getattr(m, f"table{i}")(getattr(m, f"down{i}")(x)) for i in range(len(bands))]
        if len(bands) == 1:
            return scores[0]
        head = torch.cat([scores[0], m.clusters(x)], -1).log_softmax(-1)
        first = scores[0].shape[-1]
        tails = [head[..., first + i, None] + tail.log_softmax(-1) for i, tail in enumerate(scores[1:])]
        return torch.cat([head[..., :first], *tails], -1)

    def terms(self, m: Any, hidden: Any, target: Any) -> list[tuple[Any, ...]]:
        """The first softmax for all tokens, and for those of a band its own; see :meth:`Linear.terms`."""
        import torch

        bands = self.bands()
        size = bands[0][1]
        # The first band's two factors as one matrix, beside the bands' own vectors: one softmax over both.
        weight, head = m.table0.weight @ m.down0.weight.t(), target
        tails = []
        for i, (first, end, _) in enumerate(bands[1:]):
            inside = (target >= first) & (target < end)
            head = torch.where(inside, size + i, head)
            states = getattr(m, f"down{i + 1}")(hidden[inside])
            tails.append((states, getattr(m, f"table{i + 1}").weight, None, target[inside] - first))
        weight = torch.cat([weight, m.clusters.weight]) if len(bands) > 1 else weight
        return [(hidden, weight, None, head), *(term for term in tails if len(term[3]))]
