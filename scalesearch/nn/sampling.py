"""Sampling from a language model, token by token with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from scalesearch.blocks.core import PAD
from scalesearch.nn.decode import BOS, EOS, NEG_INF, UNK, with_cached_weights

NEVER_SAMPLED = (PAD, UNK, BOS)


@with_cached_weights
def sample_tokens(model: Any, prompt: Sequence[int], n_tokens: int, window: int,
                  temperature: float = 1.0, top_k: int | None = None, seed: int = 1) -> list[int]:
    """Continue a stream of tokens, in which EOS is the end of a line.

    The model reads BOS and up to ``window`` - 1 tokens, as in training. If the window is full, it
    reads the last half of a window again, with a new cache.

    Args:
        model: decoder-only model in eval mode.
        prompt: ids of the tokens before; the last ones are used if there are too many.
        temperature: divisor of the logits; 0 selects the most probable token.
        top_k: sample from the most probable tokens only; None for all.
        seed: seed of the samples.
    """
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    memory = model.encode(torch.tensor([[EOS]], device=device))
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
        states = model.decode(torch.tensor([unread], device=device), memory, cache)
        logits = model.logits(states[0, -1]).double().cpu()  # (V,)
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
