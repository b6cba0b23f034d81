"""Check that outputs do not depend on later tokens, other sentences or padding.

If a gate or an embedding leaks later tokens, perplexity is very low but the model cannot translate.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.core import BOS, FIRST_WORD, PAD
from scalesearch.errors import UserError

# Source and target lengths. With equal lengths, a leak by exchanged axes does not change shapes.
CAUSALITY_LENGTHS = ((5, 5), (7, 4), (3, 6))
BATCH_ROWS = 3
MIN_LEAK_DISTANCE = 32  # leaks up to this distance are always found
REACH_MARGIN = 8  # positions in addition to the largest receptive field of the blocks
MAX_FP64_PARAMETERS = 50_000_000  # larger models are checked in fp32, to save memory
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-4}


class CausalityError(UserError):
    """An output depends on a later target token, another sentence or padding.

    Attributes:
        dependency: ``a later target token``, ``another sentence`` or ``padding``.
        detail: lengths, position and size of the difference.
    """

    code = "not-causal"

    def __init__(self, dependency: str, detail: str) -> None:
        super().__init__(f"causality: an output depends on {dependency}: {detail}")
        self.dependency = dependency
        self.detail = detail


@torch.no_grad()
def check_causality(model: Any, vocab: int) -> None:
    """Check that outputs do not depend on later tokens, other sentences or padding.

    The check runs a copy of the model with noise added to every weight, because weights that are
    initialized with zero hide dependencies. A block with a receptive field of more than 32
    positions must define ``receptive_past``.

    Args:
        model: maps source (B, S) and target (B, T) token ids to logits (B, T, V).
        vocab: V.

    Raises:
        CausalityError: an output has such a dependency.
    """
    generator = torch.Generator().manual_seed(0)
    noisy_model = copy.deepcopy(model).cpu().eval()
    if sum(weight.numel() for weight in noisy_model.parameters()) <= MAX_FP64_PARAMETERS:
        noisy_model = noisy_model.double()
    for weight in noisy_model.parameters():
        scale = 0.1 * float(weight.std(correction=0)) + 0.01
        weight += scale * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    # longer than the receptive field of every block, if there are enough learned positions for two
    # sides and their padding
    past = max((getattr(node.block, "receptive_past", 0)
                for node in model.modules() if hasattr(node, "block")), default=0)
    long: int = max(MIN_LEAK_DISTANCE, past) + REACH_MARGIN
    if (max_length := getattr(model, "max_length", None)) is not None:
        long = min(long, max(max_length // 4, 1))
    for index, (source_length, target_length) in enumerate((*CAUSALITY_LENGTHS, (long, long))):
        rows = 1 if index == len(CAUSALITY_LENGTHS) else BATCH_ROWS
        source = torch.randint(FIRST_WORD, vocab, (rows, source_length), generator=generator)
        target = torch.randint(FIRST_WORD, vocab, (rows, target_length), generator=generator)
        target[:, 0] = BOS
        # The first case runs without cached weights, to detect dependencies of results that are
        # cached as functions of weights only.
        with getattr(noisy_model, "cached_weights", nullcontext)() if index else nullcontext():
            CausalityCase(noisy_model, source, target, vocab, generator).check()


class CausalityCase:
    """A batch of sentences without padding, and the logits of the model.

    A batch of one long sentence is checked with one change of the target and wide padding only.
    """

    def __init__(self, model: Any, source: Tensor, target: Tensor, vocab: int,
                 generator: torch.Generator) -> None:
        self.model = model
        self.source = source
        self.target = target
        self.vocab = vocab
        self.generator = generator
        self.logits = model(source, target)
        self.limit = TOLERANCE[self.logits.dtype] * float(self.logits.abs().max().clamp(min=1.0))

    def check(self) -> None:
        """Check later tokens, then other sentences, then padding."""
        rows, length = self.target.shape
        for t in range(1, length) if rows > 1 else [length // 2]:
            changed = self.target.clone()
            changed[:, t:] = self._other_than(changed[:, t:])
            for change, target in ((f"target tokens from position {t} replaced", changed),
                                   (f"target cut after position {t - 1}", self.target[:, :t])):
                self._compare("a later target token", change, self.source, target, rows, t)
        if rows > 1:
            source = self.source.clone()
            target = self.target.clone()
            source[1:] = self._other_than(source[1:])
            target[1:, 1:] = self._other_than(target[1:, 1:])
            self._compare("another sentence", "other sentences replaced", source, target, 1, length)
            self._compare("another sentence", "other sentences removed", self.source[:1],
                          self.target[:1], 1, length)
        columns = 3 if rows > 1 else length
        wide_source, wide_target = (torch.nn.functional.pad(ids, (0, columns), value=PAD)
                                    for ids in (self.source, self.target))
        for sides, source, target in (("the source", wide_source, self.target),
                                      ("both", wide_source, wide_target),
                                      ("the target", self.source, wide_target)):
            self._compare("padding", f"{columns} columns of padding added to {sides}", source,
                          target, rows, length)

    def _other_than(self, ids: Tensor) -> Tensor:
        """Return random token ids that differ from ``ids`` at every position."""
        span = self.vocab - FIRST_WORD
        shift = torch.randint(1, max(2, span), ids.shape, generator=self.generator)
        return FIRST_WORD + (ids - FIRST_WORD + shift) % span

    def _compare(self, dependency: str, change: str, source: Tensor, target: Tensor, rows: int,
                 length: int) -> None:
        """Check that the first logits (rows, length, V) equal those of the original batch."""
        logits = self.model(source, target)[:rows, :length]
        difference = (logits - self.logits[:rows, :length]).abs().amax(-1)
        if bool(torch.isfinite(difference).all()) and float(difference.max()) <= self.limit:
            return
        row, position = divmod(int(difference.nan_to_num(torch.inf).argmax()), difference.shape[1])
        sizes = f"S={self.source.shape[1]}, T={self.target.shape[1]}"
        raise CausalityError(dependency,
                             f"{sizes}, {change}: the logits at position {position} of sentence "
                             f"{row} change by {float(difference[row, position]):.3g}")
