"""Batched greedy search with a cache, functions for all searches, and sampling.

A search needs the methods ``encode``, ``decode``, ``logits`` and ``new_cache`` of a model. It has
no loops over sentences. Rows of finished hypotheses are removed from the batch, so that late steps
are small. The translation of a sentence does not depend on the other sentences of the batch, except
in a decoder-only model with learned positions (:func:`length_limits`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from scalesearch.blocks.core import BOS, EOS, PAD, UNK
from scalesearch.lowering import EXTRA_LENGTH, LENGTH_FACTOR

NEVER_SAMPLED = (PAD, UNK, BOS)
NEG_INF = -torch.inf
LOG2_E = math.log2(math.e)
COMPACTION_INTERVAL = 8  # steps between removals of finished rows on a GPU; each one waits for it
TOPK_BLOCK = 64  # tokens per block of the vocabulary
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Hypotheses:
    """Translations of a batch: n hypotheses per sentence, the best first.

    Attributes:
        tokens: (B, n, L) ids without BOS and EOS, padded with 0; all 0 for missing hypotheses.
        lengths: (B, n) numbers of tokens including EOS; 0 for missing hypotheses.
        scores: (B, n) length-normalized log-probabilities; minus infinity for missing hypotheses.
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor

    def best_ids(self) -> list[list[int]]:
        """Return the token ids of the best hypothesis of each sentence."""
        rows = self.tokens[:, 0].tolist()
        lengths = (self.lengths[:, 0] - 1).tolist()
        return [row[:length] for row, length in zip(rows, lengths)]

    def ranked(self) -> list[list[tuple[list[int], float]]]:
        """Return token ids and scores of the hypotheses of each sentence."""
        rows = zip(self.tokens.tolist(), self.lengths.tolist(), self.scores.tolist())
        return [[(ids[: length - 1], score) for ids, length, score in zip(*row) if length]
                for row in rows]


def default_max_lengths(source: Tensor, factor: float = LENGTH_FACTOR,
                        extra: int = EXTRA_LENGTH) -> Tensor:
    """Return the default limit of target tokens (B,), factor · source tokens + extra."""
    return ((source != PAD).sum(1).double() * factor).long() + extra


def with_cached_weights(search: Callable[P, T]) -> Callable[P, T]:
    """Decorate a search: cache results that depend on weights only, in inference mode."""

    @functools.wraps(search)
    def cached_search(*args: P.args, **kwargs: P.kwargs) -> T:
        with getattr(args[0], "cached_weights", nullcontext)(), torch.inference_mode():
            return search(*args, **kwargs)

    return cached_search


@with_cached_weights
def greedy_search(model: Any, source: Tensor, max_length: int | Tensor | None = None,
                  eos: int = EOS, compaction_interval: int | None = None,
                  allow_unk: bool = False) -> Hypotheses:
    """Translate with the most probable token at each step.

    Args:
        model: model in eval mode, on the device of ``source``.
        source: token ids (B, S), padded with 0 at the end.
        max_length: largest number of tokens of a translation, without EOS, or of each (B,); by
            default :func:`default_max_lengths`.
        eos: id of the end-of-sentence token.
        compaction_interval: steps after which finished rows are removed; by default 1, and
            :data:`COMPACTION_INTERVAL` on a GPU.
        allow_unk: whether a translation may contain UNK.

    Returns:
        One hypothesis per sentence; scores are log-probabilities per token, including EOS.
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
        logits, norm = next_logits(model, token, memory, cache, allow_unk)
        before = token
        token = torch.where(step == limit[rows], eos, blockwise_topk(logits, 1)[1][:, 0])
        gain = (logits.gather(1, token[:, None]) - norm)[:, 0]
        if step % compaction_interval:  # the batch may contain finished rows
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
    """Return the limit of the tokens of each translation (B,).

    It is at most the number of learned positions of the model without that of BOS. In a
    decoder-only model, source and target share the positions: those of the longest source of the
    batch are subtracted for all sentences.
    """
    if max_length is None:
        limit = default_max_lengths(source)
    else:
        limit = torch.as_tensor(max_length).to(source).expand(len(source))
    max_positions = None
    if hasattr(model, "max_target_length"):
        max_positions = model.max_target_length(source.shape[1])
    return limit if max_positions is None else limit.clamp(max=max(max_positions - 1, 1))


def next_logits(model: Any, token: Tensor, memory: Any, cache: Any, allow_unk: bool = False
                ) -> tuple[Tensor, Tensor]:
    """Return logits (R, V) after ``token`` (R,) and their log-partition (R, 1).

    They are in fp32 or fp64. PAD, BOS and, unless ``allow_unk``, UNK are included in the
    log-partition, but their logits are set to minus infinity.
    """
    logits = model.logits(model.decode(token[:, None], memory, cache))[:, -1]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    norm = log_partition(logits)
    logits[:, PAD] = logits[:, BOS] = NEG_INF
    if not allow_unk:
        logits[:, UNK] = NEG_INF
    return logits, norm


def log_partition(logits: Tensor) -> Tensor:
    """Return log Σ exp of ``logits`` (R, V), (R, 1).

    It uses powers of 2: powers of e took four times as long (AVX-512, PyTorch 2.13).
    """
    maximum = logits.amax(1, keepdim=True)
    powers = torch.add(-LOG2_E * maximum, logits, alpha=LOG2_E).exp2_()
    return maximum + powers.sum(1, keepdim=True).log()


def blockwise_topk(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest entries of each row of (R, V), and their indices.

    They are in the ``count`` blocks with the largest maxima. A maximum of each block is much faster
    than ``topk`` of all entries.
    """
    rows, vocab = logits.shape
    whole = vocab // TOPK_BLOCK * TOPK_BLOCK
    if whole // TOPK_BLOCK <= count:
        return logits.topk(min(count, vocab), 1)
    blocks = logits[:, :whole].view(rows, -1, TOPK_BLOCK)
    block = blocks.amax(2).topk(count, 1).indices
    candidates = blocks.gather(1, block[:, :, None].expand(-1, -1, TOPK_BLOCK)).flatten(1)
    tokens = (block[:, :, None] * TOPK_BLOCK
              + torch.arange(TOPK_BLOCK, device=logits.device)).flatten(1)
    if whole < vocab:  # the tokens after the last whole block
        last_tokens = torch.arange(whole, vocab, device=logits.device).expand(rows, -1)
        candidates = torch.cat([candidates, logits[:, whole:]], 1)
        tokens = torch.cat([tokens, last_tokens], 1)
    best, index = candidates.topk(count, 1)
    return best, tokens.gather(1, index)


@with_cached_weights
def sample_tokens(model: Any, prompt: Sequence[int], n_tokens: int, window: int,
                  temperature: float = 1.0, top_k: int | None = None, seed: int = 1) -> list[int]:
    """Continue a stream of tokens, in which EOS is the end of a line.

    The model reads BOS and up to ``window`` - 1 tokens, as in training. If the window is full, it
    reads the last half of a window again, with a new cache.

    Args:
        model: decoder-only model in eval mode, on the CPU.
        prompt: ids of the tokens before; the last ones are used if there are too many.
        temperature: divisor of the logits; 0 selects the most probable token.
        top_k: sample from the most probable tokens only; None for all.
        seed: seed of the samples.
    """
    generator = torch.Generator().manual_seed(seed)
    memory = model.encode(torch.tensor([[EOS]]))
    n_kept = window // 2
    stream = [*prompt]
    if len(stream) >= window:
        stream = stream[len(stream) - n_kept :]
    tokens: list[int] = []
    unread = [BOS, *stream]
    cache = model.new_cache()
    while len(tokens) < n_tokens:
        if cache.length + len(unread) > window:
            cache = model.new_cache()
            unread = [BOS, *stream[len(stream) - n_kept :]]
        states = model.decode(torch.tensor([unread]), memory, cache)
        logits = model.logits(states[0, -1]).double()  # (V,)
        logits[list(NEVER_SAMPLED)] = NEG_INF
        if temperature == 0:
            token = int(logits.argmax())
        else:
            best = logits.topk(min(top_k or len(logits), len(logits)))
            shares = torch.softmax(best.values / temperature, 0)
            token = int(best.indices[torch.multinomial(shares, 1, generator=generator)])
        tokens.append(token)
        stream.append(token)
        unread = [token]
    return tokens
