"""Leaves: weight shapes, loop nests and operation, side by side. Tensors are (batch, positions, features)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.blocks.core import VOCAB, Axes, Axis, Block, Extent, Shape, Size, Work, block
from scalesearch.blocks.elementwise import dropout, plus
from scalesearch.blocks.sizes import given


@block
class Linear(Block):
    """y = x Wᵀ + b at every position of ``over``. ``d_out`` may be the vocabulary."""

    d_in: Size
    d_out: Extent
    over: Shape
    bias: bool = True

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.d_out, self.d_in)} | ({"bias": (self.d_out,)} if self.bias else {})

    def work(self) -> Sequence[Work]:
        product = Work((*self.over, self.d_in, self.d_out))
        added = [Work((*self.over, self.d_out), "bias")] if self.bias else []
        return [product, *added, Work((*self.over, self.d_out), "activation")]

    def forward(self, m: Any, x: Any) -> Any:
        return m.linear(x, "product", lambda: (m.weight, m.bias if self.bias else None))

    def terms(self, m: Any, hidden: Any, target: Any) -> list[tuple[Any, ...]]:
        """Softmax terms of an output layer, whose losses add up: (states, matrix, bias, targets)."""
        return [(hidden, m.weight, m.bias if self.bias else None, target)]


@block
class Added(Linear):
    """A linear map whose output is only added to something: for the backward pass it need not be kept."""

    def work(self) -> Sequence[Work]:
        return [work for work in super().work() if work.kind != "activation"]


@block
class Transposed(Block):
    """y = x W with a weight (d_in, d_out): a linear map by another's matrix, transposed."""

    d_in: Size
    d_out: Size
    over: Shape

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.d_in, self.d_out)}

    def work(self) -> Sequence[Work]:
        return [Work((*self.over, self.d_in, self.d_out)), Work((*self.over, self.d_out), "activation")]

    def forward(self, m: Any, x: Any) -> Any:
        return m.linear(x, "product", lambda: (m.weight.t(), None))


@block
class Embedding(Block):
    """A table of ``d`` numbers for each token (or of ``rows`` of them); looking one up is free."""

    d: Size
    over: Axes
    rows: Extent = VOCAB

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.rows, self.d)}

    def start(self, name: str) -> str:
        return "tokens"

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

    def start(self, name: str) -> str:
        return "table"

    def forward(self, m: Any, positions: Any) -> Any:
        from torch.nn.functional import embedding

        return embedding(positions, m.weight)


@block
class MatMul(Block):
    """x y of activations, (…, rows, n_in) and (…, n_in, n_out); ``over`` are the loops outside, the rows among them.

    ``extra``: so many more keys than the axis says; keys are ``n_out``, or ``n_in`` with ``inner``. ``kept``: whether
    the backward pass needs the product.
    """

    over: Shape
    n_in: Extent
    n_out: Extent
    extra: Size = 0
    inner: bool = False
    kept: bool = True

    def work(self) -> Sequence[Work]:
        more = (self.extra, self.n_out) if self.inner else (self.n_in, self.extra)
        pairs = [(self.n_in, self.n_out), *([more] if given(self.extra) else [])]
        kept = [] if not self.kept else [(self.n_out,)] if self.inner else [(keys,) for _, keys in pairs]
        return [*(Work((*self.over, *pair)) for pair in pairs), *(Work((*self.over, *n), "activation") for n in kept)]

    def forward(self, m: Any, x: Any, y: Any) -> Any:
        return x @ y


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
    extra: Size = 0  # keys that are always there, such as a prompt's

    def work(self) -> Sequence[Work]:
        seen = (self.keys, self.extra) if given(self.extra) else (self.keys,)
        squares = [(self.heads, self.queries, keys) for keys in seen]
        kept = Work((self.heads, self.queries, self.value_dim), "activation")
        products = [Work((*square, dim)) for square in squares for dim in (self.head_dim, self.value_dim)]
        return [*products, *(Work(square, "activation") for square in squares), kept]

    def forward(self, m: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        from torch.nn.functional import scaled_dot_product_attention

        rate = m.rates.attention if m.training else 0.0
        if m.kernel == "fused":
            return scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=rate)
        scores = (q * self.head_dim**-0.5) @ k.transpose(-1, -2)
        scores = scores if bias is None else plus(scores, bias)
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
        taps, weight = self.width * self.d_in, self.width * self.d_in * self.d_out  # both are copied for the product
        kept = (Work((*self.over, self.d_out + taps), "activation"), Work((weight,), "activation"))
        return [product, *added, *kept]

    @property
    def past(self) -> int:
        """The number of earlier positions that it sees."""
        return (self.width - 1) * self.dilation

    def forward(self, m: Any, x: Any, cache: Any = None) -> Any:
        import torch
        from torch.nn.functional import pad

        seen = pad(x, (0, 0, self.past, 0)) if cache is None else cache.follow(m, x, self.past)
        # As one product: PyTorch's convolution is slower at such sizes, and cannot be traced without data.
        taps = [seen[:, k * self.dilation : k * self.dilation + x.shape[1]] for k in range(self.width)]
        return m.linear(torch.cat(taps, -1), "product",
                        lambda: (m.weight.transpose(1, 2).flatten(1), m.bias if self.bias else None))


@block
class KeyValueCache(Block):
    """What stepwise decoding keeps of keys and values: ``numbers`` for each position of ``over``."""

    numbers: Size
    over: Axis

    def work(self) -> Sequence[Work]:
        return [Work((self.over, self.numbers), "cache")]


@block
class RowCache(Block):
    """What stepwise decoding keeps of the last rows that a convolution saw: ``numbers`` in all."""

    numbers: Size

    def work(self) -> Sequence[Work]:
        return [Work((self.numbers,), "cache")]
