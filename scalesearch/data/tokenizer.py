"""Sentencepiece tokenizer with one vocabulary for both languages.

Three choices, so that scores mean what they say:

- Text is taken as it is (normalisation ``identity``). The library's default, ``nmt_nfkc``, rewrites ``…`` to
  ``...`` and ``½`` to ``1⁄2``; a model trained on that can never produce the reference. Only runs
  of blanks
  become one blank and outer blanks go, which BLEU does not see. A text that holds ``▁`` (U+2581)
  itself gets
  a blank in its place.
- No byte fallback. It would put 256 rows that are hardly ever used into every embedding, a sixteenth of the
  total at a vocabulary of 4,000, and architectures are compared by their parameters. In its place
  every
  character of the training text has an entry; a character never seen there is UNK.
- The same text gives the same model: one thread, no sampling (beyond 4 million lines, every n-th is taken).
"""

import errno
import hashlib
import io
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from scalesearch.data.split import BOS, EOS, PAD, UNK
from scalesearch.errors import UserError
from scalesearch.files import regular_size

_SEED_LOCK = threading.Lock()
_MAX_LINES = 4_000_000
_MAX_LINE_BYTES = 1 << 16
_MAX_MODEL_BYTES = 1 << 28  # of a vocabulary of a million entries about 30 MB


class Tokenizer:
    """Sentencepiece model, whose first ids are PAD, UNK, BOS, EOS.

    Attributes:
        bytes: the sentencepiece model as a file holds it; travels with checkpoints.
        vocab_size: entries, the special ones included.
    """

    def __init__(self, model: bytes, name: Path | str = "the tokenizer") -> None:
        self.model_bytes = model
        self._processor = _load(model, name)
        self.vocab_size: int = self._processor.vocab_size()

    @classmethod
    def from_file(cls, path: Path) -> "Tokenizer":
        """Reads a sentencepiece ``.model`` file.

        Raises:
            UserError: no such file, not a sentencepiece model, or one with other special ids.
        """
        try:
            if regular_size(path) > _MAX_MODEL_BYTES:
                raise OSError(errno.EFBIG, "too large for a sentencepiece model")
            return cls(path.read_bytes(), path)
        except OSError as error:
            raise UserError(f"data: tokenizer: {path}: {error.strerror or error}",
                            key="data.tokenizer", code="cannot-read") from None

    @classmethod
    def fit(cls, lines: Sequence[str], vocab_size: int, vocab_type: str = "bpe",
            character_coverage: float = 1.0) -> "Tokenizer":
        """Fits a vocabulary of exactly ``vocab_size`` entries to the sentences of both languages.

        Raises:
            UserError: the text supports no vocabulary of this size; the message says which it does.
        """
        stride = -(-len(lines) // _MAX_LINES)
        written = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines[::stride or 1]), model_writer=written,
                vocab_size=vocab_size, model_type=vocab_type, character_coverage=character_coverage,
                normalization_rule_name="identity", pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS,
                num_threads=1, hard_vocab_limit=True, max_sentence_length=_MAX_LINE_BYTES,
                minloglevel=2)
        except RuntimeError as error:
            raise UserError(_fit_error(str(error), vocab_size), key="data.vocab",
                            code="vocabulary-misfit") from None
        return cls(written.getvalue())

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Token ids of each sentence, without BOS and EOS."""
        return self._processor.encode(list(sentences), out_type=int) if len(sentences) else []

    def encode_with_dropout(self, sentences: Sequence[str], dropout: float,
                            seed: int) -> list[list[int]]:
        """Token ids of each sentence with merges left out at random (BPE-dropout, Provilkov et al.

        2020).

        Each merge is left out with probability ``dropout`` whenever it could be made; ``seed``
        alone decides which.

        Raises:
            UserError: a unigram model, which merges nothing.
        """
        if self.is_unigram:
            raise UserError("recipe: subword_dropout: it leaves merges out, and the tokenizer is a "
                            "unigram model, which has none", help="leave subword_dropout out",
                            key="recipe.subword_dropout", code="fixed-tokens")
        # the library has one seed, which a thread takes when it first draws: one new thread a call
        with _SEED_LOCK:
            sentencepiece.set_random_generator_seed(seed)
            return self._processor.encode(list(sentences), out_type=int, enable_sampling=True,
                                          alpha=dropout, nbest_size=-1,
                                          num_threads=1) if len(sentences) else []

    @property
    def is_unigram(self) -> bool:
        """Whether scores are log-probabilities; those of BPE are ranks, whole numbers."""
        return any(score != round(score) for _, score in self.pieces())

    def decode(self, rows: Iterable[Iterable[Any]]) -> list[str]:
        """Sentence of each row of ids (lists or integer arrays); PAD, BOS and EOS vanish, UNK is ⁇."""
        plain = [row.tolist() if hasattr(row, "tolist") else [int(token) for token in row]
                 for row in rows]
        return list(self._processor.decode(plain)) if plain else []

    def pieces(self) -> list[tuple[str, float]]:
        """Every entry, by id, with its score: log-probability of a unigram model, minus rank of BPE."""
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
        return f"Tokenizer(vocab_size={self.vocab_size})"


def _load(model: bytes, name: Path | str) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError:
        raise UserError(f"{name}: not a sentencepiece model", code="not-a-tokenizer") from None
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if ids != (PAD, UNK, BOS, EOS):
        raise UserError(f"{name}: its ids of pad, unk, bos, eos are {ids} and must be "
                        f"{(PAD, UNK, BOS, EOS)}. Train it with --pad_id=0 --unk_id=1 --bos_id=2 "
                        "--eos_id=3", code="other-special-ids")
    return processor


def _fit_error(message: str, vocab: int) -> str:
    """Error message for the user, made from the library's."""
    if highest := re.search(r"too high.*<= (\d+)", message):
        return ("data: vocab: the training text has too few different words for a vocabulary of "
                f"{vocab}; the largest it supports is {highest[1]}")
    if lowest := re.search(r"smaller than required_chars\. *\d+ vs (\d+)", message):
        return (f"data: vocab: {vocab} is too small: the training text's characters alone need "
                f"{lowest[1]} entries; give more, or leave rare characters out with a lower "
                "`coverage`")
    return f"data: no vocabulary of {vocab} could be made from the training text: {message}"
