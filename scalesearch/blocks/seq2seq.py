"""Blocks of whole models: encoder-decoder, decoder-only and encoder-only.

:class:`scalesearch.nn.model.Seq2SeqModel` is the model for users, built from these blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import PAD, SEQ, SRC, TEXT, TGT, Axis, Block, LoopNest, Use, block
from scalesearch.blocks.elementwise import autocast_input
from scalesearch.blocks.embedding import Classifier
from scalesearch.blocks.stacks import BottleneckStack, Stack

if TYPE_CHECKING:
    from torch import Tensor

# no tying; output matrix and target table; both tables; output matrix and both tables
TYING_MODES = ("none", "decoder", "inputs", "all")


@block
class Embeddings(Block):
    """The embeddings of the source and the target."""

    source: Block
    target: Block

    def parts(self) -> Mapping[str, Block | Use]:
        return {"source": self.source, "target": self.target}


@block
class EncoderDecoder(Block):
    """A sequence-to-sequence Transformer.

    ``output`` maps states (…, d) to logits (…, V).
    """

    embedding: Embeddings
    encoder: Stack | BottleneckStack
    decoder: Stack | BottleneckStack
    output: Use

    def parts(self) -> Mapping[str, Block | Use]:
        stacks = {"encoder": self.encoder, "decoder": self.decoder}
        return {"embedding": self.embedding, **stacks, "output": self.output}

    def part_roles(self) -> Mapping[str, str]:
        return {"output": "readout"}

    def encode(self, m: Any, source: Tensor) -> tuple[Any, Any]:
        """Encode token ids (batch, S), padded at the end.

        Returns:
            States (batch, S, d) and the bias (batch, 1, 1, S) of attention scores that hides
            padding.
        """
        return _encode(m.embedding.source, m.encoder, source)

    def decode(self, m: Any, target: Tensor, memory: Tensor | None, memory_bias: Tensor | None,
               cache: Any) -> Tensor:
        """Compute the states of target tokens.

        Args:
            target: token ids (batch, T) that follow those in the cache.
            memory: states of the encoder (batch, S, d).
            memory_bias: bias that hides their padding.
            cache: a :class:`scalesearch.nn.model.DecodingCache`, or None.

        Returns:
            States (batch, T, d).
        """
        positions, hidden = causal_positions(target, cache)
        x = m.embedding.target(target, positions, cache)
        bias = None if hidden is None else autocast_input(mask_bias(hidden, x.dtype))
        x = m.decoder(x, None, bias, memory, memory_bias, cache)
        if cache is not None:
            cache.length += target.shape[1]
        return x


@block
class EncoderOnly(Block):
    """A stack over the source in which positions attend to both sides (BERT).

    Target tokens are predictions of tokens of the source, at the same positions. A
    :class:`~scalesearch.blocks.embedding.Classifier` as output reads the first position only.
    """

    embedding: Block
    encoder: Stack | BottleneckStack
    output: Use

    def parts(self) -> Mapping[str, Block | Use]:
        return {"embedding": self.embedding, "encoder": self.encoder, "output": self.output}

    def part_roles(self) -> Mapping[str, str]:
        return {"output": "readout"}

    def loop_nests(self) -> Sequence[LoopNest]:
        has_classes = isinstance(self.output.block, Classifier)
        return read_state_nests(self.encoder, SRC, TEXT if has_classes else TGT)

    def encode(self, m: Any, source: Tensor) -> tuple[Any, Any]:
        """Encode token ids; see :meth:`EncoderDecoder.encode`. States of padding are zero."""
        states, hidden = _encode(m.embedding, m.encoder, source)
        return states.masked_fill((source == PAD)[..., None], 0), hidden

    def decode(self, m: Any, target: Tensor, memory: Tensor, memory_bias: Tensor | None,
               cache: Any) -> Tensor:
        """Return the states (batch, T, d) at the positions of ``target`` (batch, T).

        They are zero after the end of the source.
        """
        from torch.nn.functional import pad

        first = 0 if cache is None else cache.length
        end = first + target.shape[1]
        if cache is not None:
            cache.length = end
        return pad(memory, (0, 0, 0, max(0, end - memory.shape[1])))[:, first:end]


@block
class DecoderOnly(Block):
    """A causal stack over the source followed by the target."""

    embedding: Block
    decoder: Stack | BottleneckStack
    output: Use

    def parts(self) -> Mapping[str, Block | Use]:
        return {"embedding": self.embedding, "decoder": self.decoder, "output": self.output}

    def part_roles(self) -> Mapping[str, str]:
        return {"output": "readout"}

    def loop_nests(self) -> Sequence[LoopNest]:
        return read_state_nests(self.decoder, SEQ)

    def encode(self, m: Any, source: Tensor) -> tuple[Any, Any]:
        """Move the padding of the source (batch, S) to its front.

        The target then follows the last token of the source, which convolutions and relative
        positions require.

        Returns:
            Token ids (batch, S) and the mask (batch, S) of padding.
        """
        import torch

        padding = (source == PAD).sum(1, keepdim=True)
        index = torch.arange(source.shape[1], device=source.device)[None] - padding
        moved = source.gather(1, index.clamp(min=0)).masked_fill(index < 0, PAD)
        return moved, moved == PAD

    def decode(self, m: Any, target: Tensor, source: Tensor, padding: Tensor, cache: Any) -> Tensor:
        """Compute the states of new target tokens.

        The first call also processes the source.

        Args:
            target: token ids (batch, T) that follow those in the cache.
            source: token ids (batch, S) from :meth:`encode`.
            padding: mask (batch, S) of padding from :meth:`encode`.
            cache: a :class:`scalesearch.nn.model.DecodingCache`, or None.

        Returns:
            States (batch, T, d).
        """
        import torch

        if cache is not None and cache.size is not None:
            new = target
            total = cache.size
            free = cache.free_positions + padding.sum(1, keepdim=True)
            is_padding = torch.arange(total, device=target.device) < free
        else:
            past = 0 if cache is None else cache.length
            new = target if past else torch.cat([source, target], 1)
            total = source.shape[1] + past + target.shape[1]
            is_padding = torch.nn.functional.pad(padding, (0, total - padding.shape[1]))
        positions = (~is_padding).cumsum(1) - 1
        start = total - new.shape[1]
        token_mask = ~is_padding[:, start:]
        x = m.embedding(new, positions[:, start:].clamp(min=0), cache, token_mask)
        steps = torch.arange(total, device=target.device)
        future = steps[None, :] > steps[start:, None]
        hidden = future[None, None] | is_padding[:, None, None, :]  # (batch, 1, new, total)
        x = m.decoder(x, token_mask, autocast_input(mask_bias(hidden, x.dtype)), None, None, cache)
        if cache is not None:
            cache.length += target.shape[1]
        return x[:, x.shape[1] - target.shape[1] :]


@block
class ModelSection(Block):
    """One part of a model, for its costs.

    ``block`` is None if the model has no such part. ``model_nests`` are loop nests of the model
    itself, which are counted with this part.
    """

    name: str
    block: Block | Use | None
    model_nests: tuple[LoopNest, ...] = ()

    def parts(self) -> Mapping[str, Block | Use]:
        return {} if self.block is None else {self.name: self.block}

    def loop_nests(self) -> Sequence[LoopNest]:
        return self.model_nests


def read_state_nests(stack: Stack | BottleneckStack, axis: Axis,
                     read_axis: Axis = TGT) -> tuple[LoopNest, ...]:
    """Correction of saved activations: the output layer only stores states that it reads.

    Args:
        stack: the last stack.
        axis: its positions.
        read_axis: positions that the output layer reads.
    """
    d = stack.layer.mixer.d
    return LoopNest((axis, -d), "activation"), LoopNest((read_axis, d), "activation")


def _encode(embedding: Any, encoder: Any, source: Tensor) -> tuple[Tensor, Tensor]:
    """Return states (batch, S, d) and the bias that hides padding; both are modules."""
    import torch

    states = embedding(source, torch.arange(source.shape[1], device=source.device)[None])
    present = source != PAD
    hidden = autocast_input(mask_bias(~present[:, None, None, :], states.dtype))
    return autocast_input(encoder(states, present, hidden)), hidden


def causal_positions(target: Tensor, cache: Any) -> tuple[Tensor, Tensor | None]:
    """Return positions of tokens (batch, T) that follow those in the cache, and a causal mask.

    Returns:
        Positions (1, T), and the mask (T, keys) of hidden keys; None if no key is hidden.
    """
    import torch

    past = 0 if cache is None else cache.length
    positions = torch.arange(target.shape[1], device=target.device) + past
    hidden = None
    if cache is not None and cache.size is not None:
        keys = torch.arange(cache.size, device=target.device)
        hidden = keys[None] < cache.free_positions
    elif target.shape[1] > 1:
        keys = torch.arange(past + target.shape[1], device=target.device)
        hidden = keys[None] > positions[:, None]
    return positions[None], hidden


def mask_bias(hidden: Tensor, dtype: Any) -> Tensor:
    """Return a bias for attention scores that hides the positions ``hidden``.

    It is very low for these positions, else zero. It is finite, so that the softmax of a row
    that is completely hidden (a source of padding only) is not NaN.
    """
    import torch

    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
        hidden, torch.finfo(dtype).min / 2)
