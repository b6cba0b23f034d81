"""Leaves: weight shapes, loop nests and operation, side by side.

Tensors are (batch, positions, features).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import VOCAB, Axes, Axis, Block, Extent, LoopNest, Shape, Size, block
from scalesearch.blocks.elementwise import add_promoted, dropout
from scalesearch.blocks.sizes import is_set

if TYPE_CHECKING:
    from torch import Tensor


@block
class Linear(Block):
    """y = x Wᵀ + b at every position of ``over``. ``d_out`` may be the vocabulary."""

    d_in: Size
    d_out: Extent
    over: Shape
    bias: bool = True

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.d_out, self.d_in)} | ({"bias": (self.d_out,)} if self.bias else {})

    def loop_nests(self) -> Sequence[LoopNest]:
        product = LoopNest((*self.over, self.d_in, self.d_out))
        added = [LoopNest((*self.over, self.d_out), "bias")] if self.bias else []
        return [product, *added, LoopNest((*self.over, self.d_out), "activation")]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return module.linear(x, "product",
                             lambda: (module.weight, module.bias if self.bias else None))

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Softmax terms of an output layer, whose losses add up: (states, matrix, bias, targets)."""
        return [(hidden, m.weight, m.bias if self.bias else None, target)]


@block
class UnsavedLinear(Linear):
    """A linear map whose output is only added to something: for the backward pass it need not be kept."""

    def loop_nests(self) -> Sequence[LoopNest]:
        return [work for work in super().loop_nests() if work.operation != "activation"]


@block
class TransposedLinear(Block):
    """y = x W with a weight (d_in, d_out): a linear map by another's matrix, transposed."""

    d_in: Size
    d_out: Size
    over: Shape

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.d_in, self.d_out)}

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.d_in, self.d_out)),
                LoopNest((*self.over, self.d_out), "activation")]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return module.linear(x, "product", lambda: (module.weight.t(), None))


@block
class Embedding(Block):
    """A table of ``d`` numbers for each token (or of ``rows`` of them); looking one up is free."""

    d: Size
    over: Axes
    rows: Extent = VOCAB

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.rows, self.d)}

    def initialization(self, name: str) -> str:
        return "tokens"

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.d), "activation")]

    def forward(self, module: Any, tokens: Tensor) -> Tensor:
        from torch.nn.functional import embedding

        return embedding(tokens, module.weight)


@block
class PositionTable(Block):
    """A learned vector for each of the first ``max_length`` positions."""

    d: Size
    max_length: Size

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.max_length, self.d)}

    def initialization(self, name: str) -> str:
        return "table"

    def forward(self, module: Any, positions: Tensor) -> Tensor:
        from torch.nn.functional import embedding

        return embedding(positions, module.weight)


@block
class MatMul(Block):
    """x y of activations, (…, rows, n_in) and (…, n_in, n_out); ``over`` are the loops outside, the rows among them.

    ``extra_keys``: so many more keys than the axis says; keys are ``n_out``, or ``n_in`` with
    ``keys_are_inner``. ``saved_for_backward``: whether the backward pass needs the product.
    """

    over: Shape
    n_in: Extent
    n_out: Extent
    extra_keys: Size = 0
    keys_are_inner: bool = False
    saved_for_backward: bool = True

    def loop_nests(self) -> Sequence[LoopNest]:
        more = (self.extra_keys, self.n_out) if self.keys_are_inner else (
            self.n_in, self.extra_keys)
        pairs = [(self.n_in, self.n_out), *([more] if is_set(self.extra_keys) else [])]
        kept = [] if not self.saved_for_backward else [(self.n_out,)] if self.keys_are_inner else [
            (keys,) for _, keys in pairs]
        return [*(LoopNest((*self.over, *pair)) for pair in pairs),
                *(LoopNest((*self.over, *n), "activation") for n in kept)]

    def forward(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        return x @ y


@block
class FusedAttention(Block):
    """softmax(q kᵀ / √head_dim + bias) v, with the loop nests of its two products.

    q is (batch, heads, queries, head_dim), k (batch, heads, keys, head_dim), v (batch, heads, keys,
    value_dim). The full square is counted, masked or not. The module's ``kernel`` says how it runs:
    ``fused`` (scaled_dot_product_attention) or ``products`` (two batched matrix products); the
    result is the same.
    """

    heads: Size
    head_dim: Size
    value_dim: Size
    queries: Axis
    keys: Axis
    extra_keys: Size = 0  # keys that are always there, such as a prompt's

    def loop_nests(self) -> Sequence[LoopNest]:
        seen = (self.keys, self.extra_keys) if is_set(self.extra_keys) else (self.keys,)
        squares = [(self.heads, self.queries, keys) for keys in seen]
        kept = LoopNest((self.heads, self.queries, self.value_dim), "activation")
        products = [LoopNest((*square, dim)) for square in squares
                    for dim in (self.head_dim, self.value_dim)]
        return [*products, *(LoopNest(square, "activation") for square in squares), kept]

    def forward(self, module: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        from torch.nn.functional import scaled_dot_product_attention

        rate = module.dropout_rates.attention if module.training else 0.0
        if module.attention_kernel == "fused":
            return scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=rate)
        scores = (q * self.head_dim**-0.5) @ k.transpose(-1, -2)
        scores = scores if bias is None else add_promoted(scores, bias)
        return dropout(scores.softmax(-1), rate, module.training) @ v


@block
class Convolution(Block):
    """A causal convolution over positions: y_t sees x_t, x_{t-dilation}, … (``width`` of them)."""

    d_in: Size
    d_out: Size
    width: int
    over: Axes
    dilation: int = 1
    bias: bool = True

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.d_out, self.d_in, self.width)} | (
            {"bias": (self.d_out,)} if self.bias else {})

    def loop_nests(self) -> Sequence[LoopNest]:
        product = LoopNest((*self.over, self.width, self.d_in, self.d_out))
        added = [LoopNest((*self.over, self.d_out), "bias")] if self.bias else []
        taps = self.width * self.d_in
        weight = self.width * self.d_in * self.d_out  # both are copied for the product
        kept = (LoopNest((*self.over, self.d_out + taps), "activation"),
                LoopNest((weight,), "activation"))
        return [product, *added, *kept]

    @property
    def receptive_past(self) -> int:
        """The number of earlier positions that it sees."""
        return (self.width - 1) * self.dilation

    def forward(self, module: Any, x: Tensor, cache: Any = None) -> Tensor:
        import torch
        from torch.nn.functional import pad

        seen = pad(x, (0, 0, self.receptive_past, 0)) if cache is None else cache.append_window(
            module, x, self.receptive_past)
        # As one product: PyTorch's convolution is slower at such sizes, and cannot be traced
        # without data.
        taps = [seen[:, k * self.dilation : k * self.dilation + x.shape[1]]
                for k in range(self.width)]
        return module.linear(torch.cat(taps, -1), "product",
                             lambda: (module.weight.transpose(1, 2).flatten(1),
                                      module.bias if self.bias else None))


@block
class KeyValueCache(Block):
    """What stepwise decoding keeps of keys and values: ``features`` for each position of ``over``."""

    features: Size
    over: Axis

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((self.over, self.features), "cache")]


@block
class StateCache(Block):
    """What stepwise decoding keeps of the last rows that a convolution saw: ``size`` in all."""

    size: Size

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((self.size,), "cache")]
