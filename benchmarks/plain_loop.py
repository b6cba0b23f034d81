"""A plain PyTorch loop around ``torch.nn.Transformer``: the baseline of training speed.

Same tokens, batches, shape, learning rates and budget; one Adam, one cross-entropy over all logits,
no averaging.

    python benchmarks/plain_loop.py --cpu-minutes 5                      # the built-in corpus
    python benchmarks/plain_loop.py --data multi30k.yaml --cpu-minutes 5  # then BLEU, greedy, on
    the test split
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from scalesearch.data import BOS, EOS, PAD, Corpus, eval_batches, restore_order, training_batches
from scalesearch.tasks.translation import bleu_chrf_scores
from scalesearch.training.input_files import load_data


class Plain(nn.Module):
    """Tied embeddings, sinusoidal positions, ``nn.Transformer``."""

    def __init__(self, vocab: int, width: int, depth: int, heads: int, hidden: int,
                 dropout: float) -> None:
        super().__init__()
        self.width = width
        self.table = nn.Embedding(vocab, width, padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        self.core = nn.Transformer(width, heads, depth, depth, hidden, dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        angles = torch.arange(512)[:, None] * torch.exp(
            torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.table(ids) * self.width**0.5 + self.positions[: ids.shape[1]])

    def decode(self, target: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        mask = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), 1)
        return self.core.decoder(self.embed(target), memory, tgt_mask=mask,
                                 memory_key_padding_mask=padding)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == PAD
        memory = self.core.encoder(self.embed(source), src_key_padding_mask=padding)
        return self.decode(target, memory, padding) @ self.table.weight.t()

    @torch.inference_mode()
    def greedy(self, source: Tensor) -> list[list[int]]:
        padding = source == PAD
        memory = self.core.encoder(self.embed(source), src_key_padding_mask=padding)
        output = source.new_full((len(source), 1), BOS)
        for _ in range(source.shape[1] * 3 // 2 + 10):
            token = (self.decode(output, memory, padding)[:, -1] @ self.table.weight.t()).argmax(-1)
            output = torch.cat([output, token[:, None]], 1)
            if bool((output == EOS).any(1).all()):
                break
        rows = [row[1:] for row in output.tolist()]
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]


class Trainer:
    """The loop, an update at a time; ``position`` is the share of the budget that is used up."""

    def __init__(self, corpus: Corpus, shape: dict[str, Any], lr: float, max_tokens: int,
                 seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.corpus = corpus
        self.lr = lr
        self.max_tokens = max_tokens
        self.seed = seed
        self.model = Plain(corpus.tokenizer.vocab_size, **shape).train()
        self.adam = torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9)
        self.epoch = 0
        self.queue = []
        self.tokens = 0
        self.cpu = 0.0

    def update(self, position: float) -> None:
        start = time.process_time()
        if not self.queue:
            self.queue = list(reversed(training_batches(self.corpus.train, self.max_tokens,
                                                        self.seed, self.epoch)))
            self.epoch += 1
        batch = self.queue.pop()
        logits = self.model(torch.from_numpy(batch.source), torch.from_numpy(batch.target_in))
        target = torch.from_numpy(batch.target_out)
        loss = cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD,
                             label_smoothing=0.1)
        self.adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = self.lr * rate(position)
        self.adam.step()
        self.tokens += batch.tokens
        self.cpu += time.process_time() - start

    def bleu(self) -> float:
        self.model.eval()
        batches = eval_batches(self.corpus.test, 2048)
        rows = [self.model.greedy(torch.from_numpy(batch.source)) for batch in batches]
        output = self.corpus.tokenizer.decode(restore_order(batches.indices_by_batch, rows))
        return float(bleu_chrf_scores(output, [self.corpus.test.target_text])["bleu"])


def rate(position: float, warmup: float = 0.06) -> float:
    """Linear warm-up, then half a cosine to 0: as in the recipes of scalesearch."""
    if position < warmup:
        return max(position / warmup, 0.01)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (position - warmup) / (1 - warmup))))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the common options."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="builtin", help="a data file, or builtin")
    for name, value in (("width", 256), ("depth", 3), ("heads", 4), ("hidden", 512),
                        ("max-tokens", 1024)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dropout", type=float, default=0.1)
    return parser


def shape_of(options: argparse.Namespace) -> dict[str, Any]:
    """Sizes of the network."""
    return {name: getattr(options, name) for name in ("width", "depth", "heads", "hidden", "dropout")}


def corpus_of(options: argparse.Namespace) -> Corpus:
    """The corpus that ``--data`` names."""
    return load_data(options.data if options.data == "builtin" else str(Path(options.data)))


def main() -> None:
    parser = make_parser()
    parser.add_argument("--cpu-minutes", type=float, default=5.0)
    parser.add_argument("--lr", type=float, default=1.2e-3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    trainer = Trainer(corpus_of(options), shape_of(options), options.lr, options.max_tokens)
    while trainer.cpu < 60 * options.cpu_minutes:
        trainer.update(trainer.cpu / (60 * options.cpu_minutes))
    speed = trainer.tokens / trainer.cpu
    print(f"nn.Transformer: {trainer.tokens:,} target tokens in {trainer.cpu:.0f} CPU s "
          f"({speed:,.0f}/s); BLEU {trainer.bleu():.2f} greedy, test set")


if __name__ == "__main__":
    main()
