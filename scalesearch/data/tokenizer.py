"""Sentencepiece tokenizer, with one vocabulary for both languages or one for each.

Three choices keep scores comparable:

- Text is not normalized (normalization ``identity``). The default of the library, ``nmt_nfkc``,
  rewrites ``…`` to ``...`` and ``½`` to ``1⁄2``; a model trained on such text can never produce
  the reference. Only runs of blanks become one blank, and outer blanks are removed; BLEU ignores
  both. ``▁`` (U+2581) in the text becomes a blank.
- No byte fallback. It would add 256 rows that are hardly ever used to every embedding, a sixteenth
  of a vocabulary of 4,000, and architectures are compared by their parameters. Instead, every
  character of the training text has an entry; other characters are UNK.
- The same text gives the same model: one thread and no sampling. Above 4 million lines, every n-th
  line is used.

A tokenizer with two vocabularies is stored as one file: a ZIP archive of two sentencepiece models.
"""

import errno
import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain, count, repeat
from pathlib import Path
from random import Random
from typing import Any

import sentencepiece

from scalesearch.blocks.core import BOS, EOS, PAD, UNK
from scalesearch.errors import UserError
from scalesearch.files import regular_size

_WORD = re.compile("▁?[^▁]*", re.DOTALL)
_MAX_CACHED_WORDS = 1 << 20
_MAX_LINES = 4_000_000
_MAX_LINE_BYTES = 1 << 16
_MAX_MODEL_BYTES = 1 << 28  # a vocabulary of a million entries has about 30 MB
_PAIR_FILES = ("source.model", "target.model")


class Tokenizer:
    """Sentencepiece model with the first ids PAD, UNK, BOS, EOS.

    Attributes:
        model_bytes: content of the model file; stored in checkpoints.
        vocab_size: number of entries, including the special ones; those of the source if it has a
            vocabulary of its own.
    """

    def __init__(self, model: bytes, name: Path | str = "the tokenizer") -> None:
        self.model_bytes = model
        sides = _split_pair(model, name)
        self._sides = tuple(Tokenizer(side, name) for side in sides)
        self._processor = self.source._processor if sides else _load(model, name)
        self.vocab_size: int = self._processor.vocab_size()

    @property
    def is_pair(self) -> bool:
        """Whether source and target have a vocabulary each."""
        return bool(self._sides)

    @property
    def source(self) -> "Tokenizer":
        """Tokenizer of the source alone."""
        return self._sides[0] if self._sides else self

    @property
    def target(self) -> "Tokenizer":
        """Tokenizer of the target alone."""
        return self._sides[1] if self._sides else self

    @property
    def common_vocab_size(self) -> int:
        """Number of entries of the smaller vocabulary."""
        return min(self.vocab_size, self.target.vocab_size)

    @classmethod
    def pair(cls, source: "Tokenizer", target: "Tokenizer") -> "Tokenizer":
        """Combine the tokenizers of the two sides."""
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            for name, side in zip(_PAIR_FILES, (source, target)):
                # The time is constant, so that equal tokenizers have equal bytes.
                file.writestr(zipfile.ZipInfo(name), side.model_bytes)
        return cls(archive.getvalue())

    @classmethod
    def from_file(cls, path: Path, key: str = "tokenizer") -> "Tokenizer":
        """Read a sentencepiece ``.model`` file, which ``key`` of the data names.

        Raises:
            UserError: the file is missing, is not a sentencepiece model, or has other special ids.
        """
        try:
            if regular_size(path) > _MAX_MODEL_BYTES:
                raise OSError(errno.EFBIG, "too large for a sentencepiece model")
            return cls(path.read_bytes(), path)
        except OSError as error:
            raise UserError(f"data: {key}: {path}: {error.strerror or error}",
                            key=f"data.{key}", code="cannot-read") from None

    @classmethod
    def fit(cls, lines: Sequence[str], vocab_size: int, vocab_type: str = "bpe",
            character_coverage: float = 1.0, key: str = "vocab") -> "Tokenizer":
        """Fit a vocabulary of exactly ``vocab_size`` entries, which ``key`` of the data sets.

        Raises:
            UserError: the text does not support this size; the message gives the nearest possible
                size.
        """
        stride = -(-len(lines) // _MAX_LINES)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines[::stride or 1]), model_writer=model,
                vocab_size=vocab_size, model_type=vocab_type, character_coverage=character_coverage,
                normalization_rule_name="identity", pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS,
                num_threads=1, hard_vocab_limit=True, max_sentence_length=_MAX_LINE_BYTES,
                minloglevel=2)
        except RuntimeError as error:
            if highest := re.search(r"too high.*<= (\d+)", str(error)):
                reason = ("the training text has too few different words for a vocabulary of "
                          f"{vocab_size:,}; the maximum is {int(highest[1]):,}")
            elif lowest := re.search(r"smaller than required_chars\. *\d+ vs (\d+)", str(error)):
                reason = (f"{vocab_size:,} is too small: the characters of the training text need "
                          f"{int(lowest[1]):,} entries; increase it, or leave out rare characters "
                          "with a lower `character_coverage`")
            else:
                reason = f"{vocab_size:,} entries cannot be fitted to the training text: {error}"
            raise UserError(f"data: {key}: {reason}", key=f"data.{key}",
                            code="vocab-size-unsupported") from None
        return cls(model.getvalue())

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Encode sentences as token ids, without BOS and EOS."""
        return self._processor.encode(list(sentences), out_type=int) if len(sentences) else []

    def encode_with_dropout(self, sentences: Sequence[str], dropout: float,
                            seed: int) -> list[list[int]]:
        """Encode sentences with BPE-dropout (Provilkov et al. 2020), without BOS and EOS.

        Each possible merge is left out with probability ``dropout``; ``seed`` determines the
        choice. Merges across words are not possible.

        Raises:
            UserError: the tokenizer is a unigram model, which has no merges.
        """
        if self.is_unigram:
            raise UserError("recipe: subword_dropout: it leaves out merges, and the tokenizer is a "
                            "unigram model, which has none", help="remove subword_dropout",
                            key="recipe.subword_dropout", code="fixed-tokens")
        # The library's own sampling differs between processes, whatever the seed (version 0.2.3).
        draw = Random(seed).random
        return [[id for word in _WORD.findall(line)
                 for id in self._sample_word(word, dropout, draw)]
                for line in self._processor.normalize(list(sentences))]

    def _sample_word(self, word: str, dropout: float, draw: Callable[[], float]) -> list[int]:
        """Encode a word with BPE-dropout."""
        if word not in self._encoded_words:
            if len(self._encoded_words) > _MAX_CACHED_WORDS:
                self._encoded_words.clear()
            self._encoded_words[word] = self._merge(word, repeat(False))
        ids, n_merges = self._encoded_words[word]
        for n_merged in range(n_merges):
            if draw() < dropout:
                later = (draw() < dropout for _ in count())
                return self._merge(word, chain(repeat(False, n_merged), [True], later))[0]
        return ids

    @cached_property
    def _encoded_words(self) -> dict[str, tuple[list[int], int]]:
        """Word to its ids and number of merges without dropout."""
        return {}

    def _merge(self, word: str, is_left_out: Iterator[bool]) -> tuple[list[int], int]:
        """Encode a word by BPE.

        Args:
            is_left_out: for each possible merge, whether it is left out.

        Returns:
            Ids, and the number of merges.
        """
        symbols = list(word)  # empty after it was merged with the one before
        before = [*range(-1, len(word) - 1)]
        after = [*range(1, len(word)), -1]
        merges: list[tuple[float, int, int, str]] = []
        n_merges = 0

        def add_merge(left: int, right: int) -> None:
            if left >= 0 and right >= 0:
                merged = symbols[left] + symbols[right]
                if merged in self._entries:
                    heappush(merges, (-self._entries[merged][1], left, right, merged))

        for left in range(len(word) - 1):
            add_merge(left, left + 1)
        while merges:
            _, left, right, merged = heappop(merges)
            is_possible = symbols[left] and symbols[right] and (
                symbols[left] + symbols[right] == merged)
            if not is_possible or next(is_left_out):
                continue
            n_merges += 1
            symbols[left] = merged
            symbols[right] = ""
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            add_merge(before[left], left)
            add_merge(left, after[left])
        ids = [id for symbol in symbols if symbol for id in self._symbol_ids(symbol)]
        # as in the library, unknown characters in a row are one token
        ids = [id for id, previous in zip(ids, [None, *ids]) if not id == previous == UNK]
        return ids, n_merges

    def _symbol_ids(self, symbol: str) -> list[int]:
        """Return the id of an entry, or of an unknown character: UNK, or its bytes if possible."""
        if symbol in self._entries:
            return [self._entries[symbol][0]]
        ids = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in symbol.encode()]
        return ids if self._processor.is_byte(ids[0]) else [UNK]

    @cached_property
    def _entries(self) -> dict[str, tuple[int, float]]:
        """Text of an entry to its id and score."""
        return {piece: (id, score) for id, (piece, score) in enumerate(self.pieces())
                if not (self._processor.is_control(id) or self._processor.is_unknown(id)
                        or self._processor.is_byte(id))}

    @property
    def is_unigram(self) -> bool:
        """Whether scores are log-probabilities; the scores of BPE are integer ranks."""
        return any(score != round(score) for _, score in self.pieces())

    def decode(self, rows: Iterable[Iterable[Any]]) -> list[str]:
        """Decode rows of ids; PAD, BOS and EOS are removed, UNK becomes ⁇."""
        lists = [row.tolist() if hasattr(row, "tolist") else [int(token) for token in row]
                 for row in rows]
        return list(self._processor.decode(lists)) if lists else []

    def pieces(self) -> list[tuple[str, float]]:
        """Return entries by id with scores: log-probability (unigram), -rank (BPE)."""
        processor = self._processor
        return [(processor.id_to_piece(id), processor.get_score(id))
                for id in range(self.vocab_size)]

    @property
    def model_hash(self) -> str:
        """Hash of the model."""
        return hashlib.blake2b(self.model_bytes, digest_size=16).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.model_bytes,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.model_bytes == other.model_bytes

    def __hash__(self) -> int:
        return hash(self.model_bytes)

    def __repr__(self) -> str:
        target = f", target_vocab_size={self.target.vocab_size}" if self.is_pair else ""
        return f"Tokenizer(vocab_size={self.vocab_size}{target})"


def _split_pair(model: bytes, name: Path | str) -> list[bytes]:
    """Return the models of source and target; empty for a single model."""
    if not model.startswith(b"PK"):
        return []
    try:
        with zipfile.ZipFile(io.BytesIO(model)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > len(model):  # compressed
                raise ValueError(name)
            return [archive.read(file) for file in _PAIR_FILES]
    except (KeyError, ValueError, RuntimeError, zipfile.BadZipFile):
        raise UserError(f"{name}: not a pair of sentencepiece models",
                        code="not-a-tokenizer") from None


def _load(model: bytes, name: Path | str) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError:
        raise UserError(f"{name}: not a sentencepiece model", code="not-a-tokenizer") from None
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if ids != (PAD, UNK, BOS, EOS):
        raise UserError(f"{name}: the ids of pad, unk, bos, eos are {ids} but must be "
                        f"{(PAD, UNK, BOS, EOS)}. Train it with --pad_id=0 --unk_id=1 --bos_id=2 "
                        "--eos_id=3", code="other-special-ids")
    return processor
