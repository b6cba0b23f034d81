"""Turns sentences into token ids: fits the vocabulary, encodes, filters and counts."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scalesearch.data.sources import DISTILLED, Pairs
from scalesearch.data.spec import SPLITS, DataSpec
from scalesearch.data.split import UNK, Ints, Rows, Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.errors import UserError
from scalesearch.tasks.edits import lowered

Counts = dict[str, dict[str, int]]
_CHUNK = 1 << 16
_HELD_OUT = ("valid", "test")
_TOKENISED = 100  # references that end in a period which stands apart, from which on sacreBLEU takes text as tokenised


@dataclass
class Prepared:
    """Corpus ready to be stored: tokenizer, splits, and counts of what was left out."""

    tokenizer: Tokenizer
    splits: dict[str, Split]
    counts: Counts


def prepare(spec: DataSpec, text: dict[str, Pairs]) -> Prepared:
    """Tokenises the splits by the settings of ``spec``.

    Raises:
        UserError: the vocabulary does not fit the text, or no training pair is left.
    """
    if spec.lowercase:
        text = {split: lower(pairs) for split, pairs in text.items()}
    if spec.limit is not None:
        text = text | {"train": text["train"].first(spec.limit)}
    if spec.tokenizer is None:
        assert spec.entries is not None, "a spec has a vocabulary size or a tokenizer"
        lines = text["train"].source + text["train"].target
        tokenizer = Tokenizer.fit(lines, spec.entries, spec.model, spec.coverage)
    else:
        tokenizer = Tokenizer.from_file(Path(spec.tokenizer))
    if DISTILLED in text:
        text = text | {"train": _joined(text[DISTILLED], text["train"]) if spec.mix else text[DISTILLED]}
    counts: Counts = {}
    encode = _encode_text if spec.form == "text" else _encode
    splits = {split: encode(spec, split, text[split], tokenizer, counts) for split in SPLITS}
    counts["overlap"] = _overlap(text)
    return Prepared(tokenizer, splits, counts)


def lower(pairs: Pairs) -> Pairs:
    """Pairs in lower case, with the edits that are still some."""
    source, target = ([line.lower() for line in side] for side in (pairs.source, pairs.target))
    gold = pairs.gold and [tuple(lowered(edits, line) for edits in annotators)
                           for line, annotators in zip(pairs.source, pairs.gold)]
    return Pairs(source, target, pairs.counts, gold)


def _joined(first: Pairs, second: Pairs) -> Pairs:
    counts = {key: first.counts.get(key, 0) + second.counts.get(key, 0) for key in {**first.counts, **second.counts}}
    return Pairs(first.source + second.source, first.target + second.target, counts)


def _encode(spec: DataSpec, split: str, pairs: Pairs, tokenizer: Tokenizer, counts: Counts) -> Split:
    source, target = _ids(tokenizer, pairs.source), _ids(tokenizer, pairs.target)
    if split == "train":
        keep, dropped = _fitting(spec, source.lengths, target.lengths)
        source, target = source.take(keep), target.take(keep)
    else:
        keep = np.arange(len(source))
        long = np.maximum(source.lengths, target.lengths) > spec.max_length
        apart = sum(line.endswith(" .") for line in pairs.target)
        dropped = {"cut": int(long.sum())} | ({"periods_apart": apart} if apart > _TOKENISED else {})
        source, target = source.cut(spec.max_length), target.cut(spec.max_length)
    counts[split] = {
        **pairs.counts, **dropped, "pairs": len(source), "source_tokens": len(source.flat),
        "target_tokens": len(target.flat), "source_unknown": _unknown(source), "target_unknown": _unknown(target)}
    texts = ([side[i] for i in keep] for side in (pairs.source, pairs.target))
    return Split.of_rows(source, target, *texts, pairs.gold)


def _encode_text(spec: DataSpec, split: str, lines: Pairs, tokenizer: Tokenizer, counts: Counts) -> Split:
    assert spec.window is not None and spec.stride is not None, "a spec of text has both"
    stride = spec.window if split == "train" else spec.stride
    rows = _ids(tokenizer, lines.target)
    windows = rows.windows(spec.window, stride)
    counts[split] = lines.counts | {"windows": len(windows), "lines": len(rows), "cut": 0, "source_unknown": 0,
                                    "target_tokens": len(rows.flat) + len(rows), "target_unknown": _unknown(rows)}
    return Split.of_rows(Rows.of([[]] * len(windows)), windows, [], lines.target, overlap=spec.window - stride)


def _ids(tokenizer: Tokenizer, lines: list[str]) -> Rows:
    """Encodes lines, a chunk at a time: lists of Python integers take ten times the memory."""
    return Rows.joined([Rows.of(tokenizer.encode(lines[start : start + _CHUNK]))
                        for start in range(0, len(lines), _CHUNK)])


def _fitting(spec: DataSpec, source: Ints, target: Ints) -> tuple[Ints, dict[str, int]]:
    """Indices of the training pairs to keep, and how many are dropped for which reason."""
    longer, shorter = np.maximum(source, target), np.minimum(source, target)
    # A given tokenizer may turn a line of odd blanks into nothing at all.
    void = shorter == 0
    long = ~void & (longer > spec.max_length)
    uneven = ~void & ~long & (longer > (spec.max_ratio or np.inf) * np.maximum(shorter, 1))
    keep = np.flatnonzero(~(void | long | uneven))
    if not len(keep):
        raise UserError(f"data: train: none of the {len(source)} pairs is left: {int(long.sum())} are longer "
                        f"than max_length {spec.max_length} tokens, {int(uneven.sum())} beyond max_ratio "
                        f"{spec.max_ratio}", key="data.train", code="no-pairs-left")
    return keep, {"no_token": int(void.sum()), "too_long": int(long.sum()), "uneven": int(uneven.sum())}


def _unknown(rows: Rows) -> int:
    return int(np.count_nonzero(rows.flat == UNK))


def _overlap(text: dict[str, Pairs]) -> dict[str, int]:
    """Numbers of held-out pairs, and sources, that occur in the training text, and of test pairs that valid has."""
    if not text["train"].source:
        known = set(text["train"].target)
        return {f"{split}_lines": sum(line in known for line in text[split].target) for split in _HELD_OUT}
    wanted = {source for split in _HELD_OUT for source in text[split].source}
    pairs = {pair for pair in zip(text["train"].source, text["train"].target) if pair[0] in wanted}
    sources = {source for source, _ in pairs}
    counts = {}
    for split in _HELD_OUT:
        counts[f"{split}_pairs"] = sum(pair in pairs for pair in zip(text[split].source, text[split].target))
        counts[f"{split}_sources"] = sum(source in sources for source in text[split].source)
    valid = set(zip(text["valid"].source, text["valid"].target))
    counts["test_in_valid"] = sum(pair in valid for pair in zip(text["test"].source, text["test"].target))
    return counts


def notes(spec: DataSpec, counts: Counts) -> Iterator[str]:
    """Notes for people: what was left out or cut, and where the splits overlap."""
    if spec.form == "text":
        yield from _notes_on_text(spec, counts)
        return
    train = counts["train"]
    if spec.builtin:
        yield "synthetic text from the built-in grammar: scores on it compare architectures, nothing else"
    if spec.distilled:
        where = "beside" if spec.mix else "in place of"
        yield f"train: a teacher's translations, {where} the real ones; valid and test are the real text"
    for key, why in _REASONS.items():
        if train.get(key):
            yield f"train: {train[key]} of {train['read']} pairs left out: {why}"
    for split in _HELD_OUT:
        yield from _notes_on(split, counts[split], counts["overlap"], spec)
    if seen := counts["overlap"].get("test_in_valid"):  # which a corpus that an earlier version cached does not have
        yield (f"warning: {seen} of {counts['test']['pairs']} test pairs are also in the validation text, by whose "
               "scores candidates are chosen")
    if spec.lowercase:
        yield "all text is lower-cased, references too: BLEU is case-insensitive"


_REASONS = {"empty": "a side is empty", "beyond_limit": "beyond the limit", "no_token": "a side has no token",
            "too_long": "longer than max_length", "uneven": "beyond max_ratio"}


def _notes_on_text(spec: DataSpec, counts: Counts) -> Iterator[str]:
    yield (f"windows of {spec.window} tokens, validation and test every {spec.stride} tokens; "
           + ", ".join(f"{split} {counts[split]['target_tokens']:,} tokens" for split in SPLITS))
    for split in SPLITS:
        if counts[split].get("empty"):
            yield f"{split}: {counts[split]['empty']} of {counts[split]['read']} lines left out: empty"
        if counts[split]["target_unknown"] and split != "train":
            yield (f"{split}: {counts[split]['target_unknown']} tokens hold characters that the vocabulary lacks; "
                   "each counts as one unknown token")
        if counts["overlap"].get(f"{split}_lines"):
            yield (f"warning: {counts['overlap'][f'{split}_lines']} of {counts[split]['lines']} {split} lines are also "
                   "in the training text")
    if spec.lowercase:
        yield "all text is lower-cased"


def _notes_on(split: str, counts: dict[str, int], overlap: dict[str, int], spec: DataSpec) -> Iterator[str]:
    if counts["cut"]:
        yield (f"{split}: {counts['cut']} of {counts['pairs']} pairs are cut to max_length {spec.max_length} for the "
               "model; their references stay whole")
    if counts.get("periods_apart") and not spec.tokenised:
        yield (f"warning: {counts['periods_apart']} of {counts['pairs']} {split} references end in a period that "
               "stands apart: BLEU of tokenised text compares with no published figure; detokenise it, or say "
               "`tokenised: true`")
    if unknown := counts["source_unknown"] + counts["target_unknown"]:
        yield f"{split}: {unknown} tokens hold characters that the vocabulary lacks"
    if sources := overlap[f"{split}_sources"]:
        yield (f"warning: {sources} of {counts['pairs']} {split} sources are also in the training text, "
               f"{overlap[f'{split}_pairs']} with the same translation")
