"""Costs of training: MACs of updates and runs, memory of the optimizer.

The backward pass of a product computes two products of the same size: the gradients of both of its
operands. The attention kernel ``products`` does exactly this. Fused kernels also compute attention
scores again. MACs of the optimizer are not counted.

Notation: S and T are the lengths of the protocol. A batch has max_tokens / max(S, T) sentence
pairs, rounded down, and no padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import CostLine, Size, has_matrices
from scalesearch.blocks.sizes import select_where
from scalesearch.spaces.schema.cost_names import TRAINING_SIZES

if TYPE_CHECKING:
    from scalesearch.cost.protocol import Protocol

PASSES_PER_PRODUCT = 3  # forward pass, and the gradients of both operands
FLOAT32_BYTES = 4  # memory is stated for float32
ADAMW_MEANS = 2  # moving averages per weight
MAX_PRECONDITIONED_SIDE = 512  # SOAP does not rotate longer sides


@dataclass(frozen=True)
class TrainingRun:
    """The part of a recipe that determines the costs of training.

    Attributes:
        steps: updates of the run.
        tokens: target tokens of the run.
        pairs: sentence pairs of the run. The run ends at the first of these limits.
        max_tokens: tokens of the longer side per batch.
        accumulate: batches per update.
        optimizer: adamw, muon or soap.
        passes: forward and backward passes per batch; 2 with R-Drop.
    """

    steps: int | None = None
    tokens: int | None = None
    pairs: int | None = None
    max_tokens: int | None = None
    accumulate: int = 1
    optimizer: str | None = None
    passes: int = 1

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TrainingRun:
        """Read the settings of a protocol."""
        keys = (*TRAINING_SIZES, "optimizer")
        chosen = {key: settings[key] for key in keys if settings.get(key) is not None}
        return cls(passes=settings.get("passes_per_batch", 1), **chosen)

    @property
    def settings(self) -> dict[str, int | str]:
        """Settings that differ from the defaults, the input of :meth:`from_settings`."""
        names = {"passes": "passes_per_batch"}
        defaults = asdict(TrainingRun())
        return {names.get(key, key): value
                for key, value in asdict(self).items() if value != defaults[key]}

    def batch_pairs(self, protocol: Protocol) -> int:
        """Sentence pairs per batch."""
        assert self.max_tokens is not None
        return max(1, self.max_tokens // max(protocol.source, protocol.target))

    def run_pairs(self, protocol: Protocol) -> int | None:
        """Sentence pairs of the run; None if nothing limits them."""
        update_pairs = self.accumulate * self.batch_pairs(protocol)
        limits = (None if self.steps is None else self.steps * update_pairs,
                  None if self.tokens is None else self.tokens // protocol.target, self.pairs)
        return min((limit for limit in limits if limit is not None), default=None)


def training_costs(lines: Iterable[CostLine], protocol: Protocol, pair_macs: Size,
                   batch_activations: Size, values: Mapping[str, Size],
                   weight_numel: Any) -> dict[str, Size]:
    """Costs of training for which the protocol has all settings.

    Args:
        pair_macs: MACs of the forward pass of a sentence pair, without work on weights only.
        batch_activations: the bytes of ``memory.activations`` that all sentences of a batch share.
        values: ``macs.once``, ``memory.weights`` and ``memory.activations``.
        weight_numel: function from the shape of a weight to its number of entries.
    """
    run = protocol.training
    costs: dict[str, Size] = {}
    if run.max_tokens is not None:
        batch = run.batch_pairs(protocol)

        def macs(pairs: int, batches: int) -> Size:
            return PASSES_PER_PRODUCT * run.passes * (pairs * pair_macs) + (
                PASSES_PER_PRODUCT * batches * values["macs.once"])

        costs["macs.update"] = macs(run.accumulate * batch, run.accumulate)
        run_pairs = run.run_pairs(protocol)
        if run_pairs is not None:
            costs["macs.run"] = macs(run_pairs, -(-run_pairs // batch))
    if run.optimizer is not None:
        numbers: Size = 0
        for line in lines:
            for name, shape in line.weights.items():
                state = optimizer_state(run.optimizer, line, name,
                                        [weight_numel((extent,)) for extent in shape])
                numbers = numbers + line.weight_copies[name] * state
        costs["memory.optimizer"] = FLOAT32_BYTES * numbers
        if run.max_tokens is not None:
            pair_activations = values["memory.activations"] - batch_activations
            # weights and their gradients
            costs["memory.training"] = 2 * values["memory.weights"] + costs["memory.optimizer"] + (
                run.passes * run.batch_pairs(protocol) * pair_activations) + batch_activations
    return costs


def optimizer_state(optimizer: str, line: CostLine, name: str, shape: list[Size]) -> Size:
    """Numbers that the optimizer stores for a weight."""
    numel = math.prod(shape)
    if optimizer == "adamw" or not has_matrices(line.block, line.path, name):
        return ADAMW_MEANS * numel + 1  # and the number of updates
    if optimizer == "muon":
        return numel
    is_stack = line.block.initialization(name) == "heads"
    n_matrices = shape[0] if is_stack else 1
    rows = shape[1] if is_stack else shape[0]
    columns = math.prod(shape[2:] if is_stack else shape[1:])
    state: Size = ADAMW_MEANS * numel
    for side in (rows, columns):  # covariance and basis
        state = state + n_matrices * select_where(side <= MAX_PRECONDITIONED_SIDE,
                                                  2 * side * side, 0)
    return state
