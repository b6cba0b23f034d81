"""Label-smoothed cross-entropy from hidden states, without holding all logits at once.

The gradient is formed together with the loss, chunk by chunk, while a chunk's logits are still in
the cache; nothing is computed twice. Three identities save passes over the vocabulary, N being rows
and V entries:

- the sum of a row's logits, which smoothing needs, is its state times the sum of the output's rows;
- smoothing's share of the gradient is the same in every column, so it is a rank-one correction at the end;
- the log of the partition sum follows from the largest logit and the softmax at that place, which is at least 1/V.

Two passes over a batch under different dropout can be held to one distribution too (R-Drop, Liang
et al. 2021): rows 2i and 2i + 1 are one target's then, and logits differ from log-probabilities by
what cancels in p - q.
"""

from typing import Any

import torch
from torch import Tensor

# rows at a time: 256 · 8,000 fp32 logits are 8 MB, which a last-level cache holds
CHUNK_ROWS_CPU = 256
CHUNK_ROWS_GPU = 4096


def cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor,
                  smoothing: float = 0.0, chunk_rows: int | None = None, rdrop_alpha: float = 0.0,
                  label_weights: Tensor | None = None) -> Tensor:
    """Label-smoothed cross-entropy (Szegedy et al. 2016) summed over rows, in nats; a scalar.

    Args:
        hidden: (N, d) states at real target positions.
        weight: (V, d) output matrix. bias: (V,) or None.
        target: (N,) labels, or (N, m) with ``label_weights``.
        smoothing: mass ε spread over all V entries, as ``torch.nn.functional.cross_entropy`` does.
        chunk_rows: rows whose logits are held together; an even number where there is an
            ``rdrop_alpha``.
        rdrop_alpha: α of R-Drop; adds α / 2 · (KL(p, q) + KL(q, p)) of the distributions of rows 2i
            and 2i + 1.
        label_weights: (N, m) of a row's probability that its m labels have; they sum to 1. Labels
            may repeat.
    """
    rows = chunk_rows or (CHUNK_ROWS_GPU if hidden.is_cuda else CHUNK_ROWS_CPU)
    if label_weights is None:
        target = target[:, None]
        label_weights = hidden.new_ones(target.shape, dtype=torch.float32)
    return _CrossEntropy.apply(hidden, weight, bias, target, label_weights, smoothing, rows,
                               rdrop_alpha)


class _CrossEntropy(torch.autograd.Function):
    """Autograd function of the loss.

    Products run in bf16 under autocast, softmax and sums in fp32 or better.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor,
                shares: Tensor, smoothing: float, chunk: int, agreement: float) -> Tensor:
        low = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(
            hidden.device.type) else None
        x, w = (hidden.to(low), weight.to(low)) if low else (hidden, weight)
        needs_grad = any(ctx.needs_input_grad[:3])
        grads = _OutputGradients(x, weight, bias) if needs_grad else None
        total = weight.new_zeros(())
        for start in range(0, len(x), chunk):
            rows = slice(start, start + chunk)
            total += _chunk_loss(x[rows], w, bias, target[rows], shares[rows], smoothing, grads,
                                 rows, agreement)
        if smoothing:
            total += _smoothing_term(x, weight, bias, smoothing, grads)
        ctx.grads = grads
        ctx.dtypes = hidden.dtype, weight.dtype
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        grads = ctx.grads
        ctx.grads = None
        scaled = [None if g is None else g.mul_(grad)
                  for g in (grads.hidden, grads.weight, grads.bias)]
        scaled[0] = scaled[0].to(ctx.dtypes[0])
        return *scaled, None, None, None, None, None


class _OutputGradients:
    """Sums of the gradients of states (N, d), matrix (V, d) and bias (V,)."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.hidden = torch.empty_like(x)
        self.weight = torch.zeros_like(weight)
        self.bias = None if bias is None else torch.zeros_like(bias)

    def add(self, x: Tensor, w: Tensor, d_logits: Tensor, rows: slice) -> None:
        """Adds what ``rows`` of the logits' gradient (n, V) contribute."""
        d_low = d_logits.to(x.dtype)
        torch.mm(d_low, w, out=self.hidden[rows])
        if x.dtype == self.weight.dtype:
            self.weight.addmm_(d_low.t(), x)
        else:
            # As one type: adding bf16 to fp32 takes ten times as long.
            self.weight += (d_low.t() @ x).to(self.weight.dtype)
        if self.bias is not None:
            self.bias += d_logits.sum(0)


def _chunk_loss(x: Tensor, w: Tensor, bias: Tensor | None, target: Tensor, shares: Tensor,
                smoothing: float, grads: _OutputGradients | None, rows: slice,
                agreement: float) -> Tensor:
    """Loss of some rows: (1 - ε) · cross-entropy plus ε · log-partition.

    :func:`_smoothing_term` adds the rest of it.
    """
    logits = x @ w.t()
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if bias is not None:
        logits += bias
    shares = shares.to(logits.dtype)
    correct = (logits.gather(1, target) * shares).sum(1, keepdim=True)
    if grads is None:
        return (torch.logsumexp(logits, 1, keepdim=True) - (1 - smoothing) * correct).sum()
    p = torch.softmax(logits, 1)
    partition = logits.amax(1, keepdim=True) - p.amax(1, keepdim=True).log()
    loss = (partition - (1 - smoothing) * correct).sum()
    pull, distance = _rdrop_gradient(logits, p, agreement) if agreement else (None, 0)
    p.scatter_add_(1, target, (smoothing - 1) * shares)
    if pull is not None:
        p += pull
    grads.add(x, w, p, rows)
    return loss + distance


def _rdrop_gradient(logits: Tensor, probabilities: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Gradient by the logits (n, V) of α / 2 · (KL(p, q) + KL(q, p)) over all pairs of rows, and its value."""
    p = probabilities[::2]
    q = probabilities[1::2]
    apart = logits[::2] - logits[1::2]
    change = p - q
    pull = torch.empty_like(logits)
    pull[::2] = p * (apart - (p * apart).sum(1, keepdim=True)) + change
    pull[1::2] = q * ((q * apart).sum(1, keepdim=True) - apart) - change
    return pull.mul_(alpha / 2), alpha / 2 * (change * apart).sum()


def _smoothing_term(x: Tensor, weight: Tensor, bias: Tensor | None, smoothing: float,
                    grads: _OutputGradients | None) -> Tensor:
    """Smoothing term, - ε / V times the sum of all logits; added to the gradients too."""
    share = smoothing / len(weight)
    column = weight.sum(0)
    states = x.sum(0, dtype=weight.dtype)
    total = column @ states if bias is None else column @ states + len(x) * bias.sum()
    if grads is not None:
        grads.hidden -= (share * column).to(grads.hidden.dtype)
        grads.weight -= share * states
        if grads.bias is not None:
            grads.bias -= share * len(x)
    return -share * total
