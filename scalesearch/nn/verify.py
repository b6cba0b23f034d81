"""Costs from independent counters: PyTorch's parameters, and products as two tracers see them.

The counters check the ledger; they never feed it. Both run on the meta device, so the model is
never allocated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from scalesearch.blocks.core import Block, iterate_cost_lines
from scalesearch.blocks.norms import LayerNorm
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.cost.breakdown import work_steps
from scalesearch.errors import UserError
from scalesearch.library import install_command
from scalesearch.nn.build import build_model
from scalesearch.nn.model import Seq2SeqModel

NORM_STEPS = 5  # what fvcore counts for each element of a LayerNorm with gain and bias


@dataclass(frozen=True)
class CostCheck:
    """One number of ours beside a counter's.

    ``explained`` is the part of ``measured`` that is no matrix product.
    """

    quantity: str
    counter: str
    expected: int
    measured: int
    explained: int = 0
    explanation: str = ""

    @property
    def is_equal(self) -> bool:
        """True if the two are equal to the unit, less what the counter adds."""
        return self.expected == self.measured - self.explained


def verify_costs(block: Block, source: int, target: int, vocab: int) -> list[CostCheck]:
    """Params and MACs of one teacher-forced pass, ours against PyTorch's and fvcore's."""
    protocol = find_protocol("forward", source, target, vocab)
    ours = evaluate_cost(block, protocol)
    model = build_model(block, vocab=vocab, device="meta").eval().requires_grad_(False)
    inputs = tuple(torch.zeros(1, length, dtype=torch.long, device="meta")
                   for length in (source, target))
    norms = sum(work_steps(line, "norm", protocol) for line in iterate_cost_lines(block, vocab=vocab)
                if isinstance(line.block, LayerNorm))  # fvcore counts no other kind
    once = ours["macs.once"]
    numel = sum(weight.numel() for weight in model.parameters())
    traced = fvcore_macs(model, inputs)
    alone = f"{once:,} on weights alone, which come before inference" if once else ""
    why = f"{NORM_STEPS} for each of {norms:,} LayerNorm elements" + (f"; {alone}" if alone else "")
    return [CostCheck("params", "torch", ours["params.total"], numel),
            CostCheck("MACs", "FlopCounterMode " "/ 2", ours["macs.total"],
                      flop_counter_macs(model, inputs), once, alone),
            CostCheck("MACs", "fvcore", ours["macs.total"], traced, NORM_STEPS * norms + once, why)]


def flop_counter_macs(model: Seq2SeqModel, inputs: tuple[Tensor, ...]) -> int:
    """Multiply-adds that PyTorch's counter sees: half its FLOPs."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*inputs)
    return counter.get_total_flops() // 2


def fvcore_macs(model: Seq2SeqModel, inputs: tuple[Tensor, ...]) -> int:
    """fvcore's flops: one for each multiply-add, and a few for each element of a norm.

    Attention runs as products for this count, since fvcore passes over fused attention.

    Raises:
        UserError: fvcore is not installed.
    """
    try:
        from fvcore.nn import FlopCountAnalysis
    except ImportError as error:
        raise UserError(f"fvcore is not installed: {install_command('verify')}",
                        code="package-missing") from error
    model.set_attention("products")
    analysis = FlopCountAnalysis(
        model, inputs).unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return round(analysis.tracer_warnings("none").total())
