"""Preparation of a corpus: fit the vocabulary, encode, filter, count."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from scalesearch.blocks.core import UNK
from scalesearch.data.sources import DISTILLED_SPLIT, ParallelText
from scalesearch.data.spec import SPLIT_NAMES, DataSpec
from scalesearch.data.split import RaggedArray, Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.errors import UserError
from scalesearch.tasks import TASKS, Texts
from scalesearch.tasks.edits import lowercase_edits
from scalesearch.terminal import format_count

SplitCounts = dict[str, dict[str, int]]
_CHUNK = 1 << 16
_HELD_OUT_SPLITS = ("validation", "test")
# sacreBLEU takes text as tokenized if more than this many references end in a period after a space.
_TOKENIZED_MIN_LINES = 100
# Files that are not translations of each other, line by line, are noticed by these measures.
MIN_PAIRS = 100  # with fewer pairs, the measures of alignment vary too much
MAX_EQUAL = 50  # percent of pairs with equal sides
MIN_LENGTH_CORRELATION = 10  # percent; about 0 if one side is shuffled, 60 to 95 for real text
MAX_LISTED_CLASSES = 8
MIN_SWAPPED_EXCESS = 30  # percent of words


@dataclass
class PreparedCorpus:
    """Corpus ready to be stored: tokenizer, splits, and counts."""

    tokenizer: Tokenizer
    splits: dict[str, Split]
    counts: SplitCounts


def prepare_corpus(spec: DataSpec, text: dict[str, ParallelText]) -> PreparedCorpus:
    """Tokenize the splits with the settings of ``spec``.

    Raises:
        UserError: the vocabulary does not fit the text, or no training pair is left.
    """
    if spec.lowercase:
        text = {split: lowercase_pairs(pairs) for split, pairs in text.items()}
    if spec.max_pairs is not None:
        text = text | {"train": text["train"].truncate(spec.max_pairs)}
    tokenizer = _build_tokenizer(spec, text["train"])
    if DISTILLED_SPLIT in text:
        train = text[DISTILLED_SPLIT]
        text = text | {"train": train.append(text["train"]) if spec.mix_distilled else train}
    counts: SplitCounts = {}
    encode = _encode_text if spec.file_format == "text" else _encode
    if spec.file_format == "labels":
        classes = sorted(set(text["train"].target))
        counts["classes"] = {name: number for number, name in enumerate(classes, 1)}
        encode = partial(_encode, classes=classes)
    splits = {split: encode(spec, split, text[split], tokenizer, counts) for split in SPLIT_NAMES}
    counts["overlap"] = _count_overlap(text)
    if spec.task == "translation" and not spec.builtin and (measures := measure_alignment(text)):
        counts["alignment"] = measures
    return PreparedCorpus(tokenizer, splits, counts)


def _build_tokenizer(spec: DataSpec, train: ParallelText) -> Tokenizer:
    """Fit or read the tokenizer of a spec, with a vocabulary of the target if it has one."""
    def build_side(lines: list[str], size: int | None, file: str | None, prefix: str) -> Tokenizer:
        if file is not None:
            return Tokenizer.from_file(Path(file), f"{prefix}tokenizer")
        assert size is not None, "a spec has a vocabulary size or a tokenizer"
        return Tokenizer.fit(lines, size, spec.vocab_type, spec.character_coverage,
                             f"{prefix}vocab")

    is_source_only = spec.has_target_vocabulary or spec.file_format == "labels"
    lines = train.source if is_source_only else train.source + train.target
    tokenizer = build_side(lines, spec.fitted_vocab_size, spec.tokenizer, "")
    if not spec.has_target_vocabulary:
        return tokenizer
    target = build_side(train.target, spec.target_vocab, spec.target_tokenizer, "target_")
    for key, side in (("tokenizer", tokenizer), ("target_tokenizer", target)):
        if side.is_pair:
            raise UserError(f"data: {key}: {getattr(spec, key)} has a vocabulary for each side",
                            help="remove `target_vocab` and `target_tokenizer`, and give the file "
                            "as `tokenizer`", key=f"data.{key}", code="given-twice")
    return Tokenizer.pair(tokenizer, target)


def lowercase_pairs(pairs: ParallelText) -> ParallelText:
    """Lower-case pairs; gold edits that become empty are removed."""
    source = [line.lower() for line in pairs.source]
    target = [line.lower() for line in pairs.target]
    gold_edits = pairs.gold_edits and [tuple(lowercase_edits(edits, line) for edits in annotators)
                                       for line, annotators in zip(pairs.source, pairs.gold_edits)]
    references = [[line.lower() for line in lines] for lines in pairs.more_references]
    return ParallelText(source, target, pairs.counts, gold_edits, references)


def _encode(spec: DataSpec, split: str, pairs: ParallelText, tokenizer: Tokenizer,
            counts: SplitCounts, classes: Sequence[str] = ()) -> Split:
    """Encode a split of sentence pairs, or of texts with ``classes``, and fill ``counts``."""
    source = _encode_lines(tokenizer, pairs.source)
    target = (_encode_classes(split, pairs.target, classes) if classes
              else _encode_lines(tokenizer.target, pairs.target))
    if split == "train":
        longer = np.maximum(source.lengths, target.lengths)
        shorter = np.minimum(source.lengths, target.lengths)
        # With a tokenizer from a file, a line of unusual white space may have no tokens.
        is_empty = shorter == 0
        is_long = ~is_empty & (longer > spec.max_length)
        is_uneven = ~is_empty & ~is_long & (longer
                                            > (spec.max_ratio or np.inf) * np.maximum(shorter, 1))
        kept = np.flatnonzero(~(is_empty | is_long | is_uneven))
        dropped = {"no_token": int(is_empty.sum()), "too_long": int(is_long.sum()),
                   "uneven": int(is_uneven.sum())}
        if not len(kept):
            reasons = {"no_token": "have a side without tokens",
                       "too_long": f"are longer than max_length {spec.max_length:,} tokens",
                       "uneven": f"exceed max_ratio {spec.max_ratio}"}
            counted = ", ".join(f"{count:,} {reasons[key]}" for key, count in dropped.items()
                                if count)
            raise UserError(f"data: train: all {len(source):,} pairs are dropped: {counted}",
                            key="data.train", code="no-pairs-left")
        source = source.take(kept)
        target = target.take(kept)
    else:
        kept = np.arange(len(source))
        is_long = np.maximum(source.lengths, target.lengths) > spec.max_length
        dropped = {"cut": int(is_long.sum())}
        n_periods = sum(line.endswith(" .") for line in pairs.target)
        if n_periods > _TOKENIZED_MIN_LINES:
            dropped["periods_apart"] = n_periods
        source = source.truncate(spec.max_length)
        target = target.truncate(spec.max_length)
    counts[split] = {
        **pairs.counts, **dropped, "pairs": len(source), "source_tokens": len(source.flat),
        "target_tokens": len(target.flat), "source_unknown": _count_unknown(source),
        "target_unknown": 0 if classes else _count_unknown(target)}
    texts = Texts([pairs.source[i] for i in kept], [pairs.target[i] for i in kept],
                  pairs.gold_edits, pairs.more_references)
    return Split.from_rows(source, target, texts)


def _encode_classes(split: str, labels: list[str], classes: Sequence[str]) -> RaggedArray:
    """Return the number of each label in ``classes``, from 1.

    Raises:
        UserError: a label is not in ``classes``.
    """
    numbers = {label: number for number, label in enumerate(classes, 1)}
    if unknown := sorted(set(labels) - numbers.keys()):
        raise UserError(f"data: {split}: no training text has the class {unknown[0]!r}; the "
                        f"training text has {format_count(len(classes), 'class')}: "
                        f"{list_classes(classes)}",
                        key=f"data.{split}", code="unknown-class")
    return RaggedArray.from_lists([[numbers[label]] for label in labels])


def list_classes(classes: Sequence[str]) -> str:
    """Names of the first classes."""
    more = ", …" if len(classes) > MAX_LISTED_CLASSES else ""
    return f"{', '.join(map(repr, classes[:MAX_LISTED_CLASSES]))}{more}"


def _encode_text(spec: DataSpec, split: str, lines: ParallelText, tokenizer: Tokenizer,
                 counts: SplitCounts) -> Split:
    """Encode the text of a language model as windows, and fill ``counts``."""
    assert spec.window is not None and spec.stride is not None, "a spec of text has both"
    stride = spec.window if split == "train" else spec.stride
    encoded, text_counts = encode_windows(tokenizer, lines.target, spec.window, stride)
    counts[split] = lines.counts | text_counts
    return encoded


def encode_windows(tokenizer: Tokenizer, lines: list[str], window: int,
                   stride: int) -> tuple[Split, dict[str, int]]:
    """Encode lines as one stream of tokens in windows; return them with counts."""
    rows = _encode_lines(tokenizer, lines)
    windows = rows.windows(window, stride)
    counts = {"windows": len(windows), "lines": len(rows), "cut": 0, "source_unknown": 0,
              "target_tokens": len(rows.flat) + len(rows), "target_unknown": _count_unknown(rows)}
    sources = RaggedArray.from_lists([[]] * len(windows))
    return Split.from_rows(sources, windows, Texts([], lines), window - stride), counts


def _encode_lines(tokenizer: Tokenizer, lines: list[str]) -> RaggedArray:
    """Encode lines in chunks: lists of Python integers need ten times the memory."""
    chunks = (lines[start : start + _CHUNK] for start in range(0, len(lines), _CHUNK))
    return RaggedArray.concatenate([RaggedArray.from_lists([]),
                                    *(RaggedArray.from_lists(tokenizer.encode(chunk))
                                      for chunk in chunks)])


def _count_unknown(rows: RaggedArray) -> int:
    return int(np.count_nonzero(rows.flat == UNK))


def _count_overlap(text: dict[str, ParallelText]) -> dict[str, int]:
    """Count held-out pairs that are also in the training or validation text.

    Lines are compared without case, outer spaces, repeated spaces and differences of Unicode
    compatibility, such as no-break spaces and full-width letters.
    """
    held_out = {split: [(_normalize(source), _normalize(target)) for source, target
                        in zip(text[split].source, text[split].target)]
                for split in _HELD_OUT_SPLITS}
    if not text["train"].source:
        train_lines = set(map(_normalize, text["train"].target))
        return {f"{split}_lines": sum(_normalize(line) in train_lines
                                      for line in text[split].target)
                for split in _HELD_OUT_SPLITS}
    held_out_sources = {source for pairs in held_out.values() for source, _ in pairs}
    shared_pairs = set()
    for line, target in zip(text["train"].source, text["train"].target):
        source = _normalize(line)
        if source in held_out_sources:
            shared_pairs.add((source, _normalize(target)))
    shared_sources = {source for source, _ in shared_pairs}
    counts = {}
    for split, pairs in held_out.items():
        counts[f"{split}_pairs"] = sum(pair in shared_pairs for pair in pairs)
        counts[f"{split}_sources"] = sum(source in shared_sources for source, _ in pairs)
    validation_pairs = set(held_out["validation"])
    counts["test_in_validation"] = sum(pair in validation_pairs for pair in held_out["test"])
    return counts


def _normalize(line: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", line).casefold().split())


def describe_counts(spec: DataSpec, counts: SplitCounts) -> Iterator[str]:
    """Yield notes about dropped or truncated pairs and overlapping splits."""
    if spec.builtin:
        yield "synthetic text from the built-in grammar: scores only compare architectures"
    if spec.file_format == "text":
        yield from _describe_text(spec, counts)
        return
    train = counts["train"]
    if spec.distilled:
        relation = "next to" if spec.mix_distilled else "instead of"
        yield (f"train: a teacher's translations {relation} the real ones; validation and test are "
               "real text")
    for key, reason in _REASONS.items():
        if train.get(key):
            yield f"train: {train[key]:,} of {train['read']:,} pairs left out: {reason}"
    overlap = counts["overlap"]
    target = TASKS[spec.task].target_noun
    for split in _HELD_OUT_SPLITS:
        held_out = counts[split]
        if held_out["cut"]:
            yield (f"{split}: {held_out['cut']:,} of {held_out['pairs']:,} pairs are truncated to "
                   f"max_length {spec.max_length:,} for the model; their references stay complete")
        if held_out.get("periods_apart") and not spec.tokenized:
            yield (f"warning: {held_out['periods_apart']:,} of {held_out['pairs']:,} {split} "
                   "references end in a period after a space: BLEU of tokenized text is not "
                   "comparable with published scores; detokenize it, or set `tokenized: true`")
        if unknown := held_out["source_unknown"] + held_out["target_unknown"]:
            yield (f"{split}: {format_count(unknown, 'token')} with characters that are not in the "
                   "vocabulary")
        if sources := overlap[f"{split}_sources"]:
            yield (f"warning: {sources:,} of {held_out['pairs']:,} {split} sources are also in the "
                   f"training text, {overlap[f'{split}_pairs']:,} with the same {target}")
    # A corpus that was cached by an earlier version lacks this count.
    if shared := overlap.get("test_in_validation"):
        yield (f"warning: {shared:,} of {counts['test']['pairs']:,} test pairs are also in the "
               "validation text, which is used to select candidates")
    yield from describe_alignment(counts.get("alignment", {}))
    if spec.lowercase:
        yield "all text is lower-cased, references too: BLEU is case-insensitive"


_REASONS = {"empty": "a side is empty", "beyond_limit": "beyond max_pairs",
            "no_token": "a side has no token", "too_long": "longer than max_length",
            "uneven": "beyond max_ratio"}


def _describe_text(spec: DataSpec, counts: SplitCounts) -> Iterator[str]:
    splits = [split for split in SPLIT_NAMES if counts[split]["target_tokens"]]  # test is optional
    yield (f"windows of {spec.window:,} tokens, {' and '.join(splits[1:])} every "
           f"{spec.stride:,} tokens; "
           + ", ".join(f"{split} {format_count(counts[split]['target_tokens'], 'token')}"
                       for split in splits))
    for split in SPLIT_NAMES:
        split_counts = counts[split]
        if split_counts.get("empty"):
            yield (f"{split}: {split_counts['empty']:,} of "
                   f"{format_count(split_counts['read'], 'line')} left out: empty")
        if split_counts["target_unknown"] and split != "train":
            yield (f"{split}: {format_count(split_counts['target_unknown'], 'token')} with "
                   "characters that are not in the vocabulary; each counts as one unknown token")
        if shared := counts["overlap"].get(f"{split}_lines"):
            yield (f"warning: {shared:,} of {split_counts['lines']:,} {split} lines are also in "
                   "the training text")
    if spec.lowercase:
        yield "all text is lower-cased"


def measure_alignment(text: dict[str, ParallelText]) -> dict[str, int]:
    """Measure how well the two sides of the text fit together, in percent.

    Returns:
        ``equal``: training pairs with equal sides. ``length_correlation``: correlation of the
        numbers of characters of the two sides; missing if a side has lines of one length.
        ``swapped``: validation words that are found in the other side of the training text, minus
        those that are found in their own side.
    """
    train = text["train"]
    if len(train.source) < MIN_PAIRS:
        return {}
    n_equal = sum(source == target for source, target in zip(train.source, train.target))
    measures = {"equal": round(100 * n_equal / len(train.source))}
    lengths = np.array([list(map(len, side)) for side in (train.source, train.target)], float)
    if lengths.std(axis=1).all():
        measures["length_correlation"] = round(100 * float(np.corrcoef(lengths)[0, 1]))
    source_words, target_words = ({word for line in side for word in line.split()}
                                  for side in (train.source, train.target))
    validation = text["validation"]
    n_own = n_other = n_words = 0
    for lines, own, other in ((validation.source, source_words, target_words),
                              (validation.target, target_words, source_words)):
        for line in lines:
            words = line.split()
            n_words += len(words)
            n_own += sum(word in own for word in words)
            n_other += sum(word in other for word in words)
    measures["swapped"] = round(100 * (n_other - n_own) / max(1, n_words))
    return measures


def describe_alignment(measures: dict[str, int]) -> Iterator[str]:
    """Yield warnings about training pairs that do not look like translations."""
    equal = measures.get("equal", 0)
    if equal >= MAX_EQUAL:
        yield (f"warning: {equal} % of the training pairs have two equal sides; check that the "
               "files are in two languages")
    elif measures.get("length_correlation", 100) < MIN_LENGTH_CORRELATION:
        yield ("warning: long training sources do not have long targets (correlation of their "
               f"lengths: {measures['length_correlation'] / 100:.2f}); check that line n of one "
               "file is the translation of line n of the other")
    if measures.get("swapped", 0) >= MIN_SWAPPED_EXCESS:
        yield ("warning: the validation source looks like the training target; check that source "
               "and target are not swapped")
