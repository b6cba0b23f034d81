"""Optimisers: which weights go where, and Muon beside PyTorch's."""

import pytest
import torch

from scalesearch.train.engine import first_model
from scalesearch.train.optimizers import Muon, optimizers, orthogonal
from scalesearch.train.rates import scales
from tests.train.conftest import recipe, tiny


def made(**how):
    model = first_model(tiny(encoder__pg="relu", encoder__pg__per_head=True, encoder__pg__ratio=2,
                             encoder__pg__gate="relu", encoder__pg__residual=True).block, 40, recipe(**how), 1)
    names = {id(weight): name for name, weight in model.named_parameters()}
    return names, optimizers(model, recipe(**how), scales(model, recipe(**how)), False)


def test_decay_is_for_matrices() -> None:
    names, (only,) = made(weight_decay=0.1)
    decayed = {names[id(w)]: group["weight_decay"] for group in only.param_groups for w in group["params"]}
    assert decayed["encoder.layers.0.attention.query.weight"] == 0.1
    assert decayed["encoder.layers.0.attention.query.bias"] == decayed["encoder.norm.weight"] == 0.0
    assert all(group["betas"] == (0.9, 0.98) and group["fused"] for group in only.param_groups)


def test_muon_takes_matrices_and_adamw_all_else_once() -> None:
    names, (adamw, muon) = made(optimizer="muon", muon_rate=3)
    mine = {names[id(w)]: group["matrices"] for group in muon.param_groups for w in group["params"]}
    rest = [names[id(w)] for group in adamw.param_groups for w in group["params"]]
    assert sorted([*mine, *rest]) == sorted(names.values())
    assert mine["encoder.layers.0.attention.query.weight"] == 1
    assert mine["encoder.layers.0.attention.partial.ffn.up.weight"] == 2  # heads
    assert "embedding.source.table.weight" in rest and "encoder.norm.weight" in rest
    assert {group["scale"] for group in muon.param_groups} == {3.0}


@pytest.mark.parametrize("shape", [(16, 16), (8, 24), (24, 8)])
def test_muon_is_pytorchs(shape) -> None:
    torch.manual_seed(1)
    ours, theirs = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
    mine = Muon([{"params": [ours], "scale": 1.0}], 0.02, 0.9, 0.1, bf16=True)
    peer = torch.optim.Muon([theirs], lr=0.02, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.clone()
        mine.step()
        peer.step()
    assert torch.allclose(ours, theirs, atol=5e-3) and (ours - 1).abs().max() > 0.02


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 24), (4, 24, 8)])
def test_singular_values_come_near_one_matrix_by_matrix(shape) -> None:
    torch.manual_seed(2)
    matrices = torch.randn(shape) * torch.tensor([10.0**i for i in range(shape[0])])[:, None, None]
    values = torch.linalg.svdvals(orthogonal(matrices, torch.float32))
    assert ((values > 0.3) & (values < 1.4)).all()
    alone = torch.cat([orthogonal(one[None], torch.float32) for one in matrices])
    assert torch.allclose(orthogonal(matrices, torch.float32), alone, atol=1e-5)


def test_heads_are_orthogonalised_one_by_one() -> None:
    heads = torch.nn.Parameter(torch.zeros(2, 4, 4))
    heads.grad = torch.stack([torch.eye(4), 100 * torch.eye(4)])
    Muon([{"params": [heads], "matrices": 2, "scale": 1.0}], 1.0, 0.0, 0.0, bf16=False).step()
    assert torch.allclose(heads[0], heads[1], atol=1e-3)


def test_a_weight_without_a_gradient_stays() -> None:
    unused = torch.nn.Parameter(torch.ones(4, 4))
    Muon([{"params": [unused], "scale": 1.0}], 1.0, 0.9, 0.1, bf16=False).step()
    assert torch.equal(unused, torch.ones(4, 4))
