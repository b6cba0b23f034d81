"""Greedy search over whole batches, with cached keys and values, and what beam search shares with it.

Searches take (B, S) source ids padded with 0 at the end and know a model only by its interface:
``encode``, ``decode``, ``logits``, ``new_cache`` and ``select``. Nothing loops over sentences. A
hypothesis that has ended leaves the rows that the model is run on, so late steps are small. Which
other sentences share the batch changes nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from scalesearch.blocks.core import PAD

BOS = 2
EOS = 3
NEG_INF = -torch.inf
LOG2_E = math.log2(math.e)
# steps between two looks at who has ended, on a GPU: each look waits for it
COMPACTION_INTERVAL = 8
TOPK_BLOCK = 64  # entries of the vocabulary searched together
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Hypotheses:
    """Translations of a batch, the best first.

    Attributes:
        tokens: (B, n, L) ids without BOS and EOS, padded with 0; a hypothesis that is not there is
            all 0.
        lengths: (B, n) tokens of each, its EOS included; 0 where there is none.
        scores: (B, n) length-normalized log-probabilities; minus infinity where there is none.
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor

    def best_ids(self) -> list[list[int]]:
        """The ids of the best hypothesis of each sentence."""
        rows = self.tokens[:, 0].tolist()
        lengths = (self.lengths[:, 0] - 1).tolist()
        return [row[:length] for row, length in zip(rows, lengths)]

    def ranked(self) -> list[list[tuple[list[int], float]]]:
        """Ids and score of each sentence's hypotheses that are there."""
        rows = zip(self.tokens.tolist(), self.lengths.tolist(), self.scores.tolist())
        return [[(ids[: length - 1], score) for ids, length, score in zip(*row) if length]
                for row in rows]


def default_max_lengths(source: Tensor) -> Tensor:
    """The most tokens of each translation (B,): 1.5 for each source token, and 10."""
    return (source != PAD).sum(1) * 3 // 2 + 10


def with_cached_weights(search: Callable[P, T]) -> Callable[P, T]:
    """Fold what depends on weights alone for the time of a search."""

    @functools.wraps(search)
    def folded(*args: P.args, **kwargs: P.kwargs) -> T:
        with getattr(args[0], "cached_weights", nullcontext)(), torch.inference_mode():
            return search(*args, **kwargs)

    return folded


@with_cached_weights
def greedy_search(model: Any, source: Tensor, max_length: int | Tensor | None = None,
                  eos: int = EOS, compaction_interval: int | None = None) -> Hypotheses:
    """The likeliest token at each step until EOS; n is 1 and scores are log-probabilities a token (EOS counted).

    Args:
        model: in eval mode, on the device of ``source``.
        source: (B, S) ids, PAD = 0 at the end.
        max_length: tokens of a translation, or of each (B,), at most (:func:`default_max_lengths`
            by default); EOS then follows.
        compaction_interval: steps after which hypotheses that have ended leave; by default 1, and
            :data:`COMPACTION_INTERVAL` on a GPU.
    """
    limit = length_limits(model, source, max_length)
    compaction_interval = compaction_interval or (
        1 if source.device.type == "cpu" else COMPACTION_INTERVAL)
    rows = torch.arange(len(source), device=source.device)
    memory = model.encode(source)
    cache = model.new_cache()
    token = source.new_full((len(source),), BOS)
    tokens = source.new_zeros((len(source), int(limit.max()) + 1))
    total = torch.zeros(len(source), dtype=torch.float64, device=source.device)
    for step in range(tokens.shape[1]):
        logits, norm = next_logits(model, token, memory, cache)
        before = token
        token = torch.where(step == limit[rows], eos, blockwise_topk(logits, 1)[1][:, 0])
        gain = (logits.gather(1, token[:, None]) - norm)[:, 0]
        if step % compaction_interval:  # some may have ended and not left yet
            ended = before == eos
            token = token.masked_fill(ended, eos)
            gain = gain.masked_fill(ended, 0)
            tokens[rows, step] = token.masked_fill(ended, PAD)
        else:
            tokens[rows, step] = token
        total[rows] += gain
        if (step + 1) % compaction_interval:
            continue
        keep = (token != eos).nonzero()[:, 0]
        if not len(keep):
            break
        if len(keep) < len(rows):
            rows = rows[keep]
            token = token[keep]
            memory = memory.select(keep)
            cache.select(keep)
    lengths = (tokens != PAD).sum(1)
    return Hypotheses(tokens.masked_fill(tokens == eos, PAD)[:, None], lengths[:, None],
                      (total / lengths)[:, None])


def length_limits(model: Any, source: Tensor, max_length: int | Tensor | None = None) -> Tensor:
    """The most tokens of each translation (B,), within the model's positions (BOS takes one)."""
    limit = default_max_lengths(source) if max_length is None else torch.as_tensor(max_length).to(
        source).expand(len(source))
    room = model.max_target_length(source.shape[1]) if hasattr(model, "max_target_length") else None
    return limit if room is None else limit.clamp(max=max(room - 1, 1))


def next_logits(model: Any, token: Tensor, memory: Any, cache: Any) -> tuple[Tensor, Tensor]:
    """(R, V) logits after ``token`` (R,) and their (R, 1) log-partition, in fp32 or better.

    PAD and BOS have their share of the probability, but are never chosen.
    """
    logits = model.logits(model.decode(token[:, None], memory, cache))[:, -1]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    norm = log_partition(logits)
    logits[:, PAD] = logits[:, BOS] = NEG_INF
    return logits, norm


def log_partition(logits: Tensor) -> Tensor:
    """(R, 1) log Σ exp.

    By powers of two, which took a quarter of the time of powers of e (AVX-512, PyTorch 2.13).
    """
    most = logits.amax(1, keepdim=True)
    return most + torch.add(-LOG2_E * most, logits, alpha=LOG2_E).exp2_().sum(1, keepdim=True).log()


def blockwise_topk(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` greatest entries of each row of (R, V), and their places.

    They lie in the ``count`` blocks whose greatest are greatest: a maximum of each block is much
    faster than a search of all entries.
    """
    rows, vocab = logits.shape
    whole = vocab // TOPK_BLOCK * TOPK_BLOCK
    if whole // TOPK_BLOCK <= count:
        return logits.topk(min(count, vocab), 1)
    blocks = logits[:, :whole].view(rows, -1, TOPK_BLOCK)
    block = blocks.amax(2).topk(count, 1).indices
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, TOPK_BLOCK)).flatten(1)
    places = (block[:, :, None] * TOPK_BLOCK
              + torch.arange(TOPK_BLOCK, device=logits.device)).flatten(1)
    if whole < vocab:
        rest = torch.arange(whole, vocab, device=logits.device).expand(rows, -1)
        inside = torch.cat([inside, logits[:, whole:]], 1)
        places = torch.cat([places, rest], 1)
    best, at = inside.topk(count, 1)
    return best, places.gather(1, at)
