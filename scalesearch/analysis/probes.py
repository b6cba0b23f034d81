"""Probes: forward hooks that measure a model without changing its output.

A probe names the module that it hooks. :func:`attached_probes` passes inputs or outputs of the
module to the probe, with a mask of the positions that are not padding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.core import PAD
from scalesearch.blocks.layers import Layer
from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.nn import Module, Seq2SeqModel

STACKS = ("encoder", "decoder")  # an embedding may contain a layer too


@dataclass(frozen=True)
class LayerInfo:
    """Layer of a model.

    Attributes:
        stack: ``encoder`` or ``decoder``.
        number: position in the stack, from 1.
        path: path of the module in the model.
    """

    stack: str
    number: int
    path: str
    module: Module

    def modules_of_type(self, *block_types: type) -> Iterator[tuple[str, Module]]:
        """Yield path in the layer and module of parts with these types of blocks."""
        for path, node in self.module.named_modules():
            if isinstance(node, Module) and isinstance(node.block, block_types):
                yield path, node


@dataclass
class Probe(ABC):
    """Measure of one module of ``layer``.

    ``hook_side`` is ``input`` (the first input of the module) or ``output``.
    """

    layer: LayerInfo
    module: Module
    hook_side: str

    @abstractmethod
    def record(self, states: Tensor, mask: Tensor) -> None:
        """Measure ``states`` (batch, positions, …)."""

    @abstractmethod
    def row(self) -> Any:
        """Return the measures as a table row."""


@dataclass
class RunningMean:
    """Running mean of numbers, in float64."""

    total: float = 0.0
    count: int = 0

    def add(self, values: Tensor) -> None:
        """Add all ``values``."""
        self.total += float(values.double().sum())
        self.count += values.numel()

    @property
    def value(self) -> float | None:
        """The mean; None without values."""
        return self.total / self.count if self.count else None


@dataclass
class TokenMasks:
    """Masks of the current batch by stack, False at padding."""

    by_stack: dict[str, Tensor] = field(default_factory=dict)

    def run_model(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> None:
        """Run one teacher-forced pass on ids ``source`` (B, S) and ``target`` (B, T).

        ``target`` is the input of the decoder.
        """
        self.by_stack["encoder"] = source != PAD
        decoder_mask = target != PAD
        memory = model.encode(source)
        if isinstance(model.block, DecoderOnly):
            # The only stack reads the source, padded on the left, and then the target.
            decoder_mask = torch.cat([~memory.bias, decoder_mask], 1)
        self.by_stack["decoder"] = decoder_mask
        model.decode(target, memory)


def find_layers(model: Seq2SeqModel) -> list[LayerInfo]:
    """Return every layer of the stacks, in the order of execution."""
    layers: list[LayerInfo] = []
    for path, node in model.named_modules():
        stack = path.split(".")[0]
        if isinstance(node, Module) and isinstance(node.block, Layer) and stack in STACKS:
            number = 1 + sum(layer.stack == stack for layer in layers)
            layers.append(LayerInfo(stack, number, path, node))
    return layers


@contextmanager
def attached_probes(probes: Iterable[Probe], masks: TokenMasks) -> Iterator[None]:
    """Context with hooks of the probes, which are removed at the end."""
    with ExitStack() as hooks:
        for probe in probes:
            hooks.callback(_hook(probe, masks).remove)
        yield


def _hook(probe: Probe, masks: TokenMasks) -> Any:
    def record(module: Any, args: tuple[Any, ...], output: Tensor | None = None) -> None:
        states = args[0] if output is None else output
        probe.record(states.detach(), masks.by_stack[probe.layer.stack])

    if probe.hook_side == "input":
        return probe.module.register_forward_pre_hook(record)
    return probe.module.register_forward_hook(record)
