"""Our trainer and decoder, as ``worker.py`` runs them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scalesearch.cli.options import load_architecture
from scalesearch.data import EOS, BatchStream
from scalesearch.nn import DropoutRates, build_model
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.training import Recipe
from scalesearch.training.hardware import Hardware
from scalesearch.training.input_files import load_data
from scalesearch.training.updates.engine import Engine


class System:
    """Engine and feed of the trainer; ``precision`` of the job is a recipe's."""

    def __init__(self, job: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        corpus = load_data(job["data"])
        recipe = Recipe(steps=10**6, max_tokens=job["max_tokens"], precision=job["precision"],
                        device="cpu")
        self.hardware = Hardware.from_recipe(recipe)
        inner = job["dropout"] if job["inner_dropout"] else 0.0
        self.model = build_model(architecture(job).block, vocab=corpus.tokenizer.vocab_size, seed=1,
                           dropout=DropoutRates(job["dropout"], inner, inner))
        self.engine = Engine(self.model.train(), recipe, self.hardware)
        self.feed = BatchStream(corpus.train, job["max_tokens"], 1)
        self.length = job["length"]
        self.source = torch.tensor(
            [[*map(int, line.split()), EOS]
             for line in Path(job["folder"], "sources").read_text().splitlines()])
        self.sentence_by_sentence = job["batch"] == 1

    def update(self) -> int:
        """One step; its target tokens."""
        batches = self.feed.take(1)
        float(self.engine.update(batches, 1e-4))
        return batches[0].tokens

    def decode(self, beam: int) -> list[int]:
        """Tokens of each translation, none of which may end before its length."""
        model = Forced(self.model.eval(), self.length)
        pieces = self.source.split(1) if self.sentence_by_sentence else [self.source]
        with self.hardware.autocast():
            outputs = [beam_search(model, piece, beam, 1.0, self.length) if beam > 1 else
                     greedy_search(model, piece, self.length) for piece in pieces]
        return [len(row) for piece in outputs for row in piece.best_ids()]


class Forced:
    """A model that does not end a sentence before ``length`` tokens."""

    def __init__(self, model: Any, length: int) -> None:
        self.model = model
        self.length = length
        self.said = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def encode(self, source: Tensor) -> Any:
        self.said = 0
        return self.model.encode(source)

    def logits(self, states: Tensor) -> Tensor:
        logits = self.model.logits(states)
        if self.said < self.length:
            logits[..., EOS] = -torch.inf
        self.said += 1
        return logits


def architecture(job: dict[str, Any]) -> Any:
    """A pre-norm Transformer of the job's sizes, all embeddings tied."""
    sizes = {"depth": "depth", "heads": "heads", "ffn.relu.hidden": "hidden"}
    settings = [f"{stack}.{key}={job[name]}" for stack in ("encoder", "decoder")
                for key, name in sizes.items()]
    return load_architecture(
        "transformer", (f"width={job['width']}", "norm=pre", "embedding.tie=all", *settings))[1]


