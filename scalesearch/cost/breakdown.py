"""Breakdown of a model's costs: weights and work of leaf blocks, and sums.

All numbers are exact integers. The work of a leaf is a sum of monomials in the axes of the
protocol (source length, target length, vocabulary), so it can be evaluated under any protocol.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from scalesearch.blocks.core import Axis, Block, CostLine, Shape, Size, iterate_cost_lines
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.seq2seq import EncoderOnly
from scalesearch.blocks.sizes import may_be_nonzero
from scalesearch.cost.artifact import artifact_bytes
from scalesearch.cost.latency import predict_latency
from scalesearch.cost.load import load_balance
from scalesearch.cost.protocol import (
    DEFAULT_WORK_WEIGHTS,
    ELEMENTWISE_WORK,
    Protocol,
    context_protocols,
    training_protocol,
    weight_numel,
)
from scalesearch.cost.training import FLOAT32_BYTES, TrainingRun, training_costs
from scalesearch.errors import UserError
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.spaces.schema.cost_names import (
    ARTIFACT_FORMATS,
    CACHE_TYPES,
    CONTEXT_COSTS,
    COST_NAMES,
    COST_PARTS,
    TRAINING_COSTS,
    find_missing_key,
)
from scalesearch.spaces.syntax.diagnostics import suggest_match

QUANTITIES = ("params", "macs", "flops")
TABLE_INITIALIZATIONS = ("tokens", "table cores")  # of tables that tokens index
SAVED_WORK = ("activation", "activation_once")  # for the backward pass
OUTPUT_MATRICES = ("output", "output.table")  # paths of maps to logits
# This path component is omitted: "encoder.layers.ffn" is shown as "encoder.ffn".
COLLAPSED_MODULE = "layers"


@dataclass(frozen=True)
class LeafCost:
    """Cost of one leaf block under a protocol.

    Attributes:
        path: path in the tree of modules, such as ``encoder.layers.ffn.hidden``.
        calls: calls per forward pass.
        params: number of weights; shared weights count at their owner only.
        macs: multiply-accumulates over all calls.
    """

    path: str
    calls: Size
    params: Size
    macs: Size


@dataclass(frozen=True)
class CostBreakdown:
    """Costs of an architecture under a protocol.

    ``breakdown["params.total"]`` is an exact integer. ``breakdown["load.balance"]`` measures how
    evenly shared weights are used, see :mod:`scalesearch.cost.load`.

    Attributes:
        leaf_costs: costs of leaf blocks, in the order of the model.
        values: cost name to value, without ``load.*`` and ``latency.*``.
    """

    protocol: Protocol
    leaf_costs: tuple[LeafCost, ...]
    values: Mapping[str, int]
    block: Block

    @cached_property
    def load_balance(self) -> Mapping[str, float]:
        """Uses of weights per forward pass: ``load.mean``, ``load.balance`` and others."""
        return load_balance(self.block)

    @cached_property
    def latency(self) -> Mapping[str, float]:
        """``latency.predicted`` in ms per sentence; empty without a latency model."""
        return ({"latency.predicted": predict_latency(self.block, self.protocol)}
                if self.protocol.latency_model_path else {})

    def __getitem__(self, name: str) -> int | float:
        if name not in self.values and name not in COST_NAMES:
            raise UserError(f"unknown cost `{name}`", help=suggest_match(name, COST_NAMES),
                            code="unknown-cost")
        if name == "artifact.bytes" and name not in self.values:
            raise UserError("artifact.bytes needs an export format",
                            help="set protocol: {artifact: FORMAT} or --artifact FORMAT, one of "
                            f"{', '.join(ARTIFACT_FORMATS)}",
                            code="artifact-format-missing")
        # number of parts that the format does not support: 0 if it supports the architecture
        if name == "refusals.ctranslate2":
            return len(find_unsupported_parts(self.block))
        if name in TRAINING_COSTS and name not in self.values:
            missing_key = find_missing_key(name, self.protocol.settings)
            raise UserError(f"{name} needs a recipe with {missing_key}",
                            help="add --recipe NAME|FILE (with `epochs`, also --pairs), or set "
                            f"cost: {{protocol: {{{str(missing_key).partition(' ')[0]}: …}}}}; a "
                            "limit in minutes has no number of MACs", code="recipe-missing")
        if name in CONTEXT_COSTS and name not in self.values:
            raise UserError(f"{name} needs a length of the context",
                            help="set protocol: {length: TOKENS} or --length TOKENS",
                            code="length-missing")
        if name == "latency.predicted" and not self.latency:
            raise UserError("latency.predicted needs a latency model",
                            help="set protocol: {latency: FIT.json} or --latency FIT.json; "
                            "`scalesearch latency calibrate` writes this file",
                            code="no-latency-fit")
        if name.startswith("load."):
            return self.load_balance[name]
        if name.startswith("latency."):
            return self.latency[name]
        return self.values[name]

    def keys(self) -> Collection[str]:
        """Names of all costs that the protocol defines, as in a mapping."""
        return {**self.values, **self.load_balance, **self.latency}.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    @property
    def by_quantity(self) -> dict[str, dict[str, int | float]]:
        """All costs that the protocol defines, by quantity and section.

        Encoder-only models have no ``macs.decode_step``.
        """
        nested: dict[str, dict[str, int | float]] = {}
        for name, value in dict(self).items():
            group, _, section = name.partition(".")
            if name != "macs.decode_step" or not isinstance(self.block, EncoderOnly):
                nested.setdefault(group, {})[section] = value
        return nested | {"refusals": {"ctranslate2": self["refusals.ctranslate2"]}}


def evaluate_cost(block: Block, protocol: Protocol) -> CostBreakdown:
    """Evaluate params, MACs, FLOPs and memory of ``block`` under ``protocol``.

    A multiply-add is two FLOPs. Other steps that a protocol counts (norms, biases) are one FLOP.

    ``macs.once`` is work on weights only, for example the contraction of a tensor chain. It is
    done once per batch in training and only once for inference. It is not part of the total,
    unless the protocol counts it.
    """
    lines = list(iterate_cost_lines(block, vocab=protocol.shared_vocab))
    counted_lines = [_with_shortlist(line, protocol) for line in lines]
    leaf_costs = []
    for line in counted_lines:  # without lines that have only saved activations
        if line.weights or any(work.operation not in SAVED_WORK for work in line.loop_nests):
            params = sum(line.weight_copies[name] * weight_numel(shape, protocol)
                         for name, shape in line.weights.items())
            macs = _steps(line, protocol, protocol.work_weights)
            leaf_costs.append(LeafCost(line.path, line.calls, params, macs))
    values: dict[str, int] = {"params.tables": sum(
        line.weight_copies[name] * weight_numel(shape, protocol)
        for line in lines if line.path.startswith("embedding")
        for name, shape in line.weights.items()
        if line.block.initialization(name) in TABLE_INITIALIZATIONS)}
    # without the experts of a mixture that a token does not use, which have no calls
    values["params.active"] = sum(leaf.params for leaf in leaf_costs if may_be_nonzero(leaf.calls))
    for quantity in ("params", "macs"):
        items = [(leaf.path, getattr(leaf, quantity)) for leaf in leaf_costs]
        values |= _by_section(quantity, items)
    elementwise = protocol.work_weights.keys() & set(ELEMENTWISE_WORK)
    single_steps = _by_section(
        "steps", ((line.path, _steps(line, protocol, elementwise)) for line in counted_lines)
    ) if elementwise else {}
    for section in COST_PARTS:
        values[f"flops.{section}"] = 2 * values[f"macs.{section}"] - single_steps.get(
            f"steps.{section}", 0)
    training = training_protocol(protocol)
    values["macs.once"] = sum(work_steps(line, "once", training) for line in lines)
    for name, passes in context_protocols(protocol).items():
        values[f"macs.{name}"] = sum(_steps(line, passes, passes.work_weights)
                                     for line in counted_lines)
    # Of one sentence: the key-value cache after T tokens, and an estimate of the tensors that
    # autograd saves for the backward pass.
    values["memory.weights"] = FLOAT32_BYTES * values["params.total"]
    # Attention in a window caches its last keys, but autograd saves the scores of all keys.
    dense = replace(training, dense_windows=True)
    bounded = replace(training, dense_windows=False)
    values["memory.cache"] = CACHE_TYPES[protocol.cache] * sum(
        work_steps(line, "cache", bounded) for line in lines)
    pair_activations, batch_activations = (
        FLOAT32_BYTES * sum(work_steps(line, work_type, dense) for line in lines)
        for work_type in SAVED_WORK)
    values["memory.activations"] = pair_activations + batch_activations
    if protocol.training != TrainingRun():
        pair_macs = sum(_steps(line, training, DEFAULT_WORK_WEIGHTS) for line in lines)
        values |= training_costs(lines, protocol, pair_macs, batch_activations, values,
                                 lambda shape: weight_numel(shape, protocol))
    if protocol.artifact is not None:
        values["artifact.bytes"] = artifact_bytes(block, protocol)
    return CostBreakdown(protocol, tuple(leaf_costs), values, block)


def _with_shortlist(line: CostLine, protocol: Protocol) -> CostLine:
    """``line`` with the rows of the shortlist, if it is an output matrix."""
    output = line.block
    if (protocol.shortlist is None or line.path not in OUTPUT_MATRICES
            or not isinstance(output, Linear)):
        return line
    vocab = protocol.shared_vocab
    rows = protocol.shortlist if vocab is None else min(protocol.shortlist, vocab)
    return replace(line, loop_nests=replace(output, d_out=rows).loop_nests())


def _steps(line: CostLine, protocol: Protocol, work_types: Iterable[str]) -> Size:
    """Steps of these types of work, weighted by the protocol."""
    return sum(protocol.work_weights[work_type] * work_steps(line, work_type, protocol)
               for work_type in work_types)


def work_steps(line: CostLine, work_type: str, protocol: Protocol) -> Size:
    """Number of steps of type ``work_type`` of a leaf, over all its calls."""
    total = 0
    for work in line.loop_nests:
        if work.operation == work_type:
            axes, coefficient = split_loops(work.loops)
            total = total + coefficient * protocol.extent(axes)
    return total * line.calls


def split_loops(loops: Shape) -> tuple[tuple[Axis, ...], Size]:
    """Sorted axes of a loop nest, and the product of its sizes."""
    axes = tuple(sorted(extent for extent in loops if isinstance(extent, str)))
    return axes, math.prod(extent for extent in loops if not isinstance(extent, str))


def _by_section(quantity: str, items: Iterable[tuple[str, Size]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for path, value in items:
        section = path.split(".", 1)[0]
        # Not in place: sizes of a population are arrays that other lines share.
        sums[section] = sums[section] + value
    total = sum(sums.values())
    by_name = {"total": total, "non_embedding": total - sums["embedding"]} | sums
    return {f"{quantity}.{section}": by_name.get(section, 0) for section in COST_PARTS}


@dataclass(frozen=True)
class ModuleCost:
    """Cost of one module and everything inside it.

    Attributes:
        level: depth in the tree of modules.
        calls: calls per forward pass; None if the module is not a single leaf block.
    """

    level: int
    path: str
    params: int
    macs: int
    calls: int | None = None


def module_costs(cost: CostBreakdown, max_level: int = 2) -> list[ModuleCost]:
    """Costs of modules down to ``max_level``, in the order of the model.

    Leaf blocks are at level 3 or 4.
    """
    return list(_module_rows(cost, (), max_level))


def _module_rows(cost: CostBreakdown, prefix: tuple[str, ...],
                 max_level: int) -> Iterator[ModuleCost]:
    children: dict[str, list[tuple[int, int, int, bool]]] = {}
    for leaf in cost.leaf_costs:
        path = tuple(name for name in leaf.path.split(".") if name != COLLAPSED_MODULE)
        if path[: len(prefix)] == prefix and len(path) > len(prefix):
            is_child = len(path) == len(prefix) + 1
            children.setdefault(path[len(prefix)],
                                []).append((leaf.params, leaf.macs, leaf.calls, is_child))
    for name, leaves in children.items():
        params, macs, calls, n_children = (sum(column) for column in zip(*leaves))
        path = (*prefix, name)
        yield ModuleCost(len(prefix), ".".join(path), params, macs,
                         calls if n_children == len(leaves) == 1 else None)
        if len(path) < max_level:
            yield from _module_rows(cost, path, max_level)
