"""Dropout statistics; sums and products of mixed types are bit-equal to PyTorch's."""

import pytest
import torch

from scalesearch.blocks.elementwise import add_promoted, dropout, multiply_promoted


@pytest.mark.parametrize("rate", [0.1, 0.37, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dropout_drops_at_its_rate_and_rescales(rate: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.ones(333, 1001, dtype=dtype, requires_grad=True)
    y = dropout(x, rate, True)
    y.sum().backward()
    dropped = (y == 0).double().mean()
    assert abs(float(dropped) - rate) < 5 * (rate * (1 - rate) / x.numel()) ** 0.5 + 2**-16
    kept = y[y != 0].unique()
    assert len(kept) == 1
    assert float(kept) == pytest.approx(1 / (1 - rate),
                                        rel=1e-4 if dtype != torch.bfloat16 else 5e-3)
    assert torch.equal(x.grad, y.detach())


def test_dropout_of_16_bit_lanes_is_independent_and_uniform() -> None:
    torch.manual_seed(2)
    kept = dropout(torch.ones(4 * 200_000), 0.5, True).view(-1, 4) != 0
    assert (kept.double().mean(0) - 0.5).abs().max() < 0.006
    assert (torch.corrcoef(kept.double().t()) - torch.eye(4)).abs().max() < 0.012


def test_dropout_follows_the_seed_and_is_identity_when_disabled() -> None:
    x = torch.randn(7, 5)
    torch.manual_seed(3)
    first = dropout(x, 0.4, True)
    second = dropout(x, 0.4, True)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.4, True), first)
    assert not torch.equal(first, second)
    assert dropout(x, 0.4, False) is x
    assert dropout(x, 0.0, True) is x


def test_mixed_type_sums_and_products_equal_pytorch() -> None:
    x = torch.randn(6, 1, 9)
    y = torch.randn(6, 4, 9).bfloat16()
    assert torch.equal(add_promoted(x, y), x + y)
    assert torch.equal(multiply_promoted(y, x), y * x)
    assert add_promoted(y, y).dtype == torch.bfloat16
