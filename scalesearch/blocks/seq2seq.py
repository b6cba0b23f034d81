"""Whole models: encoder-decoder and decoder-only, with one interface (encode, decode, logits).

Nothing but shapes and operations is here: :class:`scalesearch.nn.model.Seq2SeqModel` gives them a
user's interface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import PAD, SEQ, TGT, Block, LoopNest, Use, block
from scalesearch.blocks.elementwise import autocast_input
from scalesearch.blocks.stacks import BottleneckStack, Stack

if TYPE_CHECKING:
    from torch import Tensor

# nothing; target table and output matrix; the source table too
TYING_MODES = ("none", "decoder", "all")


@block
class Embeddings(Block):
    """The source's and the target's embedding."""

    source: Block
    target: Block

    def parts(self) -> Mapping[str, Block | Use]:
        return {"source": self.source, "target": self.target}


@block
class EncoderDecoder(Block):
    """A sequence-to-sequence Transformer.

    ``output`` makes states scores of the vocabulary's tokens.
    """

    embedding: Embeddings
    encoder: Stack | BottleneckStack
    decoder: Stack | BottleneckStack
    output: Use

    def parts(self) -> Mapping[str, Block | Use]:
        stacks = {"encoder": self.encoder, "decoder": self.decoder}
        return {"embedding": self.embedding, **stacks, "output": self.output}

    def encode(self, m: Any, source: Tensor) -> tuple[Any, Any]:
        """Encode token ids (batch, S), padded at the end.

        Returns states (batch, S, d) and the bias that hides padding.
        """
        import torch

        states = m.embedding.source(source,
                                    torch.arange(source.shape[1], device=source.device)[None])
        present = source != PAD
        hidden = autocast_input(mask_bias(~present[:, None, None, :], states.dtype))
        return autocast_input(m.encoder(states, present, hidden)), hidden

    def decode(self, m: Any, target: Tensor, memory: Tensor | None, memory_bias: Tensor | None, cache: Any) -> Tensor:
        """Token ids (batch, T) that follow those in ``cache`` to states (batch, T, d)."""
        import torch

        past = 0 if cache is None else cache.length
        length = target.shape[1]
        steps = torch.arange(past + length, device=target.device)
        x = m.embedding.target(target, steps[None, past:], cache)
        causal = autocast_input(mask_bias(steps[None, :] > steps[past:, None],
                                          x.dtype)) if length > 1 else None
        x = m.decoder(x, None, causal, memory, memory_bias, cache)
        if cache is not None:
            cache.length += length
        return x


@block
class DecoderOnly(Block):
    """One causal stack over the source and then the target."""

    embedding: Block
    decoder: Stack | BottleneckStack
    output: Use

    def parts(self) -> Mapping[str, Block | Use]:
        return {"embedding": self.embedding, "decoder": self.decoder, "output": self.output}

    def loop_nests(self) -> Sequence[LoopNest]:
        d = self.decoder.layer.mixer.d  # of the last states the output keeps the target's alone
        return [LoopNest((SEQ, -d), "activation"), LoopNest((TGT, d), "activation")]

    def encode(self, m: Any, source: Tensor) -> tuple[Any, Any]:
        """Move the source's padding to its front; the stack reads it before the target.

        So the target follows the source's last token, as convolutions and relative positions need
        it.
        """
        import torch

        length = source.shape[1]
        at = torch.arange(length, device=source.device)[None] - (source == PAD).sum(1, keepdim=True)
        moved = source.gather(1, at.clamp(min=0)).masked_fill(at < 0, PAD)
        return moved, moved == PAD

    def decode(self, m: Any, target: Tensor, source: Tensor, padding: Tensor, cache: Any) -> Tensor:
        """States (batch, T, d) of the new target tokens; the first call also reads the source."""
        import torch

        done = 0 if cache is None else cache.length
        fresh = target if done else torch.cat([source, target], 1)
        total = source.shape[1] + (done or 0) + target.shape[1]
        absent = torch.nn.functional.pad(padding, (0, total - padding.shape[1]))
        positions = (~absent).cumsum(1) - 1
        start = total - fresh.shape[1]
        present = ~absent[:, start:]
        x = m.embedding(fresh, positions[:, start:].clamp(min=0), cache, present)
        steps = torch.arange(total, device=target.device)
        future = steps[None, :] > steps[start:, None]
        bias = autocast_input(mask_bias(future[None, None] | absent[:, None, None, :], x.dtype))
        x = m.decoder(x, present, bias, None, None, cache)
        if cache is not None:
            cache.length = done + target.shape[1]
        return x[:, x.shape[1] - target.shape[1] :]


@block
class ModelSection(Block):
    """One part of a model alone, to cost it; ``block`` is None where a model has no such part."""

    name: str
    block: Block | Use | None

    def parts(self) -> Mapping[str, Block | Use]:
        return {} if self.block is None else {self.name: self.block}


def mask_bias(hidden: Tensor, dtype: Any) -> Tensor:
    """A bias for attention scores: very low where ``hidden``, zero elsewhere.

    Not minus infinity: a row that is hidden throughout (a source of padding alone) must not become
    NaN.
    """
    import torch

    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
        hidden, torch.finfo(dtype).min / 2)
