"""Measures at their extremes."""

import math

import pytest
import torch

from scalesearch.analysis.activations import count_active_units
from scalesearch.analysis.heads import MIN_DIVERSITY, head_diversity, sentence_means
from scalesearch.analysis.tokens import token_uniformity

REAL = torch.tensor([[True, True, True, False], [True, True, False, False]])


@pytest.mark.parametrize("heads", [1, 2, 8, 30])
def test_equal_or_opposite_heads_have_minimal_diversity(heads) -> None:
    signs = torch.tensor([(-1.0) ** i for i in range(heads)], dtype=torch.float64)
    item = torch.randn(5, 1, 32, dtype=torch.float64)
    for scale in (torch.ones_like(signs), signs, signs * torch.arange(1, heads + 1)):
        assert torch.allclose(head_diversity(item * scale[:, None]),
                              torch.full((5,), MIN_DIVERSITY, dtype=torch.float64))


@pytest.mark.parametrize("heads", [1, 8, 30])
def test_orthogonal_heads_have_maximal_diversity(heads) -> None:
    result = float(head_diversity(3 * torch.eye(32, dtype=torch.float64)[:heads]))
    assert result == pytest.approx(math.exp(-1 / heads), abs=1e-12)
    assert {8: 0.882, 30: 0.967}.get(heads, round(result, 3)) == round(result, 3)


def test_diversity_equals_the_formula() -> None:
    heads = torch.randn(3, 5, dtype=torch.float64)
    total = sum(abs(float(a @ b)) / float(a.norm() * b.norm()) for a in heads for b in heads)
    assert float(head_diversity(heads)) == pytest.approx(math.exp(-total / 9))


def test_zero_head_has_zero_cosine() -> None:
    heads = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert float(head_diversity(heads)) == pytest.approx(math.exp(-1 / 4))


def test_similar_tokens_have_uniformity_one() -> None:
    token = torch.randn(2, 1, 16)
    states = token * torch.tensor([1.0, 2.0, 0.5, 1.0])[:, None] + torch.arange(4.0)[:, None]
    for result in token_uniformity(states, REAL):
        assert torch.allclose(result, torch.ones(2, dtype=torch.float64), atol=1e-6)


def test_opposite_tokens_have_signed_uniformity() -> None:
    token = torch.randn(1, 1, 16)
    states = torch.cat([token, -token], 1)
    signed, absolute = token_uniformity(states, torch.ones(1, 2, dtype=torch.bool))
    assert float(signed) == pytest.approx(-1) and float(absolute) == pytest.approx(1)


def test_uniformity_equals_pearson_correlation() -> None:
    states = torch.randn(3, 4, 16)
    real = torch.cat([REAL, torch.tensor([[True, False, False, False]])])
    signed, absolute = token_uniformity(states, real)
    first = torch.corrcoef(states[0, :3].double())
    pairs = torch.stack([first[0, 1], first[0, 2], first[1, 2]])
    second = torch.corrcoef(states[1, :2].double())[0, 1]
    assert torch.allclose(signed, torch.stack([pairs.mean(), second]))
    assert torch.allclose(absolute, torch.stack([pairs.abs().mean(), second.abs()]))


def test_units_are_active_above_zero() -> None:
    assert count_active_units(torch.zeros(2, 3, 8)).sum() == 0
    assert count_active_units(-torch.rand(2, 3, 4, 8)).sum() == 0
    assert (count_active_units(torch.ones(2, 3, 4, 8)) == 32).all()
    before = torch.randn(2, 3, 8)
    assert torch.equal(count_active_units(before), (before.relu() > 0).sum(-1))


def test_sentence_means_ignore_padding() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0, 99.0], [4.0, 6.0, 99.0, 99.0]])
    assert sentence_means(values, REAL).tolist() == [2.0, 5.0]
