"""Costs of populations equal those of their members, exactly."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.blocks.polynomial import PopulationColumns
from scalesearch.cost import PROTOCOLS, evaluate_cost, find_protocol
from scalesearch.cost.population import UNBUILDABLE_COST, evaluate_population_costs
from scalesearch.cost.training import TrainingRun
from scalesearch.spaces.assembly.architecture import UnbuildableError, assemble
from scalesearch.spaces.schema.cost_names import COST_NAMES
from scalesearch.testing import random_architecture
from tests.architectures import transformer_config
from tests.cost.fits import fit_file
from tests.errors import refuses

ROWS = 12
# Sizes that can change in any structure.
VARIED = ("width", "heads", "score_heads", "head_dim", "hidden", "ratio", "rank", "length", "depth",
          "middle_width", "key_value_heads", "relative_clip", "level_width", "roles", "attention",
          "ffn", "output", "embedding")


def population(rng: Random) -> dict[str, object]:
    """The configuration of a random architecture, with columns for some of its sizes."""
    config = dict(random_architecture(rng).config)
    varied: dict[str, object] = dict(config)
    for key, value in config.items():
        cores = key == "tensor_chain.length" or (
            key.startswith("matrices.") and key.endswith(".length"))
        if key.rsplit(".", 1)[-1] in VARIED and not cores and rng.random() < 0.6:
            if isinstance(value, float):
                varied[key] = np.array([rng.uniform(0.05, 0.9) for _ in range(ROWS)])
            elif isinstance(value, int) and not isinstance(value, bool):
                varied[key] = np.array([max(1, value + rng.randint(-2, 3)) for _ in range(ROWS)])
    return varied


def member(config: dict[str, object], index: int) -> dict[str, object]:
    return {key: value[index].item() if isinstance(value, np.ndarray) else value
            for key, value in config.items()}


@pytest.mark.full
@pytest.mark.parametrize("name", PROTOCOLS)
def test_population_costs_equal_single_costs(name: str, tmp_path) -> None:
    rng = Random(f"population {name}")
    n_compared = 0
    for _ in range(80):
        config = population(rng)
        lengths = (rng.randint(1, 9), rng.randint(1, 9), rng.randint(8, 40))
        protocol = replace(find_protocol(name, vocab=lengths[2], length=lengths[0]),
                           artifact="torch", cache="int8",
                           latency_model_path=fit_file(tmp_path),
                           training=TrainingRun(steps=9, max_tokens=30, optimizer="soap"))
        costs, is_buildable = evaluate_population_costs(config, ROWS, protocol, COST_NAMES)
        for i in range(ROWS):
            try:
                block = assemble(member(config, i)).block
            except UnbuildableError:
                assert not is_buildable[i] and all(costs[selector][i] == UNBUILDABLE_COST
                                                   for selector in COST_NAMES)
                continue
            breakdown = evaluate_cost(block, protocol)
            assert is_buildable[i], member(config, i)
            assert {selector: costs[selector][i] for selector in COST_NAMES} == {
                n: breakdown[n] for n in COST_NAMES}
            n_compared += 1
    assert n_compared > 80  # many widths do not divide


def test_overflow_of_64_bits_is_rejected() -> None:
    config = transformer_config() | {"width": np.array([10**9, 2 * 10**9]),
                                     "encoder.ffn.hidden": np.array([10**9, 10**9 + 1])}
    with refuses("too-large", "macs.total", "64 bits"):
        evaluate_population_costs(config, 2, find_protocol(), ("macs.total",))


@settings(max_examples=100)
@given(st.lists(st.tuples(*[st.integers(-50, 50)] * 3), min_size=1, max_size=6), st.data())
def test_polynomial_arithmetic_equals_integers(rows: list[tuple[int, int, int]],
                                               data: st.DataObject) -> None:
    columns = PopulationColumns(len(rows))
    x, y, z = (columns.variable(np.array(column, dtype=np.int64), name)
               for column, name in zip(zip(*rows), "xyz"))
    a, b = (data.draw(st.integers(-5, 5)) for _ in range(2))
    polynomial = (a * x + y * z - b) * (x - 2) + 3 * (y + x) ** 2
    assert list(polynomial.values()) == [(a * x + y * z - b) * (x - 2) + 3 * (y + x) ** 2
                                         for x, y, z in rows]
    assert list(((x * y * 6) // (2 * x * 1)).values()) == [
        6 * x * y // (2 * x) for x, y, z in rows] if all(x for x, _, _ in rows) else True


def test_costs_have_a_closed_form() -> None:
    columns = PopulationColumns(2)
    width, hidden = (columns.variable(np.array([8, 16]), name) for name in ("width", "hidden"))
    from scalesearch.spaces.assembly.architecture import build_blocks

    _, block = build_blocks(
        transformer_config() | {"width": width, "encoder.ffn.hidden": hidden,
                                "decoder.ffn.hidden": hidden})
    breakdown = evaluate_cost(block, find_protocol("forward", 3, 3, 10))
    assert str(breakdown["params.encoder"]) == "4 * width * hidden + 78 * width + 2 * hidden + 48"
