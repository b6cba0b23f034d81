"""Verify costs with parameters of PyTorch and products of two tracers.

The tracers run on the meta device, so that the model needs no memory.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from scalesearch.blocks.core import Block, CostLine, iterate_cost_lines
from scalesearch.blocks.norms import LayerNorm
from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.cost.breakdown import work_steps
from scalesearch.cost.protocol import DEFAULT_WORK_WEIGHTS
from scalesearch.library import import_errors_named
from scalesearch.nn.build import build_model
from scalesearch.nn.model import Seq2SeqModel

NORM_STEPS = 5  # count of fvcore per element of a LayerNorm with a gain, and 4 without


@dataclass(frozen=True)
class CostCheck:
    """A computed cost and the result of a counter.

    Attributes:
        quantity: what is counted.
        counter: name of the counter.
        expected: the computed cost.
        measured: the result of the counter.
        explained: the part of ``measured`` that the cost does not include.
        explanation: what this part is.
    """

    quantity: str
    counter: str
    expected: int
    measured: int
    explained: int = 0
    explanation: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether the cost is exactly the measured number without the explained part."""
        return self.expected == self.measured - self.explained


def verify_costs(block: Block, source: int, target: int, vocab: int,
                 length: int | None = None, with_fvcore: bool = True) -> list[CostCheck]:
    """Compare parameters and MACs of a teacher-forced pass with PyTorch and fvcore.

    Args:
        block: block of a whole model.
        source: source tokens.
        target: target tokens.
        vocab: size of the vocabulary.
        length: see :func:`~scalesearch.cost.protocol.find_protocol`; replaces both lengths.
        with_fvcore: whether to compare with fvcore, which is an extra, as well as with PyTorch.
    """
    protocol = find_protocol("forward", source, target, vocab, length)
    has_source = protocol.has_prompt or not isinstance(block, DecoderOnly)
    costs = evaluate_cost(block, protocol)
    model = build_model(block, vocab=vocab, device="meta").eval().requires_grad_(False)
    model.set_attention("products")  # fvcore does not count fused attention
    inputs = tuple(torch.zeros(1, length, dtype=torch.long, device="meta")
                   for length in (protocol.source if has_source else 0, protocol.target))
    lines = with_all_experts(iterate_cost_lines(block, vocab=vocab))
    # fvcore counts no other norms than LayerNorm.
    norm_steps = sum(work_steps(line, "norm", protocol) * (NORM_STEPS - (not line.weights))
                     for line in lines if isinstance(line.block, LayerNorm))
    unused = sum(work_steps(line, work, protocol) for line in lines
                 for work in DEFAULT_WORK_WEIGHTS) - costs["macs.total"]
    dense = evaluate_cost(block, replace(protocol, dense_windows=True))
    once = costs["macs.once"]
    outside = dense["macs.total"] - costs["macs.total"]
    numel = sum(weight.numel() for weight in model.parameters())
    reasons = [f"{once:,} on weights only, computed before inference"] * bool(once)
    reasons += [f"{outside:,} of scores outside windows"] * bool(outside)
    reasons += [f"{unused:,} of experts that a token does not use"] * bool(unused)
    reason = "; ".join(reasons)
    explanation = "; ".join([*[f"{norm_steps:,} in LayerNorms"] * bool(norm_steps), *reasons])
    checks = [CostCheck("params", "torch", costs["params.total"], numel),
              CostCheck("MACs", "torch", costs["macs.total"],
                        flop_counter_macs(model, inputs), once + outside + unused, reason)]
    if with_fvcore:
        checks.append(CostCheck("MACs", "fvcore", costs["macs.total"], fvcore_macs(model, inputs),
                                norm_steps + once + outside + unused, explanation))
    return checks


def with_all_experts(lines: Iterable[CostLine]) -> list[CostLine]:
    """Return lines in which all experts of a mixture have calls.

    Without numbers, as on the meta device, routing is unknown and all experts run.
    """
    counted = list(lines)
    names = [re.sub(r"expert_\d+", "expert", line.path) for line in counted]
    calls: dict[str, int] = defaultdict(int)
    for name, line in zip(names, counted):
        calls[name] = max(calls[name], line.calls)
    return [replace(line, calls=calls[name]) for name, line in zip(names, counted)]


def flop_counter_macs(model: Seq2SeqModel, inputs: tuple[Tensor, ...]) -> int:
    """Return multiply-adds of the FLOP counter of PyTorch: half of its FLOPs."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*inputs)
    return counter.get_total_flops() // 2


def fvcore_macs(model: Seq2SeqModel, inputs: tuple[Tensor, ...]) -> int:
    """Return the count of fvcore.

    It counts one per multiply-add, and some per element of a norm.

    Raises:
        UserError: fvcore is not installed.
    """
    with import_errors_named():
        from fvcore.nn import FlopCountAnalysis
    analysis = FlopCountAnalysis(
        model, inputs).unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return round(analysis.tracer_warnings("none").total())
