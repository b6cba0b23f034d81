"""Structured matrices: computed maps, and numbers of parameters."""

from functools import cache
from random import Random

import pytest
import torch

from scalesearch.blocks.core import SRC
from scalesearch.blocks.maps.structured_matrices import (
    GroupLinear,
    HypercomplexLinear,
    KroneckerLinear,
)
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn.build import build_model
from scalesearch.spaces import Space
from scalesearch.testing.checks import build_module, check_model
from scalesearch.testing.random_models import random_architecture, small_space
from tests.architectures import transformer
from tests.errors import refuses

MATRICES = ("attention", "out", "ffn")


def params(**changes) -> int:
    return evaluate_cost(transformer(512, 6, 6, 2048, **changes).block,
                         find_protocol("forward", 3, 3, 10))["params.total"]


@pytest.mark.parametrize("block", [KroneckerLinear(6, 8, (SRC,), True, 3),
                                   HypercomplexLinear(6, 8, (SRC,), True, 2, 3)])
def test_matrix_is_a_sum_of_kronecker_products_of_the_cores(block) -> None:
    module = build_module(block, vocab=5).requires_grad_(False)
    x = torch.randn(2, 4, 6, dtype=module.core0.dtype)
    matrix = sum(torch.kron(module.core0[0, :, :, k], module.core1[k, :, :, 0])
                 for k in range(module.core0.shape[3]))
    torch.testing.assert_close(module(x), x @ matrix + module.bias)


def test_group_linear_is_block_diagonal() -> None:
    module = build_module(GroupLinear(6, 4, (SRC,), True, 2), vocab=5).requires_grad_(False)
    x = torch.randn(2, 4, 6, dtype=module.weight.dtype)
    torch.testing.assert_close(module(x), x @ torch.block_diag(*module.weight).t() + module.bias)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_hypercomplex_models_have_the_published_sizes(n: int) -> None:
    """Each of the 96 matrices has n³ + d_in d_out / n parameters instead of d_in d_out.

    The model has 6 + 6 layers, width 512 and 2,048 hidden units.
    """
    changes = {f"matrices__{matrix_name}": "phm" for matrix_name in MATRICES}
    changes |= {f"matrices__{matrix_name}__{key}": n  # type: ignore[misc]
                for matrix_name in MATRICES for key in ("n", "products")}
    full = 72 * 512 * 512 + 24 * 512 * 2048
    assert params() - params(**changes) == full - (full // n + 96 * n**3)


def test_kronecker_params_are_those_of_the_factors() -> None:
    changes: dict[str, object] = {f"matrices__{name}": "kronecker" for name in MATRICES}
    changes |= {f"matrices__{name}__rank": 3 for name in MATRICES}
    saved = 72 * (512 * 512 - 3 * 1024) + 24 * (512 * 2048 - 3 * 2048)
    assert params() - params(**changes) == saved


@pytest.mark.parametrize("kind", ["kronecker(3)", "chain(0.3, 3)", "low_rank(4)"])
@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
def test_lookup_and_logits_use_the_same_matrix(kind: str, tie: str) -> None:
    """37 is prime, so the product has 40 rows; only the first 37 give logits."""
    space = Space.parse(f"width: 24\nembedding: {{ tie: {tie}, positions: none "
                        f"}}\nmatrices.embedding: {kind}\n"
                        "encoder: { depth: 1, heads: 2 }\ndecoder: { depth: 1, heads: 2 }")
    model = build_model(space.single_architecture().block, vocab=37,
                        dtype=torch.float64).requires_grad_(False)
    matrix = model.embedding.target.table(torch.arange(37))
    x = torch.randn(5, 24, dtype=torch.float64)
    assert model.logits(x).shape == (5, 37)
    if tie != "none":
        torch.testing.assert_close(model.logits(x), x @ matrix.t())
        (hidden, rows, bias, _), = model.softmax_terms(x, torch.zeros(5, dtype=torch.long))
        torch.testing.assert_close(hidden @ rows.t(), x @ matrix.t())
        assert bias is None


def test_kronecker_table_has_the_params_of_shapeshifter() -> None:
    """8,192 parameters per product for 32,768 × 512 (Shapeshifter, Panahi et al. 2021).

    Logits take 589,824 multiply-adds per product, whichever factor is applied first.
    """
    text = "width: 512\nencoder.depth: 1\ndecoder.depth: 1\nmatrices.embedding: kronecker(5)"
    breakdown = evaluate_cost(Space.parse(text).single_architecture().block,
                              find_protocol("forward", 1, 1, 32768))
    assert (breakdown["params.embedding"], breakdown["macs.output"]) == (5 * 8192, 5 * 589_824)


def test_structured_tables_of_other_embeddings_require_untied_outputs() -> None:
    for text in ("embedding: { factorised: { rank: 4 } }",
                 "embedding: { dextra: { rank: 8, groups: 2 } }"):
        with refuses("unbuildable", "embedding.tie: none"):
            Space.parse(f"width: 16\nembedding.tie: all\n{text}\n"
                        "matrices.embedding: kronecker(2)").single_architecture()
    with refuses("unbuildable", key="matrices.output"):
        Space.parse("width: 16\nmatrices.output: kronecker(2)").single_architecture()


def test_conflicting_structures_and_indivisible_sizes_are_unbuildable() -> None:
    with refuses("unbuildable", "low_rank.ffn"):
        transformer(16, 1, 1, matrices__ffn="phm", matrices__ffn__n=2, matrices__ffn__products=2,
                    low_rank__ffn=3)
    with refuses("unbuildable", 3, key="matrices.out.groups"):
        transformer(16, 1, 1, matrices__out="group", matrices__out__groups=3)
    with refuses("unbuildable", 1.0, key="matrices.ffn.ratio"):
        transformer(16, 1, 1, matrices__ffn="chain", matrices__ffn__ratio=1.0,
                    matrices__ffn__length=2)
    assert not find_unsupported_parts(
        transformer(16, 1, 1, matrices__out="group", matrices__out__groups=2).block)


@cache
def space_with_structures_by_layer() -> Space:
    """Return a space in which the structures of attention and networks differ by layer."""
    changes = {"decoder.cross_rank": "0 | 3 | = decoder.attention_rank"}
    for stack in ("encoder", "decoder"):
        changes |= {
            f"{stack}.attention_rank": "0 | 2 | [0, 2, 1, 3]",
            f"{stack}.ffn_rank": "0 | 2 | [0, 2, 0, 3]",
            f"{stack}.ffn_groups": "0 | [0, 2, 1, 0] if ffn_rank == 0 else 0",
            f"{stack}.ffn_products":
                "0 | [0, 1, 2, 0] if ffn_rank == 0 and ffn_groups == 0 else 0"}
    return small_space(**changes)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_costs_of_structures_by_layer_equal_those_of_modules(seed: int) -> None:
    check_model(random_architecture(Random(seed), space_with_structures_by_layer()), seed)
