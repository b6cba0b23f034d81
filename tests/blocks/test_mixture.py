"""Mixture of experts."""

import numpy as np
import pytest
import torch
from torch import nn

from scalesearch.blocks.core import SRC
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixture import balance_loss
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.data import Batch
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.nn.build import build_module
from scalesearch.nn.verify import verify_costs
from scalesearch.spaces import Space, UnbuildableError
from scalesearch.testing import check_ffn
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.engine import Engine

SPACE = """\
model: decoder-only
width: 16
decoder: { depth: 2, heads: 2, ffn: { mixture: { experts: 4, active: 2, shared: 1 } } }
"""


@pytest.mark.full
def test_mixture_passes_the_public_check() -> None:
    check_ffn("mixture")


def test_active_params_and_macs_are_those_of_the_active_experts() -> None:
    protocol = find_protocol("forward", 1, 9, 50)
    costs = {}
    for experts in (2, 8):
        space = Space.parse(SPACE).with_overrides({"decoder.ffn.mixture.experts": str(experts)})
        costs[experts] = evaluate_cost(space.single_architecture().block, protocol)
    router = 16 * 6 * 2  # width, further experts, layers
    expert = 3 * 16 * 16 + 3 * 16  # with biases
    assert costs[8]["params.total"] - costs[2]["params.total"] == router + 2 * 6 * expert
    assert costs[8]["params.active"] - costs[2]["params.active"] == router
    assert costs[8]["macs.total"] - costs[2]["macs.total"] == router * 10
    assert costs[2]["params.active"] == costs[2]["params.total"]


def test_macs_of_unused_experts_explain_a_pass_without_numbers() -> None:
    block = Space.parse(SPACE).single_architecture().block
    params, *macs = verify_costs(block, 4, 5, 50)
    assert all(check.is_equal for check in (params, *macs))
    # 2 of 4 experts, 2 layers, the tokens of source and target
    assert macs[0].explained == 2 * 2 * 9 * 3 * 16 * 16


def test_output_is_the_weighted_sum_of_the_best_experts() -> None:
    block = FFNS["mixture"](8, (SRC,), DENSE, experts=5, active=2, shared=1, expert_hidden=6,
                            expert="swiglu")
    module = build_module(block)
    tokens = torch.randn(4, 8)
    outputs = module(tokens[None])[0]
    for token, output in zip(tokens, outputs, strict=True):
        probabilities = module.router(token).softmax(-1)
        first, second = probabilities.argsort(descending=True)[:2].tolist()
        expected = sum(probabilities[index] * getattr(module, f"expert_{index}")(token)
                       for index in (first, second))
        expected = expected / (probabilities[first] + probabilities[second]) + module.shared(token)
        assert torch.allclose(output, expected, atol=1e-6)


def test_static_form_equals_the_form_that_sorts_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    block = FFNS["mixture"](8, (SRC,), DENSE, experts=5, active=2, shared=1, expert_hidden=6,
                            expert="swiglu")  # type: ignore[call-arg]
    module = build_module(block, dtype=torch.float64)
    for weight in module.parameters():
        nn.init.normal_(weight, generator=torch.Generator().manual_seed(weight.numel()))
    x = torch.randn(3, 7, 8, dtype=torch.float64)
    sorted_form = module(x)
    monkeypatch.setattr("scalesearch.blocks.mixture._has_dynamic_shapes", lambda x: False)
    assert torch.allclose(module(x), sorted_form, atol=1e-12)


def test_balance_loss_is_one_if_uniform_and_grows_with_imbalance() -> None:
    uniform = torch.zeros(4, 4)
    assert float(balance_loss(uniform, torch.arange(4)[:, None])) == pytest.approx(1.0)
    scores = torch.tensor([[9.0, 0, 0, 0]]).repeat(4, 1)
    assert float(balance_loss(scores, torch.zeros(4, 1, dtype=torch.int64))) > 3.9


def test_too_many_active_experts_are_infeasible() -> None:
    space = Space.parse(SPACE).with_overrides({"decoder.ffn.mixture.active": "5"})
    with pytest.raises(UnbuildableError) as caught:
        space.single_architecture()
    assert caught.value.key == "decoder.ffn.mixture.active"


def test_ctranslate2_does_not_support_it() -> None:
    text = SPACE.replace("model: decoder-only\n", "")
    block = Space.parse(text).single_architecture().block
    assert any("Mixture" in reason for reason in find_unsupported_parts(block))


def test_training_adds_the_balance_loss_of_all_layers() -> None:
    model = build_model(Space.parse(SPACE).single_architecture().block, vocab=20).train()
    ids = np.arange(4, 12).reshape(2, 4)
    batch = Batch(ids[:, :1], ids, ids, np.arange(2))
    losses = []
    for weight in (0.0, 0.5):
        how = Recipe(steps=2, balance_loss=weight, dropout=0)
        losses.append(Engine(model, how, Hardware.from_recipe(how)).loss_sum(batch, 0.0).item())
    assert losses[1] - losses[0] == pytest.approx(0.5 * batch.tokens * model.balance_loss().item())
