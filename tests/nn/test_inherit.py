"""Inheriting: what is claimed to compute the parent's function does, and every number is where it belongs."""

from collections import Counter
from random import Random
from typing import Any

import pytest
import torch

from scalesearch.errors import UserError
from scalesearch.nn.build import build
from scalesearch.nn.inherit import Inherited, inherit
from scalesearch.nn.places import FRESH, Link, centred, fill, first, nested, spread, strongest
from scalesearch.space.architecture import Architecture, Unbuildable, assemble
from tests.architectures import answers, random_architecture

V = 17
COUNTED = ("depth", "heads", "score_heads", "head_dim", "hidden", "ratio", "rank", "key_value_heads", "relative_clip",
           "width", "length", "max_length")


def trained(architecture: Architecture, seed: int = 1) -> Any:
    """A model none of whose weights is as it was drawn."""
    model = build(architecture.block, vocab=V, seed=seed, dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return model


def child_of(parent: Architecture, model: Any, child: Architecture) -> tuple[Any, Inherited]:
    heir = build(child.block, vocab=V, seed=7, dtype=torch.float64).eval()
    return heir, inherit(parent, model.state_dict(), heir, V)


@torch.no_grad()
def apart(one: Any, other: Any) -> float:
    """By how much two models' logits differ."""
    generator = torch.Generator().manual_seed(5)
    source, target = (torch.randint(4, V, (3, n), generator=generator) for n in (5, 6))
    source[1, 3:] = 0
    return float((one(source, target) - other(source, target)).abs().max())


def changed(architecture: Architecture, rng: Random) -> tuple[Architecture, str, bool]:
    """One counted answer is another; with its name and whether it grew."""
    while True:
        drawn = dict(architecture.answers)
        name = rng.choice([path for path, value in drawn.items() if path.split(".")[-1] in COUNTED
                           and isinstance(value, int) and path != "tensor_chain.length"])
        before = drawn[name]
        drawn[name] = max(1, before + rng.choice([-1, 1, 2, before]))
        try:
            child = assemble(drawn)
        except Unbuildable:
            continue
        if child.id != architecture.id:
            return child, name.split(".")[-1], drawn[name] > before


@pytest.mark.parametrize("count", [25, pytest.param(600, marks=pytest.mark.slow)])
def test_what_is_claimed_of_random_models_holds(count: int) -> None:
    rng, kept = Random(41), Counter()
    for seed in range(count):
        parent = random_architecture(rng)
        model = trained(parent, seed)
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        twin, same = child_of(parent, model, parent)
        assert same.kept and same.share == 1 and not same.fresh and apart(model, twin) == 0, parent.answers
        child, name, grew = changed(parent, rng)
        heir, found = child_of(parent, model, child)
        try:
            distance = apart(model, heir)
        except RuntimeError:  # a gate beside adapters of other sizes cannot run, inherited or not
            continue
        assert not found.kept or distance < 1e-9, (name, parent.answers)
        assert not found.kept or grew
        assert 0 <= found.share <= 1 and found.of == sum(weight.numel() for weight in heir.parameters())
        kept[name, found.kept] += 1
        stranger, other = child_of(parent, model, random_architecture(rng))
        assert all(bool(torch.isfinite(weight).all()) for weight in stranger.parameters())
        assert not other.kept
        with torch.no_grad():  # memory of the child's own
            for weight in (*twin.parameters(), *heir.parameters(), *stranger.parameters()):
                weight.fill_(9.0)
        assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert sum(count for (_, claimed), count in kept.items() if claimed) > count / 8


GROWN = {
    "hidden": {"encoder__ffn.hidden": 21, "decoder__ffn.hidden": 40},
    "gated hidden": {"encoder__ffn": "geglu", "decoder__ffn": "swiglu", "encoder__ffn.hidden": 25},
    "layers": {"encoder__depth": 4, "decoder__depth": 3},
    "heads": {"encoder__heads": 3, "encoder__score_heads": 3, "decoder__heads": 5, "decoder__score_heads": 5},
    "head_dim": {"encoder__head_dim": 7, "decoder__head_dim": 5},
    "untied": {"embedding__tie": "none", "embedding__output_bias": False},
    "all": {"encoder__ffn.hidden": 21, "encoder__depth": 4, "decoder__head_dim": 5, "encoder__heads": 3,
            "encoder__score_heads": 3},
}


@pytest.mark.parametrize("how", GROWN)
def test_growing_a_pre_norm_transformer_keeps_its_function(how: str) -> None:
    grown = GROWN[how]
    kinds = {path: value for path, value in grown.items() if path.endswith("ffn")}
    parent, child = assemble(answers(**kinds)), assemble(answers(**grown))
    model = trained(parent)
    heir, found = child_of(parent, model, child)
    assert found.kept and apart(model, heir) < 1e-9, found
    assert (0.3 < found.share < 1) or how == "untied"
    source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[2, 7, 8]])
    heir.train()(source, target).logsumexp(-1).sum().backward()
    reached = [name for name, weight in heir.named_parameters() if weight.grad is not None and weight.grad.any()]
    # Of a silent layer the last matrices learn first; everywhere else every weight is reached at once.
    silent = [name for name, _ in heir.named_parameters() if name not in reached]
    assert all(name.startswith(tuple(found.fresh)) for name in silent if "key.bias" not in name), silent


@pytest.mark.parametrize("changes", [{"norm": "post", "encoder__depth": 3}, {"width": 12}, {"decoder__depth": 1},
                                     {"encoder__ffn.hidden": 9}, {"encoder__ffn": "geglu"}])
def test_what_changes_the_function_is_not_claimed_to_keep_it(changes: dict[str, Any]) -> None:
    parent = assemble(answers(**({"norm": "post"} if "norm" in changes else {})))
    model = trained(parent)
    heir, found = child_of(parent, model, assemble(answers(**changes)))
    assert not found.kept and found.why and apart(model, heir) > 1e-6


def test_copies_of_what_was_shared_keep_the_function_and_sharing_does_not() -> None:
    shared = assemble(answers(**{"share__encoder.ffn": "one", "share__decoder.self": "one"}))
    own, model = assemble(answers()), trained(shared)
    heir, found = child_of(shared, model, own)
    assert found.kept and found.share == 1 and apart(model, heir) < 1e-9
    model = trained(own)
    heir, found = child_of(own, model, shared)
    assert "encoder.layers.0.ffn.down.weight is not what the parent has in all its places" in found.why
    assert torch.equal(heir.encoder.layers[1].ffn.up.weight, model.encoder.layers[0].ffn.up.weight)


def test_heads_are_cut_head_by_head() -> None:
    parent = assemble(answers(encoder__heads=4, encoder__score_heads=4, encoder__head_dim=6))
    model = trained(parent)
    heir, found = child_of(parent, model, assemble(answers(encoder__heads=2, encoder__head_dim=3)))
    its, mine = (m.encoder.layers[1].attention for m in (model, heir))
    assert torch.equal(mine.value.weight.view(2, 3, 8), its.value.weight.view(4, 6, 8)[:2, :3])
    assert torch.equal(mine.out.weight.view(8, 2, 3), its.out.weight.view(8, 4, 6)[:, :2, :3])
    assert torch.allclose(mine.query.weight.view(2, 3, 8), its.query.weight.view(4, 6, 8)[:2, :3] * 0.5**0.5)
    assert not found.kept


def test_the_largest_hidden_units_stay() -> None:
    parent = assemble(answers())
    model = trained(parent)
    with torch.no_grad():
        model.encoder.layers[0].ffn.up.weight[[3, 11]] *= 100
    heir, _ = child_of(parent, model, assemble(answers(**{"encoder__ffn.hidden": 2})))
    its, mine = (m.encoder.layers[0].ffn for m in (model, heir))
    assert torch.equal(mine.up.weight, its.up.weight[[3, 11]]) and torch.equal(mine.up.bias, its.up.bias[[3, 11]])
    assert torch.equal(mine.down.weight, its.down.weight[:, [3, 11]])


def test_another_kind_of_feed_forward_network_starts_afresh() -> None:
    parent = assemble(answers())
    model = trained(parent)
    heir, found = child_of(parent, model, assemble(answers(encoder__ffn="geglu")))
    assert found.fresh == ("encoder.layers.0.ffn", "encoder.layers.1.ffn")
    first_weights = build(assemble(answers(encoder__ffn="geglu")).block, vocab=V, seed=7, dtype=torch.float64)
    assert torch.equal(heir.encoder.layers[0].ffn.up.weight, first_weights.encoder.layers[0].ffn.up.weight)
    assert torch.equal(heir.encoder.layers[0].ffn_norm.weight, model.encoder.layers[0].ffn_norm.weight)


def test_of_another_family_nothing_is_inherited() -> None:
    parent = assemble(answers())
    _, found = child_of(parent, trained(parent), assemble(answers(model="decoder-only")))
    assert (found.share, found.fresh, found.kept) == (0, ("everything",), False)


def test_other_weights_than_the_parents_are_refused() -> None:
    parent = assemble(answers())
    weights = trained(parent).state_dict()
    heir = build(parent.block, vocab=V)
    with pytest.raises(UserError, match=r"encoder.layers.0.attention.key.bias is missing"):
        inherit(parent, {name: w for name, w in weights.items() if name != "encoder.layers.0.attention.key.bias"},
                heir, V)
    with pytest.raises(UserError, match=r"architecture with 19 tokens has"):
        inherit(parent, weights, build(parent.block, vocab=19), 19)


def test_places() -> None:
    assert first(3, 5).places == (0, 1, 2, FRESH, FRESH) and first(3, 2).places == (0, 1)
    assert nested(first(2, 3), first(3, 2)).places == (0, 1, 3, 4, FRESH, FRESH)
    assert centred(5, 9).places == (0, 0, 0, 1, 2, 3, 4, 4, 4) and centred(5, 3).places == (1, 2, 3)
    assert strongest(torch.tensor([1.0, 5.0, 2.0, 9.0]), 2).places == (1, 3)
    for parent, child in ((8, 8), (8, 12), (12, 8), (7, 12), (2, 4), (4, 2)):
        places = spread(parent, child).places
        kept = [at for at in places if at >= 0]
        assert len(places) == child and len(kept) == len(set(kept)) == min(parent, child)
        assert spread(parent, child).same == (parent == child)


def test_fill_reads_new_features_with_zero_weight() -> None:
    child, parent = torch.full((3, 3), 7.0), torch.arange(4.0).view(2, 2) + 1
    assert fill(child, parent, [first(2, 3), first(2, 3)], (1,)) == 4
    assert child.tolist() == [[1, 2, 0], [3, 4, 0], [7, 7, 7]]
    assert Link(first(2, 2), first(2, 2)).same and not Link(first(2, 2), first(2, 3)).same
