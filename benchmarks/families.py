"""Comparison of the three families with a plain Transformer of about a million layer weights.

    python benchmarks/families.py --data FILE [--cpu-minutes 5] [--seeds 1 2] [--out runs/families]
        [FAMILY ...]

All use the same data, recipe, CPU-minutes and seeds, with one thread. An interrupted run is
resumed. The table has costs and scores. A single recipe for all shows that each family trains; it
does not rank the papers.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
from plain_loop import corpus_of
from rich.console import Console
from rich.table import Table

from scalesearch.cli.options import load_architecture
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.training import Recipe, Result, train

FAMILIES = ["small/plain", "small/partialformer", "small/anthe", "small/edgeformer"]
HEADINGS = ("family", "layers' params", "params", "MMACs", "updates", "tokens / CPU s",
            "valid loss", "BLEU valid", "BLEU test", "failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=FAMILIES, metavar="FAMILY")
    parser.add_argument("--data", default="builtin", help="a data file, or builtin")
    parser.add_argument("--cpu-minutes", type=float, default=5.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--max-tokens", type=int, default=768)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--length", type=int, default=15,
                        help="of the protocol's source and target")
    parser.add_argument("--out", type=Path, default=Path("runs/families"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus = corpus_of(options)
    recipe = Recipe(cpu_minutes=options.cpu_minutes, lr=options.lr, max_tokens=options.max_tokens,
                    dropout=options.dropout, beam=5, threads=1)
    console = Console(width=160)
    console.print(f"{recipe.describe()}; seeds {options.seeds}; S=T={options.length}, "
                  f"V={corpus.tokenizer.vocab_size:,}")
    rows = []
    for name in options.families:
        architecture = load_architecture(name, ())[1]
        folders = {seed: options.out / f"{name.replace('/', '-')}-seed{seed}" for seed in options.seeds}
        results = [train(architecture, corpus, recipe, folder, seed)
                   for seed, folder in folders.items()]
        rows.append((name,
                     *facts(architecture, results, corpus.tokenizer.vocab_size, options.length)))
        console.print(*rows[-1])
    table = Table(*HEADINGS, box=None)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def facts(architecture: Any, results: list[Result], vocab: int, length: int) -> list[str]:
    """Return the cells of a family: means over seeds, and the spread of several."""
    cost = evaluate_cost(architecture.block, find_protocol("forward", length, length, vocab))
    costs = [f"{cost['params.encoder'] + cost['params.decoder']:,}", f"{cost['params.total']:,}",
             f"{cost['macs.total'] / 1e6:.1f}"]
    done = [result for result in results if result.state == "complete"]
    if not done:
        return [*costs, *["-"] * 5, results[0].reason]
    metrics = [result.metrics for result in done]
    columns = [[result.steps for result in done], [result.tokens_per_cpu_second for result in done],
             [m["validation_loss"] for m in metrics], [m["bleu"] for m in metrics],
             [m["test"]["bleu"] for m in metrics]]
    digits = (0, 0, 3, 2, 2)
    return [*costs, *(over_seeds(values, n) for values, n in zip(columns, digits)),
            str(len(results) - len(done))]


def over_seeds(values: list[float], digits: int) -> str:
    """The mean, and the standard deviation of several."""
    mean = f"{statistics.mean(values):,.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{max(digits, 1)}f}"


if __name__ == "__main__":
    main()
