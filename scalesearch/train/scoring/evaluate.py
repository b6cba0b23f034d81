"""Evaluation of a model: loss and perplexity per token, translations, metrics of its task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.data import Corpus, Split, Tokenizer, eval_batches, restore_order
from scalesearch.errors import UserError
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.tasks import TASKS
from scalesearch.tasks.language_model import perplexity
from scalesearch.train.checkpoint import Checkpoint
from scalesearch.train.hardware import Hardware, TrainingFailedError, is_out_of_memory
from scalesearch.train.recipe import Recipe
from scalesearch.train.updates.engine import Engine

LOSS_BATCH_TOKENS = 4096  # in a batch when scoring, padding included
DECODE_BATCH_TOKENS = 6144  # source tokens in a batch when decoding, divided among the beams

StopCheck = Callable[[], None]
ProgressFunction = Callable[[int, int], None]
Translations = list[tuple[str, float | None]]  # of one sentence, the best first
DecodeFunction = Callable[[Split, "DecodingOptions"], list[Translations]]
T = TypeVar("T")


@dataclass(frozen=True)
class DecodingOptions:
    """Settings of decoding: ``beam`` 1 is greedy; see :func:`scalesearch.nn.beam_search.beam_search`."""

    beam: int = 5
    length_penalty: float = 1.0
    batch_tokens: int = DECODE_BATCH_TOKENS
    n_best: int = 1

    @property
    def description(self) -> str:
        """Description in one line, for records."""
        if self.beam == 1:
            return "greedy"
        return f"beam {self.beam}, log-probability / length^{self.length_penalty:g}"


def evaluate_loss(engine: Engine, split: Split, check: StopCheck = lambda: None) -> float:
    """Mean negative log-likelihood of the real target tokens (EOS included), in nats, without smoothing."""
    def run(max_tokens: int) -> float:
        total = torch.zeros((), dtype=torch.float64, device=engine.hardware.device)
        tokens = 0
        for batch in eval_batches(split, max_tokens):
            check()
            total += engine.loss_sum(batch, 0.0)
            tokens += batch.tokens
        return float(total) / tokens

    engine.model.eval()
    with torch.inference_mode():
        loss = retry_with_smaller_batches(run, LOSS_BATCH_TOKENS)
    engine.model.train()
    return loss


def check_lengths(model: Any, corpus: Corpus, recipe: Recipe) -> None:
    """Checks that learned positions, if any, are enough for every sentence that a training reads.

    A sentence that shows only after the last update would end it in a way that no resume mends.

    Raises:
        TrainingFailed: they are not.
    """
    if model.max_length is None:
        return
    joined = isinstance(model.block, DecoderOnly)
    for name in ("train", "validation", *(["test"] if recipe.score_splits != "validation" else [])):
        split: Split = getattr(corpus, name)
        source = split.source_ids.lengths + 1
        target = split.target_ids.lengths + (split.window_overlap is None)
        if name == "train" and recipe.subword_dropout:  # a side may then be as long as it is cut at
            source = target = np.array([corpus.spec.max_length + 1])
        longest = max(source.max(initial=0), target.max(initial=0))
        # in one sequence the padding counts, too, which in training is another each epoch
        if joined:
            plan = eval_batches(split,
                                LOSS_BATCH_TOKENS).indices_by_batch if name != "train" else []
            longest = max([(source + target).max(initial=0),
                           *(source[at].max() + target[at].max() for at in plan)])
        try:
            model.check_length(int(longest))
        except UserError as error:
            raise TrainingFailedError(f"{name}: {error}") from None


def tokens_per_character(corpus: Corpus, split_name: str) -> float:
    """Scored target tokens of the split ``split_name``, for each character (code point) of the text that they stand for.

    The end of a line counts as a character. A loss per token times this is one per character, which
    models of different vocabularies share. Of sentences that are cut for the model only what is
    left counts.
    """
    split: Split = getattr(corpus, split_name)
    tokens = sum(batch.tokens for batch in eval_batches(split, LOSS_BATCH_TOKENS))
    lengths = [len(line) + 1 for line in split.texts.target]
    if split.window_overlap is None:
        cut = np.flatnonzero(split.target_ids.lengths >= corpus.spec.max_length)
        for place, text in zip(cut,
                               corpus.tokenizer.decode(split.target_ids[place] for place in cut)):
            lengths[place] = len(text) + 1
    return tokens / sum(lengths)


def translate(model: Any, split: Split, tokenizer: Tokenizer, hardware: Hardware,
              decoding: DecodingOptions, check: StopCheck = lambda: None,
              progress: ProgressFunction = lambda done, of: None) -> list[Translations]:
    """Best ``search.nbest`` translations of each source sentence, detokenized, in the split's order.

    Raises:
        TrainingFailed: the model gives no finite scores.
    """
    def run(max_tokens: int) -> list[Translations]:
        batches = eval_batches(split, max_tokens)
        found = []
        done = 0
        for batch in batches:
            check()
            with hardware.autocast():
                found.append(_decode_batch(model, hardware.to_device(batch.source), decoding))
            progress(done := done + len(batch), len(split))
        rows = restore_order(batches.indices_by_batch, found)
        texts = iter(tokenizer.decode(ids for row in rows for ids, _ in row))
        return [[(next(texts), score) for _, score in row] for row in rows]

    model.eval()
    return retry_with_smaller_batches(run, max(1, decoding.batch_tokens * 2 // (decoding.beam + 1)))


def _decode_batch(model: Any, source: torch.Tensor,
                  search: DecodingOptions) -> list[list[tuple[list[int], float]]]:
    """Ids and score of the best hypotheses of each sentence of a batch."""
    if search.beam == 1:
        found = greedy_search(model, source)
    else:
        found = beam_search(model, source, search.beam, search.length_penalty, nbest=search.n_best)
    hypotheses = found.ranked()
    if not all(hypotheses):
        raise TrainingFailedError("a sentence has no translation whose score is a finite number: "
                                  "the model has diverged")
    return hypotheses


def translate_lines(
        trained: Checkpoint, lines: list[str],
        decode: Callable[[Split], list[Translations]]) -> list[tuple[str, Translations]]:
    """Lines with their translations by ``decode``; of one without words, an empty one without a score.

    Raises:
        UserError: the model gives no finite scores.
    """
    text = [line.lower() for line in lines] if trained.is_lowercase else lines
    most = trained.max_source_length
    # of one sequence a half is the translation's
    if (room := trained.model.max_length) is not None:
        most = min(most,
                   room // 2 if isinstance(trained.architecture.block, DecoderOnly) else room - 1)
    ids = [row[:most] for row in trained.tokenizer.encode(text)]
    split = Split.from_lists([row for row in ids if row])
    try:
        found = iter(decode(split) if len(split) else [])
    except TrainingFailedError as error:
        raise UserError(str(error), code="diverged") from None
    # One line in, one line out, whatever the vocabulary holds.
    return [(line,
             [(" ".join(text.split()), score) for text, score in next(found)] if row
             else [("", None)]) for line, row in zip(lines, ids)]


def score_split(engine: Engine, corpus: Corpus, split_name: str, decoding: DecodingOptions,
                check: StopCheck = lambda: None, progress: ProgressFunction = lambda done, of: None,
                decode: DecodeFunction | None = None) -> dict[str, Any]:
    """Losses, perplexity and the task's metrics, with their signatures, on the split ``split_name`` of ``corpus``.

    ``decode`` translates in the model's place.
    """
    task = TASKS[corpus.spec.task]
    split = getattr(corpus, split_name)
    loss = evaluate_loss(engine, split, check)
    metrics = {}
    if task.score is not None:
        found = decode(split, decoding) if decode else translate(
            engine.model, split, corpus.tokenizer, engine.hardware, decoding, check, progress)
        by = f", by {engine.recipe.decode_with}" if decode else ""
        metrics = {**task.score([best[0] for best, *_ in found], split.texts, corpus.spec),
                   "decoding": decoding.description + by}
    rate = tokens_per_character(corpus, split_name)
    metrics |= {"loss": loss, "perplexity": perplexity(loss), "loss_per_char": loss * rate}
    if task.score_loss is not None:
        tokens = sum(batch.tokens for batch in eval_batches(split, LOSS_BATCH_TOKENS))
        metrics |= task.score_loss(loss, tokens, split.texts, corpus.spec)
    return metrics


def retry_with_smaller_batches(run: Callable[[int], T], max_tokens: int) -> T:
    """Calls ``run(max_tokens)``, halving the tokens whenever memory runs out; at 1 it raises."""
    while True:
        try:
            return run(max_tokens)
        except (RuntimeError, MemoryError) as error:
            if max_tokens == 1 or not is_out_of_memory(error):
                raise
        max_tokens //= 2
