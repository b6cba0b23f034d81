"""Conversion of a sentencepiece model to ``tokenizer.json`` for ``tokenizers``.

BPE of ``tokenizers`` merges listed pairs, while BPE of sentencepiece merges any two pieces whose
concatenation is a piece. Each piece is therefore listed with all its splits into two pieces. If
several pairs form the same piece, sentencepiece merges the leftmost first; this only affects
repetitions of one character.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from scalesearch.data import BOS, EOS, PAD, UNK, Tokenizer
from scalesearch.errors import UserError, option

SPACE_MARKER = "▁"  # represents a space in pieces
N_PROBES = 300
PIECES_PER_PROBE = 12
EDGE_CASE_TEXTS = ("a  b ", " \t½", "ﬁ…", "</s> <unk> a<pad>b", "x▁y", "\U0001f642\U0001f642 z")


@dataclass(frozen=True)
class TokenTemplate:
    """Special ids before and after the ids of each text; by default, texts end with EOS."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = (EOS,)


def tokenizer_json(tokenizer: Tokenizer, lowercase: bool,
                   template: TokenTemplate = TokenTemplate()) -> dict[str, Any]:
    """Build ``tokenizer.json``."""
    pieces = tokenizer.pieces()
    ids = {piece: id for id, (piece, _) in enumerate(pieces)}
    named = {name: piece for name, (piece, _) in zip(("pad", "unk", "bos", "eos"), pieces)}
    normalizers = [*([{"type": "Lowercase"}] if lowercase else []), _replace(SPACE_MARKER, " "),
                   _replace(r"\A +| +\z", "", "Regex"), _replace(" +", " ", "Regex")]
    pre_tokenizers: list[dict[str, Any]] = [
        {"type": "Metaspace", "replacement": SPACE_MARKER, "prepend_scheme": "always",
         "split": True}]
    if tokenizer.is_unigram:
        # The model would tokenize text that looks like a special piece as this piece. Such text is
        # split before a character that is a piece.
        cuts = []
        for piece, _ in pieces[: EOS + 1]:
            position = next((index for index in range(1, len(piece)) if piece[index] in ids), 1)
            cuts.append(f"{re.escape(piece[:position])}(?={re.escape(piece[position:])})")
        pre_tokenizers.append({"type": "Split", "pattern": {"Regex": "|".join(cuts)},
                               "behavior": "Isolated", "invert": False})
        model: dict[str, Any] = {"type": "Unigram", "unk_id": UNK,
                                 "vocab": [list(piece) for piece in pieces], "byte_fallback": False}
    else:
        merges = [[piece[:position], piece[position:]]
                  for piece, _ in sorted(pieces[EOS + 1 :], key=lambda piece: -piece[1])
                  for position in range(1, len(piece))
                  if piece[:position] in ids and piece[position:] in ids]
        model = {"type": "BPE", "dropout": None, "unk_token": pieces[UNK][0],
                 "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
                 "byte_fallback": False, "ignore_merges": False, "vocab": ids, "merges": merges}
    decoders = [_replace(named["unk"], " ⁇ "), {"type": "Fuse"},
                _replace(rf"\A{SPACE_MARKER}", "", "Regex"), _replace(SPACE_MARKER, " ")]
    before, after = ([{"SpecialToken": {"id": pieces[id][0], "type_id": 0}} for id in special]
                     for special in (template.before, template.after))
    first, second = ([*before, {"Sequence": {"id": name, "type_id": 0}}, *after] for name in "AB")
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": id, "content": pieces[id][0], "single_word": False,
                              "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True} for id in (PAD, BOS, EOS)],
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
            "post_processor": {"type": "TemplateProcessing", "single": first,
                               "pair": [*first, *second],
                               "special_tokens": {
                                   pieces[id][0]: {"id": pieces[id][0], "ids": [id],
                                                   "tokens": [pieces[id][0]]}
                                   for id in {*template.before, *template.after}}},
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": model}


def _replace(pattern: str, content: str, pattern_type: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {pattern_type: pattern}, "content": content}


def check_tokenizer(loaded: Any, expected: Tokenizer, lowercase: bool,
                    template: TokenTemplate = TokenTemplate()) -> None:
    """Check that a loaded tokenizer gives the same ids and texts, on random pieces.

    Raises:
        UserError: ids or texts differ.
    """
    rng = random.Random(0)
    pieces = [piece for piece, _ in expected.pieces()[EOS + 1 :]]
    lines = ["".join(rng.choices(pieces, k=PIECES_PER_PROBE)).replace(SPACE_MARKER, " ")
             for _ in range(N_PROBES)]
    for line in (*lines, *EDGE_CASE_TEXTS):
        ids = expected.encode([line.lower() if lowercase else line])[0]
        text = loaded.decode(ids, skip_special_tokens=True)
        framed = [*template.before, *ids, *template.after]
        if loaded(line)["input_ids"] != framed or text != expected.decode([ids])[0]:
            raise UserError(f"{option('to', 'huggingface')}: {line!r} is tokenized differently. "
                            "The tokenizer must be a sentencepiece model with normalization "
                            "identity and "
                            "without byte fallback", code="other-tokenizer")
