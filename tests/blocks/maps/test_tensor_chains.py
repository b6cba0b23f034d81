"""Tensor chains: published shapes, equivalent application, and costs."""

from math import prod
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.blocks.maps.chain_cores import ChainCores, prime_factors, split_factors
from scalesearch.blocks.maps.tensor_chains import ChainEmbedding, ChainLinear
from scalesearch.nn.build import build_model, build_module
from scalesearch.spaces.assembly.architecture import assemble
from tests.architectures import transformer_config
from tests.errors import refuses


def chain(a: int, c: int, ratio: float, length: int, apply: str = "auto",
          bond: str = "solved") -> ChainLinear:
    return ChainLinear(a, c, ("src",), False, ratio, length, apply, bond)


@pytest.mark.parametrize(
    ("n", "two", "three", "four"),
    [
        (512, (32, 16), (16, 2, 16), (8, 4, 4, 4)),
        (1365, (39, 35), (3, 35, 13), (3, 5, 7, 13)),
        (32000, (80, 400), (16, 125, 16), (20, 20, 20, 4)),
    ],
)
def test_factors_are_those_of_the_paper(n: int, two: tuple[int, ...], three: tuple[int, ...],
                                        four: tuple[int, ...]) -> None:
    assert (split_factors(n, 2), split_factors(n, 3), split_factors(n, 4)) == (two, three, four)


@given(st.integers(1, 5000), st.integers(2, 4))
def test_factors_multiply_to_the_size(n: int, length: int) -> None:
    assert prod(split_factors(n, length)) == n == prod(prime_factors(n)) and len(
        split_factors(n, length)) == length


@pytest.mark.parametrize(
    ("a", "c", "length", "ratio", "bond", "params"),
    [
        (512, 512, 2, 0.07, 14, 17_920),
        (512, 512, 2, 0.2, 40, 51_200),
        (512, 512, 2, 0.8, 163, 208_640),
        (512, 1365, 2, 0.005, 2, 3_616),
        (512, 1365, 2, 0.1, 38, 68_704),
        (512, 512, 3, 0.1, 39, 26_052),
        (512, 32000, 2, 0.2, 365, 3_270_400),
        (512, 32000, 2, 0.8, 1462, 13_099_520),
        (512, 32000, 3, 0.8, 227, 12_998_474),
        (512, 512, 4, 0.1, 27, 25_488),
    ],
)
def test_bonds_and_params_are_those_of_the_paper(
    a: int, c: int, length: int, ratio: float, bond: int, params: int
) -> None:
    block = chain(a, c, ratio, length)
    assert block.cores.bond == bond and sum(prod(shape)
                                            for shape in block.weights().values()) == params


@pytest.mark.parametrize(("a", "c", "ratio", "bond", "params"), [
    (512, 512, 0.1, 2, 288), (512, 2048, 0.1, 2, 416), (512, 2048, 0.8, 34, 34 * 80 + 34**2 * 64),
])
def test_published_bond_of_length_four_is_that_of_the_code(
        a: int, c: int, ratio: float, bond: int, params: int) -> None:
    block = chain(a, c, ratio, 4, bond="published")
    assert block.cores.bond == bond and sum(prod(shape)
                                            for shape in block.weights().values()) == params
    sizes = ChainCores.fit_ratio(np.full(3, a), np.full(3, c), ratio, 4, "published")
    assert list(np.broadcast_to(sizes.bond, 3)) == [bond] * 3


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.05, 0.95), st.integers(2, 4),
       st.integers(0, 99))
def test_applying_cores_equals_applying_the_matrix(a: int, c: int, ratio: float, length: int,
                                                   seed: int) -> None:
    torch.manual_seed(seed)
    by_cores, by_matrix = (build_module(chain(a, c, ratio, length, apply), dtype=torch.float64)
                           for apply in ("cores", "matrix"))
    by_matrix.load_state_dict(by_cores.state_dict())
    x = torch.randn(2, 3, a, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(by_cores(x), by_matrix(x), rtol=0,
                              atol=1e-9 * float(by_matrix(x).abs().max() + 1))


@settings(max_examples=40)
@given(st.integers(4, 60), st.integers(1, 30), st.floats(0.05, 0.95), st.integers(2, 4))
def test_embedding_rows_equal_rows_of_the_matrix(
        vocab: int, d: int, ratio: float, length: int) -> None:
    table = build_module(ChainEmbedding(d, ("src",), ratio, length), vocab=vocab,
                         dtype=torch.float64)
    cores = [getattr(table, f"core{i}") for i in range(length)]
    matrix = ChainCores.fit_ratio(
        vocab, d, ratio, length, "solved").matrix(cores)[0, :, :, 0].detach()
    ids = torch.randint(0, vocab, (2, 5))
    assert torch.allclose(table(ids).detach(), matrix[ids], rtol=0,
                          atol=1e-9 * float(matrix.abs().max() + 1))


def test_auto_applies_the_cheaper_variant() -> None:
    assert chain(512, 1365, 0.005, 2).applies_cores and not chain(512, 1365, 0.1, 2).applies_cores
    for ratio in (0.005, 0.05, 0.3):
        block = chain(512, 512, ratio, 2)
        steps = {apply: chain(512, 512, ratio, 2, apply).loop_nests()[0].loops
                 for apply in ("auto", "cores", "matrix")}
        assert prod(n for n in steps["auto"] if isinstance(n, int)) == min(
            prod(n for n in steps[apply] if isinstance(n, int)) for apply in ("cores", "matrix")
        ), block


def test_initial_variance_is_that_of_a_dense_matrix() -> None:
    config = transformer_config(width=64, tensor_chain__attention=0.5, tensor_chain__length=2,
                                tensor_chain__apply="matrix", tensor_chain__bond="solved",
                                encoder__head_dim=32, decoder__head_dim=32)
    model = build_model(assemble(config).block, vocab=9)
    query = model.encoder.layers[0].attention.query
    assert float(
        query.block.matrix(query).detach().std()) == pytest.approx((2 / 128) ** 0.5, rel=0.35)


def test_output_chain_requires_an_untied_output() -> None:
    config = transformer_config(tensor_chain__length=2, tensor_chain__bond="solved",
                                tensor_chain__apply="auto")
    with refuses("unbuildable", "embedding.tie: none"):
        assemble(config | {"tensor_chain.output": 0.3})
    assemble(config | {"tensor_chain.output": 0.3, "embedding.tie": "none"})
    assemble(config | {"tensor_chain.embedding": 0.3})


def test_contraction_order_is_the_cheapest() -> None:
    rng = Random(3)
    for _ in range(50):
        cores = ChainCores.fit_ratio(rng.randint(2, 400), rng.randint(2, 400),
                                     rng.uniform(0.05, 0.9), rng.randint(2, 4), "solved")
        b = cores.bond
        whole = prod(cores.input_factors) * prod(cores.output_factors)
        if len(cores.input_factors) == 2:
            assert cores.contraction_cost[0] == b * whole
        if len(cores.input_factors) == 3:
            first, last = (prod(x)
                           for x in ((*cores.input_factors[:2], *cores.output_factors[:2]),
                                     (*cores.input_factors[1:], *cores.output_factors[1:])))
            assert cores.contraction_cost[0] == min(first, last) * b * b + b * whole
