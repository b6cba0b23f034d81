"""Measures of models of each family; probes do not change models."""

import json
import math
from dataclasses import asdict
from itertools import chain
from random import Random

import pytest
import torch
from torch.nn.functional import cross_entropy

from scalesearch.analysis import analyze_model, take_sentences
from scalesearch.analysis.activations import ffn_probes
from scalesearch.analysis.groups import compute_gradients, compute_loads
from scalesearch.analysis.heads import MIN_DIVERSITY, head_probes
from scalesearch.analysis.probes import TokenMasks, attached_probes, find_layers
from scalesearch.analysis.tokens import token_probes
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.data import PAD, make_batch
from scalesearch.testing import random_architecture
from tests.analysis.models import FAMILIES, RECIPE, engine_of, family, model_of, sentences, shuffled
from tests.architectures import assemble, transformer_config


def run(model, split, *probes):
    batch = make_batch(split, range(len(split)))
    source, target = (torch.from_numpy(ids) for ids in (batch.source, batch.target_in))
    with attached_probes(chain(*probes), real := TokenMasks()), torch.no_grad():
        real.run_model(model, source, target)
    return real


def close(left, other) -> bool:
    """Whether results are equal up to rounding differences of batching."""
    if isinstance(left, float):
        return math.isclose(left, other, rel_tol=1e-4, abs_tol=1e-6)
    if isinstance(left, dict):
        return left.keys() == other.keys() and all(close(left[key], other[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(other) and all(map(close, left, other))
    return left == other


@pytest.fixture(params=FAMILIES)
def architecture(request):
    return family(request.param)


def test_probes_do_not_change_the_model(architecture) -> None:
    model = model_of(architecture).eval()
    split = sentences()
    batch = make_batch(split, range(len(split)))
    source, target = (torch.from_numpy(ids) for ids in (batch.source, batch.target_in))
    with torch.no_grad():
        before = model(source, target)
        with attached_probes([*head_probes(model), *token_probes(model), *ffn_probes(model)],
                             real := TokenMasks()):
            real.run_model(model, source, target)
            during = model(source, target)
    assert torch.equal(before, during)
    assert not any(node._forward_hooks or node._forward_pre_hooks for node in model.modules())


def test_rows_of_every_layer_are_within_bounds(architecture) -> None:
    result = analyze_model(model_of(architecture), architecture.block, sentences(), RECIPE)
    stacks = {"encoder": architecture.config["encoder.depth"],
              "decoder": architecture.config["decoder.depth"]}
    per_layer = {"encoder": ["attention"], "decoder": ["self_attention", "cross_attention"]}
    expected = [(stack, layer, part) for stack, depth in stacks.items()
              for layer in range(1, depth + 1) for part in per_layer[stack]]
    assert [(row.stack, row.layer, row.part) for row in result.heads] == expected
    for row in result.heads:
        assert row.diversity >= MIN_DIVERSITY and (
            row.silent_share or row.diversity <= row.max_diversity + 1e-9)
        assert MIN_DIVERSITY <= row.diversity_sentence <= row.max_diversity + 1e-9
    assert [(row.stack, row.layer) for row in result.tokens] == [
        (stack, layer) for stack, depth in stacks.items() for layer in range(depth + 1)]
    for row in result.tokens:
        assert -1 <= row.uniformity <= row.uniformity_absolute <= 1 + 1e-9
    for row in result.ffn:
        assert 0 < row.n_act < row.hidden and row.r_act == row.n_act / row.hidden


def test_measures_do_not_depend_on_order_and_batches(architecture) -> None:
    split = sentences()
    model = model_of(architecture)
    first = asdict(analyze_model(model, architecture.block, split, RECIPE))
    assert close(first, asdict(analyze_model(model, architecture.block, shuffled(split), RECIPE)))


def test_heads_with_equal_weights_have_minimal_diversity() -> None:
    architecture = assemble(transformer_config())
    model = model_of(architecture)
    split = sentences()
    for layer in find_layers(model):
        for _, node in layer.modules_of_type(Attention):
            width = node.block.head_dim
            for slot in ("query", "key", "value"):
                linear = getattr(node, slot)
                linear.weight.data.copy_(linear.weight.data[:width].repeat(node.block.heads, 1))
                linear.bias.data.copy_(linear.bias.data[:width].repeat(node.block.heads))
    run(model, split, heads := head_probes(model))
    assert [probe.row().diversity for probe in heads] == pytest.approx(
        [MIN_DIVERSITY] * len(heads), abs=1e-5)


def test_units_with_very_low_bias_are_inactive() -> None:
    architecture = family("partialformer")
    model = model_of(architecture)
    probes = ffn_probes(model)
    for probe in probes:
        probe.module.bias.data.fill_(-1e6)
    run(model, sentences(), probes)
    assert [probe.row().n_act for probe in probes] == [0.0] * len(probes)
    assert {probe.row().eta_ffn for probe in probes} == {0.0}


def test_partialformer_units_and_parameters() -> None:
    architecture = family("partialformer")
    model = model_of(architecture)
    run(model, sentences(), probes := ffn_probes(model))
    row = probes[0].row()
    heads = 7
    dk = 32
    d = 32
    network = 2 * 4 * dk * dk + 4 * dk + dk
    assert (row.part, row.hidden) == ("attention.partial.ffn", heads * 4 * dk)
    assert (row.params, row.params_with_gate) == (network, network + d * heads * dk + heads * dk)
    assert row.eta_ffn == row.n_act / row.params
    assert row.eta_ffn_with_gate == row.n_act / row.params_with_gate


def test_active_units_equal_the_network() -> None:
    architecture = family("plain")
    model = model_of(architecture)
    split = sentences()
    recorded = []
    layer = model.encoder.layers[0]
    layer.ffn.down.register_forward_pre_hook(lambda module, args: recorded.append(args[0]))
    real = run(model, split, probes := ffn_probes(model))
    hidden = recorded[0][real.by_stack["encoder"]]
    assert probes[0].row().n_act == pytest.approx(float((hidden > 0).sum(1).double().mean()))


@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_norms_equal_autograd(name) -> None:
    model = model_of(family(name)).eval()
    split = sentences()
    result = compute_gradients(engine_of(model), split, 0.1, 64)
    assert all(parameter.grad is None for parameter in model.parameters())
    batch = make_batch(split, range(len(split)))
    source, target, out = (torch.from_numpy(ids)
                           for ids in (batch.source, batch.target_in, batch.target_out))
    loss = cross_entropy(model(source, target).flatten(0, 1), out.flatten(), ignore_index=PAD,
                         label_smoothing=0.1)
    loss.backward()
    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    for row in result.groups:
        parameters = [p for path, p in model.named_parameters() if path.startswith(f"{row.group}.")]
        norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in parameters))
        assert row.params == sum(p.numel() for p in parameters)
        assert row.norm == pytest.approx(norm, rel=1e-3, abs=1e-7)
    whole = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert result.norm == pytest.approx(float(whole), rel=1e-3)
    assert sum(row.params for row in result.groups) == sum(p.numel() for p in model.parameters())


def test_loads_equal_the_cost_module() -> None:
    architecture = family("edgeformer")
    load = compute_loads(architecture.block)
    costs = evaluate_cost(architecture.block, find_protocol("edgeformer"))
    assert {f"load.{name}": value for name, value in vars(load).items()
            if name != "groups"} == costs.load_balance
    by_name = {row.group: row.load for row in load.groups}
    assert by_name["encoder.layers.0.attention"] == 3 and by_name["encoder.layers.0.ffn"] == 4
    assert by_name["decoder.layers.0.ffn"] == 4  # two layers, each called twice
    assert sum(row.use_share for row in load.groups) == pytest.approx(1)
    model = model_of(architecture)
    gradients = compute_gradients(engine_of(model), sentences(2), 0.0, 64)
    groups = {row.group for row in gradients.groups}
    assert set(by_name) <= groups


def test_decoder_only_model_is_measured_on_source_and_target() -> None:
    architecture = assemble(transformer_config(model="decoder-only"))
    model = model_of(architecture)
    split = sentences()
    real = run(model, split, heads := head_probes(model), tokens := token_probes(model))
    lengths = split.source_ids.lengths + 1 + split.target_ids.lengths + 1
    assert sorted(real.by_stack["decoder"].sum(1).tolist()) == sorted(lengths.tolist())
    assert {probe.layer.stack for probe in heads} == {
        probe.layer.stack for probe in tokens} == {"decoder"}
    result = analyze_model(model, architecture.block, split, RECIPE)
    assert close(asdict(result),
                 asdict(analyze_model(model, architecture.block, shuffled(split), RECIPE)))


@pytest.mark.parametrize("seed", range(12))
def test_random_architectures_can_be_analyzed(seed) -> None:
    """Random architectures give finite numbers, and gradients for all groups of the load."""
    architecture = random_architecture(Random(seed))
    model = model_of(architecture)
    result = analyze_model(model, architecture.block, sentences(4, seed), RECIPE)
    json.dumps(asdict(result), allow_nan=False)
    assert len(result.heads) >= sum(any(layer.modules_of_type(Attention))
                                   for layer in find_layers(model))
    assert all(row.diversity >= MIN_DIVERSITY - 1e-9 for row in result.heads)
    assert all(0 <= row.n_act <= row.hidden for row in result.ffn)
    assert {row.group.removesuffix(" (own)") for row in result.load.groups} <= {
        row.group for row in result.gradients.groups}
    assert sum(row.params for row in result.gradients.groups) == sum(
        p.numel() for p in model.parameters())


def test_experts_have_no_rows_of_activations() -> None:
    mixture = {"decoder.ffn": "mixture", "decoder.ffn.experts": 3, "decoder.ffn.active": 2,
               "decoder.ffn.shared": 1, "decoder.ffn.expert_hidden": 6,
               "decoder.ffn.expert": "swiglu"}
    architecture = assemble(transformer_config() | mixture)
    result = analyze_model(model_of(architecture), architecture.block, sentences(4), RECIPE)
    assert {row.stack for row in result.ffn} == {"encoder"}


def test_take_sentences() -> None:
    split = sentences(9)
    subset = take_sentences(split, 4)
    assert len(subset) == 4 and subset.source_ids[3].tolist() == split.source_ids[3].tolist()
    assert len(take_sentences(split, 100)) == 9
    architecture = family("plain")
    result = analyze_model(model_of(architecture), architecture.block, subset, RECIPE)
    assert set(asdict(result.heads[0])) == {"stack", "layer", "part", "heads", "diversity",
                                           "diversity_sentence", "silent_share", "max_diversity"}
