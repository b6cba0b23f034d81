"""Sequence-to-sequence models: encode, decode with or without a cache, logits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.embedding import Classifier, SoftCappedOutput
from scalesearch.blocks.layers import Layer
from scalesearch.blocks.mixture import Mixture
from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.errors import UserError
from scalesearch.nn.graphs import compile_function
from scalesearch.nn.module import Module


@dataclass(frozen=True)
class EncoderMemory:
    """States (batch, S, d) of the encoder, and the bias of scores that hides padding."""

    states: Tensor
    bias: Tensor

    def select(self, rows: Tensor) -> EncoderMemory:
        """Return the memory of ``rows``, indices of the batch that may be repeated."""
        return EncoderMemory(self.states.index_select(0, rows), self.bias.index_select(0, rows))


@dataclass(frozen=True)
class SourceGroups:
    """Rows of a batch grouped by source.

    Keys and values of a source are stored once.

    Attributes:
        sources: (G,) sources of the rows, sorted.
        grid_positions: (R,) position of each row in a grid of G by ``size``.
        size: largest number of rows of a source.
    """

    sources: Tensor
    grid_positions: Tensor
    size: int

    @classmethod
    def from_sources(cls, sources: Any) -> SourceGroups:
        """Group rows by their ``sources`` (R,), which are sorted."""
        distinct, group, count = sources.unique_consecutive(return_inverse=True, return_counts=True)
        size = int(count.max())
        rank = torch.arange(len(sources), device=sources.device) - (count.cumsum(0) - count)[group]
        return cls(distinct, group * size + rank, size)

    def to_grid(self, x: Tensor) -> Tensor:
        """Reshape rows (R, 1, d) to a grid (G, size, d), with zeros for missing rows."""
        cells = len(self.sources) * self.size
        if cells != len(x):
            x = x.new_zeros(cells, 1, x.shape[2]).index_copy(0, self.grid_positions, x)
        return x.view(-1, self.size, x.shape[2])

    def from_grid(self, y: Tensor) -> Tensor:
        """Reshape a grid (G, size, d) to rows (R, 1, d)."""
        flat = y.reshape(-1, 1, y.shape[2])
        if len(flat) == len(self.grid_positions):
            return flat
        return flat.index_select(0, self.grid_positions)


class DecodingCache:
    """Cache of keys and values of earlier decoding steps, by module.

    Attributes:
        groups: groups of rows by source, set by :meth:`group_by_source`. Tensors that depend on the
            source only are then stored per source instead of per row.
        entries: cached tensors by module.
        source_modules: modules whose tensors depend on the source only.
        limits: largest number of positions in the entries of a module, for attention with a window.
        length: number of decoded positions.
        size: number of positions with room; None if it grows with each step.
    """

    size: int | None = None
    drops_keys = True  # whether entries have at most the positions in ``limits``

    def __init__(self) -> None:
        self.groups: SourceGroups | None = None
        self.entries: dict[Module, tuple[Tensor, ...]] = {}
        self.source_modules: set[Module] = set()
        self.limits: dict[Module, int] = {}
        self.appended: dict[Module, int] = {}  # number of positions, of modules with a limit
        self.length = 0

    def __contains__(self, module: Module) -> bool:
        return module in self.entries

    def __getitem__(self, module: Module) -> tuple[Tensor, ...]:
        return self.entries[module]

    def cached_length(self, module: Module) -> Any:
        """Return the number of positions that were appended for ``module``."""
        if module in self.appended:
            return self.appended[module]
        return self.entries[module][0].shape[2] if module in self.entries else 0

    def append(self, module: Module, *fresh: Tensor, limit: int | None = None
               ) -> tuple[Tensor, ...]:
        """Append keys, or keys and values, of new positions.

        Args:
            module: key of the cache.
            fresh: tensors (batch, heads, new positions, n).
            limit: number of the last positions that are kept for the next call; None for all.

        Returns:
            Tensors (batch, heads, all kept and new positions, n).
        """
        past = self.entries.get(module)
        tensors = fresh if past is None else tuple(torch.cat(pair, 2) for pair in zip(past, fresh))
        self.entries[module] = tensors
        if limit is not None and self.drops_keys:
            self.limits[module] = limit
            self.appended[module] = self.appended.get(module, 0) + fresh[0].shape[2]
            self.entries[module] = tuple(tensor[:, :, max(0, tensor.shape[2] - limit) :]
                                         for tensor in tensors)
        return tensors

    def append_window(self, module: Module, rows: Tensor, past: int) -> Tensor:
        """Append new positions and return them with the positions before them.

        Args:
            module: key of the cache.
            rows: (batch, positions, d).
            past: number of earlier positions; zeros before the first position.

        Returns:
            (batch, past + positions, d).
        """
        if module in self.entries:
            before = self.entries[module][0]
        else:
            before = rows.new_zeros(len(rows), past, rows.shape[2])
        window = torch.cat([before, rows], 1)
        self.entries[module] = (window[:, window.shape[1] - past :],)
        return window

    def read_state(self, module: Module) -> Tensor | None:
        """Return the state after the last position, (batch, 1, d), or None before the first."""
        return self.entries[module][0] if module in self.entries else None

    def store_state(self, module: Module, state: Tensor) -> None:
        """Replace the state by ``state`` (batch, 1, d), of a later position."""
        self.entries[module] = (state,)

    def store_source(self, module: Module, *fresh: Tensor) -> tuple[Tensor, ...]:
        """Store tensors that depend on the source only, for all steps."""
        # contiguous: otherwise the matrix product of each step would copy them
        fresh = tuple(tensor.contiguous() for tensor in fresh)
        self.entries[module] = fresh
        self.source_modules.add(module)
        return fresh

    def select(self, rows: Tensor, same_sources: bool = False) -> None:
        """Select rows of the batch, which may be repeated and reordered.

        Args:
            rows: indices of rows.
            same_sources: whether the source of each row is unchanged.
        """
        for module, tensors in self.entries.items():
            if not (same_sources and module in self.source_modules):
                self.entries[module] = tuple(tensor.index_select(0, rows) for tensor in tensors)

    def group_by_source(self, groups: SourceGroups, selected: Tensor) -> None:
        """Group rows by source.

        Args:
            groups: the groups.
            selected: indices of their sources in the cache.
        """
        self.groups = groups
        for module in self.source_modules:
            self.entries[module] = tuple(tensor.index_select(0, selected)
                                         for tensor in self.entries[module])


class Seq2SeqModel(Module):
    """An encoder-decoder, decoder-only or encoder-only model.

    Token ids are int64, padded with 0 at the end.
    """

    def encode(self, source: Tensor) -> EncoderMemory:
        """Encode token ids (batch, S)."""
        self.check_length(source.shape[1])
        return EncoderMemory(*self.block.encode(self, source))

    def decode(self, target: Tensor, memory: EncoderMemory,
               cache: DecodingCache | None = None) -> Tensor:
        """Compute the states of target tokens.

        Args:
            target: token ids (batch, T), which start with the begin-of-sentence token; with a
                cache, only the tokens after those in the cache.
            memory: memory of the source.
            cache: cache of earlier steps, or None.

        Returns:
            States (batch, T, d).
        """
        if cache is None or cache.size is None:
            before = memory.states.shape[1] if isinstance(self.block, DecoderOnly) else 0
            self.check_length(before + target.shape[1] + (0 if cache is None else cache.length))
        return self.block.decode(self, target, memory.states, memory.bias, cache)

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits (…, V) of the next token after states (…, d)."""
        return self.output(states)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return teacher-forced logits (batch, T, V), or those of classes (batch, 1, classes)."""
        target = target[:, :1] if self.first_label else target
        return self.logits(self.decode(target, self.encode(source)))

    def softmax_terms(self, states: Tensor,
                      target: Tensor) -> list[tuple[Tensor, Tensor, Tensor | None, Tensor]]:
        """Return softmax terms; the loss is the sum of their losses.

        With these, the loss can be computed without storing all logits. Adaptive softmax has
        several terms, other output layers have one. :attr:`logit_limit` applies to the logits.

        Args:
            states: (N, d).
            target: token ids (N,).

        Returns:
            Tuples of states, weight matrix, bias or None, and target indices.
        """
        terms: list[tuple[Tensor, Tensor, Tensor | None,
                          Tensor]] = self.output.block.softmax_terms(self.output, states, target)
        return terms

    @property
    def logit_limit(self) -> float:
        """Limit of the logits by tanh; 0 for no limit."""
        output = self.output.block
        return output.limit if isinstance(output, SoftCappedOutput) else 0.0

    @property
    def first_label(self) -> int:
        """Label of the first logit: 1 for classes, because label 0 is padding."""
        return int(isinstance(self.output.block, Classifier))

    def balance_loss(self) -> Tensor:
        """Return the sum of the balance losses of the last pass in training of all mixtures.

        See :func:`~scalesearch.blocks.mixture.balance_loss`.
        """
        losses = [node.balance_loss for node in self.modules()
                  if isinstance(node, Module) and isinstance(node.block, Mixture)]
        return torch.stack(losses).sum()

    @contextmanager
    def cached_weights(self) -> Iterator[None]:
        """Context in which results that depend on weights only are computed once.

        Weights and autocast must not change inside. A nested context uses the cache of the outer
        one, so that several searches can share it.
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
        """Return an empty cache for step-by-step decoding."""
        return DecodingCache()

    def set_attention(self, kernel: str) -> None:
        """Set the attention kernel: ``fused`` or ``products``.

        The results are equal up to rounding; which kernel is faster depends on the machine.
        """
        if kernel not in ("fused", "products"):
            raise ValueError(f"attention kernel {kernel!r}: use fused or products")
        for node in self.modules():
            if isinstance(node, Module):
                node.attention_kernel = kernel

    def compile_layers(self, dynamic: bool) -> None:
        """Compile the layers, for training; other passes stay eager.

        Equal layers share their code, also with layers of other processes on this machine.

        Args:
            dynamic: whether batches may have any shape. Otherwise each shape is compiled.
        """
        for node in self.modules():
            if isinstance(node, Module) and isinstance(node.block, Layer):
                node.compiled_forward = compile_function(_run_block, dynamic)

    @property
    def shares_sources(self) -> bool:
        """Whether rows of the same source can share its memory in decoding.

        See :meth:`DecodingCache.group_by_source`.
        """
        return not isinstance(self.block, DecoderOnly)

    @property
    def max_length(self) -> int | None:
        """Largest number of positions of a sentence; None if unlimited.

        In a decoder-only model, it is the limit for source and target together.
        """
        blocks: list[Any] = [getattr(node, "block", None) for node in self.embedding.modules()]
        limits = [block.max_length
                  for block in blocks if getattr(block, "positions", None) == "learned"]
        return min(limits, default=None)

    def max_target_length(self, source_length: int) -> int | None:
        """Return the largest number of target positions; None if unlimited."""
        before = source_length if isinstance(self.block, DecoderOnly) else 0
        return None if self.max_length is None else self.max_length - before

    def check_length(self, length: int) -> None:
        """Check that the model has learned positions for a sentence of ``length`` tokens.

        Raises:
            UserError: the sentence is too long.
        """
        if self.max_length is not None and length > self.max_length:
            raise UserError(f"a sentence has {length} tokens, but the model has {self.max_length} "
                            "learned positions: increase embedding.max_length, or reduce "
                            "max_length of the data (window for a language model)",
                            code="sentence-too-long")


def _run_block(module: Module, *args: Any) -> Any:
    return module.block.forward(module, *args)
