"""Speed of each family, compared with a plain Transformer of equal MACs.

    python benchmarks/family_speed.py [--data FILE] [--rounds 5] [--updates 6] [FAMILY ...]

A FAMILY is an architecture file or a shipped name (small/partialformer, small/anthe and
small/edgeformer unless given). The plain one has its width, depths and tying; the hidden
size of its feed-forward networks makes the MACs equal. Both take turns in one process, one thread;
the ratios are of medians of target tokens per CPU-second in training, and of sentences of --length
tokens, 64 at once, decoded greedily in float32 from random weights.
"""

import argparse
import statistics
import time
from typing import Any

import torch
from plain_loop import corpus_of
from rich.console import Console
from rich.table import Table

from scalesearch.cli.options import load_architecture
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.data import BatchStream, Corpus
from scalesearch.nn import DropoutRates, build_model
from scalesearch.nn.decode import greedy_search
from scalesearch.training import Recipe
from scalesearch.training.hardware import Hardware
from scalesearch.training.updates.engine import Engine

FAMILIES = ["small/partialformer", "small/anthe", "small/edgeformer"]


class Contestant:
    """One architecture in the training engine, run update by update."""

    def __init__(self, architecture: Any, corpus: Corpus, options: argparse.Namespace) -> None:
        recipe = Recipe(steps=10**6, max_tokens=options.max_tokens, device="cpu",
                        precision=options.precision)
        hardware = Hardware.from_recipe(recipe)
        model = build_model(architecture.block, vocab=corpus.tokenizer.vocab_size,
                            dropout=DropoutRates(options.dropout))
        self.engine = Engine(model.train(), recipe, hardware)
        self.feed = BatchStream(corpus.train, options.max_tokens, 1)
        self.speeds: list[float] = []
        self.decoding: list[float] = []
        self.untrained = build_model(architecture.block, vocab=corpus.tokenizer.vocab_size).eval()

    def decode(self, source: torch.Tensor) -> None:
        start = time.process_time()
        with torch.inference_mode():
            greedy_search(self.untrained, source, max_length=source.shape[1])
        self.decoding.append(len(source) / (time.process_time() - start))

    def round(self, updates: int) -> None:
        tokens = 0
        start = time.process_time()
        for _ in range(updates):
            batches = self.feed.take(1)
            self.engine.update(batches, 1e-4)
            tokens += batches[0].tokens
        self.speeds.append(tokens / (time.process_time() - start))

    @property
    def speed(self) -> tuple[float, float]:
        """In training and in decoding; the first round warms up."""
        return statistics.median(self.speeds[1:]), statistics.median(self.decoding[1:])


def plain_like(architecture: Any, vocab: int, length: int) -> Any:
    """A plain Transformer of ``architecture``'s width, depths, norm and tying, and as nearly its MACs as may be."""
    a = architecture.config
    same = ["width", "norm", "embedding.tie", "encoder.depth", "decoder.depth"]
    settings = [f"{name}={a[name]}" for name in same]
    heads = next(n for n in (8, 4, 2, 1) if a["width"] % n == 0)
    settings += [f"{stack}.heads={heads}" for stack in ("encoder", "decoder")]
    protocol = find_protocol("forward", length, length, vocab)

    def make(hidden: int) -> Any:
        sizes = [f"{stack}.ffn.relu.hidden={hidden}" for stack in ("encoder", "decoder")]
        return load_architecture("transformer", (*settings, *sizes))[1]

    macs_1, macs_2 = (evaluate_cost(make(hidden).block, protocol)["macs.total"] for hidden in (1, 2))
    target_macs = evaluate_cost(architecture.block, protocol)["macs.total"]
    return make(max(1, round(1 + (target_macs - macs_1) / (macs_2 - macs_1))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=FAMILIES, metavar="FAMILY")
    parser.add_argument("--data", default="builtin", help="a data file, or builtin")
    for name, value in (("rounds", 5), ("updates", 6), ("max-tokens", 1024), ("length", 15)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32", "bf16"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus = corpus_of(options)
    table = Table(title=f"{options.max_tokens} tokens per batch, dropout {options.dropout:g}, one thread",
                  box=None)
    headings = ("family", "MMACs", "plain MMACs", "tokens / CPU s", "plain", "plain / family",
                "sentences / CPU s", "plain", "plain / family")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "family" else "right")
    for name in options.families:
        table.add_row(name, *compare(load_architecture(name, ())[1], corpus, options))
    Console(width=140).print(table)


def compare(family: Any, corpus: Corpus, options: argparse.Namespace) -> list[str]:
    """The row of one family, after its name."""
    vocab = corpus.tokenizer.vocab_size
    pair = [family, plain_like(family, vocab, options.length)]
    protocol = find_protocol("forward", options.length, options.length, vocab)
    macs = [f"{evaluate_cost(architecture.block, protocol)['macs.total'] / 1e6:.2f}"
            for architecture in pair]
    contestants = [Contestant(architecture, corpus, options) for architecture in pair]
    source = torch.randint(4, vocab, (64, options.length), generator=torch.Generator().manual_seed(1))
    for _ in range(options.rounds + 1):
        for contestant in contestants:
            contestant.round(options.updates)
            contestant.decode(source)
    speeds = zip(*(contestant.speed for contestant in contestants))
    cells = ((f"{family_speed:,.0f}", f"{plain:,.0f}", f"{plain / family_speed:.2f}") for family_speed, plain in speeds)
    return [*macs, *(cell for three in cells for cell in three)]


if __name__ == "__main__":
    main()
