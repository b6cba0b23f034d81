"""Removal of units, against least squares; costs of combinations, against their architectures."""

import numpy as np
import pytest
import torch

from scalesearch.compression.alternatives import (
    Parent,
    cost_deltas,
    default_alternatives,
    evaluate_combination,
    list_alternatives,
    random_combinations,
)
from scalesearch.compression.initialize import remove_units
from scalesearch.cost import load_protocol
from scalesearch.spaces import Space

TOKENS = 200
COSTS = ("params.total", "macs.total", "memory.cache", "artifact.bytes")


def least_squares_error(features: np.ndarray, outputs: np.ndarray,
                        columns: list[int]) -> tuple[np.ndarray, float]:
    """The map of some features and the constant that fits the outputs best, and its error."""
    chosen = np.column_stack([features[:, columns], np.ones(len(features))])
    weights, *_ = np.linalg.lstsq(chosen, outputs, rcond=None)
    return weights, float(((chosen @ weights - outputs) ** 2).sum())


@pytest.mark.parametrize(("n_units", "width"), [(6, 1), (4, 3)])
def test_each_removal_is_the_best_and_maps_are_refitted(n_units: int, width: int,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalesearch.compression.initialize.RIDGE", 0.0)
    rng = np.random.default_rng(1)
    features = rng.normal(size=(TOKENS, n_units * width)) @ rng.normal(size=(n_units * width,) * 2)
    weights = rng.normal(size=(n_units * width + 1, 5))
    with_ones = np.column_stack([features, np.ones(TOKENS)])
    outputs = with_ones @ weights
    sizes = range(1, n_units + 1)
    order = remove_units(torch.from_numpy(with_ones.T @ with_ones), torch.from_numpy(weights),
                         n_units, list(sizes))
    left = list(range(n_units))

    def columns_of(units: list[int]) -> list[int]:
        return [unit * width + index for unit in units for index in range(width)]

    for removed in order.removed[:-1]:
        errors = {unit: least_squares_error(
            features, outputs, columns_of([other for other in left if other != unit]))[1]
            for unit in left}
        assert removed == min(errors, key=errors.__getitem__)
        left.remove(removed)
        assert order.kept(len(left), n_units) == left
        expected, _ = least_squares_error(features, outputs, columns_of(left))
        refitted = order.maps[len(left)].numpy()[[*columns_of(left), -1]]
        np.testing.assert_allclose(refitted, expected, atol=1e-6)


@pytest.mark.parametrize("stack_sizes", [
    "encoder: { depth: 3, heads: 4, ffn: { relu: { hidden: 32 } } }\n"
    "decoder: { depth: 2, heads: 2, ffn: { swiglu: { hidden: 48 } } }",
    "encoder: { depth: 2, heads: [4, 2], head_dim: 4, ffn: { gelu: { hidden: [16, 32] } } }\n"
    "decoder: { depth: 2, heads: 4, ffn: { none: {} } }"])
def test_costs_of_combinations_add_up(stack_sizes: str) -> None:
    space = Space.parse(f"width: 16\nnorm: pre\n{stack_sizes}\n")
    parent = Parent.from_architecture(space.single_architecture())
    protocol = load_protocol({"source": 9, "target": 7, "vocab": 100, "artifact": "onnx-int8"})
    alternatives = list_alternatives(parent, default_alternatives(parent))
    costs = cost_deltas(parent, alternatives, COSTS, protocol)
    for combination in random_combinations(parent, alternatives, 40, seed=1):
        predicted = [base + sum(costs.deltas[alternative][index] for alternative in combination)
                     for index, base in enumerate(costs.parent)]
        assert predicted == list(evaluate_combination(parent, combination, COSTS, protocol))
