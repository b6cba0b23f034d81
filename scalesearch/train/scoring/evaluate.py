"""Evaluation of a model: loss and perplexity per token, translations, metrics of its task."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from scalesearch.data import Corpus, Split, Tokenizer, eval_batches, put_back
from scalesearch.nn.decode import Hypotheses, beam_search, greedy
from scalesearch.tasks import TASKS
from scalesearch.train.checkpoint import Checkpoint
from scalesearch.train.engine import Engine
from scalesearch.train.hardware import Hardware, out_of_memory

LOSS_TOKENS = 4096  # in a batch when scoring, padding included
DECODE_TOKENS = 6144  # source tokens in a batch when decoding, divided among the beams

Check = Callable[[], None]
Progress = Callable[[int, int], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Search:
    """Settings of decoding: ``beam`` 1 is greedy; see :func:`scalesearch.nn.decode.beam_search`."""

    beam: int = 5
    length_penalty: float = 1.0
    tokens: int = DECODE_TOKENS

    @property
    def protocol(self) -> str:
        """Description in one line, for records."""
        if self.beam == 1:
            return "greedy"
        return f"beam {self.beam}, log-probability / length^{self.length_penalty:g}"


def loss_per_token(engine: Engine, split: Split, check: Check = lambda: None) -> float:
    """Mean negative log-likelihood of the real target tokens (EOS included), in nats, without smoothing."""
    def run(max_tokens: int) -> float:
        total, tokens = torch.zeros((), dtype=torch.float64, device=engine.hardware.device), 0
        for batch in eval_batches(split, max_tokens):
            check()
            total += engine.loss_sum(batch, 0.0)
            tokens += batch.tokens
        return float(total) / tokens

    engine.model.eval()
    with torch.inference_mode():
        loss = with_memory(run, LOSS_TOKENS)
    engine.model.train()
    return loss


def perplexity(loss: float) -> float | None:
    """Exponential of the loss; None where that overflows."""
    return math.exp(loss) if loss < 700 else None


def translate(model: Any, split: Split, tokenizer: Tokenizer, hardware: Hardware, search: Search,
              check: Check = lambda: None, progress: Progress = lambda done, of: None) -> tuple[list[str], list[float]]:
    """Best translation of each source sentence, detokenised, and their scores, in the split's order."""
    def run(max_tokens: int) -> tuple[list[str], list[float]]:
        batches, ids, scores, done = eval_batches(split, max_tokens), [], [], 0
        for batch in batches:
            check()
            with hardware.autocast():
                hypotheses = _search(model, hardware.tensor(batch.source), search)
            ids.append(hypotheses.best())
            scores.append(hypotheses.scores[:, 0].tolist())
            progress(done := done + len(batch), len(split))
        return tokenizer.decode(put_back(batches.plan, ids)), put_back(batches.plan, scores)

    model.eval()
    return with_memory(run, max(1, search.tokens * 2 // (search.beam + 1)))


def translate_lines(trained: Checkpoint, lines: list[str], search: Search,
                    hardware: Hardware) -> Iterable[tuple[str, str, float | None]]:
    """Translates lines; yields line, translation and score, empty and None without words."""
    text = [line.lower() for line in lines] if trained.lowercase else lines
    ids = [row[: trained.max_length] for row in trained.tokenizer.encode(text)]
    filled = [place for place, row in enumerate(ids) if row]
    translations = [""] * len(lines)
    scores: list[float | None] = [None] * len(lines)
    if filled:
        split = Split.of([ids[place] for place in filled])
        results = translate(trained.model, split, trained.tokenizer, hardware, search)
        for place, translation, score in zip(filled, *results):
            # One line in, one line out, whatever the vocabulary holds.
            translations[place], scores[place] = " ".join(translation.split()), score
    return zip(lines, translations, scores)


def score_split(engine: Engine, corpus: Corpus, name: str, search: Search, check: Check = lambda: None,
                progress: Progress = lambda done, of: None) -> dict[str, Any]:
    """Loss, perplexity and the task's metrics, with their signatures, on the split ``name`` of ``corpus``."""
    task, split = TASKS[corpus.spec.task], getattr(corpus, name)
    loss, metrics = loss_per_token(engine, split, check), {}
    if task.score is not None:
        hypotheses, _ = translate(engine.model, split, corpus.tokenizer, engine.hardware, search, check, progress)
        metrics = {**task.score(hypotheses, split.texts, corpus.spec), "decode": search.protocol}
    metrics |= {"loss": loss, "perplexity": perplexity(loss)}
    if task.of_loss is not None:
        tokens = sum(batch.tokens for batch in eval_batches(split, LOSS_TOKENS))
        metrics |= task.of_loss(loss, tokens, split.texts, corpus.spec)
    return metrics


def _search(model: Any, source: torch.Tensor, search: Search) -> Hypotheses:
    if search.beam == 1:
        return greedy(model, source)
    return beam_search(model, source, search.beam, search.length_penalty)


def with_memory(run: Callable[[int], T], max_tokens: int) -> T:
    """Calls ``run(max_tokens)``, halving the tokens whenever memory runs out; at 1 it raises."""
    while True:
        try:
            return run(max_tokens)
        except (RuntimeError, MemoryError) as error:
            if max_tokens == 1 or not out_of_memory(error):
                raise
        max_tokens //= 2
