"""``nn.Module`` of a block, whose weights may be another module's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from scalesearch.blocks.core import Block
from scalesearch.blocks.elementwise import autocast_input

MIN_ROWS_TO_PACK = 32  # rows for which it pays to lay a matrix out anew


@dataclass
class DropoutRates:
    """Dropout rates while training: on sub-layer outputs and embeddings, attention weights, FFN activations."""

    residual: float = 0.0
    attention: float = 0.0
    activation: float = 0.0


def prepack_weight(weight: Tensor) -> Tensor:
    """The matrix in oneDNN's own layout, for any number of rows."""
    made: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return made


class PackedLinear:
    """A linear map whose weights stay as they are.

    Once it has served many rows its matrix is laid out as oneDNN reads it. 64 rows by 256 x 1024
    then took 154 µs instead of 381 in fp32, where MKL keeps to AVX2 on AMD, and 83 instead of 98 in
    bf16 (Zen 5, PyTorch 2.13).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = autocast_input(weight)
        self.bias = None if bias is None else autocast_input(bias)
        self.packed: Tensor | None = None
        cpu = weight.device.type == "cpu" and torch.backends.mkldnn.is_available(
            ) and not torch.is_grad_enabled()
        bf16 = (cpu and self.weight.dtype == torch.bfloat16
                and torch.ops.mkldnn._is_mkldnn_bf16_supported())
        self.rows_until_packing = MIN_ROWS_TO_PACK if bf16 or (
            cpu and self.weight.dtype == torch.float32) else float("inf")

    def __call__(self, x: Tensor) -> Tensor:
        x = autocast_input(x)
        self.rows_until_packing -= x.numel() // x.shape[-1]
        if self.rows_until_packing >= 0 or x.dtype != self.weight.dtype:
            return linear(x, self.weight, self.bias)
        if self.packed is None:
            self.packed = prepack_weight(self.weight)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return y


class Module(nn.Module):
    """One block, run.

    ``rates`` is shared by all modules of a model; ``tied`` names weights that live elsewhere.
    """

    def __init__(self, block: Block, rates: DropoutRates) -> None:
        super().__init__()
        self.block = block
        self.dropout_rates = rates
        self.attention_kernel = "products"  # how fused attention runs
        # what of weights alone was computed, while they stay as they are
        self.weight_cache: dict[str, Any] | None = None
        # A plain dict, so that a tied weight is registered, saved and counted only where it is
        # owned.
        self.tied_owners: dict[str, Module] = {}

    def forward(self, *args: Any) -> Any:
        return self.block.forward(self, *args)

    def __getattr__(self, name: str) -> Any:
        tied = self.__dict__.get("tied_owners")
        if tied and name in tied:
            return getattr(tied[name], name)
        return super().__getattr__(name)

    def tie(self, name: str, owner: Module) -> None:
        """Make this module's weight ``name`` that of ``owner``, or of the owner's owner."""
        while name in owner.tied_owners:
            owner = owner.tied_owners[name]
        del self._parameters[name]
        self.tied_owners[name] = owner

    def cached_constant(self, name: str, compute: Callable[[], Any]) -> Any:
        """``compute()`` of weights alone: each time, or once while the model is folded.

        A folded matrix is in the type that products run in.
        """
        if self.weight_cache is None:
            return compute()
        if name not in self.weight_cache:
            made = compute()
            self.weight_cache[name] = autocast_input(made) if isinstance(made, Tensor) else made
        return self.weight_cache[name]

    def cast_weight(self, name: str) -> Tensor:
        """The weight ``name`` as products read it; autocast alone would convert it for each product of a search."""
        weight: Tensor = getattr(self, name)
        return weight if self.weight_cache is None else self.cached_constant(name, lambda: weight)

    def linear(self, x: Tensor, name: str,
               weights: Callable[[], tuple[Tensor, Tensor | None]]) -> Tensor:
        """x Wᵀ + b with the ``weights`` W and b; while the model is folded, those of the first call by ``name``."""
        if self.weight_cache is None:
            return linear(x, *weights())
        product: PackedLinear = self.cached_constant(name, lambda: PackedLinear(*weights()))
        return product(x)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight that the block names, its own and the tied."""
        for name in self.block.weights():
            yield name, getattr(self, name)

    def extra_repr(self) -> str:
        shapes = [f"{name}{list(weight.shape)}{' (tied)' * (name in self.tied_owners)}"
                  for name, weight in self.weights()]
        return f"{type(self.block).__name__}" + (f", {', '.join(shapes)}" if shapes else "")
