"""Checks of blocks and models.

Costs must be equal to those of PyTorch, and decoding must be consistent. The counters are
independent of the computed costs: ``numel`` of unique parameters, and ``FlopCounterMode``, which
reads the shapes of products. Models are small and run in float64 on the CPU, where the counter is
four times as fast as on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from scalesearch.blocks.core import Block, Repeat, Use
from scalesearch.blocks.mixture import Mixture
from scalesearch.blocks.polynomial import PopulationColumns
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.cost.breakdown import FLOAT32_BYTES
from scalesearch.cost.protocol import DEFAULT_WORK_WEIGHTS
from scalesearch.nn.build import build_model, build_module
from scalesearch.nn.causality import check_causality
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.nn.module import Module
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.testing.block_sample import LENGTH, BlockSample

S = 5
T = 7
V = 17
AXIS_LENGTHS = {"src": S, "memory": S, "src_keys": S, "tgt": T, "keys": T}
BATCH = 3
TOLERANCE = 1e-9  # of logits in float64
ACTIVATION_LENGTHS = 20, 24, 40  # source tokens, target tokens, and vocabulary
ACTIVATION_TOLERANCE = 0.05  # of tensors saved by autograd


def check_costs(specimen: BlockSample, kernel: str = "products") -> None:
    """Compare the costs of a block with PyTorch, and check that every weight is used.

    Args:
        specimen: the block.
        kernel: attention kernel, ``products`` or ``fused``.

    Raises:
        AssertionError: they differ, or a weight has no effect.
    """
    # The counter does not count fused attention on the CPU.
    device = "cpu" if kernel == "products" else "meta"
    built = build_module(specimen.block, vocab=V, device=device).requires_grad_(False)
    for node in built.modules():
        if device == "meta" and isinstance(node, Module) and isinstance(node.block, Mixture):
            # Routing depends on numbers, which meta tensors do not have.
            check_costs(specimen)
            return
        node.attention_kernel = kernel  # type: ignore[assignment]
    costs = evaluate_cost(specimen.block, replace(find_protocol("forward", S, T, V),
                                                  dense_windows=True))
    _check_equal("params", costs["params.total"],
                 sum(weight.numel() for weight in built.parameters()), specimen.block)
    _, flops = count_flops(lambda: built(*make_inputs(specimen, device)))
    _check_equal("MACs of a batch", BATCH * costs["macs.total"] + costs["macs.once"], flops // 2,
                 specimen.block)
    if device == "cpu":
        check_weights_used(built, built.requires_grad_()(*make_inputs(specimen, device)))


def _check_equal(quantity: str, declared: float, counted: float, block: Any) -> None:
    assert declared == counted, (f"{quantity}: the description has {declared:,}, and PyTorch "
                                 f"counts {counted:,}, in {block}")


def check_weights_used(model: Module, output: Tensor) -> None:
    """Check that ``output`` depends on every weight, and that weights are tied right.

    Raises:
        AssertionError: a weight is not used, or a part uses weights of the wrong layer.
    """
    names, weights = zip(*model.named_parameters()) if any(
        True for _ in model.parameters()) else ((), ())
    grads = torch.autograd.grad(output.sum(), weights, allow_unused=True) if weights else ()
    assert not [name
                for name, grad in zip(names, grads)
                if grad is None], f"{model.block}: weights without effect"
    for node in (node for node in model.modules() if isinstance(node, Module)):
        for name, part in node.block.parts().items():
            repeat = part.block if isinstance(part, Use) else part
            for tie in repeat.ties if isinstance(repeat, Repeat) else ():
                layers = getattr(node, name)
                groups = tie.schedule.canonical_groups(repeat.depth)
                for layer, owner in zip(layers, groups, strict=True):
                    source = (model.get_submodule(owner) if isinstance(owner, str)
                              else layers[owner].get_submodule(tie.part))
                    for path, leaf in layer.get_submodule(tie.part).named_modules():
                        for weight in leaf.block.weights():
                            if not tie.excludes(path, weight):
                                own = getattr(source.get_submodule(path), weight)
                                message = f"{tie}: {path}.{weight} is not the owner's"
                                assert getattr(leaf, weight) is own, message


def check_output_projections(specimen: BlockSample) -> None:
    """Check that the output is zero if the weights of ``output_projections`` are zero.

    A residual branch can then be scaled by scaling these weights.

    Raises:
        AssertionError: the output is not zero.
    """
    built = build_module(specimen.block, vocab=V).requires_grad_(False)
    names = specimen.block.output_projections  # type: ignore[attr-defined]
    for name in names:
        if name.partition(".")[0] in specimen.block.parts():
            for weight in built.get_submodule(name).parameters():
                weight.zero_()
    assert not names or not built(
        *make_inputs(specimen, "cpu")).any(), f"{specimen}: not zero if {names} are zero"


def check_population_costs(block: Block) -> None:
    """Check that the costs of a block are equal for sizes of a population.

    Raises:
        AssertionError: the costs differ.
    """
    protocol = find_protocol("forward", S, T, V)
    columns = PopulationColumns(2)
    costs = evaluate_cost(block, protocol)
    polynomials = evaluate_cost(as_columns(block, columns), protocol)
    population = columns.evaluate({name: polynomials[name] for name in costs.values})
    assert {name: list(pair) for name, pair in population.items()} == {
        name: [value] * 2 for name, value in costs.values.items()}


def check_model(architecture: ModelSpec, seed: int) -> None:
    """Check the costs of a model by several protocols, and its causality.

    Runs a full pass, decoding with a cache, and decoding without a cache, and counts their FLOPs.
    The logits must be equal for all three and for both attention kernels.

    Raises:
        AssertionError: costs or logits differ.
        CausalityError: an output depends on a later token, another sentence or padding.
    """
    rng = Random(seed)
    s = rng.randint(1, 6)
    t = rng.randint(2, 6)
    vocab = rng.randint(8, 20)
    # Attention with a window computes all scores of a pass, and hides those outside.
    protocol = replace(find_protocol("forward", s, t, vocab), dense_windows=True)
    costs = evaluate_cost(architecture.block, protocol)
    config = architecture.config
    model = build_model(architecture.block, vocab=vocab, seed=seed, dtype=torch.float64).eval()
    _check_equal("params", costs["params.total"],
                 sum(weight.numel() for weight in model.parameters()), config)
    check_causality(model, vocab)
    generator = torch.Generator().manual_seed(seed)
    source, target = (torch.randint(4, vocab, (2, n), generator=generator) for n in (s, t))
    source[1, (s + 1) // 2 :] = 0
    check_weights_used(model, model(source, target))
    model.requires_grad_(False)
    for weight in model.parameters():
        weight += 0.05 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    whole, flops = count_flops(lambda: model(source, target))
    # MACs on weights only do not depend on the batch size.
    _check_equal("MACs of a batch", 2 * costs["macs.total"] + costs["macs.once"], flops // 2,
                 config)
    with model.cached_weights():
        assert _close(model(source, target), whole), config
        for name, decode in (("decode", decode_stepwise), ("delight", decode_without_cache)):
            steps, flops = count_flops(lambda decode=decode: decode(model, source, target))
            protocol = replace(find_protocol(name, s, t, vocab), work_weights=DEFAULT_WORK_WEIGHTS,
                               dense_windows=True)
            _check_equal(f"MACs of a batch, by the protocol {name}", 2 * evaluate_cost(
                architecture.block, protocol)["macs.total"], flops // 2, config)
            assert _close(steps, whole), (name, config)
        model.set_attention("fused")
        assert _close(model(source, target), whole), config


def check_activations(architecture: ModelSpec) -> None:
    """Compare ``memory.activations`` of a model with the tensors that autograd saves.

    Raises:
        AssertionError: they differ by more than 5 %.
    """
    declared, saved = activations(architecture.block, *ACTIVATION_LENGTHS)
    assert abs(declared - saved) <= ACTIVATION_TOLERANCE * saved, (
        f"activations: the description has {declared:,} numbers per sentence, and autograd saves "
        f"{saved:,}, in {architecture.config}")


def activations(block: Block, s: int, t: int, vocab: int) -> tuple[int, int]:
    """Return the numbers saved for the backward pass per sentence: computed, and by autograd."""
    model = build_model(block, vocab=vocab).train()
    saved_of_two, saved_of_three = (count_saved(model, s, t, vocab, batch) for batch in (2, 3))
    computed = evaluate_cost(block, find_protocol("forward", s, t, vocab))["memory.activations"]
    per_sentence = saved_of_three - saved_of_two
    per_update = saved_of_two - 2 * per_sentence
    return int(computed // FLOAT32_BYTES), per_sentence + per_update


def count_saved(model: Any, s: int, t: int, vocab: int, batch: int) -> int:
    """Return how many floating-point numbers autograd saves for a batch, without weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    storages: dict[int, Any] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.is_floating_point() and storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage  # kept, so that its address is not reused
        return tensor

    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(4, vocab, (batch, length), generator=generator)
                      for length in (s, t))
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        states = model.decode(target, model.encode(source))
        if model.first_label:  # classes: as in training, only the first state is kept
            states, target = states[:, :1].clone(), target[:, :1] % 3
        cross_entropy(model.logits(states).flatten(0, 1), target.flatten())
    return sum(storage.nbytes() for storage in storages.values()) // FLOAT32_BYTES


def _close(logits: Tensor, expected: Tensor) -> bool:
    return torch.allclose(logits, expected, rtol=0, atol=TOLERANCE)


def count_flops(run: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of ``run`` and the FLOPs of its products."""
    with FlopCounterMode(display=False) as counter:
        result = run()
    return result, counter.get_total_flops()


def decode_stepwise(model: Seq2SeqModel, source: Tensor, target: Tensor) -> Tensor:
    """Return the logits (batch, T, V) of decoding token by token with a cache."""
    memory = model.encode(source)
    cache = model.new_cache()
    return torch.cat([model.logits(model.decode(step, memory, cache))
                      for step in target.split(1, 1)], 1)


def decode_without_cache(model: Seq2SeqModel, source: Tensor, target: Tensor) -> Tensor:
    """Return the logits (batch, T, V) of decoding without a cache."""
    memory = model.encode(source)
    lengths = range(1, target.shape[1] + 1)
    return torch.cat([model.logits(model.decode(target[:, :n], memory))[:, -1:] for n in lengths],
                     1)


def make_inputs(specimen: BlockSample, device: str) -> list[Tensor | int | None]:
    """Return a batch of zeros per input, and the other arguments."""

    def zeros(shape: tuple[Any, ...]) -> Tensor:
        size = (BATCH, *(AXIS_LENGTHS.get(extent, extent) for extent in shape))
        return torch.zeros(size, dtype=torch.long if specimen.takes_token_ids else torch.float32,
                           device=device)

    more = [S if value == LENGTH else value for value in specimen.extra_arguments]
    return [*(None if shape is None else zeros(shape) for shape in specimen.inputs), *more]  # type: ignore[list-item]


def as_columns(value: Any, columns: PopulationColumns) -> Any:
    """Replace each size of a block with a column that contains it twice."""
    if isinstance(value, tuple):
        return tuple(as_columns(item, columns) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {}
    for field in fields(value):
        size = getattr(value, field.name)
        varies = field.type in ("Size", "Size | None") and isinstance(size, int) and size != 0
        changed[field.name] = columns.variable(
            np.array([size, size])) if varies else as_columns(size, columns)
    return replace(value, **changed)
