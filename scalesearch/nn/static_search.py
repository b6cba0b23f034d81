"""Greedy and beam search on tensors of fixed shapes, whose steps a GPU runs as CUDA graphs.

The results are those of :func:`~scalesearch.nn.beam_search.beam_search`. A step has the same
operations and shapes for all positions: finished beams keep their rows, the cache has room for the
longest translation, and the position is a tensor. One graph per shape of a batch is replayed for
each token.

Notation: B sentences, K beams per sentence, V tokens in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from scalesearch.blocks.core import BOS, EOS
from scalesearch.nn.beam_search import BeamSearchState
from scalesearch.nn.decode import (
    COMPACTION_INTERVAL,
    NEG_INF,
    Hypotheses,
    default_max_lengths,
    length_limits,
    next_logits,
)
from scalesearch.nn.graphs import GraphRunner
from scalesearch.nn.model import DecodingCache, EncoderMemory, Seq2SeqModel, SourceGroups
from scalesearch.nn.module import Module

WIDTH_MULTIPLE = 8  # of source tokens and of steps


class StaticCache(DecodingCache):
    """Cache of fixed shape: the newest position is the last one, free positions are at the front.

    Blocks need only distances to the last position, and a mask of the free positions. ``length`` is
    a tensor. New entries are stored by :meth:`select`, at the end of a step.

    Attributes:
        size: number of positions.
        before: positions of the source in front of the target, in a decoder-only model.
    """

    def __init__(self, cache: DecodingCache, size: int, before: int, beam: int,
                 device: torch.device) -> None:
        super().__init__()
        self.size = size
        self.before = before
        self.beam = beam
        self.length: Any = torch.full((), cache.length, device=device)
        self.source_modules = cache.source_modules
        self.entries = self._fixed_entries(cache)
        self.new_entries: dict[Module, tuple[Tensor, ...]] = {}

    def load(self, cache: DecodingCache) -> None:
        """Copy the entries of ``cache``, of the first step of another batch."""
        self.length.fill_(cache.length)
        _copy_entries(self.entries, self._fixed_entries(cache))

    def _fixed_entries(self, cache: DecodingCache) -> dict[Module, tuple[Tensor, ...]]:
        """Repeat rows (B) for each beam, and pad positions to ``size``."""
        entries = {}
        for module, tensors in cache.entries.items():
            if module not in self.source_modules:  # these are stored once per source
                tensors = tuple(tensor.repeat_interleave(self.beam, 0) for tensor in tensors)
                kept = min(self.size, cache.limits.get(module, self.size))
                tensors = tuple(pad(tensor, (0, 0, kept - tensor.shape[2], 0))
                                if tensor.ndim == 4 else tensor for tensor in tensors)
            entries[module] = tensors
        return entries

    @property
    def free_positions(self) -> Tensor:
        """Number of positions in front of the first token, in the current step."""
        free: Tensor = self.size - 1 - self.before - self.length
        return free

    def cached_length(self, module: Module) -> Tensor:
        length: Tensor = self.length + self.before
        return length

    def append(self, module: Module, *fresh: Tensor, limit: int | None = None
               ) -> tuple[Tensor, ...]:
        joined = tuple(torch.cat(pair, 2) for pair in zip(self.entries[module], fresh))
        kept = tuple(tensor[:, :, 1:] for tensor in joined)
        self.new_entries[module] = kept
        return kept if limit is None or limit >= self.size else joined

    def append_window(self, module: Module, rows: Tensor, past: int) -> Tensor:
        window = torch.cat([self.entries[module][0], rows], 1)
        self.new_entries[module] = (window[:, 1:],)
        return window

    def store_state(self, module: Module, state: Tensor) -> None:
        self.new_entries[module] = (state,)

    def select(self, rows: Tensor | None, same_sources: bool = True) -> None:
        """Store the new entries of ``rows`` (B · K,); None for all rows in their order."""
        if rows is not None:
            self.new_entries = {module: tuple(tensor.index_select(0, rows) for tensor in tensors)
                                for module, tensors in self.new_entries.items()}
        _copy_entries(self.entries, self.new_entries)
        self.new_entries = {}


def _copy_entries(static: dict[Module, tuple[Tensor, ...]],
                  fresh: dict[Module, tuple[Tensor, ...]]) -> None:
    for module, tensors in fresh.items():
        for destination, tensor in zip(static[module], tensors):
            destination.copy_(tensor)


class StaticBatch:
    """State of the searches of one batch after another of the same shape.

    Args:
        state: state after the first step.
        token: tokens (B, K) of the first step.
        memory: memory of the B sources.
        cache: cache of the first step.
    """

    def __init__(self, model: Seq2SeqModel, state: BeamSearchState, token: Tensor,
                 memory: EncoderMemory, cache: DecodingCache, allow_unk: bool) -> None:
        self.model = model
        self.allow_unk = allow_unk
        self.state = state
        self.token = token.flatten()
        self.rows = torch.arange(len(self.token), device=token.device)
        before = 0 if model.shares_sources else memory.states.shape[1]
        size = -(-(before + len(state.tokens)) // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
        self.cache = StaticCache(cache, size, before, state.size, token.device)
        self.memory = self._repeated(memory)
        if model.shares_sources and state.size > 1:
            self.cache.groups = SourceGroups(self.rows[: len(token)], self.rows, state.size)

    def _repeated(self, memory: EncoderMemory) -> EncoderMemory:
        """Repeat the memory for each beam, unless beams share it."""
        return memory if self.model.shares_sources else memory.select(self.rows // self.state.size)

    def load(self, state: BeamSearchState, token: Tensor, memory: EncoderMemory,
             cache: DecodingCache) -> None:
        """Copy another batch into the tensors of this one."""
        self.state.load(state)
        self.token.copy_(token.flatten())
        self.cache.load(cache)
        repeated = self._repeated(memory)
        self.memory.states.copy_(repeated.states)
        self.memory.bias.copy_(repeated.bias)

    def step(self) -> None:
        """Decode one position of all rows."""
        device_type = self.token.device.type
        # The cache of autocast would keep casts outside of the graph, which are freed before it.
        with torch.autocast(device_type, torch.get_autocast_dtype(device_type),
                            torch.is_autocast_enabled(device_type), cache_enabled=False):
            logits, norm = next_logits(self.model, self.token, self.memory, self.cache,
                                       self.allow_unk)
        parent, token = self.state.update(logits, norm, self.rows)
        self.token.copy_(token.flatten())
        size = self.state.size
        first = self.rows[::size, None]
        self.cache.select(None if size == 1 else (first + parent).flatten())


class StaticSearch:
    """Search of a model, on batches with few shapes.

    Weights and autocast must not change during its life, which has to be inside
    :meth:`~scalesearch.nn.model.Seq2SeqModel.cached_weights`. The options are those of
    :func:`~scalesearch.nn.beam_search.beam_search`; ``max_lengths`` gives the limits of sources.
    """

    def __init__(self, model: Seq2SeqModel, runner: GraphRunner, beam: int = 5,
                 length_penalty: float = 1.0, nbest: int = 1, eos: int = EOS,
                 max_lengths: Callable[[Tensor], Tensor] = default_max_lengths,
                 allow_unk: bool = False) -> None:
        self.model = model
        self.runner = runner
        self.beam = beam
        self.length_penalty = length_penalty
        self.nbest = nbest
        self.eos = eos
        self.max_lengths = max_lengths
        self.allow_unk = allow_unk
        self.batches: dict[Hashable, StaticBatch] = {}

    @staticmethod
    def supports(model: Any) -> bool:
        """Whether padding the source leaves the limits of translations as they are."""
        return isinstance(model, Seq2SeqModel) and (model.shares_sources
                                                    or model.max_length is None)

    @torch.inference_mode()
    def search(self, source: Tensor, max_length: int | Tensor | None = None) -> Hypotheses:
        """Translate ``source`` (B, S), padded with 0 at the end.

        The first step is eager, because it computes the tensors that depend on the source only.
        """
        model = self.model
        width = -(-source.shape[1] // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
        width = max(source.shape[1], min(width, model.max_length or width))
        limit = length_limits(
            model, source, self.max_lengths(source) if max_length is None else max_length)
        source = pad(source, (0, width - source.shape[1]))
        longest = int(limit.max())
        # of the longest source of this width
        room = (int(self.max_lengths(torch.ones(1, width))) if max_length is None else longest)
        state = BeamSearchState(source, self.beam, self.length_penalty, limit, self.nbest,
                                self.eos, room + 1)
        memory = model.encode(source)
        cache = model.new_cache()
        logits, norm = next_logits(model, source.new_full((len(source),), BOS), memory, cache,
                                   self.allow_unk)
        _, token = state.update(logits, norm, state.first())
        shape = (*source.shape, room)
        if shape in self.batches:
            self.batches[shape].load(state, token, memory, cache)
        else:
            self.batches[shape] = StaticBatch(model, state, token, memory, cache, self.allow_unk)
        batch = self.batches[shape]
        steps = 1
        while steps <= longest:
            if steps % COMPACTION_INTERVAL == 0 and not bool((batch.state.alive > NEG_INF).any()):
                break
            self.runner.run(shape, batch.step)
            steps += 1
        return batch.state.result(steps)
