"""Checks of blocks and models.

Costs must be equal to those of PyTorch, and decoding must be consistent. The counters are
independent of the computed costs: ``numel`` of unique parameters, and ``FlopCounterMode``, which
reads the shapes of products. Models are small and run in float64 on the CPU, where the counter is
four times as fast as on the meta device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from random import Random
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.flop_counter import FlopCounterMode

from scalesearch.blocks.core import Block, Repeat, Use, iterate_cost_lines
from scalesearch.blocks.mixture import Mixture
from scalesearch.blocks.polynomial import PopulationColumns
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.cost.breakdown import FLOAT32_BYTES, CostBreakdown, work_steps
from scalesearch.cost.protocol import DEFAULT_WORK_WEIGHTS, training_protocol
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
MAX_PARTS = 4  # in a message
MAX_ORIGIN_LENGTH = 600  # characters of a block or configuration in a message


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
    _check_params(costs, built, specimen.block)
    _check_macs("MACs of a batch", costs, BATCH, built,
                lambda: built(*make_inputs(specimen, device)), specimen.block, with_once=True)
    if device == "cpu":
        check_weights_used(built, built.requires_grad_()(*make_inputs(specimen, device)))


def _check_params(costs: CostBreakdown, model: Module, origin: Any) -> None:
    """Compare the number of weights with that of a module."""
    counted = Counter[str]()
    for path, weight in model.named_parameters():
        counted[_part_path(path.rpartition(".")[0])] += weight.numel()
    if costs["params.total"] != counted.total():
        declared = Counter[str]()
        for leaf in costs.leaf_costs:
            declared[_part_path(leaf.path)] += leaf.params
        raise AssertionError(_difference("params", declared, counted, origin))


def _check_macs(quantity: str, costs: CostBreakdown, batch: int, model: Module,
                run: Callable[[], Any], origin: Any, *, with_once: bool) -> Any:
    """Compare the MACs of a pass with its FLOPs, and return the result of the pass.

    Args:
        run: the pass of ``batch`` sentences.
        origin: block or configuration, for the message.
        with_once: whether the pass includes the work on weights only.
    """
    result, flops = count_flops(run)
    if batch * costs["macs.total"] + with_once * costs["macs.once"] != flops // 2:
        declared = Counter[str]()
        for leaf in costs.leaf_costs:
            declared[_part_path(leaf.path)] += batch * leaf.macs
        training = training_protocol(costs.protocol)
        for line in iterate_cost_lines(costs.block, vocab=costs.protocol.shared_vocab):
            declared[_part_path(line.path)] += with_once * work_steps(line, "once", training)
        raise AssertionError(_difference(quantity, declared, _macs_by_part(model, run), origin))
    return result


def _macs_by_part(model: Module, run: Callable[[], Any]) -> Counter[str]:
    """Count the MACs of each module itself, without those of its parts, by path."""
    paths = {node: _part_path(path) for path, node in model.named_modules()}
    flops = Counter[str]()
    open_paths = [""]

    def enter(node: Any, args: Any) -> None:
        charge()
        open_paths.append(paths.get(node, open_paths[-1]))

    def leave(node: Any, args: Any, output: Any) -> None:
        charge()
        open_paths.pop()

    def charge() -> None:
        flops[open_paths[-1]] += counter.get_total_flops() - flops.total()

    with (FlopCounterMode(display=False) as counter, register_module_forward_pre_hook(enter),
          register_module_forward_hook(leave)):
        run()
        charge()
    return Counter({path: count // 2 for path, count in flops.items()})


def _part_path(path: str) -> str:
    """Return the path of a module without the indices of layers, as equal layers have one line."""
    return ".".join(name for name in path.split(".") if not name.isdigit())


def _difference(quantity: str, declared: Counter[str], counted: Counter[str], origin: Any) -> str:
    """Describe two unequal counts: the parts that differ, and the block or configuration."""
    paths = sorted(declared.keys() | counted.keys(),
                   key=lambda path: -abs(declared[path] - counted[path]))
    differing = [path for path in paths if declared[path] != counted[path]]
    parts = "; ".join(f"{path or 'the block itself'}: {declared[path]:,} and {counted[path]:,}"
                      for path in differing[:MAX_PARTS])
    return (f"{quantity}: the description has {declared.total():,}, and PyTorch counts "
            f"{counted.total():,}. The difference is in {parts}. In {_short(origin, differing[0])}")


def _short(origin: Any, path: str = "") -> str:
    """Shorten a block or a configuration; of a configuration, show the keys of a part's stack."""
    stack = path.partition(".")[0]
    if isinstance(origin, Mapping) and any(key.startswith(f"{stack}.") for key in origin):
        origin = {key: value for key, value in origin.items()
                  if "." not in key or key.startswith(f"{stack}.")}
    return shorten(str(origin), MAX_ORIGIN_LENGTH, placeholder=" …")


def check_weights_used(model: Module, output: Tensor) -> None:
    """Check that ``output`` depends on every weight, and that weights are tied right.

    Raises:
        AssertionError: a weight is not used, or a part uses weights of the wrong layer.
    """
    names, weights = zip(*model.named_parameters()) if any(
        True for _ in model.parameters()) else ((), ())
    grads = torch.autograd.grad(output.sum(), weights, allow_unused=True) if weights else ()
    unused = [name for name, grad in zip(names, grads) if grad is None]
    assert not unused, f"weights without effect: {', '.join(unused)}. In {_short(model.block)}"
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
        *make_inputs(specimen, "cpu")).any(), (
        f"output_projections: the output is not zero if the weights of {', '.join(names)} are. "
        f"In {_short(specimen.block)}")


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
    differing = [f"{name}: {value} and {list(population[name])}"
                 for name, value in costs.values.items() if list(population[name]) != [value] * 2]
    assert not differing, (f"costs of one block and of two equal blocks as arrays: "
                           f"{'; '.join(differing[:MAX_PARTS])}. In {_short(block)}")


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
    _check_params(costs, model, config)
    check_causality(model, vocab)
    generator = torch.Generator().manual_seed(seed)
    source, target = (torch.randint(4, vocab, (2, n), generator=generator) for n in (s, t))
    source[1, (s + 1) // 2 :] = 0
    check_weights_used(model, model(source, target))
    model.requires_grad_(False)
    for weight in model.parameters():
        weight += 0.05 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    # MACs on weights only do not depend on the batch size.
    whole = _check_macs("MACs of a batch", costs, 2, model, lambda: model(source, target), config,
                        with_once=True)
    with model.cached_weights():
        _check_logits("of cached weights", model(source, target), whole, config)
        for name, decode in (("decode", decode_stepwise), ("delight", decode_without_cache)):
            protocol = replace(find_protocol(name, s, t, vocab), work_weights=DEFAULT_WORK_WEIGHTS,
                               dense_windows=True)
            steps = _check_macs(f"MACs of a batch, by the protocol {name}",
                                evaluate_cost(architecture.block, protocol), 2, model,
                                partial(decode, model, source, target), config, with_once=False)
            _check_logits(f"by the protocol {name}", steps, whole, config)
        model.set_attention("fused")
        _check_logits("of fused attention", model(source, target), whole, config)


def check_activations(architecture: ModelSpec) -> None:
    """Compare ``memory.activations`` of a model with the tensors that autograd saves.

    Raises:
        AssertionError: they differ by more than 5 %.
    """
    declared, saved = activations(architecture.block, *ACTIVATION_LENGTHS)
    assert abs(declared - saved) <= ACTIVATION_TOLERANCE * saved, (
        f"activations: the description has {declared:,} numbers per sentence, and autograd saves "
        f"{saved:,}. In {_short(architecture.config)}")


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


def _check_logits(name: str, logits: Tensor, expected: Tensor, config: Any) -> None:
    difference = (logits - expected).abs().max().item()
    assert difference <= TOLERANCE, (
        f"logits {name} differ from those of a full pass by up to {difference:.2g}. "
        f"In {_short(config)}")


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
