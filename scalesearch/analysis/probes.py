"""Forward hooks that measure a model while it runs; they return nothing, so that no output changes.

A probe names the module that it hooks; :func:`attached_probes` hands it the module's inputs or
outputs, with the positions that are no padding.
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
from scalesearch.blocks.layers import Layer as LayerBlock
from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.nn import Module, Seq2SeqModel

STACKS = ("encoder", "decoder")  # an embedding may have a layer, too


@dataclass(frozen=True)
class LayerInfo:
    """A layer of a model: its ``stack`` (``encoder`` or ``decoder``), its ``number`` there from 1, its ``path``."""

    stack: str
    number: int
    path: str
    module: Module

    def modules_of_type(self, *block_types: type) -> Iterator[tuple[str, Module]]:
        """Path within the layer, and module, of every part whose block is one of ``kinds``."""
        for path, node in self.module.named_modules():
            if isinstance(node, Module) and isinstance(node.block, block_types):
                yield path, node


@dataclass
class Probe(ABC):
    """A measure of one module of ``layer``: of its first ``input`` or its ``output``, by ``hook_side``."""

    layer: LayerInfo
    module: Module
    hook_side: str

    @abstractmethod
    def record(self, states: Tensor, mask: Tensor) -> None:
        """Measures ``states`` (batch, positions, …); ``mask`` (batch, positions): where there is no padding."""

    @abstractmethod
    def row(self) -> Any:
        """What was measured, as a row of a table."""


@dataclass
class RunningMean:
    """A running mean of numbers, in float64."""

    total: float = 0.0
    count: int = 0

    def add(self, values: Tensor) -> None:
        """Adds all ``values``."""
        self.total += float(values.double().sum())
        self.count += values.numel()

    @property
    def value(self) -> float | None:
        """The mean; None of no values."""
        return self.total / self.count if self.count else None


@dataclass
class TokenMasks:
    """Which positions of the present batch are no padding, by stack."""

    by_stack: dict[str, Tensor] = field(default_factory=dict)

    def run_model(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> None:
        """One teacher-forced pass: ``source`` (B, S) and ``target`` (B, T) ids, the target as the decoder reads it."""
        self.by_stack["encoder"], here = source != PAD, target != PAD
        memory = model.encode(source)
        # its one stack reads the source, padded in front, and then the target
        if isinstance(model.block, DecoderOnly):
            here = torch.cat([~memory.bias, here], 1)
        self.by_stack["decoder"] = here
        model.decode(target, memory)


def find_layers(model: Seq2SeqModel) -> list[LayerInfo]:
    """Every layer of the stacks, in the order in which they run."""
    found: list[LayerInfo] = []
    for path, node in model.named_modules():
        stack = path.split(".")[0]
        if isinstance(node, Module) and isinstance(node.block, LayerBlock) and stack in STACKS:
            found.append(LayerInfo(stack, 1 + sum(layer.stack == stack for layer in found), path,
                                   node))
    return found


@contextmanager
def attached_probes(probes: Iterable[Probe], masks: TokenMasks) -> Iterator[None]:
    """Context in which the probes are hooked; no hook is left afterwards."""
    with ExitStack() as hooks:
        for probe in probes:
            hooks.callback(_hook(probe, masks).remove)
        yield


def _hook(probe: Probe, real: TokenMasks) -> Any:
    def take(module: Any, args: tuple[Any, ...], output: Tensor | None = None) -> None:
        probe.record((args[0] if output is None else output).detach(),
                     real.by_stack[probe.layer.stack])

    add = (probe.module.register_forward_pre_hook if probe.hook_side == "input"
           else probe.module.register_forward_hook)
    return add(take)
