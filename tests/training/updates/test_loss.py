"""Chunked loss compared with PyTorch: value and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy as reference
from torch.nn.functional import kl_div

from scalesearch.training.updates.loss import cross_entropy


def inputs(n: int, d: int, v: int, bias: bool, seed: int,
           scale: float = 1.0) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(seed)

    def random(*size: int) -> torch.Tensor:
        values = torch.randn(*size, generator=generator, dtype=torch.float64)
        return (scale * values).requires_grad_()

    return [random(n, d), random(v, d), random(v) if bias else None,
            torch.randint(0, v, (n,), generator=generator)]


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(2, 30), st.booleans(), st.floats(0, 0.9),
       st.integers(1, 50), st.sampled_from([0.0, 0.7, 3.0]), st.integers(0, 1000))
def test_value_and_gradients_equal_pytorch(n, d, v, bias, smoothing, chunk, limit, seed) -> None:
    hidden, weight, offset, target = inputs(n, d, v, bias, seed)
    logits = hidden @ weight.t() + (0 if offset is None else offset)
    logits = limit * (logits / limit).tanh() if limit else logits
    target_values = reference(logits, target, reduction="sum", label_smoothing=smoothing)
    leaves = [hidden, weight] + ([offset] if bias else [])
    expected = torch.autograd.grad(3 * target_values, leaves)
    output = cross_entropy(hidden, weight, offset, target, smoothing, chunk, logit_limit=limit)
    with torch.no_grad():
        assert torch.allclose(output,
                              cross_entropy(hidden, weight, offset, target, smoothing, chunk,
                                                    logit_limit=limit), atol=1e-9)
    assert torch.allclose(output, target_values, atol=1e-9)
    for first, other in zip(torch.autograd.grad(3 * output, leaves), expected):
        assert torch.allclose(first, other, atol=1e-9)


def test_large_logits_give_finite_loss() -> None:
    hidden, weight, _, target = inputs(8, 4, 20, False, 1, scale=60.0)
    hidden, weight = (t.detach().float().requires_grad_() for t in (hidden, weight))
    target_values = reference(hidden @ weight.t(), target, reduction="sum", label_smoothing=0.1)
    output = cross_entropy(hidden, weight, None, target, 0.1, 3)
    assert torch.isfinite(output) and output.item() == pytest.approx(target_values.item(), rel=1e-5)


def test_value_without_gradients_is_equal() -> None:
    hidden, weight, offset, target = inputs(17, 5, 11, True, 2)
    with torch.inference_mode():
        plain = cross_entropy(hidden.detach(), weight.detach(), offset.detach(), target, 0.1, 4)
    assert plain.item() == pytest.approx(
        cross_entropy(hidden, weight, offset, target, 0.1, 4).item())


def test_half_precision_products_have_fp32_sums() -> None:
    hidden, weight, _, target = inputs(64, 16, 50, False, 3)
    hidden, weight = (t.detach().float().requires_grad_() for t in (hidden, weight))
    exact = torch.autograd.grad(cross_entropy(hidden, weight, None, target, 0.1), (hidden, weight))
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy(hidden, weight, None, target, 0.1, 16)
    output = torch.autograd.grad(loss, (hidden, weight))
    assert loss.dtype == torch.float32 and output[1].dtype == torch.float32
    for first, other in zip(output, exact):
        assert (first - other).norm() < 0.02 * other.norm()


def test_memory_is_limited_to_one_chunk_of_logits() -> None:
    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self.largest = max(self.largest, result.numel())
            return result

    hidden, weight, _, target = inputs(100, 4, 200, False, 4)
    with Watch() as watch:
        cross_entropy(hidden, weight, None, target, 0.1, 10).backward()
    assert watch.largest <= 10 * 200


@settings(max_examples=60)
@given(st.integers(1, 20), st.integers(1, 9), st.integers(2, 30), st.booleans(), st.floats(0, 0.9),
       st.integers(1, 25), st.floats(0.1, 6), st.sampled_from([0.0, 2.0]), st.integers(0, 1000))
def test_rdrop_adds_both_divergences_of_row_pairs(
        n, d, v, bias, smoothing, half, alpha, limit, seed) -> None:
    hidden, weight, offset, target = inputs(2 * n, d, v, bias, seed)
    target = target[::2].repeat_interleave(2)
    logits = hidden @ weight.t() + (0 if offset is None else offset)
    logits = limit * (logits / limit).tanh() if limit else logits
    p = logits[::2].log_softmax(1)
    q = logits[1::2].log_softmax(1)
    separate = kl_div(q, p, reduction="sum", log_target=True) + kl_div(
        p, q, reduction="sum", log_target=True)
    target_values = reference(logits, target, reduction="sum",
                       label_smoothing=smoothing) + alpha / 2 * separate
    leaves = [hidden, weight] + ([offset] if bias else [])
    output = cross_entropy(hidden, weight, offset, target, smoothing, 2 * half, alpha,
                           logit_limit=limit)
    assert torch.allclose(output, target_values, atol=1e-9)
    for first, other in zip(torch.autograd.grad(output, leaves),
                            torch.autograd.grad(target_values, leaves)):
        assert torch.allclose(first, other, atol=1e-9)


@settings(max_examples=60)
@given(st.integers(1, 20), st.integers(1, 9), st.integers(2, 30), st.booleans(), st.floats(0, 0.9),
       st.integers(1, 8), st.integers(1, 25), st.integers(0, 1000))
def test_label_weights_are_a_target_distribution(n, d, v, bias, smoothing, m, chunk, seed) -> None:
    hidden, weight, offset, _ = inputs(n, d, v, bias, seed)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, v, (n, m), generator=generator)  # may contain duplicates
    shares = torch.rand(n, m, generator=generator, dtype=torch.float64).add(0.01)
    shares /= shares.sum(1, keepdim=True)
    target_values = reference(hidden @ weight.t() + (0 if offset is None else offset),
                       torch.zeros(n, v, dtype=torch.float64).scatter_add(1, labels, shares),
                       reduction="sum", label_smoothing=smoothing)
    leaves = [hidden, weight] + ([offset] if bias else [])
    output = cross_entropy(hidden, weight, offset, labels, smoothing, chunk, label_weights=shares)
    assert torch.allclose(output, target_values, atol=1e-9)
    for first, other in zip(torch.autograd.grad(output, leaves),
                            torch.autograd.grad(target_values, leaves)):
        assert torch.allclose(first, other, atol=1e-9)
