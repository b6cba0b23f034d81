"""The chunked loss against PyTorch's own, value and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy as reference
from torch.nn.functional import kl_div

from scalesearch.train.updates.loss import cross_entropy


def inputs(n: int, d: int, v: int, bias: bool, seed: int,
           scale: float = 1.0) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(seed)
    def draw(*size: int) -> torch.Tensor:
        return (scale
                * torch.randn(*size, generator=generator, dtype=torch.float64)).requires_grad_()
    return [draw(n, d), draw(v, d), draw(v) if bias else None,
            torch.randint(0, v, (n,), generator=generator)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(2, 30), st.booleans(), st.floats(0, 0.9),
       st.integers(1, 50), st.integers(0, 1000))
def test_value_and_gradients_are_pytorchs(n, d, v, bias, smoothing, chunk, seed) -> None:
    hidden, weight, offset, target = inputs(n, d, v, bias, seed)
    wanted = reference(hidden @ weight.t() + (0 if offset is None else offset), target,
                       reduction="sum", label_smoothing=smoothing)
    leaves = [hidden, weight] + ([offset] if bias else [])
    expected = torch.autograd.grad(3 * wanted, leaves)
    found = cross_entropy(hidden, weight, offset, target, smoothing, chunk)
    assert torch.allclose(found, wanted, atol=1e-9)
    for one, other in zip(torch.autograd.grad(3 * found, leaves), expected):
        assert torch.allclose(one, other, atol=1e-9)


def test_logits_too_large_for_exp_stay_finite() -> None:
    hidden, weight, _, target = inputs(8, 4, 20, False, 1, scale=60.0)
    hidden, weight = (t.detach().float().requires_grad_() for t in (hidden, weight))
    wanted = reference(hidden @ weight.t(), target, reduction="sum", label_smoothing=0.1)
    found = cross_entropy(hidden, weight, None, target, 0.1, 3)
    assert torch.isfinite(found) and found.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_without_gradients_the_value_is_the_same() -> None:
    hidden, weight, offset, target = inputs(17, 5, 11, True, 2)
    with torch.inference_mode():
        plain = cross_entropy(hidden.detach(), weight.detach(), offset.detach(), target, 0.1, 4)
    assert plain.item() == pytest.approx(
        cross_entropy(hidden, weight, offset, target, 0.1, 4).item())


def test_half_precision_products_keep_fp32_sums() -> None:
    hidden, weight, _, target = inputs(64, 16, 50, False, 3)
    hidden, weight = (t.detach().float().requires_grad_() for t in (hidden, weight))
    exact = torch.autograd.grad(cross_entropy(hidden, weight, None, target, 0.1), (hidden, weight))
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy(hidden, weight, None, target, 0.1, 16)
    found = torch.autograd.grad(loss, (hidden, weight))
    assert loss.dtype == torch.float32 and found[1].dtype == torch.float32
    for one, other in zip(found, exact):
        assert (one - other).norm() < 0.02 * other.norm()


def test_no_more_than_a_chunk_of_logits_is_alive() -> None:
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


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(1, 9), st.integers(2, 30), st.booleans(), st.floats(0, 0.9),
       st.integers(1, 25), st.floats(0.1, 6), st.integers(0, 1000))
def test_agreement_is_both_divergences_of_each_pair_of_rows(
        n, d, v, bias, smoothing, half, alpha, seed) -> None:
    hidden, weight, offset, target = inputs(2 * n, d, v, bias, seed)
    target = target[::2].repeat_interleave(2)
    logits = hidden @ weight.t() + (0 if offset is None else offset)
    p = logits[::2].log_softmax(1)
    q = logits[1::2].log_softmax(1)
    apart = kl_div(q, p, reduction="sum", log_target=True) + kl_div(
        p, q, reduction="sum", log_target=True)
    wanted = reference(logits, target, reduction="sum",
                       label_smoothing=smoothing) + alpha / 2 * apart
    leaves = [hidden, weight] + ([offset] if bias else [])
    found = cross_entropy(hidden, weight, offset, target, smoothing, 2 * half, alpha)
    assert torch.allclose(found, wanted, atol=1e-9)
    for one, other in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(wanted, leaves)):
        assert torch.allclose(one, other, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(1, 9), st.integers(2, 30), st.booleans(), st.floats(0, 0.9),
       st.integers(1, 8), st.integers(1, 25), st.integers(0, 1000))
def test_shares_are_a_distribution_over_the_labels(
        n, d, v, bias, smoothing, m, chunk, seed) -> None:
    hidden, weight, offset, _ = inputs(n, d, v, bias, seed)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, v, (n, m), generator=generator)  # some of them twice
    shares = torch.rand(n, m, generator=generator, dtype=torch.float64).add(0.01)
    shares /= shares.sum(1, keepdim=True)
    wanted = reference(hidden @ weight.t() + (0 if offset is None else offset),
                       torch.zeros(n, v, dtype=torch.float64).scatter_add(1, labels, shares),
                       reduction="sum", label_smoothing=smoothing)
    leaves = [hidden, weight] + ([offset] if bias else [])
    found = cross_entropy(hidden, weight, offset, labels, smoothing, chunk, label_weights=shares)
    assert torch.allclose(found, wanted, atol=1e-9)
    for one, other in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(wanted, leaves)):
        assert torch.allclose(one, other, atol=1e-9)
