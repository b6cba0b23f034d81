"""Training speed: the trainer of scalesearch and ``torch.nn.Transformer`` in a plain loop, in turns in one process.

    python benchmarks/train_speed.py [--data FILE] [--rounds 5] [--updates 6]

Same shape, batches, dropout and optimizer settings, one thread. Prints target tokens a CPU-second:
the median of the rounds, and the lowest and highest.
"""

import statistics
import time
from typing import Any

import torch
from plain_loop import Trainer, corpus_of, make_parser, shape_of
from rich.console import Console
from rich.table import Table

from scalesearch.cli.options import load_architecture
from scalesearch.data import BatchStream, Corpus
from scalesearch.nn import DropoutRates, build_model
from scalesearch.training import Recipe
from scalesearch.training.hardware import Hardware
from scalesearch.training.updates.engine import Engine


class ScalesearchTrainer:
    """The training engine, with a count of tokens and CPU-seconds."""

    def __init__(self, corpus: Corpus, shape: dict[str, Any], max_tokens: int) -> None:
        recipe = Recipe(steps=10**6, max_tokens=max_tokens, device="cpu", precision="fp32",
                        dropout=shape["dropout"])
        hardware = Hardware.from_recipe(recipe)
        # nn.Transformer drops attention weights and activations at the same rate, so does this model.
        rates = DropoutRates(shape["dropout"], shape["dropout"], shape["dropout"])
        model = build_model(_architecture(shape).block, vocab=corpus.tokenizer.vocab_size, seed=1,
                            dropout=rates)
        self.engine = Engine(model.train(), recipe, hardware)
        self.feed = BatchStream(corpus.train, max_tokens, 1)
        self.tokens = 0
        self.cpu = 0.0

    def update(self, position: float) -> None:
        start = time.process_time()
        batches = self.feed.take(1)
        self.engine.update(batches, 1e-4)
        self.tokens += batches[0].tokens
        self.cpu += time.process_time() - start


def _architecture(shape: dict[str, Any]) -> Any:
    sizes = {"width": "width", "depth": "{}.depth", "heads": "{}.heads", "hidden": "{}.ffn.hidden"}
    settings = [f"{path.format(stack)}={shape[name]}" for stack in ("encoder", "decoder")
                for name, path in sizes.items()]
    return load_architecture("transformer", tuple(dict.fromkeys(settings)))[1]


def main() -> None:
    parser = make_parser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus = corpus_of(options)
    shape = shape_of(options)
    contestants = {
        "torch.nn.Transformer, plain loop": Trainer(corpus, shape, 1e-4, options.max_tokens),
        "scalesearch": ScalesearchTrainer(corpus, shape, options.max_tokens)}
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(options.rounds + 1):
        for name, contestant in contestants.items():
            contestant.tokens = 0
            contestant.cpu = 0.0
            for _ in range(options.updates):
                contestant.update(0.5)
            if turn:  # the first warms up
                speeds[name].append(contestant.tokens / contestant.cpu)
    show(speeds, options)


def show(speeds: dict[str, list[float]], options: Any) -> None:
    """The table."""
    layers = f"{options.depth}-{options.depth} layers, width {options.width}, FFN {options.hidden}"
    table = Table(title=f"{layers}, {options.max_tokens} "
                  f"tokens per batch, dropout {options.dropout:g}, fp32, one thread", box=None)
    for heading in ("", "tokens / CPU s", "lowest", "highest", "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    base = statistics.median(next(iter(speeds.values())))
    for name, values in speeds.items():
        middle = statistics.median(values)
        table.add_row(name, *(f"{value:,.0f}" for value in (middle, min(values), max(values))),
                      f"{middle / base:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
