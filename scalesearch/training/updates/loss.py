"""Label-smoothed cross-entropy that never holds all logits at once.

The gradient is computed together with the loss, chunk by chunk, while the logits of a chunk are in
the cache; nothing is computed twice. Notation: N rows, V vocabulary entries, d features, m labels
per row, n rows of a chunk, ε smoothing. Three identities save passes over the vocabulary:

- The sum of the logits of a row, which smoothing needs, is its state times the sum of the rows of
  the output matrix.
- The smoothing term of the gradient is equal in all columns, so it is a rank-one correction at the
  end.
- The log of the partition sum follows from the largest logit and its softmax, which is at least
  1/V.

With R-Drop (Liang et al. 2021), two passes over a batch with different dropout are regularized to
have equal distributions. Rows 2i and 2i + 1 then belong to the same target. Logits differ from
log-probabilities by a constant per row, which cancels in p - q.

If logits are limited by tanh, their sum does not follow from that of the rows of the matrix, and
the smoothing term is computed chunk by chunk, too.
"""

from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.elementwise import autocast_input, soft_cap
from scalesearch.nn.graphs import compile_function

# rows per chunk: 256 · 8,000 fp32 logits are 8 MB, which fit into a last-level cache
CHUNK_ROWS_CPU = 256
CHUNK_ROWS_GPU = 4096


def cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor,
                  smoothing: float = 0.0, chunk_rows: int | None = None, rdrop_alpha: float = 0.0,
                  label_weights: Tensor | None = None, row_weights: Tensor | None = None,
                  is_compiled: bool = False, logit_limit: float = 0.0) -> Tensor:
    """Sum the label-smoothed cross-entropy (Szegedy et al. 2016), in nats.

    Args:
        hidden: (N, d) states at target tokens.
        weight: (V, d) output matrix.
        bias: (V,) or None.
        target: (N,) labels, or (N, m) with ``label_weights``.
        smoothing: mass ε that is spread over all V entries, as in
            ``torch.nn.functional.cross_entropy``.
        chunk_rows: rows whose logits are held together; must be even with ``rdrop_alpha``.
        rdrop_alpha: α of R-Drop; adds α / 2 · (KL(p, q) + KL(q, p)) for the distributions of rows
            2i and 2i + 1.
        label_weights: (N, m) target probabilities of the m labels of a row; they sum to 1. Labels
            may repeat.
        row_weights: (N,) fp32 factors on the losses of the rows: 0 for padding in batches of a
            fixed shape. None stands for 1.
        is_compiled: whether the passes over the logits are compiled, for each shape.
        logit_limit: if positive, logits x become limit · tanh(x / limit).

    Returns:
        A scalar.
    """
    rows = chunk_rows or (CHUNK_ROWS_CPU if hidden.device.type == "cpu" else CHUNK_ROWS_GPU)
    if label_weights is None:
        target = target[:, None]
        label_weights = hidden.new_ones(target.shape, dtype=torch.float32)
    loss: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, target, label_weights, row_weights, smoothing, rows, rdrop_alpha,
        is_compiled, logit_limit)
    return loss


class _CrossEntropy(torch.autograd.Function):
    """Autograd function of the loss.

    Products use bf16 under autocast; softmax and sums use fp32 or better.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor,
                label_weights: Tensor, row_weights: Tensor | None, smoothing: float,
                chunk_rows: int, rdrop_alpha: float, is_compiled: bool,
                logit_limit: float) -> Tensor:
        x = autocast_input(hidden)
        w = weight.to(x.dtype)
        grads = _OutputGradients(x, weight, bias) if any(ctx.needs_input_grad[:3]) else None
        total = weight.new_zeros(())
        compute = compile_function(_logit_gradient, False) if is_compiled else _logit_gradient
        # (1 - ε) · cross-entropy plus ε · log-partition, by chunks of n rows
        for start in range(0, len(x), chunk_rows):
            rows = slice(start, start + chunk_rows)
            chunk_weights = None if row_weights is None else row_weights[rows, None]  # (n, 1)
            logits = x[rows] @ w.t()
            if grads is not None:
                loss, d_logits = compute(logits, bias, target[rows], label_weights[rows],
                                         chunk_weights, smoothing, rdrop_alpha, logit_limit)
                grads.add(x[rows], w, d_logits, rows)
                total += loss
                continue
            logits = _wide_logits(logits, bias, logit_limit)
            chunk_label_weights = label_weights[rows].to(logits.dtype)
            correct = (logits.gather(1, target[rows]) * chunk_label_weights).sum(1, keepdim=True)
            losses = torch.logsumexp(logits, 1, keepdim=True) - (1 - smoothing) * correct
            if logit_limit:
                losses -= smoothing * logits.mean(1, keepdim=True)
            total += (losses if chunk_weights is None else losses * chunk_weights).sum()
        if smoothing and not logit_limit:
            total += _smoothing_term(x, weight, bias, row_weights, smoothing, grads)
        ctx.grads = grads
        ctx.hidden_dtype = hidden.dtype
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        grads: _OutputGradients = ctx.grads
        ctx.grads = None
        hidden = grads.hidden.mul_(grad).to(ctx.hidden_dtype)
        weight = grads.weight.mul_(grad)
        bias = None if grads.bias is None else grads.bias.mul_(grad)
        return hidden, weight, bias, None, None, None, None, None, None, None, None


class _OutputGradients:
    """Gradients of states (N, d), output matrix (V, d) and bias (V,)."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.hidden = torch.empty_like(x)
        self.weight = torch.zeros_like(weight)
        self.bias = None if bias is None else torch.zeros_like(bias)

    def add(self, x: Tensor, w: Tensor, d_logits: Tensor, rows: slice) -> None:
        """Add the contribution of the gradient of logits (n, V), with states ``x`` (n, d)."""
        d_low = d_logits.to(x.dtype)
        torch.mm(d_low, w, out=self.hidden[rows])
        if x.dtype == self.weight.dtype:
            self.weight.addmm_(d_low.t(), x)
        else:
            # Convert before adding: adding bf16 to fp32 takes ten times as long.
            self.weight += (d_low.t() @ x).to(self.weight.dtype)
        if self.bias is not None:
            self.bias += d_logits.sum(0)


def _wide_logits(logits: Tensor, bias: Tensor | None, logit_limit: float) -> Tensor:
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logits = logits if bias is None else logits.add_(bias)
    return soft_cap(logits, logit_limit) if logit_limit else logits


def _logit_gradient(logits: Tensor, bias: Tensor | None, target: Tensor, label_weights: Tensor,
                    row_weights: Tensor | None, smoothing: float, rdrop_alpha: float,
                    logit_limit: float) -> tuple[Tensor, Tensor]:
    """Compute the loss of a chunk and the gradient of its logits (n, V) before any limit.

    Compiled, these passes over the logits are a few kernels.
    """
    logits = _wide_logits(logits, bias, logit_limit)
    label_weights = label_weights.to(logits.dtype)
    correct = (logits.gather(1, target) * label_weights).sum(1, keepdim=True)
    p = torch.softmax(logits, 1)
    partition = logits.amax(1, keepdim=True) - p.amax(1, keepdim=True).log()
    losses = partition - (1 - smoothing) * correct
    if logit_limit:
        losses = losses - smoothing * logits.mean(1, keepdim=True)
    loss = (losses if row_weights is None else losses * row_weights).sum()
    rdrop_gradient, rdrop_loss = _rdrop_gradient(
        logits, p, rdrop_alpha, row_weights) if rdrop_alpha else (None, 0)
    p.scatter_add_(1, target, (smoothing - 1) * label_weights)
    if rdrop_gradient is not None:
        p += rdrop_gradient
    if logit_limit:
        p -= smoothing / logits.shape[1]
        p *= 1 - (logits / logit_limit).square()
    if row_weights is not None:
        p *= row_weights
    return loss + rdrop_loss, p


def _rdrop_gradient(logits: Tensor, probabilities: Tensor, alpha: float,
                    row_weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute α / 2 · (KL(p, q) + KL(q, p)) summed over pairs of rows.

    Returns:
        The gradient with respect to the logits (n, V), without row weights, and the value with
        row weights.
    """
    p = probabilities[::2]
    q = probabilities[1::2]
    logit_difference = logits[::2] - logits[1::2]
    difference = p - q
    gradient = torch.empty_like(logits)
    gradient[::2] = p * (logit_difference
                         - (p * logit_difference).sum(1, keepdim=True)) + difference
    gradient[1::2] = q * ((q * logit_difference).sum(1, keepdim=True)
                          - logit_difference) - difference
    divergence = difference * logit_difference
    if row_weights is not None:
        divergence *= row_weights[::2]
    return gradient.mul_(alpha / 2), alpha / 2 * divergence.sum()


def _smoothing_term(x: Tensor, weight: Tensor, bias: Tensor | None, row_weights: Tensor | None,
                    smoothing: float, grads: _OutputGradients | None) -> Tensor:
    """Compute -ε / V times the sum of all logits, and add its gradient."""
    share = smoothing / len(weight)
    column = weight.sum(0)
    if row_weights is None:
        states = x.sum(0, dtype=weight.dtype)
        n_rows: Tensor | int = len(x)
    else:
        states = (x * row_weights[:, None]).sum(0, dtype=weight.dtype)
        n_rows = row_weights.sum()
    total = column @ states if bias is None else column @ states + n_rows * bias.sum()
    if grads is not None:
        column_gradient = (share * column).to(grads.hidden.dtype)
        if row_weights is not None:
            column_gradient = column_gradient * row_weights[:, None].to(grads.hidden.dtype)
        grads.hidden -= column_gradient
        grads.weight -= share * states
        if grads.bias is not None:
            grads.bias -= share * n_rows
    return -share * total
