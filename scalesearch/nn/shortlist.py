"""Lexical shortlists: decoding with the logits of a few tokens per sentence.

Translations consist of frequent tokens and of tokens that occur with those of the source in the
training text. A step computes the rows of the output matrix of these tokens only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scalesearch.blocks.core import EOS
from scalesearch.blocks.leaves import Linear
from scalesearch.errors import UserError
from scalesearch.nn.model import DecodingCache, EncoderMemory, Seq2SeqModel

CHUNK_COUNTS = 1 << 24  # pairs of tokens that are counted at once

Ids = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Shortlist:
    """Target tokens that a translation may contain.

    Attributes:
        by_source: (V, k) target tokens of each source token.
        frequent: (f,) target tokens of every sentence, with EOS.
    """

    by_source: Tensor
    frequent: Tensor

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[Ids, Ids]], vocab: int, best: int = 50,
                   frequent: int = 50) -> Shortlist:
        """Build a shortlist from token ids of sentence pairs.

        The tokens of a source token are those with the largest Dice coefficient
        2 c(s, t) / (c(s) + c(t)), where c counts sentence pairs.

        Args:
            pairs: token ids of source and target.
            vocab: size of the vocabulary.
            best: k, target tokens per source token.
            frequent: f, the most frequent target tokens.
        """
        counts = np.zeros((2, vocab), np.int64)
        codes, sums = np.zeros(0, np.int64), np.zeros(0, np.int64)
        chunk: list[NDArray[np.int64]] = []
        size = 0

        def count_chunk() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            new, number = np.unique(np.concatenate(chunk), return_counts=True)
            merged, index = np.unique(np.concatenate([codes, new]), return_inverse=True)
            return merged, np.bincount(index, np.concatenate([sums, number])).astype(np.int64)

        for source, target in pairs:
            sides = [np.unique(ids).astype(np.int64) for ids in (source, target)]
            for side, ids in enumerate(sides):
                counts[side, ids] += 1
            chunk.append((sides[0][:, None] * vocab + sides[1]).ravel())
            size += len(chunk[-1])
            if size > CHUNK_COUNTS:
                codes, sums = count_chunk()
                chunk, size = [], 0
        if chunk:
            codes, sums = count_chunk()
        source_tokens, target_tokens = np.divmod(codes, vocab)
        dice = 2 * sums / (counts[0, source_tokens] + counts[1, target_tokens])
        order = np.lexsort((target_tokens, -dice, source_tokens))
        source_tokens, target_tokens = source_tokens[order], target_tokens[order]
        rank = np.arange(len(order)) - np.searchsorted(source_tokens, source_tokens)
        table = np.full((vocab, best), EOS)
        kept = rank < best
        table[source_tokens[kept], rank[kept]] = target_tokens[kept]
        most_frequent = np.argsort(-counts[1], kind="stable")[:frequent]
        return cls(torch.from_numpy(table), torch.from_numpy(np.union1d(most_frequent, [EOS])))

    @property
    def description(self) -> str:
        """Sizes, for records."""
        return (f"shortlist of {self.by_source.shape[1]} tokens per source token and "
                f"{len(self.frequent)} frequent ones")

    def allowed(self, source: Tensor) -> Tensor:
        """Return which tokens are in the shortlists of ``source`` (B, S), as (B, V)."""
        by_source = self.by_source.to(source.device)
        allowed = torch.zeros(len(source), len(by_source), dtype=torch.bool, device=source.device)
        allowed[:, self.frequent.to(source.device)] = True
        return allowed.scatter_(1, by_source[source].flatten(1), True)


@dataclass(frozen=True)
class ShortlistMemory(EncoderMemory):
    """Memory of sources with their shortlists.

    Attributes:
        tokens: (n,) tokens in the shortlist of any sentence of the batch, sorted.
        weight: (n, d) their rows of the output matrix.
        bias_rows: (n,) their biases, or None.
        allowed: (batch, n) whether they are in the shortlist of a sentence.
    """

    tokens: Tensor
    weight: Tensor
    bias_rows: Tensor | None
    allowed: Tensor

    def select(self, rows: Tensor) -> ShortlistMemory:
        memory = EncoderMemory.select(self, rows)
        return ShortlistMemory(memory.states, memory.bias, self.tokens, self.weight, self.bias_rows,
                               self.allowed.index_select(0, rows))


class ShortlistModel:
    """A model with a shortlist, for the searches of :mod:`scalesearch.nn.decode`.

    The states of its decoder are logits, which are minus infinity for tokens that are not in the
    shortlist of the sentence. A translation does not depend on the other sentences of a batch.

    Raises:
        UserError: the output is not a matrix with a row per token.
    """

    shares_sources = False  # each row needs the shortlist of its source

    def __init__(self, model: Seq2SeqModel, shortlist: Shortlist) -> None:
        if type(model.output.block) is not Linear:
            raise UserError("a shortlist needs an output matrix with a row per token, and the "
                            f"output is {type(model.output.block).__name__}",
                            help="translate without a shortlist", code="shortlist-output")
        self.model = model
        self.shortlist = shortlist

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def encode(self, source: Tensor) -> ShortlistMemory:
        """Encode token ids (batch, S), and select the rows of their shortlists."""
        memory = self.model.encode(source)
        allowed = self.shortlist.allowed(source)
        tokens = allowed.any(0).nonzero()[:, 0]
        output = self.model.output
        bias = output.bias[tokens] if output.block.bias else None
        return ShortlistMemory(memory.states, memory.bias, tokens, output.weight[tokens], bias,
                               allowed[:, tokens])

    def decode(self, target: Tensor, memory: ShortlistMemory, cache: DecodingCache) -> Tensor:
        """Compute the logits (batch, T, V) after ``target`` (batch, T)."""
        states = self.model.decode(target, memory, cache)
        logits = torch.nn.functional.linear(states, memory.weight, memory.bias_rows)
        logits = logits.masked_fill(~memory.allowed[:, None], -torch.inf)
        vocab = len(self.shortlist.by_source)
        return logits.new_full((*logits.shape[:2], vocab), -torch.inf).index_copy(
            2, memory.tokens, logits)

    def logits(self, states: Tensor) -> Tensor:
        return states
