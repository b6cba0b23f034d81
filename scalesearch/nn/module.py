"""Module of a block; its weights can be tied to those of another module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from scalesearch.blocks.core import Block
from scalesearch.blocks.elementwise import autocast_input

MIN_ROWS_TO_PACK = 32  # number of rows from which prepacking a matrix saves time


@dataclass
class DropoutRates:
    """Dropout rates in training.

    Attributes:
        residual: rate for outputs of sub-layers and embeddings.
        attention: rate for attention weights.
        activation: rate for hidden units of feed-forward networks.
    """

    residual: float = 0.0
    attention: float = 0.0
    activation: float = 0.0


def prepack_weight(weight: Tensor) -> Tensor:
    """Return the matrix in the memory layout of oneDNN, for any number of rows."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return packed


class PackedLinear:
    """A linear map with constant weights.

    After ``MIN_ROWS_TO_PACK`` rows, the matrix is converted to the memory layout of oneDNN. For 64
    rows and a matrix of 256 x 1024, the product then takes (Zen 5, PyTorch 2.13):

    - fp32: 154 µs instead of 381 µs, because MKL uses only AVX2 on AMD;
    - bf16: 83 µs instead of 98 µs.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = autocast_input(weight)
        self.bias = None if bias is None else autocast_input(bias)
        self.packed: Tensor | None = None
        is_supported = (weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
                        and not torch.is_grad_enabled())
        if self.weight.dtype == torch.bfloat16:
            is_supported = is_supported and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        elif self.weight.dtype != torch.float32:
            is_supported = False
        self.rows_until_packing = MIN_ROWS_TO_PACK if is_supported else float("inf")

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
    """The module of a block.

    Attributes:
        block: the block.
        dropout_rates: dropout rates, shared by all modules of a model.
        attention_kernel: kernel of attention, ``fused`` or ``products``.
        compiled_forward: compiled form of the forward pass, for training; None if it is eager. See
            :meth:`~scalesearch.nn.model.Seq2SeqModel.compile_layers`.
        weight_cache: results that depend on weights only, inside
            :meth:`~scalesearch.nn.model.Seq2SeqModel.cached_weights`; otherwise None.
        tied_owners: modules that own the tied weights, by name of the weight.
    """

    def __init__(self, block: Block, rates: DropoutRates) -> None:
        super().__init__()
        self.block = block
        self.dropout_rates = rates
        self.attention_kernel = "products"
        self.compiled_forward: Callable[..., Any] | None = None
        self.weight_cache: dict[str, Any] | None = None
        # A plain dict: a tied weight is registered, saved and counted only in its owner.
        self.tied_owners: dict[str, Module] = {}

    def forward(self, *args: Any) -> Any:
        if self.training and self.compiled_forward is not None:
            return self.compiled_forward(self, *args)
        return self.block.forward(self, *args)

    def __getattr__(self, name: str) -> Any:
        tied = self.__dict__.get("tied_owners")
        if tied and name in tied:
            return getattr(tied[name], name)
        return super().__getattr__(name)

    def tie(self, name: str, owner: Module) -> None:
        """Tie the weight ``name`` to that of ``owner``, or of the owner of that weight."""
        while name in owner.tied_owners:
            owner = owner.tied_owners[name]
        del self._parameters[name]
        self.tied_owners[name] = owner

    def cached_constant(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return ``compute()``, which depends on weights only.

        It is cached in ``weight_cache``.

        A cached tensor is converted to the type in which autocast computes products.
        """
        if self.weight_cache is None:
            return compute()
        if name not in self.weight_cache:
            value = compute()
            self.weight_cache[name] = autocast_input(value) if isinstance(value, Tensor) else value
        return self.weight_cache[name]

    def cast_weight(self, name: str) -> Tensor:
        """Return the weight ``name`` in the type of products.

        It is converted once per search; autocast converts it in each step.
        """
        weight: Tensor = getattr(self, name)
        return weight if self.weight_cache is None else self.cached_constant(name, lambda: weight)

    def linear(self, x: Tensor, name: str,
               weights: Callable[[], tuple[Tensor, Tensor | None]]) -> Tensor:
        """Return x Wᵀ + b.

        Args:
            x: (…, d_in).
            name: key of the map in ``weight_cache``.
            weights: returns W (d_out, d_in) and b (d_out,) or None.
        """
        if self.weight_cache is None:
            return linear(x, *weights())
        product: PackedLinear = self.cached_constant(name, lambda: PackedLinear(*weights()))
        return product(x)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield name and tensor of every weight of the block, including tied ones."""
        for name in self.block.weights():
            yield name, getattr(self, name)

    def extra_repr(self) -> str:
        shapes = [f"{name}{list(weight.shape)}{' (tied)' * (name in self.tied_owners)}"
                  for name, weight in self.weights()]
        return f"{type(self.block).__name__}" + (f", {', '.join(shapes)}" if shapes else "")
