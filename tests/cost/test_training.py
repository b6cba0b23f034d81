"""Costs of training compared with backward passes and states of optimizers of PyTorch."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scalesearch.blocks.core import Block
from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.cost.training import FLOAT32_BYTES
from scalesearch.data import Batch
from scalesearch.errors import UserError
from scalesearch.nn.build import build_model
from scalesearch.spaces.assembly.architecture import build_blocks
from scalesearch.spaces.schema.cost_names import OPTIMIZERS, TRAINING_COSTS
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.engine.corpora import load_corpora
from scalesearch.studies.engine.setup import make_evaluator
from scalesearch.testing import random_architecture
from scalesearch.testing.checks import ACTIVATION_LENGTHS, count_saved
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.engine import Engine
from tests.architectures import transformer_config
from tests.cost.test_activations import FAMILIES, family

S = 5
T = 7
V = 40
PAIRS = 3  # per batch
BASE_FAMILIES = ("relu", "gate QgV", "chain cores 3", "heads", "Mega", "decoder-only", "branches")
FULL_FAMILIES = [pytest.param(name, marks=pytest.mark.full)
                 for name in FAMILIES if name not in BASE_FAMILIES]


def settings(**changes: Any) -> dict[str, Any]:
    return {"source": S, "target": T, "vocab": V, "max_tokens": PAIRS * T + 2, "accumulate": 2,
            "steps": 10, **changes}


def count_update_macs(block: Block) -> int:
    """Multiply-adds of the forward and backward passes of one batch."""
    model = build_model(block, vocab=V).train()
    model.set_attention("products")
    ids = torch.randint(4, V, (PAIRS, S + T))
    with FlopCounterMode(display=False) as counter:
        model(ids[:, :S], ids[:, S:]).sum().backward()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("name", [*BASE_FAMILIES, *FULL_FAMILIES])
def test_update_macs_equal_pytorch_counter(name: str) -> None:
    costs = evaluate_cost(family(name), replace(load_protocol(settings()), dense_windows=True))
    assert costs["macs.update"] == 2 * count_update_macs(family(name))
    assert costs["macs.run"] == 10 * costs["macs.update"]


@pytest.mark.full
def test_update_macs_of_random_networks_equal_pytorch_counter() -> None:
    rng = Random(25)
    for _ in range(40):
        block = random_architecture(rng).block
        protocol = replace(load_protocol(settings(accumulate=1)), dense_windows=True)
        costs = evaluate_cost(block, protocol)
        assert costs["macs.update"] == count_update_macs(block)


def test_macs_of_protocol_are_those_of_a_pair() -> None:
    block = family("chain matrix 3")  # work on weights only is done once per batch
    costs, forward = (evaluate_cost(block, load_protocol(settings(name=name)))
                      for name in ("train", "forward"))
    assert costs["macs.total"] == 3 * forward["macs.total"]
    once = 3 * 2 * costs["macs.once"]
    assert once and costs["macs.update"] == 2 * PAIRS * costs["macs.total"] + once
    assert costs["macs.update"] == forward["macs.update"]


@pytest.mark.parametrize(("limits", "pairs"), [
    ({"steps": 10}, 60), ({"tokens": 100}, 14), ({"pairs": 20}, 20),
    ({"steps": 2, "pairs": 20}, 12)])
def test_run_ends_at_first_limit(limits: dict[str, int], pairs: int) -> None:
    protocol = load_protocol(settings(name="train", **{"steps": None, **limits}))
    costs = evaluate_cost(family("relu"), protocol)
    assert costs["macs.run"] == pairs * costs["macs.total"]


def optimizer_bytes(block: Block, optimizer: str) -> int:
    """Bytes of the tensors of the optimizers after two updates."""
    torch.manual_seed(0)
    model = build_model(block, vocab=V).train()
    recipe = Recipe(steps=4, optimizer=optimizer, dropout=0.0)
    engine = Engine(model, recipe, Hardware(torch.device("cpu"), False, False))
    ids = np.random.default_rng(0).integers(4, V, (PAIRS, T))
    labels = 1 + ids % 3 if model.first_label else ids  # the family `classes` has 3
    batch = Batch(ids, ids, labels, np.arange(PAIRS))
    for _ in range(2):
        engine.update([batch], 1e-3)
    tensors = [tensor for part in engine.optimizers for state in part.state.values()
               for value in state.values()
               for tensor in (value.values() if isinstance(value, dict) else [value])
               if isinstance(tensor, torch.Tensor)]
    return sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", [*BASE_FAMILIES, *FULL_FAMILIES])
def test_optimizer_memory_equals_state_of_pytorch(name: str, optimizer: str) -> None:
    costs = evaluate_cost(family(name), load_protocol(settings(optimizer=optimizer)))
    assert costs["memory.optimizer"] == optimizer_bytes(family(name), optimizer)


def test_long_sides_are_not_preconditioned() -> None:
    block = build_blocks(transformer_config() | {"width": 520, "encoder.depth": 1,
                                                 "decoder.depth": 1})[1]
    costs = evaluate_cost(block, load_protocol(settings(optimizer="soap")))
    assert costs["memory.optimizer"] == optimizer_bytes(block, "soap")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_costs_of_populations_equal_single_costs(optimizer: str) -> None:
    widths = [64, 512, 576]  # SOAP rotates sides up to 512
    protocol = load_protocol(settings(optimizer=optimizer))
    costs, _ = evaluate_population_costs(transformer_config() | {"width": np.array(widths)},
                                         len(widths), protocol, TRAINING_COSTS)
    for index, width in enumerate(widths):
        single = evaluate_cost(build_blocks(transformer_config() | {"width": width})[1], protocol)
        assert {name: costs[name][index] for name in TRAINING_COSTS} == {
            name: single[name] for name in TRAINING_COSTS}


@pytest.mark.parametrize("name", [*BASE_FAMILIES, *FULL_FAMILIES])
def test_activations_of_a_batch_equal_tensors_saved_by_autograd(name: str) -> None:
    """Numbers that follow from weights or positions are stored once per batch."""
    block = family(name)
    s, t, _ = ACTIVATION_LENGTHS
    changes = {"source": s, "target": t, "max_tokens": 5 * t, "optimizer": "adamw"}
    costs = evaluate_cost(block, load_protocol(settings(**changes)))
    activations = (costs["memory.training"] - 2 * costs["memory.weights"]
                   - costs["memory.optimizer"])
    saved = count_saved(build_model(block, vocab=V).train(), s, t, V, batch=5)
    assert activations == pytest.approx(FLOAT32_BYTES * saved, rel=0.02)


def test_memory_of_training_is_the_sum_of_its_parts() -> None:
    costs = evaluate_cost(family("relu"), load_protocol(settings(optimizer="adamw")))
    assert costs["memory.training"] == (2 * costs["memory.weights"] + costs["memory.optimizer"]
                                        + PAIRS * costs["memory.activations"])


@pytest.mark.parametrize("name", TRAINING_COSTS)
def test_missing_recipe_is_named(name: str) -> None:
    with pytest.raises(UserError) as caught:
        evaluate_cost(family("relu"), load_protocol({}))[name]
    assert caught.value.code == "recipe-missing"


def test_recipe_limited_by_time_has_no_run_length() -> None:
    assert "steps" not in Recipe(steps=3, minutes=1.0).protocol_settings()
    assert Recipe(epochs=0.5, rdrop=1.0).protocol_settings(30)["pairs"] == 15
    assert Recipe(epochs=0.5, rdrop=1.0).protocol_settings(30)["passes_per_batch"] == 2


STUDY = """
space: space.yaml
data: builtin
objectives: {{ loss: min, macs.run: min }}
recipe: {{ {limit}, max_tokens: 256 }}
budget: memory.optimizer <= 10M
trials: 2
"""
SPACE = """
width: 16 | 24
encoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 16 | 32 } } }
decoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 16 } } }
"""


def write_study(folder: Path, limit: str) -> Path:
    (folder / "space.yaml").write_text(SPACE)
    (folder / "study.yaml").write_text(STUDY.format(limit=limit))
    return folder / "study.yaml"


@pytest.mark.parametrize("limit", ["steps: 30", "epochs: 2"])
def test_study_uses_the_recipe_for_training_costs(tmp_path: Path, limit: str) -> None:
    spec = read_study(write_study(tmp_path, limit))
    corpora = load_corpora(spec)
    evaluator = make_evaluator(spec, corpora)
    costs = evaluate_cost(spec.space.architecture(spec.space.sample(Random(1))).block,
                          evaluator.protocol)
    update_pairs = evaluator.protocol.training.batch_pairs(evaluator.protocol)
    pairs = 30 * update_pairs if "steps" in limit else 2 * len(corpora.first.train)
    assert costs["macs.run"] == 3 * pairs * costs["macs.total"]


def test_training_cost_of_a_study_limited_by_time_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_study(write_study(tmp_path, "minutes: 1"))
    assert [problem.code for problem in caught.value.problems] == ["protocol-incomplete"]


def test_training_cost_needs_one_batch_size(tmp_path: Path) -> None:
    file = write_study(tmp_path, "steps: 10")
    file.write_text(file.read_text().replace("256", "256 | 512"))
    with pytest.raises(UserError) as caught:
        read_study(file)
    assert {problem.code for problem in caught.value.problems} == {"open-parameters"}
