"""Structured matrices: the maps that they are, and what they weigh."""

import pytest
import torch

from scalesearch.blocks.core import SRC
from scalesearch.blocks.maps.structured_matrices import GroupLinear, HypercomplexLinear, KroneckerLinear
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn.build import build_model
from scalesearch.space import Space
from scalesearch.testing.checks import build_module
from tests.architectures import transformer
from tests.errors import refuses

PLACES = ("attention", "out", "ffn")


def params(**changes) -> int:
    return evaluate_cost(transformer(512, 6, 6, 2048, **changes).block,
                         find_protocol("forward", 3, 3, 10))["params.total"]


@pytest.mark.parametrize("block", [KroneckerLinear(6, 8, (SRC,), True, 3),
                                   HypercomplexLinear(6, 8, (SRC,), True, 2, 3)])
def test_cores_are_factors_of_kronecker_products(block) -> None:
    made = build_module(block, vocab=5).requires_grad_(False)
    x = torch.randn(2, 4, 6, dtype=made.core0.dtype)
    matrix = sum(torch.kron(made.core0[0, :, :, k], made.core1[k, :, :, 0])
                 for k in range(made.core0.shape[3]))
    torch.testing.assert_close(made(x), x @ matrix + made.bias)


def test_groups_are_blocks_on_a_diagonal() -> None:
    made = build_module(GroupLinear(6, 4, (SRC,), True, 2), vocab=5).requires_grad_(False)
    x = torch.randn(2, 4, 6, dtype=made.weight.dtype)
    torch.testing.assert_close(made(x), x @ torch.block_diag(*made.weight).t() + made.bias)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_hypercomplex_bodies_have_the_published_sizes(n: int) -> None:
    """Of 6-6 with width 512 and 2,048 units: n³ + d_in d_out / n in place of d_in d_out for each of 96 matrices."""
    places = {f"matrices__{place}": "phm" for place in PLACES}
    places |= {f"matrices__{place}__{key}": n for place in PLACES for key in ("n", "products")}  # type: ignore[misc]
    full = 72 * 512 * 512 + 24 * 512 * 2048
    assert params() - params(**places) == full - (full // n + 96 * n**3)


def test_a_kronecker_rank_weighs_what_its_two_factors_do() -> None:
    places: dict[str, object] = {f"matrices__{place}": "kronecker" for place in PLACES}
    places |= {f"matrices__{place}__rank": 3 for place in PLACES}
    assert params() - params(**places) == 72 * (512 * 512 - 3 * 1024) + 24 * (512 * 2048 - 3 * 2048)


@pytest.mark.parametrize("kind", ["kronecker(3)", "chain(0.3, 3)", "low_rank(4)"])
@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
def test_a_table_is_looked_up_and_multiplied_by_as_one_matrix(kind: str, tie: str) -> None:
    """37 tokens have no even factors: products have 40 rows, and scores of none but the 37."""
    space = Space.parse(f"width: 24\nembedding: {{ tie: {tie}, positions: none "
                        f"}}\nmatrices.embedding: {kind}\n"
                        "encoder: { depth: 1, heads: 2 }\ndecoder: { depth: 1, heads: 2 }")
    made = build_model(space.single_architecture().block, vocab=37,
                       dtype=torch.float64).requires_grad_(False)
    matrix = made.embedding.target.table(torch.arange(37))
    x = torch.randn(5, 24, dtype=torch.float64)
    assert made.logits(x).shape == (5, 37)
    if tie != "none":
        torch.testing.assert_close(made.logits(x), x @ matrix.t())
        (hidden, rows, bias, _), = made.softmax_terms(x, torch.zeros(5, dtype=torch.long))
        torch.testing.assert_close(hidden @ rows.t(), x @ matrix.t())
        assert bias is None


def test_a_table_of_products_weighs_8_192_for_each_at_the_size_of_shapeshifter() -> None:
    """With 32,768 x 512 (Panahi et al.

    2021); scores take 589,824 multiply-adds for each, from either factor first.
    """
    text = "width: 512\nencoder.depth: 1\ndecoder.depth: 1\nmatrices.embedding: kronecker(5)"
    bill = evaluate_cost(Space.parse(text).single_architecture().block,
                         find_protocol("forward", 1, 1, 32768))
    assert (bill["params.embedding"], bill["macs.output"]) == (5 * 8192, 5 * 589_824)


def test_tables_of_other_embeddings_have_a_structure_where_no_output_is_tied_to_them() -> None:
    for text in ("embedding: { factorised: { rank: 4 } }",
                 "embedding: { dextra: { rank: 8, groups: 2 } }"):
        with refuses("unbuildable", "embedding.tie: none"):
            Space.parse(f"width: 16\nembedding.tie: all\n{text}\nmatrices.embedding: kronecker(2)").single_architecture()  # noqa: E501
    with refuses("unbuildable", key="matrices.output"):
        Space.parse("width: 16\nmatrices.output: kronecker(2)").single_architecture()


def test_one_place_has_one_structure_and_sizes_must_divide() -> None:
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
