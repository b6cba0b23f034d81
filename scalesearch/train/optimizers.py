"""Optimisers: AdamW for all weights, or Muon for matrices and AdamW for the rest."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from scalesearch.train.rates import Scale
from scalesearch.train.recipe import Recipe

# Newton-Schulz steps, and the coefficients of their polynomial (Jordan et al. 2024): singular values come near 1.
STEPS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)
RMS = 0.2  # of an update's entries, as AdamW's have it (Liu et al. 2025, section 2.2)
NEAR_ZERO = 1e-7


def optimizers(model: Any, recipe: Recipe, scales: Mapping[str, Scale], bf16: bool) -> list[torch.optim.Optimizer]:
    """The optimisers of ``model``; ``scale`` in each group is the factor on the schedule's rate.

    Args:
        bf16: whether products in bf16 are fast here; Muon's are in fp32 where they are not.
    """
    rest: dict[Any, list[Tensor]] = defaultdict(list)
    matrices: dict[Any, list[Tensor]] = defaultdict(list)
    for name, weight in model.named_parameters():
        scale = scales[name]
        if scale.matrices:
            matrices[scale.rate, scale.matrices].append(weight)
        else:
            rest[scale.rate, weight.ndim >= 2].append(weight)
    made: list[torch.optim.Optimizer] = []
    if rest:
        made.append(adamw([{"params": weights, "scale": rate, "weight_decay": recipe.weight_decay * decays}
                           for (rate, decays), weights in rest.items()], recipe))
    if matrices:
        groups = [{"params": weights, "scale": rate * recipe.muon_rate, "matrices": count}
                  for (rate, count), weights in matrices.items()]
        made.append(Muon(groups, recipe.lr.base, recipe.momentum, recipe.weight_decay, bf16))
    return made


def adamw(groups: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    """Adam, or AdamW with a weight decay; fused where PyTorch can."""
    settings: dict[str, Any] = {"lr": recipe.lr.base, "betas": (recipe.beta1, recipe.beta2), "eps": recipe.eps}
    try:
        return torch.optim.AdamW(groups, fused=True, **settings)
    except RuntimeError:  # a device or number type that the fused kernel does not know
        return torch.optim.AdamW(groups, foreach=True, **settings)


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal, matrix by matrix (Jordan et al. 2024), with updates as large as AdamW's.

    As ``torch.optim.Muon`` with ``match_rms_adamw``, but for two things: its products are in fp32 where bf16 is slow,
    and matrices of one shape go through them together. ``matrices`` in a group: how many each of its weights is.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, momentum: float, weight_decay: float,
                 bf16: bool) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "matrices": 1})
        self.dtype = torch.bfloat16 if bf16 else torch.float32

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Takes one step with the gradients there are."""
        for group in self.param_groups:
            for weights in _by_shape(group["params"]):
                updates = self._momenta(weights, group["momentum"])
                rows = weights[0].shape[0] if group["matrices"] == 1 else weights[0].shape[1]
                stacked = torch.stack(updates).reshape(len(weights) * group["matrices"], rows, -1)
                steps = orthogonal(stacked, self.dtype).view(len(weights), *weights[0].shape).unbind()
                if group["weight_decay"]:
                    torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(weights, steps, alpha=-group["lr"] * RMS * math.sqrt(max(stacked.shape[1:])))

    def _momenta(self, weights: list[Tensor], momentum: float) -> list[Tensor]:
        """The means of gradients, looking one step ahead (Nesterov)."""
        gradients = [weight.grad for weight in weights]
        means = [self.state[weight].setdefault("mean", torch.zeros_like(weight)) for weight in weights]
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        return list(torch._foreach_lerp(gradients, means, momentum))


def orthogonal(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Near the nearest orthogonal matrix to each of (n, rows, columns), by Newton-Schulz steps."""
    a, b, c = COEFFICIENTS
    wide = matrices.shape[1] <= matrices.shape[2]
    x = (matrices if wide else matrices.mT).to(dtype)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=NEAR_ZERO)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).to(matrices.dtype)


def _by_shape(weights: list[Tensor]) -> Iterator[list[Tensor]]:
    """The weights that have a gradient, those of one shape together."""
    shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for weight in weights:
        if weight.grad is not None:
            shapes[weight.shape].append(weight)
    yield from shapes.values()
