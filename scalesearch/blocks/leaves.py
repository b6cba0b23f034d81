"""Leaf blocks: weight shapes, loop nests and operations.

Tensors are (batch, positions, features), unless documented otherwise.
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
    """y = x Wᵀ + b: (…, d_in) to (…, d_out), at every position of ``over``.

    ``d_out`` may be the vocabulary.
    """

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
        """Return the softmax terms of an output layer.

        The loss is the sum of their losses.

        Args:
            hidden: states (N, d_in).
            target: token ids (N,).

        Returns:
            Tuples of states, weight matrix, bias or None, and target indices.
        """
        return [(hidden, m.weight, m.bias if self.bias else None, target)]


@block
class UnsavedLinear(Linear):
    """A linear map whose output is only added: the backward pass does not store it."""

    def loop_nests(self) -> Sequence[LoopNest]:
        return [nest for nest in super().loop_nests() if nest.operation != "activation"]


@block
class TransposedLinear(Block):
    """y = x W with a weight (d_in, d_out), which is usually tied to another map."""

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
    """A table with ``rows`` rows of ``d`` features: (…) int64 ids to (…, d).

    A lookup has no multiply-adds.
    """

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
    """Learned vectors of the first ``max_length`` positions: (…) positions to (…, d)."""

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
    """Product of two activations.

    (…, rows, n_in) and (…, n_in, n_out) to (…, rows, n_out).

    Attributes:
        over: outer loops, including the rows.
        n_in: extent of the sum.
        n_out: columns of the product.
        extra_keys: keys in addition to the axis, for example of a prompt.
        keys_are_inner: whether the keys are ``n_in``; by default they are ``n_out``.
        saved_for_backward: whether the backward pass stores the product.
    """

    over: Shape
    n_in: Extent
    n_out: Extent
    extra_keys: Size = 0
    keys_are_inner: bool = False
    saved_for_backward: bool = True

    def loop_nests(self) -> Sequence[LoopNest]:
        pairs = [(self.n_in, self.n_out)]
        if is_set(self.extra_keys):
            pairs.append((self.extra_keys, self.n_out) if self.keys_are_inner
                         else (self.n_in, self.extra_keys))
        saved: list[Extent] = []
        if self.saved_for_backward:
            saved = [self.n_out] if self.keys_are_inner else [columns for _, columns in pairs]
        return [*(LoopNest((*self.over, *pair)) for pair in pairs),
                *(LoopNest((*self.over, columns), "activation") for columns in saved)]

    def forward(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        return x @ y


@block
class FusedAttention(Block):
    """Scaled dot-product attention, softmax(q kᵀ / √head_dim + bias) v.

    See Vaswani et al. 2017. Shapes: q (batch, heads, queries, head_dim), k (batch, heads, keys,
    head_dim), v (batch, heads, keys, value_dim), bias broadcasts to (batch, heads, queries,
    keys), result (batch, heads, queries, value_dim).

    Costs include masked positions. ``attention_kernel`` of the module selects the implementation:
    ``fused`` (``scaled_dot_product_attention``) or ``products`` (two batched matrix products).
    """

    heads: Size
    head_dim: Size
    value_dim: Size
    queries: Axis
    keys: Axis
    extra_keys: Size = 0  # keys in addition to the axis, for example of a prompt

    def loop_nests(self) -> Sequence[LoopNest]:
        keys = (self.keys, self.extra_keys) if is_set(self.extra_keys) else (self.keys,)
        squares = [(self.heads, self.queries, extent) for extent in keys]
        output = LoopNest((self.heads, self.queries, self.value_dim), "activation")
        products = [LoopNest((*square, dim)) for square in squares
                    for dim in (self.head_dim, self.value_dim)]
        return [*products, *(LoopNest(square, "activation") for square in squares), output]

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
    """A causal convolution over positions.

    (batch, positions, d_in) to (batch, positions, d_out). y_t depends on x_t, x_{t-dilation},
    …, with ``width`` taps.
    """

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
        # The product needs copies of the input and of the weight in another order.
        weight = self.width * self.d_in * self.d_out
        saved = (LoopNest((*self.over, self.d_out + taps), "activation"),
                 LoopNest((weight,), "activation_once"))
        return [product, *added, *saved]

    @property
    def receptive_past(self) -> int:
        """Number of earlier positions that an output depends on."""
        return (self.width - 1) * self.dilation

    def forward(self, module: Any, x: Tensor, cache: Any = None) -> Tensor:
        import torch
        from torch.nn.functional import pad

        if cache is None:
            padded = pad(x, (0, 0, self.receptive_past, 0))
        else:
            padded = cache.append_window(module, x, self.receptive_past)
        # One matrix product: PyTorch's convolution is slower at these sizes and cannot be traced
        # without data.
        taps = [padded[:, k * self.dilation : k * self.dilation + x.shape[1]]
                for k in range(self.width)]
        return module.linear(torch.cat(taps, -1), "product",
                             lambda: (module.weight.transpose(1, 2).flatten(1),
                                      module.bias if self.bias else None))


@block
class KeyValueCache(Block):
    """Cache of keys and values in decoding.

    It has ``features`` numbers per position of ``over``.
    """

    features: Size
    over: Axis

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((self.over, self.features), "cache")]


@block
class StateCache(Block):
    """Cache of ``size`` numbers: the last inputs of a convolution, or a recurrent state."""

    size: Size

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((self.size,), "cache")]
