"""Load and gradients of groups of parameters.

Load and balance are those of :mod:`scalesearch.cost.load`; they follow from the architecture and
need no data. The loss of the gradients is the mean cross-entropy of the target tokens of the
sample, (1 / N) Σ_n -log p(y_n), without dropout and with the label smoothing of the recipe. For a
group with p weights θ_g:

- ``norm`` = ‖∂L/∂θ_g‖₂; the squares of all groups add up to the square of the whole gradient;
- ``relative_norm`` = ‖∂L/∂θ_g‖₂ / ‖θ_g‖₂, which does not depend on the unit of the weights;
- ``rms_gradient`` = ‖∂L/∂θ_g‖₂ / √p, per weight, to compare groups of different sizes.

A group is a part of the layer that owns the weights (an attention, a feed-forward network, a norm),
or outside of layers an embedding, a norm, A^G or the output. The gradient of a shared weight is the
sum over its uses and counts for its owner. None of the three papers defines this measure.
EdgeFormer (section 3.2) argues with how much each group is trained, and measures it by the load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from scalesearch.analysis.probes import find_layers
from scalesearch.blocks.core import Block
from scalesearch.cost.load import load_balance, weight_groups
from scalesearch.data import Split, eval_batches
from scalesearch.nn import Seq2SeqModel
from scalesearch.training.updates.engine import Engine


@dataclass(frozen=True)
class LoadRow:
    """Load of a group with p parameters and load l.

    ``use_share`` is its share of all uses of weights, p l / Σ p l.
    """

    group: str
    params: int
    load: int
    use_share: float


@dataclass(frozen=True)
class LoadAnalysis:
    """Loads of all groups, and their mean, balance, minimum and maximum."""

    mean: float
    balance: float
    min: float
    max: float
    groups: list[LoadRow]


@dataclass(frozen=True)
class GradientRow:
    """Gradient of a group; ``relative_norm`` is None if all weights are zero."""

    group: str
    params: int
    norm: float
    weight_norm: float
    relative_norm: float | None
    rms_gradient: float


@dataclass(frozen=True)
class GradientAnalysis:
    """Gradients of all groups.

    Attributes:
        loss: smoothed loss, in nats per token.
        norm: norm of the whole gradient.
    """

    loss: float
    norm: float
    groups: list[GradientRow]


def compute_loads(block: Block) -> LoadAnalysis:
    """Compute the load of all groups."""
    groups = weight_groups(block)
    total = sum(group.params * group.load for group in groups)
    rows = [LoadRow(group.name, group.params, group.load, group.params * group.load / total)
            for group in groups]
    return LoadAnalysis(*load_balance(block).values(), rows)


def compute_gradients(engine: Engine, split: Split, smoothing: float,
                      max_tokens: int) -> GradientAnalysis:
    """Compute gradients of the mean loss on ``split``.

    Afterwards, the model is in eval mode and has no gradients.
    """
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
    """Compute gradient norms of all groups; a missing gradient counts as zero."""
    layer_paths = [layer.path for layer in find_layers(model)]
    groups: dict[str, list[Tensor]] = {}
    for path, parameter in model.named_parameters():
        groups.setdefault(parameter_group(path, layer_paths), []).append(parameter)
    rows = []
    for name, parameters in groups.items():
        size = sum(parameter.numel() for parameter in parameters)
        norm = _norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        weight_norm = _norm([parameter.detach() for parameter in parameters])
        rows.append(GradientRow(name, size, norm, weight_norm,
                                norm / weight_norm if weight_norm else None,
                                norm / math.sqrt(size)))
    return rows


def parameter_group(path: str, layer_paths: list[str]) -> str:
    """Return the group of the parameter at ``path``."""
    parts = path.split(".")[:-1]
    owners = [layer_path for layer_path in layer_paths if path.startswith(f"{layer_path}.")]
    depth = len(owners[0].split(".")) + 1 if owners else 2
    return ".".join(parts[:depth])


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))
