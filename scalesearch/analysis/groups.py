"""How often each group of parameters is used, and how strongly the loss pulls at it.

Load and balance are the cost ledger's own (:mod:`scalesearch.cost.load`): they follow from the
architecture, no data is needed. Of gradients, the loss is the mean cross-entropy of the sample's
target tokens, (1 / N) Σ_n -log p(y_n), without dropout and with the label smoothing that is asked
for. Of a group with weights θ_g of which there are p:

- ``norm`` = ‖∂L/∂θ_g‖₂; squares over all groups add up to that of the whole gradient;
- ``relative`` = ‖∂L/∂θ_g‖₂ / ‖θ_g‖₂, which does not change with the unit that weights are in;
- ``rms`` = ‖∂L/∂θ_g‖₂ / √p, a single weight's, for groups of unlike size.

There a group is what one part of the layer that owns them holds (an attention, a feed-forward
network, a norm), or outside the layers an embedding, a norm, A^G, the output. A shared weight's
gradient is the sum over its uses, and is counted at its owner. None of the three papers defines
this measure; EdgeFormer (section 3.2) argues from how much each group is trained, which it states
as load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from scalesearch.analysis.probes import find_layers
from scalesearch.blocks.core import Block
from scalesearch.cost.load import load_balance, weight_groups
from scalesearch.data import Split, eval_batches
from scalesearch.nn import Seq2SeqModel
from scalesearch.train.updates.engine import Engine


@dataclass(frozen=True)
class LoadRow:
    """One group; ``use_share``: of all uses of weights, p l / Σ p l."""

    group: str
    params: int
    load: int
    use_share: float


@dataclass(frozen=True)
class GradientRow:
    """One group; ``relative_norm`` is None where all its weights are zero."""

    group: str
    params: int
    norm: float
    weight_norm: float
    relative_norm: float | None
    rms_gradient: float


@dataclass(frozen=True)
class GradientAnalysis:
    """``loss``: in nats a token, smoothed as asked for. ``norm``: of the whole gradient."""

    loss: float
    norm: float
    rows: list[GradientRow]


def compute_loads(block: Block) -> tuple[list[LoadRow], Mapping[str, float]]:
    """The groups, and ``load.mean``, ``load.balance``, ``load.min``, ``load.max``."""
    groups = weight_groups(block)
    used = sum(group.params * group.load for group in groups)
    rows = [LoadRow(g.name, g.params, g.load, g.params * g.load / used) for g in groups]
    return rows, load_balance(block)


def compute_gradients(engine: Engine, split: Split, smoothing: float,
                      max_tokens: int) -> GradientAnalysis:
    """Gradients of the mean loss on ``split``; the model is left in eval mode and without gradients."""
    model = engine.model.eval()
    model.zero_grad(set_to_none=True)
    batches = eval_batches(split, max_tokens)
    tokens = sum(batch.tokens for batch in batches)
    total = 0.0
    for batch in batches:
        loss: Any = engine.loss_sum(batch, smoothing) / tokens
        loss.backward()
        total += float(loss.detach())
    rows = gradient_norms(model)
    model.zero_grad(set_to_none=True)
    return GradientAnalysis(total, math.sqrt(sum(row.norm**2 for row in rows)), rows)


def gradient_norms(model: Seq2SeqModel) -> list[GradientRow]:
    """The norms of the gradients that the parameters of ``model`` have; one without a gradient counts as zero."""
    layers = [layer.path for layer in find_layers(model)]
    groups: dict[str, list[Tensor]] = {}
    for path, parameter in model.named_parameters():
        groups.setdefault(parameter_group(path, layers), []).append(parameter)
    return [_row(name, parameters) for name, parameters in groups.items()]


def parameter_group(path: str, layers: list[str]) -> str:
    """The group of the parameter at ``path``, given the paths of the layers."""
    parts = path.split(".")[:-1]
    inside = [layer for layer in layers if path.startswith(f"{layer}.")]
    depth = len(inside[0].split(".")) + 1 if inside else 2
    return ".".join(parts[:depth])


def _row(name: str, parameters: list[Tensor]) -> GradientRow:
    size = sum(p.numel() for p in parameters)
    norm = _norm([p.grad for p in parameters if p.grad is not None])
    weights = _norm([p.detach() for p in parameters])
    return GradientRow(name, size, norm, weights, norm / weights if weights else None,
                       norm / math.sqrt(size))


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))
