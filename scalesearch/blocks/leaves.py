"""Leaves: weight shapes, loop nests and operation, side by side. Tensors are (batch, positions, features)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.blocks.core import VOCAB, Axes, Axis, Block, Extent, Shape, Size, Work, block


@block
class Linear(Block):
    """y = x Wᵀ + b at every position of ``over``. ``d_out`` may be the vocabulary."""

    d_in: Size
    d_out: Extent
    over: Axes
    bias: bool = True

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.d_out, self.d_in)} | ({"bias": (self.d_out,)} if self.bias else {})

    def work(self) -> Sequence[Work]:
        product = Work((*self.over, self.d_in, self.d_out))
        added = [Work((*self.over, self.d_out), "bias")] if self.bias else []
        return [product, *added, Work((*self.over, self.d_out), "activation")]

    def forward(self, m: Any, x: Any) -> Any:
        from torch.nn.functional import linear

        return linear(x, m.weight, m.bias if self.bias else None)


@block
class Embedding(Block):
    """A table of ``d`` numbers for each token; looking one up is free."""

    d: Size
    over: Axes

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (VOCAB, self.d)}

    def work(self) -> Sequence[Work]:
        return [Work((*self.over, self.d), "activation")]

    def forward(self, m: Any, tokens: Any) -> Any:
        from torch.nn.functional import embedding

        return embedding(tokens, m.weight)


@block
class PositionTable(Block):
    """A learned vector for each of the first ``max_length`` positions."""

    d: Size
    max_length: Size

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.max_length, self.d)}

    def forward(self, m: Any, positions: Any) -> Any:
        from torch.nn.functional import embedding

        return embedding(positions, m.weight)


@block
class LayerNorm(Block):
    """Layer normalisation over the last ``d`` features, with gain and bias (Ba et al. 2016)."""

    d: Size
    over: Axes
    eps: float = 1e-5

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.d,), "bias": (self.d,)}

    def work(self) -> Sequence[Work]:
        return [Work((*self.over, self.d), "norm"), Work((*self.over, self.d), "activation")]

    def forward(self, m: Any, x: Any) -> Any:
        from torch.nn.functional import layer_norm

        return layer_norm(x, (self.d,), m.weight, m.bias, self.eps)


@block
class Contraction(Block):
    """A product of two activations; the einsum string is both the operation and the loop nest.

    ``extents`` gives every letter of ``spec`` its size or axis; ``b`` is the batch and costs nothing a sentence.
    """

    spec: str
    extents: tuple[tuple[str, Extent], ...]

    def work(self) -> Sequence[Work]:
        size = dict(self.extents)
        operands, result = self.spec.split("->")
        letters = dict.fromkeys(letter for letter in operands if letter not in ",b")
        kept = tuple(size[letter] for letter in result if letter != "b")
        return [Work(tuple(size[letter] for letter in letters)), Work(kept, "activation")]

    def forward(self, m: Any, x: Any, y: Any) -> Any:
        from torch import einsum

        return einsum(self.spec, x, y)


@block
class FusedAttention(Block):
    """softmax(q kᵀ / √head_dim + bias) v, with the loop nests of its two products.

    q is (batch, heads, queries, head_dim), k (batch, heads, keys, head_dim), v (batch, heads, keys, value_dim). The
    full square is counted, masked or not. The module's ``kernel`` says how it runs: ``fused``
    (scaled_dot_product_attention) or ``products`` (two batched matrix products); the result is the same.
    """

    heads: Size
    head_dim: Size
    value_dim: Size
    queries: Axis
    keys: Axis

    def work(self) -> Sequence[Work]:
        square = (self.heads, self.queries, self.keys)
        kept = Work((self.heads, self.queries, self.value_dim), "activation")
        return [
            Work((*square, self.head_dim)),
            Work((*square, self.value_dim)),
            Work(square, "activation"),
            kept,
        ]

    def forward(self, m: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        from torch.nn.functional import dropout, scaled_dot_product_attention

        rate = m.rates.attention if m.training else 0.0
        if m.kernel == "fused":
            return scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=rate)
        scores = (q * self.head_dim**-0.5) @ k.transpose(-1, -2)
        scores = scores if bias is None else scores + bias
        return dropout(scores.softmax(-1), rate, m.training) @ v


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
        return {"weight": (self.d_out, self.d_in, self.width)} | ({"bias": (self.d_out,)} if self.bias else {})

    def work(self) -> Sequence[Work]:
        product = Work((*self.over, self.width, self.d_in, self.d_out))
        added = [Work((*self.over, self.d_out), "bias")] if self.bias else []
        return [product, *added, Work((*self.over, self.d_out), "activation")]

    def forward(self, m: Any, x: Any) -> Any:
        from torch.nn.functional import conv1d, pad

        past = (self.width - 1) * self.dilation
        padded = pad(x.transpose(1, 2), (past, 0))
        return conv1d(padded, m.weight, m.bias if self.bias else None, dilation=self.dilation).transpose(1, 2)
