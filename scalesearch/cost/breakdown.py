"""The ledger of a model's costs: weights and work of every leaf, and their sums.

Exact integers throughout. A leaf's work is a sum of monomials in the protocol's axes, so the same
ledger answers for any protocol.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scalesearch.blocks.core import Axis, Block, CostLine, Shape, Size, iterate_cost_lines
from scalesearch.cost.artifact import artifact_bytes
from scalesearch.cost.latency import predict_latency
from scalesearch.cost.load import load_balance
from scalesearch.cost.protocol import ELEMENTWISE_WORK, Protocol, training_protocol, weight_numel
from scalesearch.errors import UserError
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.space.schema.cost_names import ARTIFACT_FORMATS, COST_PARTS

QUANTITIES = ("params", "macs", "flops")
FLOAT32_BYTES = 4  # of a number in float32, in which memory is stated


@dataclass(frozen=True)
class LeafCost:
    """One leaf: path, calls a pass, weights (unique) and work under a protocol."""

    path: str
    block_type: str
    calls: Size
    params: Size
    macs: Size


@dataclass(frozen=True)
class CostBreakdown:
    """Costs of an architecture under a protocol; ``cost["params.total"]`` is an exact int.

    ``cost["load.balance"]`` and its like say how evenly shared weights are used: see
    :mod:`scalesearch.cost.load`.
    """

    protocol: Protocol
    leaf_costs: tuple[LeafCost, ...]
    values: Mapping[str, int]
    block: Block

    @cached_property
    def load_balance(self) -> Mapping[str, float]:
        """Uses of weights in one pass: ``load.mean``, ``load.balance``, ``load.min``, ``load.max``."""
        return load_balance(self.block)

    @cached_property
    def latency(self) -> Mapping[str, float]:
        """``latency.predicted``, ms a sentence, where the protocol has a fit."""
        return ({"latency.predicted": predict_latency(self.block, self.protocol)}
                if self.protocol.latency_model_path else {})

    def __getitem__(self, name: str) -> int | float:
        if name == "artifact.bytes" and name not in self.values:
            raise UserError("artifact.bytes: of which format?",
                            help=f"protocol: {{artifact: …}} "
                            f"or --artifact, one of {', '.join(ARTIFACT_FORMATS)}",
                            code="artifact-format-missing")
        # parts that this format cannot hold: 0 where it takes the architecture
        if name == "refusals.ctranslate2":
            return len(find_unsupported_parts(self.block))
        if name == "latency.predicted" and not self.latency:
            raise UserError("latency.predicted: by which fit?",
                            help="protocol: {latency: "
                            "FIT.json} or --latency; `scalesearch latency calibrate` writes one",
                            code="no-latency-fit")
        return (self.load_balance if name.startswith("load.") else self.latency
                if name.startswith("latency.") else self.values)[name]

    def to_json(self) -> dict[str, Any]:
        """``params``, ``macs``, ``flops``, ``memory`` (bytes) and ``load`` by section, and the protocol."""
        nested: dict[str, Any] = {}
        for name, value in {**self.values, **self.load_balance, **self.latency}.items():
            group, _, section = name.partition(".")
            nested.setdefault(group, {})[section] = value
        return nested | {"refusals": {"ctranslate2": self["refusals.ctranslate2"]},
                         "protocol": self.protocol.to_json()}


def evaluate_cost(block: Block, protocol: Protocol) -> CostBreakdown:
    """Params, MACs, FLOPs and memory of ``block`` under ``protocol``.

    FLOPs are two for each multiply-add, and one for each other step that a protocol counts (of
    norms, of biases).

    ``macs.once`` is work on weights alone, such as contracting a tensor chain: done once for a
    batch in training and once and for all for inference. It stands beside the total, unless the
    protocol counts it.
    """
    lines = list(iterate_cost_lines(block, vocab=protocol.shared_vocab))
    entries = tuple(_leaf_cost(line, protocol) for line in lines if _has_cost(line))
    values: dict[str, int] = {}
    for quantity in ("params", "macs"):
        values |= _by_section(quantity,
                              ((entry.path, getattr(entry, quantity)) for entry in entries))
    single = protocol.work_weights.keys() & set(ELEMENTWISE_WORK)
    others = _by_section(
        "others", ((line.path, _steps(line, protocol, single)) for line in lines)) if single else {}
    for section in COST_PARTS:
        values[f"flops.{section}"] = 2 * values[f"macs.{section}"] - others.get(
            f"others.{section}", 0)
    once = training_protocol(protocol)
    values["macs.once"] = sum(work_steps(line, "once", once) for line in lines)
    values |= _memory(lines, values["params.total"], once)
    if protocol.artifact is not None:
        values["artifact.bytes"] = artifact_bytes(block, protocol)
    return CostBreakdown(protocol, entries, values, block)


def _has_cost(line: CostLine) -> bool:
    """True if there is more to a line than what it keeps for the backward pass."""
    return bool(line.weights) or any(work.operation != "activation" for work in line.loop_nests)


def _leaf_cost(line: CostLine, protocol: Protocol) -> LeafCost:
    params = sum(line.weight_copies[name] * weight_numel(shape, protocol)
                 for name, shape in line.weights.items())
    return LeafCost(line.path, type(line.block).__name__, line.calls, params,
                    _steps(line, protocol, protocol.work_weights))


def _steps(line: CostLine, protocol: Protocol, work_types: Iterable[str]) -> Size:
    """Steps of these kinds of work, as many for each as the protocol weighs it."""
    return sum(protocol.work_weights[kind] * work_steps(line, kind, protocol)
               for kind in work_types)


def work_steps(line: CostLine, work_type: str, protocol: Protocol) -> Size:
    """Steps of ``work_type`` that a leaf does under ``protocol``, over all its calls."""
    total = 0
    for work in line.loop_nests:
        if work.operation == work_type:
            axes, coefficient = split_loops(work.loops)
            total = total + coefficient * protocol.extent(axes)
    return total * line.calls


def split_loops(loops: Shape) -> tuple[tuple[Axis, ...], Size]:
    """A loop nest as its axes, sorted, and the product of its sizes."""
    axes = tuple(sorted(extent for extent in loops if isinstance(extent, str)))
    return axes, math.prod(extent for extent in loops if not isinstance(extent, str))


def _by_section(quantity: str, items: Iterable[tuple[str, Size]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for path, value in items:
        section = path.split(".", 1)[0]
        # not in place: a population's sizes are arrays that others hold, too
        sums[section] = sums[section] + value
    total = sum(sums.values())
    by_name = {"total": total, "non_embedding": total - sums["embedding"]} | sums
    return {f"{quantity}.{section}": by_name.get(section, 0) for section in COST_PARTS}


def _memory(lines: list[CostLine], params: Size, forward_protocol: Protocol) -> dict[str, int]:
    """Bytes in float32: weights; the key-value cache after T tokens; an estimate of what backward keeps."""
    kept = {kind: sum(work_steps(line, kind, forward_protocol) for line in lines)
            for kind in ("cache", "activation")}
    numbers = {"weights": params, "cache": kept["cache"], "activations": kept["activation"]}
    return {f"memory.{name}": FLOAT32_BYTES * count for name, count in numbers.items()}
