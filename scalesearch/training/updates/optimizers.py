"""Optimizers: AdamW, or Muon or SOAP for matrices and AdamW for the others.

Shapes: n matrices of (rows, columns) are processed together as (n, rows, columns).
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from scalesearch.cost.training import MAX_PRECONDITIONED_SIDE
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.parametrization import WeightScale

# Newton-Schulz steps and coefficients of their polynomial (Jordan et al. 2024): singular values
# become close to 1.
NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
UPDATE_RMS = 0.2  # of the entries of an update, as with AdamW (Liu et al. 2025, section 2.2)
NORM_EPS = 1e-7
BASIS_UPDATE_INTERVAL = 10
SOAP_EPS = 1e-8


def build_optimizers(model: Seq2SeqModel, recipe: Recipe, scales: Mapping[str, WeightScale],
                     bf16: bool, capturable: bool = False) -> list[torch.optim.Optimizer]:
    """Build the optimizers of ``model``.

    ``scale`` of a parameter group is its factor on the learning rate.

    Args:
        bf16: whether products in bf16 are fast on this hardware; otherwise Muon uses fp32.
        capturable: whether steps can be part of a CUDA graph: learning rates and counts of updates
            are tensors, and nothing depends on their values. :func:`set_learning_rate` sets the
            rates, and the caller calls :meth:`MatrixOptimizer.update_bases`.
    """
    adamw_weights: dict[Any, list[Tensor]] = defaultdict(list)
    matrices: dict[Any, list[Tensor]] = defaultdict(list)
    for name, weight in model.named_parameters():
        scale = scales[name]
        if scale.n_matrices:
            matrices[scale.lr_factor, scale.n_matrices].append(weight)
        else:
            has_decay = weight.ndim >= 2
            adamw_weights[scale.lr_factor, has_decay].append(weight)
    optimizers: list[torch.optim.Optimizer] = []
    if adamw_weights:
        groups = [{"params": weights, "scale": lr_factor,
                   "weight_decay": recipe.weight_decay * has_decay}
                  for (lr_factor, has_decay), weights in adamw_weights.items()]
        optimizers.append(build_adamw(groups, recipe, capturable))
    if matrices:
        groups = [{"params": weights, "scale": lr_factor * recipe.resolved_matrix_lr_factor,
                   "matrices": count} for (lr_factor, count), weights in matrices.items()]
        optimizer_class = {"muon": Muon, "soap": Soap}[recipe.optimizer]
        optimizers.append(optimizer_class(groups, bf16, lr=recipe.lr.base, momentum=recipe.momentum,
                                          weight_decay=recipe.weight_decay,
                                          capturable=capturable))
    if capturable:
        device = next(model.parameters()).device
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = torch.zeros((), device=device)
    return optimizers


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float | Tensor) -> None:
    """Set the learning rate of each group to ``lr`` times its ``scale``."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr * group["scale"])
        else:
            group["lr"] = lr * group["scale"]


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: Any) -> None:
    """Load a state; how the step runs on this device stays as it is."""
    device_keys = ("lr", "capturable", "fused", "foreach")
    device_settings = [{key: group[key] for key in device_keys if key in group}
                       for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, settings in zip(optimizer.param_groups, device_settings, strict=True):
        group.update(settings)
    if isinstance(optimizer, Soap):
        for soap_state in optimizer.state.values():
            soap_state["updates"] = optimizer.count(int(soap_state["updates"]),
                                                    soap_state["mean"].device)


def build_adamw(groups: list[dict[str, Any]], recipe: Recipe,
                capturable: bool = False) -> torch.optim.Optimizer:
    """Build AdamW (Adam without weight decay), fused if PyTorch supports it."""
    settings: dict[str, Any] = {"lr": recipe.lr.base, "betas": (recipe.beta1, recipe.beta2),
                                "eps": recipe.eps}
    if capturable:
        settings["capturable"] = groups[0]["params"][0].device.type == "cuda"
    try:
        return torch.optim.AdamW(groups, fused=True, **settings)
    except RuntimeError:  # the fused kernel does not support the device or the number type
        return torch.optim.AdamW(groups, foreach=True, **settings)


class MatrixOptimizer(torch.optim.Optimizer):
    """Base class of optimizers of matrices.

    ``matrices`` of a group is the number of matrices that each of its weights consists of.
    """

    def __init__(self, groups: list[dict[str, Any]], bf16: bool, lr: float, momentum: float,
                 weight_decay: float, capturable: bool = False) -> None:
        super().__init__(
            groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "matrices": 1})
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.capturable = capturable

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Take one step with the current gradients."""
        for group in self.param_groups:
            weights_by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    weights_by_shape[weight.shape].append(weight)
            for weights in weights_by_shape.values():
                if group["weight_decay"]:
                    torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
                self.update_weights(weights, group)

    def update_weights(self, weights: list[Tensor], group: Mapping[str, Any]) -> None:
        """Update weights of one shape."""
        raise NotImplementedError

    def update_bases(self) -> None:
        """Do the work due every ``BASIS_UPDATE_INTERVAL`` updates, if ``capturable``."""


class Muon(MatrixOptimizer):
    """Orthogonalized momentum (Jordan et al. 2024) with the update RMS of AdamW.

    It equals ``torch.optim.Muon`` with ``match_rms_adamw``, with two exceptions: products use fp32
    if bf16 is slow, and matrices of one shape are processed together.
    """

    def update_weights(self, weights: list[Tensor], group: Mapping[str, Any]) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        means = [self.state[weight].setdefault("mean", torch.zeros_like(weight))
                 for weight in weights]
        torch._foreach_lerp_(means, gradients, 1 - group["momentum"])
        # Nesterov's look-ahead of one step
        momenta = torch._foreach_lerp(gradients, means, group["momentum"])
        stacked = _as_matrices(torch.stack(list(momenta)), group["matrices"])
        directions = orthogonalize(stacked, self.dtype)
        rms_factor = UPDATE_RMS * math.sqrt(max(stacked.shape[1:]))
        _add_directions(weights, directions, -group["lr"] * rms_factor)


class Soap(MatrixOptimizer):
    """Adam in the eigenbasis of Shampoo's preconditioners.

    Source: Vyas et al. (2024), algorithm 3. The bases are updated with one step of a power
    iteration every ``BASIS_UPDATE_INTERVAL`` updates, and means are stored in these bases. A side
    longer than ``MAX_PRECONDITIONED_SIDE`` is not rotated. The first gradient only initializes the
    bases. Matrices of one shape are processed together, and the first of their weights holds the
    state. If the number of weights with gradients changes, the state is initialized again.
    """

    def update_weights(self, weights: list[Tensor], group: Mapping[str, Any]) -> None:
        stacked = torch.stack([weight.grad for weight in weights])  # type: ignore
        gradients = _as_matrices(stacked, group["matrices"])
        state = self.state[weights[0]]
        decay = group["momentum"]
        if state and len(state["mean"]) == len(gradients):
            state["updates"] += 1
            low = gradients.to(self.dtype)
            bases = {side: basis.to(self.dtype) for side, basis in state["bases"].items()}
            rotated = _rotate(low, bases).to(gradients.dtype)
            state["mean"].lerp_(rotated, 1 - decay)
            state["square"].mul_(decay).addcmul_(rotated, rotated, value=1 - decay)
            correction = 1 - decay ** state["updates"]
            denominator = (state["square"] / correction).sqrt_().add_(SOAP_EPS).mul_(correction)
            step = _rotate((state["mean"] / denominator).to(self.dtype), bases, back=True)
            for side, covariance in _covariances(low).items():
                state["covariances"][side].lerp_(covariance.to(gradients.dtype), 1 - decay)
            if not self.capturable and state["updates"] % BASIS_UPDATE_INTERVAL == 0:
                self._update_bases(state)
            _add_directions(weights, step.to(gradients.dtype), -group["lr"])
        # Otherwise no bases exist. The loss is not finite, which ends training.
        elif gradients.isfinite().all():
            state |= {"updates": self.count(0, gradients.device),
                      "mean": torch.zeros_like(gradients), "square": torch.zeros_like(gradients)}
            state["covariances"] = _covariances(gradients)
            state["bases"] = {side: torch.linalg.eigh(covariance)[1]
                              for side, covariance in state["covariances"].items()}

    def count(self, n_updates: int, device: torch.device) -> Any:
        """Return a number of updates in the form of this optimizer."""
        return torch.full((), n_updates, dtype=torch.float64,
                          device=device) if self.capturable else n_updates

    @torch.no_grad()
    def update_bases(self) -> None:
        for state in self.state.values():
            self._update_bases(state)

    def _update_bases(self, state: dict[str, Any]) -> None:
        """Move the bases towards the current eigenvectors, and rotate the mean.

        Both in place.
        """
        mean = _rotate(state["mean"], state["bases"], back=True)
        for side, basis in state["bases"].items():
            basis.copy_(torch.linalg.qr(state["covariances"][side] @ basis)[0])
        state["mean"].copy_(_rotate(mean, state["bases"]))


def _add_directions(weights: list[Tensor], directions: Tensor, factor: float | Tensor) -> None:
    """Add ``factor`` times the directions, which are stacked, to weights of one shape."""
    steps = directions.view(len(weights), *weights[0].shape)
    if isinstance(factor, Tensor):
        torch._foreach_add_(weights, list((steps * factor).unbind()))
    else:
        torch._foreach_add_(weights, steps.unbind(), alpha=factor)


def _covariances(gradient: Tensor) -> dict[str, Tensor]:
    """Compute the covariances of rows and columns that are preconditioned."""
    pairs = {"rows": (gradient, gradient.mT), "columns": (gradient.mT, gradient)}
    return {side: left @ right
            for side, (left, right) in pairs.items() if left.shape[1] <= MAX_PRECONDITIONED_SIDE}


def _rotate(x: Tensor, bases: Mapping[str, Tensor], back: bool = False) -> Tensor:
    """Rotate (n, rows, columns) into the bases of its sides, or back."""
    rows = bases.get("rows")
    columns = bases.get("columns")
    if rows is not None:
        x = (rows if back else rows.mT) @ x
    if columns is not None:
        x = x @ (columns.mT if back else columns)
    return x


def _as_matrices(weights: Tensor, count: int) -> Tensor:
    """View k weights of ``count`` matrices as (k · count, rows, columns).

    The kernel of a convolution is a matrix with more columns.
    """
    rows = weights.shape[1] if count == 1 else weights.shape[2]
    return weights.reshape(len(weights) * count, rows, -1)


def orthogonalize(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Approximate the nearest orthogonal matrices by Newton-Schulz steps."""
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    is_wide = matrices.shape[1] <= matrices.shape[2]
    x = (matrices if is_wide else matrices.mT).to(dtype)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=NORM_EPS)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if is_wide else x.mT).to(matrices.dtype)
