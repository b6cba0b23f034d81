"""A check that a model's outputs depend on nothing they must not depend on.

A gate or an embedding that leaks the future makes perplexity look wonderful, and the model
worthless.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.core import PAD
from scalesearch.errors import UserError

FIRST_TOKEN_ID = 4  # the ids below are special
BOS = 2
# Equal lengths are a case of their own: where S == T, a leak through a mixed-up axis has no wrong
# shape to betray it.
CAUSALITY_LENGTHS = ((5, 5), (7, 4), (3, 6))
BATCH_ROWS = 3
# positions apart at which a leak is found, whatever the blocks say of themselves
MIN_LEAK_DISTANCE = 32
REACH_MARGIN = 8  # positions beyond the farthest that any block says it sees
MAX_FP64_PARAMETERS = 50_000_000  # parameters; a copy in fp64 costs twice the weights
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-4}


class CausalityError(UserError):
    """Raised where an output depends on a later target token, another sentence or padding.

    Attributes:
        dependency: ``a later target token``, ``another sentence`` or ``padding``.
        detail: lengths, position and by how much.
    """

    code = "not-causal"

    def __init__(self, dependency: str, detail: str) -> None:
        super().__init__(f"causality: an output depends on {dependency}: {detail}")
        self.dependency = dependency
        self.detail = detail


@torch.no_grad()
def check_causality(model: Any, vocab: int, seed: int = 0) -> None:
    """Check that no output depends on later target tokens, other sentences or padding.

    Runs a copy with noise on every weight, since a weight that starts at zero hides what flows
    through it. A block that sees more than 32 positions at once states how many as ``past``.

    Raises:
        CausalityError: it does; which of the three, and where.
    """
    generator = torch.Generator().manual_seed(seed)
    subject = _perturbed_copy(model, generator)
    far = _long_length(model)
    for number, (source_length, target_length) in enumerate((*CAUSALITY_LENGTHS, (far, far))):
        rows = 1 if number == len(CAUSALITY_LENGTHS) else BATCH_ROWS
        source = torch.randint(FIRST_TOKEN_ID, vocab, (rows, source_length), generator=generator)
        target = torch.randint(FIRST_TOKEN_ID, vocab, (rows, target_length), generator=generator)
        target[:, 0] = BOS
        # The first lengths find out what only pretends to depend on weights alone; the others need
        # not compute it anew.
        with getattr(subject, "cached_weights", nullcontext)() if number else nullcontext():
            CausalityCase(subject, source, target, vocab, generator).check()


def _long_length(model: Any) -> int:
    """A length beyond the reach of every block; of learned positions a quarter, for two sides and their padding."""
    past = max((getattr(node.block, "receptive_past", 0)
                for node in model.modules() if hasattr(node, "block")), default=0)
    room = getattr(model, "max_length", None)
    far: int = max(MIN_LEAK_DISTANCE, past) + REACH_MARGIN
    return far if room is None else min(far, max(room // 4, 1))


def _perturbed_copy(model: Any, generator: torch.Generator) -> Any:
    """A copy on the CPU, in fp64 if small enough, with noise on every weight."""
    subject = copy.deepcopy(model).cpu().eval()
    parameters = list(subject.parameters())
    if sum(weight.numel() for weight in parameters) <= MAX_FP64_PARAMETERS:
        subject = subject.double()
    for weight in subject.parameters():
        scale = 0.1 * float(weight.std(correction=0)) + 0.01
        weight += scale * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return subject


class CausalityCase:
    """A batch of unpadded sentences and the model's logits.

    A long one is alone: one cut and wide padding are tried.
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
        """Check all three, the future first."""
        for sees, attempts in (("a later target token", self._later()),
                               ("another sentence", self._others()), ("padding", self._padded())):
            for what, source, target, rows, length in attempts:
                self._compare(sees, what, self.model(source, target)[:rows, :length], rows, length)

    def _later(self) -> Iterator[tuple[str, Tensor, Tensor, int, int]]:
        """Batches with other tokens after t, and with none; the middle one finds a leak of any distance."""
        length = self.target.shape[1]
        for t in range(1, length) if len(self.target) > 1 else [length // 2]:
            changed = self.target.clone()
            changed[:, t:] = self._other_than(changed[:, t:])
            yield f"target tokens from position {t} on replaced", self.source, changed, len(
                changed), t
            yield f"target cut after position {t - 1}", self.source, self.target[
                :, :t], len(changed), t

    def _others(self) -> Iterator[tuple[str, Tensor, Tensor, int, int]]:
        """Batches with other companions for the first sentence, and with none."""
        if len(self.target) == 1:
            return
        source = self.source.clone()
        target = self.target.clone()
        source[1:], target[1:, 1:] = self._other_than(source[1:]), self._other_than(target[1:, 1:])
        length = target.shape[1]
        yield "the other sentences replaced", source, target, 1, length
        yield "the sentence alone in its batch", self.source[:1], self.target[:1], 1, length

    def _padded(self) -> Iterator[tuple[str, Tensor, Tensor, int, int]]:
        """Batches with more columns of padding on either side, and on both."""
        rows, length = self.target.shape
        columns = 3 if rows > 1 else length
        wide_source, wide_target = (torch.nn.functional.pad(ids, (0, columns), value=PAD)
                                    for ids in (self.source, self.target))
        for sides, source, target in (("the source", wide_source, self.target),
                                      ("both", wide_source, wide_target),
                                      ("the target", self.source, wide_target)):
            yield f"{columns} columns of padding added to {sides}", source, target, rows, length

    def _other_than(self, ids: Tensor) -> Tensor:
        """Random ids, each different from the one that it replaces."""
        span = self.vocab - FIRST_TOKEN_ID
        shift = torch.randint(1, max(2, span), ids.shape, generator=self.generator)
        return FIRST_TOKEN_ID + (ids - FIRST_TOKEN_ID + shift) % span

    def _compare(self, sees: str, what: str, logits: Tensor, rows: int, length: int) -> None:
        difference = (logits - self.logits[:rows, :length]).abs().amax(-1)
        if bool(torch.isfinite(difference).all()) and float(difference.max()) <= self.limit:
            return
        row, position = divmod(int(difference.nan_to_num(torch.inf).argmax()), length)
        sizes = f"S={self.source.shape[1]}, T={self.target.shape[1]}"
        raise CausalityError(sees,
                             f"{sizes}, {what}: the logits at position {position} of sentence "
                             f"{row} change by {float(difference[row, position]):.3g}")
