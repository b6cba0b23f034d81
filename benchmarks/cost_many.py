"""Costs of populations: scalesearch, fvcore and FlopCounterMode in one run.

    python benchmarks/cost_many.py [--rows 2000000] [--rounds 3]

Two families: a dense Transformer of free depths, widths, heads and FFN sizes; and one with tensor
chains, shared layers and conditional variants (gates, FFN kinds, H-SoftPOS), whose candidates come
mixed. Params and MACs by the selectors listed; candidates a second of wall time on all cores, and
of CPU time. The counters build each model on meta first.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from scalesearch.cost import find_protocol
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.nn import build_model
from scalesearch.nn.verify import flop_counter_macs, fvcore_macs
from scalesearch.spaces.assembly.architecture import assemble

NAMES = ("params.total", "params.non_embedding", "params.encoder", "params.decoder",
         "params.embedding", "macs.total", "macs.encoder", "macs.decoder", "macs.output")
PROTOCOL = find_protocol("forward", 30, 30, 32000)
PLAIN: dict[str, Any] = {"model": "encoder-decoder", "norm": "pre", "embedding.tie": "all",
                         "embedding.positions": "sinusoidal", "embedding.max_length": 1024,
                         "share.norms": "own", "share.biases": "follow",
                         "decoder.interleaved": False, "tensor_chain.apply": "auto",
                         "tensor_chain.bond": "solved", "tensor_chain.length": 2}


def dense(rows: int, rng: np.random.Generator) -> dict[str, Any]:
    """Sizes of a plain Transformer."""
    sizes = PLAIN | {"width": rng.integers(64, 1024, rows)}
    for stack in ("encoder", "decoder"):
        heads = rng.integers(1, 17, rows)
        sizes |= {f"{stack}.depth": rng.integers(1, 25, rows), f"{stack}.heads": heads,
                  f"{stack}.score_heads": heads, f"{stack}.head_dim": rng.integers(8, 129, rows),
                  f"{stack}.ffn": "relu", f"{stack}.ffn.hidden": rng.integers(64, 4096, rows)}
    return sizes


def mixed(rows: int, rng: np.random.Generator) -> list[tuple[dict[str, Any], int]]:
    """Sixteen structures with chains, sharing and variants, an equal part each."""
    sizes = []
    part = rows // 16
    for kind in range(16):
        a = dense(part, rng)
        head_dim = 64
        for stack in ("encoder", "decoder"):
            heads = rng.integers(1, 17, part)
            a |= {f"{stack}.heads": heads, f"{stack}.score_heads": heads,
                  f"{stack}.head_dim": head_dim}
        a["width"] = a["encoder.heads"] * head_dim
        a["share.encoder.ffn"] = ("own", "cycle(2)")[kind & 1]
        a["share.encoder.attention"] = ("one", "cycle(4)")[kind & 1]
        a |= {"encoder.gate": ("none", "QgV")[kind >> 1 & 1],
              "encoder.ffn": ("relu", "swiglu")[kind >> 1 & 1]}
        a["tensor_chain.attention"] = rng.choice([0.05, 0.1, 0.2, 0.4], part)
        a["tensor_chain.length"] = 2 + (kind >> 2 & 1)
        a |= {"tensor_chain.ffn": rng.choice([0.05, 0.1, 0.2, 0.4], part)} if kind >> 3 & 1 else {}
        if kind >> 2 & 1:
            a |= {"embedding": "h-softpos", "embedding.levels": 2, "embedding.tie": "none"}
            a["embedding.level_width"] = a["embedding.roles"] = a["width"] // 4
        sizes.append((a, part))
    return sizes


def timed(run: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median wall and CPU seconds."""
    walls = []
    cpus = []
    for _ in range(rounds):
        wall = time.perf_counter()
        cpu = time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus)


def one_by_one(population: list[tuple[dict[str, Any], int]], counter: Callable[[Any, Any], int],
               count: int) -> float:
    """Return wall seconds per candidate to build and count PyTorch modules."""
    start = time.perf_counter()
    for n in range(count):
        a, rows = population[n % len(population)]
        drawn = {key: value[n % rows].item() if isinstance(value, np.ndarray) else value
                 for key, value in a.items()}
        model = build_model(assemble(drawn).block, vocab=PROTOCOL.vocab,
                            device="meta").eval().requires_grad_(False)
        ids = tuple(torch.zeros(1, 30, dtype=torch.long, device="meta") for _ in range(2))
        counter(model, ids)
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counted", type=int, default=10, help="candidates for the counters")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    families = {"dense": [(dense(options.rows, rng), options.rows)],
                "chains, sharing, variants": mixed(options.rows, rng)}
    table = Table(title=f"{options.rows:,} candidates, {len(NAMES)} selectors, {PROTOCOL}", box=None)
    for heading in ("family", "scalesearch / s", "scalesearch / CPU s", "FlopCounterMode / s", "ratio",
                    "fvcore / s", "ratio "):
        table.add_column(heading, justify="right" if heading != "family" else "left")
    for name, population in families.items():
        wall, cpu = timed(lambda p=population: [evaluate_population_costs(a, rows, PROTOCOL, NAMES)
                                                for a, rows in p], options.rounds)
        speed = options.rows / wall
        peers = [1 / one_by_one(population, counter, options.counted)
                 for counter in (flop_counter_macs, fvcore_macs)]
        cells = [cell for peer in peers for cell in (f"{peer:.1f}", f"{speed / peer:,.0f}x")]
        table.add_row(name, f"{speed:,.0f}", f"{options.rows / cpu:,.0f}", *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
