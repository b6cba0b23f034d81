"""Turns sentences into token ids: fits the vocabulary, encodes, filters and counts."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scalesearch.data.sources import DISTILLED_SPLIT, ParallelText
from scalesearch.data.spec import SPLIT_NAMES, DataSpec
from scalesearch.data.split import UNK, IntArray, RaggedArray, Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.errors import UserError
from scalesearch.tasks.edits import lowercase_edits

SplitCounts = dict[str, dict[str, int]]
_CHUNK = 1 << 16
_HELD_OUT_SPLITS = ("valid", "test")
# references that end in a period which stands apart, from which on sacreBLEU takes text as
# tokenised
_TOKENIZED_MIN_LINES = 100


@dataclass
class PreparedCorpus:
    """Corpus ready to be stored: tokenizer, splits, and counts of what was left out."""

    tokenizer: Tokenizer
    splits: dict[str, Split]
    counts: SplitCounts


def prepare_corpus(spec: DataSpec, text: dict[str, ParallelText]) -> PreparedCorpus:
    """Tokenises the splits by the settings of ``spec``.

    Raises:
        UserError: the vocabulary does not fit the text, or no training pair is left.
    """
    if spec.lowercase:
        text = {split: lowercase_pairs(pairs) for split, pairs in text.items()}
    if spec.max_pairs is not None:
        text = text | {"train": text["train"].truncate(spec.max_pairs)}
    if spec.tokenizer is None:
        assert spec.fitted_vocab_size is not None, "a spec has a vocabulary size or a tokenizer"
        lines = text["train"].source + text["train"].target
        tokenizer = Tokenizer.fit(lines, spec.fitted_vocab_size, spec.vocab_type,
                                  spec.character_coverage)
    else:
        tokenizer = Tokenizer.from_file(Path(spec.tokenizer))
    if DISTILLED_SPLIT in text:
        text = text | {"train": _concatenate(text[DISTILLED_SPLIT], text["train"])
                       if spec.mix_distilled else text[DISTILLED_SPLIT]}
    counts: SplitCounts = {}
    encode = _encode_text if spec.file_format == "text" else _encode
    splits = {split: encode(spec, split, text[split], tokenizer, counts) for split in SPLIT_NAMES}
    counts["overlap"] = _count_overlap(text)
    return PreparedCorpus(tokenizer, splits, counts)


def lowercase_pairs(pairs: ParallelText) -> ParallelText:
    """Pairs in lower case, with the edits that are still some."""
    source, target = ([line.lower() for line in side] for side in (pairs.source, pairs.target))
    gold = pairs.gold_edits and [tuple(lowercase_edits(edits, line) for edits in annotators)
                           for line, annotators in zip(pairs.source, pairs.gold_edits)]
    return ParallelText(source, target, pairs.counts, gold)


def _concatenate(first: ParallelText, second: ParallelText) -> ParallelText:
    counts = {key: first.counts.get(key, 0) + second.counts.get(key, 0)
              for key in {**first.counts, **second.counts}}
    return ParallelText(first.source + second.source, first.target + second.target, counts)


def _encode(spec: DataSpec, split: str, pairs: ParallelText, tokenizer: Tokenizer,
            counts: SplitCounts) -> Split:
    source = _encode_lines(tokenizer, pairs.source)
    target = _encode_lines(tokenizer, pairs.target)
    if split == "train":
        keep, dropped = _select_training_pairs(spec, source.lengths, target.lengths)
        source = source.take(keep)
        target = target.take(keep)
    else:
        keep = np.arange(len(source))
        long = np.maximum(source.lengths, target.lengths) > spec.max_length
        apart = sum(line.endswith(" .") for line in pairs.target)
        dropped = {"cut": int(long.sum())} | (
            {"periods_apart": apart} if apart > _TOKENIZED_MIN_LINES else {})
        source = source.truncate(spec.max_length)
        target = target.truncate(spec.max_length)
    counts[split] = {**pairs.counts, **dropped, "pairs": len(source),
                     "source_tokens": len(source.flat), "target_tokens": len(target.flat),
                     "source_unknown": _count_unknown(source),
                     "target_unknown": _count_unknown(target)}
    texts = ([side[i] for i in keep] for side in (pairs.source, pairs.target))
    return Split.from_rows(source, target, *texts, pairs.gold_edits)


def _encode_text(spec: DataSpec, split: str, lines: ParallelText, tokenizer: Tokenizer,
                 counts: SplitCounts) -> Split:
    assert spec.window is not None and spec.stride is not None, "a spec of text has both"
    stride = spec.window if split == "train" else spec.stride
    rows = _encode_lines(tokenizer, lines.target)
    windows = rows.windows(spec.window, stride)
    counts[split] = lines.counts | {
        "windows": len(windows), "lines": len(rows), "cut": 0, "source_unknown": 0,
        "target_tokens": len(rows.flat) + len(rows), "target_unknown": _count_unknown(rows)}
    return Split.from_rows(RaggedArray.from_lists([[]] * len(windows)), windows, [], lines.target,
                           window_overlap=spec.window - stride)


def _encode_lines(tokenizer: Tokenizer, lines: list[str]) -> RaggedArray:
    """Encodes lines, a chunk at a time: lists of Python integers take ten times the memory."""
    return RaggedArray.concatenate(
        [RaggedArray.from_lists(tokenizer.encode(lines[start : start + _CHUNK]))
         for start in range(0, len(lines), _CHUNK)])


def _select_training_pairs(
        spec: DataSpec, source: IntArray, target: IntArray) -> tuple[IntArray, dict[str, int]]:
    """Indices of the training pairs to keep, and how many are dropped for which reason."""
    longer = np.maximum(source, target)
    shorter = np.minimum(source, target)
    # A given tokenizer may turn a line of odd blanks into nothing at all.
    void = shorter == 0
    long = ~void & (longer > spec.max_length)
    uneven = ~void & ~long & (longer > (spec.max_ratio or np.inf) * np.maximum(shorter, 1))
    keep = np.flatnonzero(~(void | long | uneven))
    if not len(keep):
        raise UserError(f"data: train: none of the {len(source)} pairs is left: {int(long.sum())} "
                        f"are longer than max_length {spec.max_length} tokens, {int(uneven.sum())} "
                        f"beyond max_ratio {spec.max_ratio}", key="data.train",
                        code="no-pairs-left")
    return keep, {"no_token": int(void.sum()), "too_long": int(long.sum()),
                  "uneven": int(uneven.sum())}


def _count_unknown(rows: RaggedArray) -> int:
    return int(np.count_nonzero(rows.flat == UNK))


def _count_overlap(text: dict[str, ParallelText]) -> dict[str, int]:
    """Numbers of held-out pairs, and sources, that occur in the training text, and of test pairs that valid has."""
    if not text["train"].source:
        known = set(text["train"].target)
        return {f"{split}_lines": sum(line in known for line in text[split].target)
                for split in _HELD_OUT_SPLITS}
    wanted = {source for split in _HELD_OUT_SPLITS for source in text[split].source}
    pairs = {pair for pair in zip(text["train"].source, text["train"].target) if pair[0] in wanted}
    sources = {source for source, _ in pairs}
    counts = {}
    for split in _HELD_OUT_SPLITS:
        counts[f"{split}_pairs"] = sum(pair in pairs
                                       for pair in zip(text[split].source, text[split].target))
        counts[f"{split}_sources"] = sum(source in sources for source in text[split].source)
    valid = set(zip(text["valid"].source, text["valid"].target))
    counts["test_in_valid"] = sum(pair in valid
                                  for pair in zip(text["test"].source, text["test"].target))
    return counts


def describe_counts(spec: DataSpec, counts: SplitCounts) -> Iterator[str]:
    """Notes for people: what was left out or cut, and where the splits overlap."""
    if spec.file_format == "text":
        yield from _notes_on_text(spec, counts)
        return
    train = counts["train"]
    if spec.builtin:
        yield "synthetic text from the built-in grammar: scores on it compare architectures, nothing else"
    if spec.distilled:
        where = "beside" if spec.mix_distilled else "in place of"
        yield f"train: a teacher's translations, {where} the real ones; valid and test are the real text"
    for key, why in _REASONS.items():
        if train.get(key):
            yield f"train: {train[key]} of {train['read']} pairs left out: {why}"
    for split in _HELD_OUT_SPLITS:
        yield from _describe_split(split, counts[split], counts["overlap"], spec)
    # which a corpus that an earlier version cached does not have
    if seen := counts["overlap"].get("test_in_valid"):
        yield (f"warning: {seen} of {counts['test']['pairs']} test pairs are also in the "
               "validation text, by whose scores candidates are chosen")
    if spec.lowercase:
        yield "all text is lower-cased, references too: BLEU is case-insensitive"


_REASONS = {"empty": "a side is empty", "beyond_limit": "beyond the limit",
            "no_token": "a side has no token", "too_long": "longer than max_length",
            "uneven": "beyond max_ratio"}


def _notes_on_text(spec: DataSpec, counts: SplitCounts) -> Iterator[str]:
    yield (f"windows of {spec.window} tokens, validation and test every {spec.stride} tokens; "
           + ", ".join(f"{split} {counts[split]['target_tokens']:,} tokens"
                       for split in SPLIT_NAMES))
    for split in SPLIT_NAMES:
        if counts[split].get("empty"):
            yield f"{split}: {counts[split]['empty']} of {counts[split]['read']} lines left out: empty"
        if counts[split]["target_unknown"] and split != "train":
            yield (f"{split}: {counts[split]['target_unknown']} tokens hold characters that the "
                   "vocabulary lacks; each counts as one unknown token")
        if counts["overlap"].get(f"{split}_lines"):
            yield (f"warning: {counts['overlap'][f'{split}_lines']} of {counts[split]['lines']} "
                   f"{split} lines are also in the training text")
    if spec.lowercase:
        yield "all text is lower-cased"


def _describe_split(split: str, counts: dict[str, int], overlap: dict[str, int],
                    spec: DataSpec) -> Iterator[str]:
    if counts["cut"]:
        yield (f"{split}: {counts['cut']} of {counts['pairs']} pairs are cut to max_length "
               f"{spec.max_length} for the model; their references stay whole")
    if counts.get("periods_apart") and not spec.tokenized:
        yield (f"warning: {counts['periods_apart']} of {counts['pairs']} {split} references end in "
               "a period that stands apart: BLEU of tokenised text compares with no published "
               "figure; detokenise it, or say `tokenised: true`")
    if unknown := counts["source_unknown"] + counts["target_unknown"]:
        yield f"{split}: {unknown} tokens hold characters that the vocabulary lacks"
    if sources := overlap[f"{split}_sources"]:
        yield (f"warning: {sources} of {counts['pairs']} {split} sources are also in the training "
               f"text, {overlap[f'{split}_pairs']} with the same translation")
