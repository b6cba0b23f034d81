"""Optimizers: AdamW for all weights, or Muon or SOAP for matrices and AdamW for the rest."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from scalesearch.train.recipe import Recipe
from scalesearch.train.updates.parametrization import WeightScale

# Newton-Schulz steps, and the coefficients of their polynomial (Jordan et al. 2024): singular
# values come near 1.
NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
UPDATE_RMS = 0.2  # of an update's entries, as AdamW's have it (Liu et al. 2025, section 2.2)
NORM_EPS = 1e-7
BASIS_UPDATE_INTERVAL = 10
MAX_PRECONDITIONED_SIDE = 512
SOAP_EPS = 1e-8


def build_optimizers(model: Any, recipe: Recipe, scales: Mapping[str, WeightScale],
                     bf16: bool) -> list[torch.optim.Optimizer]:
    """The optimizers of ``model``; ``scale`` in each group is the factor on the schedule's rate.

    Args:
        bf16: whether products in bf16 are fast here; Muon's are in fp32 where they are not.
    """
    rest: dict[Any, list[Tensor]] = defaultdict(list)
    matrices: dict[Any, list[Tensor]] = defaultdict(list)
    for name, weight in model.named_parameters():
        scale = scales[name]
        if scale.n_matrices:
            matrices[scale.lr_factor, scale.n_matrices].append(weight)
        else:
            rest[scale.lr_factor, weight.ndim >= 2].append(weight)
    made: list[torch.optim.Optimizer] = []
    if rest:
        made.append(build_adamw([{"params": weights, "scale": rate,
                                  "weight_decay": recipe.weight_decay * decays}
                                 for (rate, decays), weights in rest.items()], recipe))
    if matrices:
        groups = [{"params": weights, "scale": rate * recipe.resolved_matrix_lr_factor,
                   "matrices": count} for (rate, count), weights in matrices.items()]
        settings = {"lr": recipe.lr.base, "momentum": recipe.momentum,
                    "weight_decay": recipe.weight_decay}
        made.append({"muon": Muon, "soap": Soap}[recipe.optimizer](groups, bf16, **settings))
    return made


def build_adamw(groups: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    """Adam, or AdamW with a weight decay; fused where PyTorch can."""
    settings: dict[str, Any] = {"lr": recipe.lr.base, "betas": (recipe.beta1, recipe.beta2),
                                "eps": recipe.eps}
    try:
        return torch.optim.AdamW(groups, fused=True, **settings)
    except RuntimeError:  # a device or number type that the fused kernel does not know
        return torch.optim.AdamW(groups, foreach=True, **settings)


class MatrixOptimizer(torch.optim.Optimizer):
    """Base of optimizers of matrices; ``matrices`` in a group says how many each of its weights is."""

    def __init__(self, groups: list[dict[str, Any]], bf16: bool, lr: float, momentum: float,
                 weight_decay: float) -> None:
        super().__init__(
            groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "matrices": 1})
        self.dtype = torch.bfloat16 if bf16 else torch.float32

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Takes one step with the gradients there are."""
        for group in self.param_groups:
            for weights in _group_by_shape(group["params"]):
                if group["weight_decay"]:
                    torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
                self.update_weights(weights, group)

    def update_weights(self, weights: list[Tensor], group: Mapping[str, Any]) -> None:
        """Changes weights of one shape."""
        raise NotImplementedError


class Muon(MatrixOptimizer):
    """Momentum made orthogonal, matrix by matrix (Jordan et al.

    2024), with updates as large as AdamW's.

    As ``torch.optim.Muon`` with ``match_rms_adamw``, but for two things: its products are in fp32
    where bf16 is slow, and matrices of one shape go through them together.
    """

    def update_weights(self, weights: list[Tensor], group: Mapping[str, Any]) -> None:
        stacked = _as_matrices(torch.stack(self._nesterov_momenta(weights, group["momentum"])),
                               group["matrices"])
        steps = orthogonalize(stacked, self.dtype).view(len(weights), *weights[0].shape).unbind()
        torch._foreach_add_(weights, steps,
                            alpha=-group["lr"] * UPDATE_RMS * math.sqrt(max(stacked.shape[1:])))

    def _nesterov_momenta(self, weights: list[Tensor], momentum: float) -> list[Tensor]:
        """The means of gradients, looking one step ahead (Nesterov)."""
        gradients = [weight.grad for weight in weights]
        means = [self.state[weight].setdefault("mean", torch.zeros_like(weight))
                 for weight in weights]
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        return list(torch._foreach_lerp(gradients, means, momentum))


class Soap(MatrixOptimizer):
    """Adam in the eigenbasis of Shampoo's preconditioners (Vyas et al.

    2024, algorithm 3), matrix by matrix.

    The bases follow by one step of a power iteration every ``EVERY`` updates, and means are kept in
    them. A side longer than ``MAX_SIDE`` keeps its own basis. The first gradient only makes the
    bases. Matrices of one shape go through it together, and the first of their weights keeps the
    state; where more or fewer have gradients than before, it begins anew.
    """

    def update_weights(self, weights: list[Tensor], group: Mapping[str, Any]) -> None:
        gradients = _as_matrices(torch.stack([weight.grad for weight in weights]), group["matrices"])  # type: ignore
        state = self.state[weights[0]]
        if state and len(state["mean"]) == len(gradients):
            steps = self._update_directions(state, gradients, group["momentum"]).view(
                len(weights), *weights[0].shape).unbind()
            torch._foreach_add_(weights, steps, alpha=-group["lr"])
        elif gradients.isfinite().all():  # else there are no bases; the loss, which is not finite, ends the training
            state |= {"updates": 0, "mean": torch.zeros_like(gradients),
                      "square": torch.zeros_like(gradients)}
            state["covariances"] = _covariances(gradients)
            state["bases"] = {side: torch.linalg.eigh(cov)[1]
                              for side, cov in state["covariances"].items()}

    def _update_directions(self, state: dict[str, Any], gradient: Tensor, decay: float) -> Tensor:
        """The directions of one update, (n, rows, columns)."""
        state["updates"] += 1
        low = gradient.to(self.dtype)
        bases = {side: basis.to(self.dtype) for side, basis in state["bases"].items()}
        turned = _rotate(low, bases).to(gradient.dtype)
        state["mean"].lerp_(turned, 1 - decay)
        state["square"].mul_(decay).addcmul_(turned, turned, value=1 - decay)
        correction = 1 - decay ** state["updates"]
        size = (state["square"] / correction).sqrt_().add_(SOAP_EPS).mul_(correction)
        step = _rotate((state["mean"] / size).to(self.dtype), bases, back=True)
        for side, cov in _covariances(low).items():
            state["covariances"][side].lerp_(cov.to(gradient.dtype), 1 - decay)
        if state["updates"] % BASIS_UPDATE_INTERVAL == 0:
            self._update_bases(state)
        return step.to(gradient.dtype)

    def _update_bases(self, state: dict[str, Any]) -> None:
        """Moves the bases towards the eigenvectors of what the covariances have become, and the mean with them."""
        own = _rotate(state["mean"], state["bases"], back=True)
        state["bases"] = {side: torch.linalg.qr(state["covariances"][side] @ basis)[0]
                          for side, basis in state["bases"].items()}
        state["mean"] = _rotate(own, state["bases"])


def _covariances(gradient: Tensor) -> dict[str, Tensor]:
    """Of rows and of columns, where they are not too many."""
    pairs = {"rows": (gradient, gradient.mT), "columns": (gradient.mT, gradient)}
    return {side: one @ other
            for side, (one, other) in pairs.items() if one.shape[1] <= MAX_PRECONDITIONED_SIDE}


def _rotate(x: Tensor, bases: Mapping[str, Tensor], back: bool = False) -> Tensor:
    """``x`` in the bases of its sides, or back from there."""
    if (rows := bases.get("rows")) is not None:
        x = (rows if back else rows.mT) @ x
    if (columns := bases.get("columns")) is not None:
        x = x @ (columns.mT if back else columns)
    return x


def _as_matrices(weights: Tensor, count: int) -> Tensor:
    """(k, …) weights as matrices (k · count, rows, columns); a convolution's kernel is one with more columns."""
    rows = weights.shape[1] if count == 1 else weights.shape[2]
    return weights.reshape(len(weights) * count, rows, -1)


def orthogonalize(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Near the nearest orthogonal matrix to each of (n, rows, columns), by Newton-Schulz steps."""
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    wide = matrices.shape[1] <= matrices.shape[2]
    x = (matrices if wide else matrices.mT).to(dtype)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=NORM_EPS)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).to(matrices.dtype)


def _group_by_shape(weights: list[Tensor]) -> Iterator[list[Tensor]]:
    """The weights that have a gradient, those of one shape together."""
    shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for weight in weights:
        if weight.grad is not None:
            shapes[weight.shape].append(weight)
    yield from shapes.values()
