"""Share of the peak of matrix products that a training step reaches, and its other costs.

    python benchmarks/matmul_peak.py [--data FILE] [--width 512 --depth 6 --heads 8 --hidden 2048]
    [--max-tokens 4096]

One thread. The peak is that of 2048 x 2048 x 2048, measured between the steps. A step's
multiply-adds are those of ``scalesearch.cost`` at each batch's padded lengths, times three:
backward takes two products for each forward one. The output matrix is counted for real target
tokens, since it is run on no others.
"""

import argparse
import statistics
import time
from collections import defaultdict
from typing import Any

import torch
from plain_loop import corpus_of, make_parser
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from scalesearch.cli.options import load_architecture
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.data import Batch, BatchStream
from scalesearch.nn import DropoutRates, build_model
from scalesearch.training import Recipe
from scalesearch.training.hardware import Hardware
from scalesearch.training.updates.engine import Engine

SIDE = 2048
# Groups of PyTorch's operators, by the first that matches an operator's name.
GROUPS = {"matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm",
                              "aten::_scaled_dot", "mkldnn"),
          "softmax": ("aten::_softmax", "aten::logsumexp"),
          "dropout's random numbers": ("aten::random_", "aten::bernoulli", "aten::native_dropout"),
          "norms": ("aten::native_layer_norm",),
          "copies and casts": ("aten::copy_", "aten::cat", "aten::clone", "aten::_to_copy",
                               "aten::index_select"),
          "optimizer": ("aten::_fused_adam", "aten::_foreach", "aten::linalg_vector_norm"),
          "activations, sums, scaling": ("aten::add", "aten::mul", "aten::div", "aten::sum",
                                         "aten::relu", "aten::threshold", "aten::exp", "aten::sub",
                                         "aten::fill_", "aten::zero_")}


class Step:
    """Our engine at one precision, an update at a time; what it did and the CPU-seconds that took."""

    def __init__(self, architecture: Any, corpus: Any, options: argparse.Namespace,
                 precision: str) -> None:
        recipe = Recipe(steps=10**6, max_tokens=options.max_tokens, device="cpu", precision=precision)
        hardware = Hardware.from_recipe(recipe)
        self.block = architecture.block
        self.vocab = corpus.tokenizer.vocab_size
        model = build_model(self.block, vocab=self.vocab, dropout=DropoutRates(options.dropout))
        self.engine = Engine(model.train(), recipe, hardware)
        self.feed = BatchStream(corpus.train, options.max_tokens, 1)

    def update(self) -> tuple[float, int, int]:
        """CPU-seconds of one update, its multiply-adds and its target tokens."""
        batches = self.feed.take(1)
        start = time.process_time()
        float(self.engine.update(batches, 1e-4))
        return time.process_time() - start, 3 * self._macs(batches[0]), batches[0].tokens

    def _macs(self, batch: Batch) -> int:
        """Of one forward pass over all places of a batch, softmax over real target tokens only."""
        full, single = (
            evaluate_cost(self.block,
                          find_protocol("forward", batch.source.shape[1], batch.target_in.shape[1],
                                        vocab)) ["macs.total"] for vocab in (self.vocab, 1))
        output = (full - single) * self.vocab // (self.vocab - 1)
        return len(batch) * (full - output) + output * batch.tokens // batch.target_in.shape[1]


def peak(dtype: torch.dtype) -> float:
    """Multiply-adds a CPU-second of one square product."""
    a, b = (torch.randn(SIDE, SIDE).to(dtype) for _ in range(2))
    start = time.process_time()
    torch.mm(a, b)
    return float(SIDE**3 / (time.process_time() - start))


def profiled(step: Step, updates: int) -> dict[str, float]:
    """Shares of the CPU time of ``updates`` by group of operators."""
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for _ in range(updates):
            step.update()
    spent: dict[str, float] = defaultdict(float)
    for event in trace.key_averages():
        spent[group_of(event.key)] += event.self_cpu_time_total
    total = sum(spent.values())
    return {group: time / total for group, time in sorted(spent.items(), key=lambda item: -item[1])}


def group_of(operator: str) -> str:
    """The group that an operator belongs to; ``other`` if none."""
    if operator.startswith("Optimizer.step") or "_CrossEntropy" in operator:
        return "other"
    return next((group for group, starts in GROUPS.items() if operator.startswith(starts)), "other")


def main() -> None:
    parser = make_parser()
    parser.set_defaults(width=512, depth=6, heads=8, hidden=2048, max_tokens=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profiled", type=int, default=1, help="updates under the profiler")
    parser.add_argument("--precisions", default="fp32,bf16")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = ["heads", "depth", "ffn.relu.hidden"]
    settings = [f"{stack}.{key}={getattr(options, key.split('.')[-1])}" for key in sizes
                for stack in ("encoder", "decoder")]
    architecture = load_architecture("transformer",
                                     (f"width={options.width}", "norm=pre", *settings))[1]
    corpus = corpus_of(options)
    table = Table(box=None)
    table.title = (f"{options.depth}-{options.depth} layers, width {options.width}, FFN {options.hidden}, "
                   f"{options.max_tokens} tokens per batch, one thread")
    for heading in ("", "peak GFLOP/s", "step GFLOP/s", "share", "tokens / CPU s"):
        table.add_column(heading, justify="right" if heading else "left")
    for precision in options.precisions.split(","):
        step = Step(architecture, corpus, options, precision)
        table.add_row(precision, *measured(step, precision, options.rounds))
        shares = profiled(step, options.profiled)
        print(f"{precision}: "
              + ", ".join(f"{group} {share:.0%}"
                          for group, share in shares.items() if share >= 0.005))
    Console().print(table)


def measured(step: Step, precision: str, rounds: int) -> list[str]:
    """Peak and updates in turns: the row's cells, of medians."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    peak(dtype), step.update()
    peaks = []
    speeds = []
    tokens = []
    for _ in range(rounds):
        peaks.append(peak(dtype))
        cpu, macs, n_tokens = step.update()
        speeds.append(macs / cpu)
        tokens.append(n_tokens / cpu)
    best = statistics.median(peaks)
    speed = statistics.median(speeds)
    return [f"{2e-9 * best:,.0f}", f"{2e-9 * speed:,.0f}", f"{speed / best:.0%}",
            f"{statistics.median(tokens):,.0f}"]


if __name__ == "__main__":
    main()
