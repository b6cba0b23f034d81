"""Costs of single candidates: scalesearch, FlopCounterMode and fvcore, in one run.

    python benchmarks/cost_one.py [--candidates 5]

The time of scalesearch is from parameters to MACs and params. That of the counters is from a built
model on the meta device to the total; building it is timed separately. Each line also shows whether
the totals are equal.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.nn import build_model
from scalesearch.nn.verify import flop_counter_macs, fvcore_macs
from scalesearch.spaces import read_space
from scalesearch.spaces.assembly.architecture import assemble

S = 30
T = 30
V = 32000


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds of ``repeats`` calls, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def measure(config: dict[str, Any]) -> dict[str, tuple[float, Any]]:
    """Seconds and total of each counter for one candidate."""
    protocol = find_protocol("forward", S, T, V)
    block = assemble(config).block
    inputs = tuple(torch.zeros(1, n, dtype=torch.long, device="meta") for n in (S, T))
    model = build_model(block, vocab=V, device="meta").eval()
    return {
        "scalesearch": timed(lambda: evaluate_cost(assemble(config).block, protocol), 50),
        "build on meta": timed(lambda: build_model(block, vocab=V, device="meta"), 3),
        "FlopCounterMode": timed(lambda: flop_counter_macs(model, inputs), 3),
        "fvcore": timed(lambda: fvcore_macs(model, inputs), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--candidates", type=int, default=5, help="depths 6-6, 7-6, … at width 512")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    space = read_space("spaces/transformer.yaml")
    totals: dict[str, list[float]] = {}
    for extra in range(arguments.candidates):
        rows = measure(dict(space.with_overrides({"encoder.depth": str(6 + extra)}).resolve(lambda path, parameter: None)))
        for name, (seconds, _) in rows.items():
            totals.setdefault(name, []).append(seconds)
        macs = rows["scalesearch"][1]["macs.total"]
        counted = rows["FlopCounterMode"][1]
        print(f"{6 + extra}-6: scalesearch {macs:,} MACs, FlopCounterMode {counted:,} (equal: "
              f"{macs == counted}), fvcore {rows['fvcore'][1]:,} (adds 5 per LayerNorm element)")
    base = statistics.median(totals["scalesearch"])
    print(f"\nmedian of {arguments.candidates} candidates, one thread, S={S} T={T} V={V}")
    for name, seconds in totals.items():
        median = statistics.median(seconds)
        print(f"{name:16s} {median * 1e3:9.3f} ms   {median / base:8.1f}x")


if __name__ == "__main__":
    main()
