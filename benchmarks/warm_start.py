"""Seconds from the start of a candidate to its first update, in a worker that has imported everything and has its data.

    python benchmarks/warm_start.py [--data FILE] [--rounds 3] [--max-tokens 1024] [ARCHITECTURE
    ...]

One thread, CPU-seconds. The stages are those of ``scalesearch.training.train``: read the architecture,
build and initialize, causality check, engine and optimizer, plan and pad the first batch, first
update; ``save`` is the first checkpoint, which comes before the update so that a divergence has
something to go back to.
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from plain_loop import corpus_of
from rich.console import Console
from rich.table import Table

from scalesearch.cli.options import load_architecture
from scalesearch.data import BatchStream, Corpus
from scalesearch.nn import DropoutRates, build_model
from scalesearch.nn.causality import check_causality
from scalesearch.training import Recipe
from scalesearch.training.checkpoint import save_state
from scalesearch.training.hardware import Hardware
from scalesearch.training.updates.engine import Engine

CANDIDATES = ["small/plain", "small/partialformer", "small/anthe", "small/edgeformer"]
STAGES = ("read", "build", "causality", "engine", "save", "batch", "update")


class Watch:
    """CPU-seconds by stage."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def __call__(self, stage: str, work: Callable[[], Any]) -> Any:
        """Return the result of ``work``, and record its time."""
        start = time.process_time()
        value = work()
        self.spent[stage] = time.process_time() - start
        return value


def start(name: str, corpus: Corpus, recipe: Recipe, folder: Path) -> dict[str, float]:
    """CPU-seconds of each stage of one candidate."""
    watch = Watch()
    vocab = corpus.tokenizer.vocab_size
    architecture = watch("read", lambda: load_architecture(name, ())[1])
    hardware = Hardware.from_recipe(recipe)
    rates = DropoutRates(recipe.dropout)
    model = watch("build", lambda: build_model(architecture.block, vocab=vocab, dropout=rates))
    watch("causality", lambda: check_causality(model, vocab))
    engine = watch("engine", lambda: Engine(model.train(), recipe, hardware))
    watch("save",
          lambda: save_state(folder,
                             {"model": model.state_dict(),
                              "optimizer": engine.state()["optimizer"]}))
    batches = watch("batch", lambda: BatchStream(corpus.train, recipe.max_tokens, 1).take(1))
    watch("update", lambda: float(engine.update(batches, 1e-4)))
    return watch.spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="*", default=CANDIDATES, metavar="ARCHITECTURE")
    parser.add_argument("--data", default="builtin", help="a data file, or builtin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=1024)
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus = corpus_of(options)
    recipe = Recipe(steps=1, max_tokens=options.max_tokens, device="cpu")
    value: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        # the worker's first candidate is what warms it
        start(options.candidates[0], corpus, recipe, Path(folder))
        for _ in range(options.rounds):
            for name in options.candidates:
                value[name].append(start(name, corpus, recipe, Path(folder)))
    table = (Table(title=f"CPU-seconds to the first update, {options.max_tokens} tokens per batch, one "
                   "thread", box=None))
    for heading in ("architecture", *STAGES, "all"):
        table.add_column(heading, justify="left" if heading == "architecture" else "right")
    for name, rounds in value.items():
        middle = [statistics.median(spent[stage] for spent in rounds) for stage in STAGES]
        table.add_row(name, *(f"{seconds:.2f}" for seconds in (*middle, sum(middle))))
    Console().print(table)


if __name__ == "__main__":
    main()
