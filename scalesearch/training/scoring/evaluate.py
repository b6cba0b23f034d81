"""Evaluation of a model: losses, translations, metrics of its task."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from scalesearch.blocks.core import PAD
from scalesearch.blocks.seq2seq import DecoderOnly, EncoderOnly
from scalesearch.config import MAX_BEAM
from scalesearch.data import Corpus, Split, Tokenizer, eval_batches, restore_order
from scalesearch.data.batching import decoding_batches
from scalesearch.errors import UserError, option
from scalesearch.lowering import EXTRA_LENGTH, LENGTH_FACTOR
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import Hypotheses, default_max_lengths, greedy_search, length_limits
from scalesearch.nn.graphs import GraphRunner
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.nn.shortlist import Shortlist, ShortlistModel
from scalesearch.nn.static_search import StaticSearch
from scalesearch.tasks import TASKS
from scalesearch.tasks.language_model import perplexity
from scalesearch.training.checkpoint import Checkpoint
from scalesearch.training.hardware import Hardware, TrainingFailedError, is_out_of_memory
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.engine import Engine

LOSS_BATCH_TOKENS = 4096  # tokens per batch for losses, with padding
DECODE_BATCH_TOKENS = 6144  # source tokens per batch for decoding, divided among the beams

StopCheck = Callable[[], None]  # raises to stop
ProgressFunction = Callable[[int, int], None]
SearchFunction = Callable[[Tensor, int | None], Hypotheses]  # of sources (B, S), with max_length
T = TypeVar("T")


class Translation(NamedTuple):
    """A translation of a sentence.

    Attributes:
        score: length-normalized log-probability, if the decoder computes one.
        reached_limit: whether its length limit ended it.
    """

    text: str
    score: float | None
    reached_limit: bool = False


Translations = list[Translation]  # of one sentence, the best first
DecodeFunction = Callable[[Split, "DecodingOptions"], list[Translations]]


class TranslatedLine(NamedTuple):
    """A line and its translations; ``is_cropped`` if its source was too long for the model."""

    source: str
    translations: Translations
    is_cropped: bool


@dataclass(frozen=True)
class DecodingOptions:
    """Options of decoding; see :func:`scalesearch.nn.beam_search.beam_search`.

    Attributes:
        beam: 1 is greedy.
        length_penalty: exponent of the length.
        batch_tokens: source tokens per batch, divided among the beams.
        n_best: number of translations per sentence.
        max_length_a, max_length_b: a translation has at most ``max_length_a`` · source tokens
            (with EOS) + ``max_length_b`` tokens.
        allow_unk: whether a translation may contain UNK, which is printed as ⁇.
        shortlist: the tokens of each translation; None for all tokens.
    """

    beam: int = 5
    length_penalty: float = 1.0
    batch_tokens: int = DECODE_BATCH_TOKENS
    n_best: int = 1
    max_length_a: float = LENGTH_FACTOR
    max_length_b: int = EXTRA_LENGTH
    allow_unk: bool = False
    shortlist: Shortlist | None = None

    def max_lengths(self, source: Tensor) -> Tensor:
        """Return the length limits (B,) of translations of ``source`` (B, S)."""
        return default_max_lengths(source, self.max_length_a, self.max_length_b)

    @property
    def length_limit(self) -> str:
        """The length limit in words."""
        return f"at most {self.max_length_a:g} · source tokens + {self.max_length_b}"

    @property
    def description(self) -> str:
        """Description in one line, for records."""
        search = "greedy" if self.beam == 1 else (
            f"beam {self.beam}, log-probability / length^{self.length_penalty:g}")
        has_default_limit = (self.max_length_a, self.max_length_b) == (LENGTH_FACTOR, EXTRA_LENGTH)
        return (search + ("" if has_default_limit else f", {self.length_limit}")
                + ", with unknown tokens" * self.allow_unk
                + ("" if self.shortlist is None else f", {self.shortlist.description}"))


def resolve_decoding(recipe: Recipe, learned_max_length_a: float, beam: int | None = None,
                     length_penalty: float | None = None, batch_tokens: int = DECODE_BATCH_TOKENS,
                     n_best: int = 1, max_length_a: float | None = None,
                     max_length_b: int | None = None,
                     allow_unk: bool = False) -> DecodingOptions:
    """Complete search options from the recipe and the training text.

    Raises:
        UserError: ``n_best`` exceeds the beam, or an option is out of range.
    """
    penalty = recipe.length_penalty if length_penalty is None else length_penalty
    if not 0 <= penalty <= 10:
        raise UserError(
            f"{option('length-penalty', penalty)}: expected a number from 0 to 10, such as 1",
            code="bad-value")
    if max_length_a is None:
        max_length_a = recipe.max_length_a
    decoding = DecodingOptions(
        recipe.beam if beam is None else beam, penalty, batch_tokens, n_best,
        learned_max_length_a if max_length_a is None else max_length_a,
        recipe.max_length_b if max_length_b is None else max_length_b, allow_unk)
    if n_best > max(decoding.beam, 1):  # `check_beam` refuses a beam of 0
        raise UserError(f"{option('nbest', n_best)}: a search with beam {decoding.beam} finds at "
                        f"most {decoding.beam}; set a larger {option('beam')}",
                        code="nbest-above-beam")
    return decoding


def describe_reached_limits(translations: Sequence[Translations], decoding: DecodingOptions) -> str:
    """Describe how many best translations the length limit ended; empty if none."""
    count = sum(best.reached_limit for best, *_ in translations)
    return (f"{count} of {len(translations)} translations ended at the length limit "
            f"({decoding.length_limit} tokens); if references are longer, raise max_length_a or "
            "max_length_b") if count else ""


def check_beam(beam: int, vocab_size: int) -> None:
    """Raise a UserError if a beam is not from 1 to the size of the vocabulary, at most 1,000."""
    if beam < 1:
        raise UserError(f"a beam of {beam}: expected at least 1 (greedy search)", code="below-one")
    limit = min(vocab_size, MAX_BEAM)
    if beam > limit:
        raise UserError(f"a beam of {beam:,}: expected at most {limit:,}; the vocabulary has "
                        f"{vocab_size:,} entries", code="beam-too-large")


def evaluate_loss(engine: Engine, split: Split, check: StopCheck = lambda: None) -> float:
    """Compute the mean negative log-likelihood per target token, in nats.

    EOS counts, padding does not. Labels are not smoothed.
    """
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


def scored_splits(recipe: Recipe, corpus: Corpus) -> tuple[str, ...]:
    """Return the splits that are scored at the end; the first is for selection."""
    if recipe.score_splits != "both":
        return (recipe.score_splits,)
    return ("validation", "test") if len(corpus.test) else ("validation",)


def check_lengths(model: Seq2SeqModel, corpus: Corpus, recipe: Recipe) -> None:
    """Check that learned positions, if any, suffice for every sentence of a run.

    A sentence that fails after the last update would end the run in a way that resuming cannot fix.

    Raises:
        TrainingFailedError: a sentence is too long.
    """
    if model.max_length is None:
        return
    is_joined = isinstance(model.block, DecoderOnly)
    for split_name in dict.fromkeys(("train", "validation", *scored_splits(recipe, corpus))):
        split: Split = getattr(corpus, split_name)
        source = split.source_ids.lengths + 1
        target = split.target_ids.lengths + (split.window_overlap is None)
        # a side may have any length up to max_length
        if split_name == "train" and recipe.subword_dropout:
            source = np.array([corpus.spec.max_length + 1])
            target = source
        longest = max(source.max(initial=0), target.max(initial=0))
        if is_joined:
            # Padding counts in a joined sequence. The batches of training change every epoch.
            plan = eval_batches(split,
                                LOSS_BATCH_TOKENS).indices_by_batch if split_name != "train" else []
            padded = [source[indices].max() + target[indices].max() for indices in plan]
            longest = max([(source + target).max(initial=0), *padded])
        try:
            model.check_length(int(longest))
        except UserError as error:
            raise TrainingFailedError(f"{split_name}: {error}") from None


def tokens_per_character(corpus: Corpus, split_name: str) -> float:
    """Return the number of scored target tokens per character (code point).

    The end of a line counts as a character. A loss per token times this number is a loss per
    character, which compares models with different vocabularies. Of truncated sentences only the
    remaining part counts.
    """
    split: Split = getattr(corpus, split_name)
    tokens = sum(batch.tokens for batch in eval_batches(split, LOSS_BATCH_TOKENS))
    lengths = [len(line) + 1 for line in split.texts.target]
    if split.window_overlap is None and not split.has_classes:
        truncated = np.flatnonzero(split.target_ids.lengths >= corpus.spec.max_length)
        texts = corpus.tokenizer.target.decode(split.target_ids[int(index)] for index in truncated)
        for index, text in zip(truncated, texts):
            lengths[index] = len(text) + 1
    return tokens / sum(lengths)


@contextmanager
def open_search(model: Seq2SeqModel, hardware: Hardware, decoding: DecodingOptions,
                notes: list[str]) -> Iterator[SearchFunction]:
    """Open the search for the shapes of batches on this hardware.

    Inside the context, weights and autocast must not change. Remarks are appended to ``notes``.

    Raises:
        UserError: the model has no decoder.
    """
    if isinstance(getattr(model, "block", None), EncoderOnly):  # an ensemble has none
        raise UserError("an encoder-only model generates no text", key="space",
                        help="use a model with a decoder", code="no-decoder")
    options = (decoding.beam, decoding.length_penalty)
    with hardware.autocast():
        is_static = hardware.has_fixed_shapes and decoding.shortlist is None
        if is_static and StaticSearch.supports(model):
            runner = GraphRunner(hardware.device, "decoding steps", notes)
            with model.cached_weights():
                yield StaticSearch(model, runner, *options, decoding.n_best,
                                   max_lengths=decoding.max_lengths,
                                   allow_unk=decoding.allow_unk).search
            return

        searched: Any = model
        if decoding.shortlist is not None:
            searched = ShortlistModel(model, decoding.shortlist)

        def search(source: Tensor, limit: int | None) -> Hypotheses:
            limits = decoding.max_lengths(source) if limit is None else limit
            if decoding.beam == 1:
                return greedy_search(searched, source, limits, allow_unk=decoding.allow_unk)
            return beam_search(searched, source, *options, limits, decoding.n_best,
                               allow_unk=decoding.allow_unk)

        yield search


def translate(model: Seq2SeqModel, split: Split, tokenizer: Tokenizer, hardware: Hardware,
              decoding: DecodingOptions, check: StopCheck = lambda: None,
              progress: ProgressFunction = lambda done, total: None,
              notes: list[str] | None = None) -> list[Translations]:
    """Translate each source sentence, in the split's order.

    Returns:
        ``decoding.n_best`` detokenized texts with scores per sentence.

    Raises:
        TrainingFailedError: the model gives no finite scores.
    """
    plan_batches = decoding_batches if hardware.has_fixed_shapes else eval_batches

    def run(max_tokens: int) -> list[Translations]:
        batches = plan_batches(split, max_tokens)
        hypotheses = []
        done = 0
        with open_search(model, hardware, decoding, [] if notes is None else notes) as search:
            for batch in batches:
                check()
                ranked = search(hardware.to_device(batch.source), None).ranked()
                if not all(ranked):
                    raise TrainingFailedError("a sentence has no translation with a finite score: "
                                              "the model has diverged")
                source = torch.from_numpy(batch.source)
                limits = length_limits(model, source, decoding.max_lengths(source)).tolist()
                hypotheses.append([[(ids, score, len(ids) >= limit) for ids, score in row]
                                   for row, limit in zip(ranked, limits)])
                done += len(batch)
                progress(done, len(split))
        rows = restore_order(batches.indices_by_batch, hypotheses)
        return decode_rows(tokenizer, rows)

    model.eval()
    # Joined sequences have less room for the target the more the source is padded.
    factor = hardware.decode_batch_factor if model.shares_sources else 1
    max_tokens = factor * decoding.batch_tokens * 2 // (decoding.beam + 1)
    return retry_with_smaller_batches(run, max(1, max_tokens))


def classify(model: Seq2SeqModel, split: Split, classes: Sequence[str], hardware: Hardware,
             n_best: int) -> list[Translations]:
    """Return the most probable classes of each source, with their log-probabilities."""
    def run(max_tokens: int) -> list[Translations]:
        batches = eval_batches(split.with_classes(), max_tokens)
        rows = []
        for batch in batches:
            source, target = map(hardware.to_device, (batch.source, batch.target_in))
            with hardware.autocast():
                logits = model(source, target)[:, 0]
            scores, indices = logits.float().log_softmax(-1).topk(min(n_best, len(classes)))
            if scores.isnan().any():
                raise TrainingFailedError("a text has no class with a finite score: the model has "
                                          "diverged")
            rows.append([[Translation(classes[index], score) for index, score in zip(*row)]
                         for row in zip(indices.tolist(), scores.tolist())])
        return restore_order(batches.indices_by_batch, rows)

    model.eval()
    with torch.inference_mode():
        return retry_with_smaller_batches(run, LOSS_BATCH_TOKENS)


def decode_rows(tokenizer: Tokenizer,
                rows: Sequence[Sequence[tuple[list[int], float | None, bool]]]
                ) -> list[Translations]:
    """Return the texts of rows of hypotheses: token ids, score, whether the limit ended it.

    A line break, which would shift all later lines, becomes a blank.
    """
    texts = iter(tokenizer.target.decode(ids for row in rows for ids, _, _ in row))
    return [[Translation(next(texts).replace("\n", " "), score, reached_limit)
             for _, score, reached_limit in row] for row in rows]


def max_source_tokens(trained: Checkpoint) -> int:
    """Return the largest number of source tokens, without EOS, that a model translates."""
    max_length = trained.max_source_length
    model_length: int | None = trained.model.max_length
    if model_length is None:
        return max_length
    # In a joined sequence, half of the positions are for the translation.
    is_joined = isinstance(trained.architecture.block, DecoderOnly)
    return min(max_length, model_length // 2 if is_joined else model_length - 1)


def encode_sources(trained: Checkpoint, lines: Sequence[str]) -> list[list[int]]:
    """Encode source lines as token ids, without EOS; blank lines have no tokens."""
    texts = [line.lower() for line in lines] if trained.is_lowercase else lines
    return [ids if line.strip() else []
            for line, ids in zip(lines, trained.tokenizer.encode(texts))]


def translate_lines(trained: Checkpoint, lines: list[str],
                    decode: Callable[[Split], list[Translations]]) -> list[TranslatedLine]:
    """Translate lines with ``decode``; a source that is too long is cropped.

    A blank line, or one without tokens, has one empty translation without a score.

    Raises:
        UserError: the model gives no finite scores.
    """
    max_length = max_source_tokens(trained)
    ids = encode_sources(trained, lines)
    split = Split.from_lists([row[:max_length] for row in ids if row])
    try:
        translations = iter(decode(split) if len(split) else [])
    except TrainingFailedError as error:
        raise UserError(str(error), code="diverged") from None
    return [TranslatedLine(line, next(translations) if row else [Translation("", None)],
                           len(row) > max_length)
            for line, row in zip(lines, ids)]


def score_split(engine: Engine, corpus: Corpus, split_name: str, decoding: DecodingOptions,
                check: StopCheck = lambda: None,
                progress: ProgressFunction = lambda done, total: None,
                decode: DecodeFunction | None = None,
                decoding_context: AbstractContextManager[None] | None = None) -> dict[str, Any]:
    """Compute losses, perplexity and the metrics of the task on a split.

    Args:
        decode: translates instead of the model.
        decoding_context: context of the translation, such as a timer.
    """
    task = TASKS[corpus.spec.task]
    split = getattr(corpus, split_name)
    loss = evaluate_loss(engine, split, check)
    metrics: dict[str, Any] = {}
    if task.score is not None:
        description = decoding.description
        with decoding_context or nullcontext():
            if decode:
                translations = decode(split, decoding)
                description += f", by {engine.recipe.decode_with}"
            else:
                translations = translate(engine.model, split, corpus.tokenizer, engine.hardware,
                                         decoding, check, progress, engine.notes)
        hypotheses = [best.text for best, *_ in translations]
        metrics = {**task.score(hypotheses, split.texts, corpus.spec), "decoding": description,
                   "reached_limit": sum(best.reached_limit for best, *_ in translations)}
        if note := describe_reached_limits(translations, decoding):
            engine.notes.append(f"{split_name}: {note}")
    rate = tokens_per_character(corpus, split_name)
    metrics |= {"loss": loss, "perplexity": perplexity(loss), "loss_per_char": loss * rate}
    if task.score_loss is not None:
        tokens = sum(batch.tokens for batch in eval_batches(split, LOSS_BATCH_TOKENS))
        metrics |= task.score_loss(loss, tokens, split.texts, corpus.spec)
    if task.score_correct is not None:
        metrics |= task.score_correct(*count_correct(engine, split, check))
    return metrics


def count_correct(engine: Engine, split: Split, check: StopCheck) -> tuple[int, int]:
    """Return how many labels are the most probable token, and the number of labels."""
    def run(max_tokens: int) -> tuple[int, int]:
        correct = tokens = 0
        for batch in eval_batches(split, max_tokens):
            check()
            source, labels = map(engine.hardware.to_device, (batch.source, batch.target_out))
            with engine.hardware.autocast():
                states = engine.model.decode(labels, engine.model.encode(source))
                is_label = labels != PAD
                best = engine.model.logits(states[is_label]).argmax(-1) + engine.model.first_label
            correct += int((best == labels[is_label]).sum())
            tokens += batch.tokens
        return correct, tokens

    engine.model.eval()
    with torch.inference_mode():
        return retry_with_smaller_batches(run, LOSS_BATCH_TOKENS)


def retry_with_smaller_batches(run: Callable[[int], T], max_tokens: int) -> T:
    """Call ``run(max_tokens)``; halve the tokens whenever memory runs out."""
    while True:
        try:
            return run(max_tokens)
        except (RuntimeError, MemoryError) as error:
            if max_tokens == 1 or not is_out_of_memory(error):
                raise
        max_tokens //= 2
