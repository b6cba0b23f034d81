"""Models: encode, decode with or without a cache, logits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.errors import UserError
from scalesearch.nn.module import Module


@dataclass(frozen=True)
class EncoderMemory:
    """Encoder states (batch, S, d) and the bias that hides their padding."""

    states: Tensor
    bias: Tensor

    def select(self, rows: Tensor) -> EncoderMemory:
        """The memory of ``rows`` (indices into the batch, repeats allowed)."""
        return EncoderMemory(self.states.index_select(0, rows), self.bias.index_select(0, rows))


@dataclass(frozen=True)
class SourceGroups:
    """Rows of a batch by source; a source's keys and values are kept once.

    Attributes:
        sources: (G,) the sources that have rows, in order.
        grid_positions: (R,) where each row stands in a grid of ``sources`` by ``size`` places.
        size: rows of the source that has most.
    """

    sources: Tensor
    grid_positions: Tensor
    size: int

    @classmethod
    def from_sources(cls, sources: Any) -> SourceGroups:
        """Groups of rows with the given sources (R,), which are in order."""
        distinct, group, count = sources.unique_consecutive(return_inverse=True, return_counts=True)
        size = int(count.max())
        rank = torch.arange(len(sources), device=sources.device) - (count.cumsum(0) - count)[group]
        return cls(distinct, group * size + rank, size)

    def to_grid(self, x: Tensor) -> Tensor:
        """Rows (R, 1, d) as the positions of their sources, (G, size, d); zero where there is no row."""
        whole = len(self.sources) * self.size
        if whole != len(x):
            x = x.new_zeros(whole, 1, x.shape[2]).index_copy(0, self.grid_positions, x)
        return x.view(-1, self.size, x.shape[2])

    def from_grid(self, y: Tensor) -> Tensor:
        """:meth:`grid` undone."""
        flat = y.reshape(-1, 1, y.shape[2])
        return flat if len(flat) == len(self.grid_positions) else flat.index_select(
            0, self.grid_positions)


class DecodingCache:
    """Keys and values of the positions decoded so far, by attention module.

    Attributes:
        groups: rows by source, after :meth:`group`; what is made of sources is then kept by source,
            not by row.
    """

    def __init__(self) -> None:
        self.groups: SourceGroups | None = None
        self.entries: dict[Module, tuple[Tensor, ...]] = {}
        self.source_modules: set[Module] = set()  # whose entries depend on the source alone
        self.length = 0

    def __contains__(self, module: Module) -> bool:
        return module in self.entries

    def __getitem__(self, module: Module) -> tuple[Tensor, ...]:
        return self.entries[module]

    def append(self, module: Module, *fresh: Tensor) -> tuple[Tensor, ...]:
        """Add the keys, or keys and values, of new positions; returns all of them, (batch, heads, positions, n)."""
        past = self.entries.get(module)
        whole = fresh if past is None else tuple(torch.cat(pair, 2) for pair in zip(past, fresh))
        self.entries[module] = whole
        return whole

    def append_window(self, module: Module, rows: Tensor, past: int) -> Tensor:
        """New rows (batch, positions, d) behind the ``past`` rows before them, zero before the first."""
        before = self.entries[module][0] if module in self.entries else rows.new_zeros(
            len(rows), past, rows.shape[2])
        whole = torch.cat([before, rows], 1)
        self.entries[module] = (whole[:, whole.shape[1] - past :],)
        return whole

    def store_source(self, module: Module, *fresh: Tensor) -> tuple[Tensor, ...]:
        """Keep what was made of the source, once for all steps."""
        # or each step's product would make it so
        fresh = tuple(tensor.contiguous() for tensor in fresh)
        self.entries[module] = fresh
        self.source_modules.add(module)
        return fresh

    def select(self, rows: Tensor, same_sources: bool = False) -> None:
        """Keep, repeat and reorder rows of the batch; ``same_sources``: every row goes on with the source it had."""
        for module, kept in self.entries.items():
            if not (same_sources and module in self.source_modules):
                self.entries[module] = tuple(tensor.index_select(0, rows) for tensor in kept)

    def group_by_source(self, groups: SourceGroups, kept: Tensor) -> None:
        """Group rows by source as ``groups`` says; of the sources so far keep those at ``kept``."""
        self.groups = groups
        for module in self.source_modules:
            self.entries[module] = tuple(tensor.index_select(0, kept)
                                         for tensor in self.entries[module])


class Seq2SeqModel(Module):
    """A whole model, encoder-decoder or decoder-only.

    Token ids are int64, padded at the end with 0.
    """

    def encode(self, source: Tensor) -> EncoderMemory:
        """(batch, S) token ids to what decoding needs of them."""
        self.check_length(source.shape[1])
        return EncoderMemory(*self.block.encode(self, source))

    def decode(self, target: Tensor, memory: EncoderMemory,
               cache: DecodingCache | None = None) -> Tensor:
        """States (batch, T, d) at the positions of ``target``, which starts with the begin-of-sentence token.

        With a ``cache``, ``target`` holds only the tokens that it has not seen.
        """
        before = memory.states.shape[1] if isinstance(self.block, DecoderOnly) else 0
        self.check_length(before + target.shape[1] + (0 if cache is None else cache.length))
        return self.block.decode(self, target, memory.states, memory.bias, cache)

    def logits(self, states: Tensor) -> Tensor:
        """States (…, d) to scores of the next token (…, V)."""
        return self.output(states)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Teacher-forced logits (batch, T, V)."""
        return self.logits(self.decode(target, self.encode(source)))

    def softmax_terms(self, states: Tensor,
                      target: Tensor) -> list[tuple[Tensor, Tensor, Tensor | None, Tensor]]:
        """Softmax terms whose losses add up to that of ``target`` (N,) after ``states`` (N, d).

        Each is (states, matrix, bias or None, targets): for losses that never hold all logits.
        There is one but for adaptive softmax.
        """
        terms: list[tuple[Tensor, Tensor, Tensor | None,
                          Tensor]] = self.output.block.softmax_terms(self.output, states, target)
        return terms

    @contextmanager
    def cached_weights(self) -> Iterator[None]:
        """Context in which results of weights alone are computed once; neither weights nor autocast may change.

        Within another it does nothing, so that many searches can share what is folded.
        """
        if self.weight_cache is not None:
            yield
            return
        nodes = [node for node in self.modules() if isinstance(node, Module)]
        for node in nodes:
            node.weight_cache = {}
        try:
            yield
        finally:
            for node in nodes:
                node.weight_cache = None

    def new_cache(self) -> DecodingCache:
        """An empty cache for stepwise decoding."""
        return DecodingCache()

    def set_attention(self, kernel: str) -> None:
        """Run attention as ``fused`` or as ``products`` (same numbers; which is faster depends on the machine)."""
        if kernel not in ("fused", "products"):
            raise ValueError(f"attention kernel {kernel!r}: fused or products")
        for node in self.modules():
            if isinstance(node, Module):
                node.attention_kernel = kernel

    @property
    def shares_sources(self) -> bool:
        """True if rows of one source can share its memory in decoding (:meth:`DecodingCache.group_by_source`)."""
        return not isinstance(self.block, DecoderOnly)

    @property
    def max_length(self) -> int | None:
        """The most positions of a sentence (source and target if decoder-only); None if unlimited."""
        blocks: list[Any] = [getattr(node, "block", None) for node in self.embedding.modules()]
        limits = [block.max_length
                  for block in blocks if getattr(block, "positions", None) == "learned"]
        return min(limits, default=None)

    def max_target_length(self, source_length: int) -> int | None:
        """The most target positions after ``source_length`` source tokens; None if unlimited."""
        before = source_length if isinstance(self.block, DecoderOnly) else 0
        return None if self.max_length is None else self.max_length - before

    def check_length(self, length: int) -> None:
        """Raises UserError where there are no learned positions for a sentence of ``length`` tokens."""
        if self.max_length is not None and length > self.max_length:
            raise UserError(f"a sentence of {length} tokens, but the model has learned positions "
                            f"for {self.max_length}: raise embedding.max_length or shorten the "
                            "data's max_length (window, for a language model)",
                            code="sentence-too-long")
