"""Parametrization: properties of the scaling rules for any architecture."""

from random import Random

import numpy as np
import pytest
import torch

from scalesearch.blocks.ffn import FFN
from scalesearch.blocks.maps.linear_factories import Chain, LowRank
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.multi_path import MultiPath
from scalesearch.data import make_batch
from scalesearch.nn.build import build_module
from scalesearch.nn.init import chain_std
from scalesearch.nn.module import Module
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.testing.random_models import random_architecture
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.engine import Engine, build_initial_model
from scalesearch.training.updates.parametrization import (
    _distribute_factors,
    summarize_scales,
    weight_scales,
)
from tests.architectures import transformer_config
from tests.training.conftest import recipe, tiny

WIDE = {"base": 5e-3, "reference_sizes": {"width": 16}}


def result(architecture, **how):
    return weight_scales(build_initial_model(architecture.block, 40, recipe(**how), 1),
                         recipe(**how))


@pytest.mark.parametrize("seed", range(8))
def test_every_weight_of_random_architectures_has_a_scale(seed: int) -> None:
    architecture = random_architecture(Random(seed))
    for rule, optimizer in (("embedding", "adamw"), ("layerwise", "muon"), ("mup", "adamw")):
        how = recipe(lr={**WIDE, "rule": rule}, residual_scaling="scaled", optimizer=optimizer)
        model = build_initial_model(architecture.block, 40, how, 1)
        named = weight_scales(model, how)
        assert set(named) == {name for name, _ in model.named_parameters()}
        assert all(scale.lr_factor > 0 and scale.init_factor > 0 for scale in named.values())
        assert all(torch.isfinite(weight).all() for weight in model.parameters())
        assert sum(row["params"] for row in summarize_scales(model, how)) == sum(
            w.numel() for w in model.parameters())


def test_no_rule_scales_nothing() -> None:
    assert {(scale.init_factor, scale.lr_factor)
            for scale in result(tiny()).values()} == {(1.0, 1.0)}


def test_layerwise_rates_decrease_with_fan_in() -> None:
    base, wide = (result(tiny(width=n, encoder__ffn__hidden=64), lr={**WIDE, "rule": "layerwise"})
                  for n in (16, 64))
    query = "encoder.layers.0.attention.query.weight"
    down = "encoder.layers.0.ffn.down.weight"
    assert (base[query].lr_factor, wide[query].lr_factor) == (1.0, 0.25)
    assert (base[down].lr_factor, wide[down].lr_factor) == (0.25, 0.25)
    assert base["encoder.norm.weight"].lr_factor == wide["encoder.norm.weight"].lr_factor == 1.0


def test_tied_table_has_the_lowest_rate_of_its_roles() -> None:
    untied, tied = (result(tiny(width=64, embedding__tie=tie), lr={**WIDE, "rule": "layerwise"})
                    for tie in ("none", "all"))
    table = "embedding.source.table.weight"
    assert (untied[table].lr_factor, untied["output.weight"].lr_factor) == (0.5, 0.25)
    assert tied[table].lr_factor == 0.25


@pytest.mark.parametrize(
    "norm, gain", [("pre", "decoder.norm.weight"), ("post", "decoder.layers.0.ffn_norm.weight")])
def test_mup_scales_readout_or_gain_before_tied_readout(norm, gain) -> None:
    tied, own = (result(tiny(width=64, norm=norm, embedding__tie=tie), lr={**WIDE, "rule": "mup"})
                 for tie in ("all", "none"))
    assert (tied[gain].init_factor, tied["embedding.source.table.weight"].init_factor) == (0.5, 1.0)
    assert (own[gain].init_factor, own["output.weight"].init_factor) == (1.0, 0.5)
    limited = result(tiny(width=64, norm=norm, embedding__tie="none", embedding__output_soft_cap=3),
                     lr={**WIDE, "rule": "mup"})
    assert (limited[gain].init_factor, limited["output.map.weight"].init_factor) == (1.0, 0.5)
    others = [scale.init_factor
              for name, scale in tied.items() if name.endswith("norm.weight") and name != gain]
    assert set(others) == {1.0}


def test_shared_matrix_has_the_rate_of_one_use() -> None:
    own, shared = (result(tiny(encoder__depth=3, share__encoder__ffn=share),
                         lr={**WIDE, "rule": "layerwise"}) for share in ("own", "one"))
    name = "encoder.layers.0.ffn.up.weight"
    assert own[name] == shared[name] and "encoder.layers.1.ffn.up.weight" not in shared


@pytest.mark.parametrize("seed", range(12))
def test_zero_init_branches_output_zero_and_have_gradients(seed: int) -> None:
    """Not all cores of a chain are zero, because then no core would have a gradient."""
    rng = Random(seed)  # norms without weights cannot be zero
    architecture = random_architecture(rng, norm=rng.choice(["pre", "post"]), norm_kind="layer")
    model = build_initial_model(architecture.block, 40, recipe(zero_init=True), 1).eval()
    recorded: list[tuple[Module, torch.Tensor]] = []
    # the attention of an embedding is not a residual branch
    nodes = {path: node for path, node in model.named_modules()
             if isinstance(node, Module) and ".partial." not in path
             and not path.startswith("embedding.")}
    first = [node.local for node in nodes.values() if getattr(node.block, "join", None) == "before"]
    # paths whose branches end with norms
    normed = [path for path, node in nodes.items()
              if isinstance(node.block, MultiPath) and node.block.merge
              and node.block.merge.path_norms]
    for path, node in nodes.items():
        inside = any(path.startswith(f"{left}.") for left in normed)
        if path in normed or (isinstance(node.block, Mixer | FFN) and node not in first
                              and not inside):
            node.register_forward_hook(lambda left, _, y: recorded.append((left, y)))
    model(torch.tensor([[5, 6, 7]]), torch.tensor([[2, 8, 9]])).log_softmax(-1)[
        ..., 5].sum().backward()
    outputs = [(node, y)
               for node, y in recorded
               if isinstance(node.block, MultiPath) or node.block.output_projections]
    assert outputs and all(not y.any() for _, y in outputs)
    learning = [weight.grad is not None and bool(weight.grad.any()) for node, _ in outputs
                for name, weight in node.named_parameters()
                if name.split(".")[0]
                in ("merge", *getattr(node.block, "output_projections", ()))]
    assert any(learning) or not learning


@pytest.mark.parametrize("norm", ["branch", "sandwich"])
def test_zero_init_sets_gains_at_the_end_of_branches_to_zero(norm: str) -> None:
    """The maps before these norms are not zero, so that the gains have gradients."""
    block = assemble(transformer_config(norm=norm)).block
    model = build_initial_model(block, 40, recipe(zero_init=True), 1).eval()
    model(torch.tensor([[5, 6, 7]]), torch.tensor([[2, 8, 9]]))[..., 5].sum().backward()
    suffix = "_norm" if norm == "branch" else "_norm_out"
    gains = {name: gain for name, gain in model.named_parameters()
             if name.endswith(f"{suffix}.weight")}
    assert gains and not any(gain.any() for gain in gains.values())
    assert all(gain.grad is not None and gain.grad.any()
               for name, gain in gains.items() if name.startswith("decoder"))


@pytest.mark.parametrize("site", [LowRank(3), Chain(0.5, 2), Chain(0.5, 3), Chain(0.7, 4)])
def test_factor_of_a_map_scales_its_matrix(site) -> None:
    node = build_module(site(24, 36, ("src",), bias=False))
    eye = torch.eye(24)
    before = node(eye)
    with torch.no_grad():
        for name, (init, _) in _distribute_factors(node, "", 0.3, 0.3).items():
            node.get_parameter(name.strip(".")).mul_(init)
    assert torch.allclose(node(eye), 0.3 * before, atol=1e-6)


@pytest.mark.parametrize("length", [2, 3, 4])
def test_step_of_cores_is_equivalent_to_dense_step(length: int) -> None:
    """Each of n cores contributes 1/n of the step of a dense matrix."""
    block = Chain(0.5, length)(240, 360, ("src",), bias=False)
    core, whole = chain_std(block, "cores", "any")
    growth = core / (whole * length)
    rate = 1e-3
    rng = torch.Generator().manual_seed(0)
    cores = [core * torch.randn(*shape, generator=rng) for shape in block.weights().values()]
    before = block.cores.matrix(cores)
    assert before.std().item() == pytest.approx(whole, rel=0.25)
    for i in range(length):
        moved = list(cores)
        moved[i] = cores[i] + rate * growth * torch.randn(*cores[i].shape, generator=rng).sign()
        assert (block.cores.matrix(moved) - before).std().item() == pytest.approx(
            rate / length, rel=0.4)


def test_deepnet_factors() -> None:
    """norm(αx + f(x)) initialized as DeepNet equals the scaled model with branches f(x) / α."""
    plain = assemble(transformer_config(norm="post", encoder__depth=3, decoder__depth=2))
    named = result(plain, residual_scaling="scaled")
    both = 3**4 * 2
    alpha = 0.81 * both ** (1 / 16)
    beta = 0.87 * both ** (-1 / 16)
    out = named["encoder.layers.1.attention.out.weight"]
    assert (out.init_factor, out.lr_factor) == (
        pytest.approx(beta / alpha), pytest.approx(1 / alpha))
    assert named["encoder.layers.1.attention.value.weight"].init_factor == pytest.approx(beta)
    assert named["encoder.layers.1.attention.query.weight"].init_factor == 1.0
    assert named["decoder.layers.1.ffn.down.weight"].lr_factor == pytest.approx(6**-0.25)
    assert result(plain, residual_scaling="deepnet") == named
    assert result(tiny(), residual_scaling="deepnet") == result(tiny()) != result(
        tiny(), residual_scaling="scaled")


def logit_change(rule: str, optimizer: str, width: int, corpus) -> float:
    """The change of logits after four updates (coordinate check of muP)."""
    how = recipe(lr={"base": 4e-3, "reference_sizes": {"width": 32}, "rule": rule},
                 optimizer=optimizer, warmup=0, clip_norm=0, dropout=0, attention_dropout=0,
                 activation_dropout=0, schedule="constant", precision="fp32")
    sizes = {f"{stack}.{key}": width // n for stack in ("encoder", "decoder")
             for key, n in (("head_dim", 2), ("ffn.hidden", 1))}
    model = build_initial_model(
        assemble(transformer_config(width=width) | sizes).block,
        corpus.tokenizer.vocab_size, how, 1)
    batch = make_batch(corpus.train, np.arange(16))
    source = torch.from_numpy(batch.source)
    target = torch.from_numpy(batch.target_in)
    engine = Engine(model.train(), how, Hardware.from_recipe(how))
    before = model(source, target).detach()
    for _ in range(4):
        engine.update([batch], how.lr.base)
    return float((model(source, target).detach() - before).std())


@pytest.mark.full
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_logit_change_does_not_grow_with_width(corpus, optimizer) -> None:
    growth = {rule: (logit_change(rule, optimizer, 192, corpus)
                     / logit_change(rule, optimizer, 32, corpus))
              for rule in ("none", "layerwise", "mup")}
    assert growth["none"] > 1.6
    assert 0.8 < growth["layerwise"] < 1.25 and 0.4 < growth["mup"] < 1


def test_mup_scales_queries_with_head_dim() -> None:
    how = {"lr": {"base": 1e-3, "reference_sizes": {"width": 16, "head_dim": 2}, "rule": "mup"}}
    query = result(tiny(encoder__head_dim=8), **how)["encoder.layers.0.attention.query.weight"]
    assert (query.init_factor, query.lr_factor) == (0.5, 0.5)


def test_recipe_with_rule_round_trip() -> None:
    how = Recipe(steps=5, lr={"base": 1e-3, "reference_sizes": {"width": 64}, "rule": "mup"})
    assert Recipe.from_mapping(how.model_dump()) == how and Recipe(steps=5, lr=1e-3).lr.base == 1e-3


def test_gates_adapters_and_head_matrices_are_matrices() -> None:
    gated = result(tiny(encoder__gate="QgV", encoder__head_dim=8), lr={**WIDE, "rule": "layerwise"})
    assert gated["encoder.layers.0.attention.query.weight"].role == "matrix"
    adapted = result(tiny(width=64, encoder__depth=2, share__encoder__attention="one", adapt="lora",
                         adapt__rank=4, adapt__on=("query",)), lr={**WIDE, "rule": "layerwise"})
    down, up = (adapted[f"encoder.layers.1.attention.query_adapter.{part}.weight"]
                for part in ("down", "up"))
    # 64 and 4 inputs; the reference has 16
    assert (down.lr_factor, up.lr_factor) == (0.25, 4.0)
