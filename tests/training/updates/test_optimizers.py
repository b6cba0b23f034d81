"""Optimizers: groups of weights, and Muon and SOAP compared with references."""

import pytest
import torch

from scalesearch.training.updates.engine import build_initial_model
from scalesearch.training.updates.optimizers import Muon, Soap, build_optimizers, orthogonalize
from scalesearch.training.updates.parametrization import weight_scales
from tests.training.conftest import recipe, tiny


def build(**how):
    model = build_initial_model(tiny(encoder__pg="relu", encoder__pg__per_head=True,
                                     encoder__pg__ratio=2, encoder__pg__gate="relu",
                                     encoder__pg__residual=True).block, 40, recipe(**how), 1)
    names = {id(weight): name for name, weight in model.named_parameters()}
    return names, build_optimizers(model, recipe(**how), weight_scales(model, recipe(**how)), False)


def test_weight_decay_applies_to_matrices() -> None:
    names, (only,) = build(weight_decay=0.1)
    decayed = {names[id(w)]: group["weight_decay"] for group in only.param_groups
               for w in group["params"]}
    assert decayed["encoder.layers.0.attention.query.weight"] == 0.1
    assert decayed["encoder.layers.0.attention.query.bias"] == decayed["encoder.norm.weight"] == 0.0
    assert all(group["betas"] == (0.9, 0.98) and group["fused"] for group in only.param_groups)


def test_muon_updates_matrices_and_adamw_other_weights() -> None:
    names, (adamw, muon) = build(optimizer="muon", matrix_lr_factor=3)
    mine = {names[id(w)]: group["matrices"] for group in muon.param_groups for w in group["params"]}
    others = [names[id(w)] for group in adamw.param_groups for w in group["params"]]
    assert sorted([*mine, *others]) == sorted(names.values())
    assert mine["encoder.layers.0.attention.query.weight"] == 1
    assert mine["encoder.layers.0.attention.partial.ffn.up.weight"] == 2  # heads
    assert "embedding.source.table.weight" in others and "encoder.norm.weight" in others
    assert {group["scale"] for group in muon.param_groups} == {3.0}


@pytest.mark.parametrize("shape", [(16, 16), (8, 24), (24, 8)])
def test_muon_equals_pytorch(shape) -> None:
    torch.manual_seed(1)
    own_weight, peer_weight = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
    mine = Muon([{"params": [own_weight], "scale": 1.0}], True, lr=0.02, momentum=0.9,
                weight_decay=0.1)
    peer = torch.optim.Muon([peer_weight], lr=0.02, momentum=0.9, weight_decay=0.1,
                            adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        own_weight.grad = torch.randn(shape)
        peer_weight.grad = own_weight.grad.clone()
        mine.step()
        peer.step()
    assert torch.allclose(own_weight, peer_weight,
                          atol=5e-3) and (own_weight - 1).abs().max() > 0.02


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 24), (4, 24, 8)])
def test_orthogonalize_gives_singular_values_near_one(shape) -> None:
    torch.manual_seed(2)
    matrices = torch.randn(shape) * torch.tensor([10.0**i for i in range(shape[0])])[:, None, None]
    values = torch.linalg.svdvals(orthogonalize(matrices, torch.float32))
    assert ((values > 0.3) & (values < 1.4)).all()
    alone = torch.cat([orthogonalize(item[None], torch.float32) for item in matrices])
    assert torch.allclose(orthogonalize(matrices, torch.float32), alone, atol=1e-5)


def test_heads_are_orthogonalized_separately() -> None:
    heads = torch.nn.Parameter(torch.zeros(2, 4, 4))
    heads.grad = torch.stack([torch.eye(4), 100 * torch.eye(4)])
    Muon([{"params": [heads], "matrices": 2, "scale": 1.0}], False, lr=1.0, momentum=0.0,
         weight_decay=0.0).step()
    assert torch.allclose(heads[0], heads[1], atol=1e-3)


def test_weight_without_gradient_is_unchanged() -> None:
    unused = torch.nn.Parameter(torch.ones(4, 4))
    for kind in (Muon, Soap):
        kind([{"params": [unused], "scale": 1.0}], False, lr=1.0, momentum=0.9,
             weight_decay=0.1).step()
    assert torch.equal(unused, torch.ones(4, 4))


def test_soap_equals_adam_for_diagonal_gradients() -> None:
    """If gradients are multiples of one diagonal matrix, the bases are the axes."""
    own_weight, peer_weight = (torch.nn.Parameter(torch.zeros(4, 4)) for _ in range(2))
    diagonal = torch.diag(torch.tensor([1.0, 2.0, 4.0, 8.0]))
    mine = Soap([{"params": [own_weight], "scale": 1.0}], False, lr=0.01, momentum=0.9,
                weight_decay=0.0)
    peer = torch.optim.Adam([peer_weight], lr=0.01, betas=(0.9, 0.9))
    for step in range(26):
        own_weight.grad = diagonal * (1 + step % 3)
        mine.step()
        if step:  # the first gradient only initializes the bases
            peer_weight.grad = own_weight.grad.clone()
            peer.step()
    assert torch.allclose(own_weight, peer_weight,
                          atol=1e-4) and own_weight.diagonal().abs().min() > 0.1


def test_soap_is_equivariant_to_rotations() -> None:
    """Rotated gradients give the rotated step, unlike in Adam."""
    torch.manual_seed(3)
    left, right = (torch.linalg.qr(torch.randn(6, 6))[0] for _ in range(2))
    plain, turned = (torch.nn.Parameter(torch.zeros(6, 6)) for _ in range(2))
    optimizers = [Soap([{"params": [weight], "scale": 1.0}], False, lr=0.01, momentum=0.9,
                 weight_decay=0.0) for weight in (plain, turned)]
    for _ in range(8):
        plain.grad = torch.randn(6, 6)
        turned.grad = left @ plain.grad @ right
        for optimizer in optimizers:
            optimizer.step()
    assert torch.allclose(left @ plain @ right, turned, atol=1e-4)


@pytest.mark.parametrize("kind", [Muon, Soap])
@pytest.mark.parametrize("count", [1, 2])
def test_matrices_of_a_weight_are_updated_separately(kind, count) -> None:
    torch.manual_seed(4)
    together = torch.nn.Parameter(torch.zeros(2, 3, 5))
    alone = [torch.nn.Parameter(torch.zeros(3, 5)) for _ in "ab"]
    if count == 1:  # a kernel is one matrix of 2 rows
        alone = [torch.nn.Parameter(torch.zeros(2, 15))]
    settings = {"bf16": False, "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}
    item = kind([{"params": [together], "matrices": count, "scale": 1.0}], **settings)
    other = kind([{"params": alone, "scale": 1.0}], **settings)
    for _ in range(3):
        together.grad = torch.randn(2, 3, 5)
        for weight, gradient in zip(alone,
                                    together.grad if count == 2 else [together.grad.flatten(1)]):
            weight.grad = gradient.clone()
        item.step()
        other.step()
    expected = torch.stack([weight.data
                            for weight in alone]) if count == 2 else alone[0].data.view(2, 3, 5)
    assert torch.allclose(together, expected, atol=1e-5) and together.abs().max() > 0.01


def test_weights_of_equal_shape_are_updated_separately() -> None:
    torch.manual_seed(6)
    together, alone = ([torch.nn.Parameter(torch.zeros(3, 5)) for _ in range(3)] for _ in range(2))
    settings = {"bf16": False, "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}
    optimizers = [Soap([{"params": together, "scale": 1.0}], **settings)]
    optimizers += [Soap([{"params": [weight], "scale": 1.0}], **settings) for weight in alone]
    for _ in range(12):  # more than one update of the bases
        for item, other in zip(together, alone):
            item.grad = torch.randn(3, 5)
            other.grad = item.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert all(torch.allclose(item, other, atol=1e-5) for item, other in zip(together, alone))
    assert not torch.allclose(together[0], together[1], atol=0.01)


def test_soap_restarts_if_another_weight_has_a_gradient() -> None:
    torch.manual_seed(7)
    first, late = (torch.nn.Parameter(torch.zeros(3, 5)) for _ in range(2))
    optimizer = Soap([{"params": [first, late], "scale": 1.0}], False, lr=0.1, momentum=0.9,
                     weight_decay=0.0)
    moved = []
    for step in range(4):
        before = first.detach().clone()
        first.grad = torch.randn(3, 5)
        late.grad = torch.randn(3, 5) if step > 1 else None
        optimizer.step()
        moved.append(not torch.equal(first, before))
    assert moved == [False, True, False, True] and late.abs().max() > 0


def test_soap_equals_simple_implementation() -> None:
    """Reference: one matrix, with a mean that is rotated at every step."""
    torch.manual_seed(5)
    own_weight = torch.nn.Parameter(torch.zeros(4, 4))
    mine = Soap([{"params": [own_weight], "scale": 1.0}], False, lr=0.01, momentum=0.9,
                weight_decay=0.0)
    mean = torch.zeros(4, 4)
    square = torch.zeros(4, 4)
    plain = torch.zeros(4, 4)
    bases = None
    covariances = None
    drift = torch.randn(4, 4)
    for step in range(35):
        g = torch.randn(4, 4) + step * drift / 10
        own_weight.grad = g.clone()
        mine.step()
        if bases is None:
            covariances = [g @ g.T, g.T @ g]
            bases = [torch.linalg.eigh(item)[1] for item in covariances]
            continue
        rows, columns = bases
        mean = 0.9 * mean + 0.1 * g
        square = 0.9 * square + 0.1 * (rows.T @ g @ columns) ** 2
        correction = 1 - 0.9**step
        size = (square / correction).sqrt() + 1e-8
        plain -= 0.01 * rows @ ((rows.T @ mean @ columns) / correction / size) @ columns.T
        covariances = [0.9 * old + 0.1 * new for old, new in zip(covariances, (g @ g.T, g.T @ g))]
        if step % 10 == 0:
            bases = [torch.linalg.qr(item @ basis)[0] for item, basis in zip(covariances, bases)]
    assert torch.allclose(own_weight, plain, atol=1e-4) and plain.abs().max() > 0.1


@pytest.mark.parametrize("kind", [Muon, Soap])
@pytest.mark.parametrize("n_finite", [0, 1])  # updates before the gradient is NaN
def test_gradient_that_is_not_finite_raises_no_error(kind, n_finite) -> None:
    weight = torch.nn.Parameter(torch.ones(4, 3))
    optimizer = kind([{"params": [weight], "scale": 1.0}], False, lr=0.1, momentum=0.9,
                     weight_decay=0.0)
    for step in range(12):
        weight.grad = torch.full((4, 3), 1.0 if step < n_finite else torch.nan)
        optimizer.step()
