"""Corpora, loaded from the cache or prepared from text, and BPE-dropout."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from scalesearch.data.cache import (
    DamagedCacheError,
    StoredCorpus,
    cache_key,
    hash_json,
    read_cache,
    write_cache,
)
from scalesearch.data.files import default_cache
from scalesearch.data.prepare import SplitCounts, describe_counts, list_classes, prepare_corpus
from scalesearch.data.soft_targets import SoftTargets, read_metadata
from scalesearch.data.sources import fingerprint_text, read_sentences
from scalesearch.data.spec import DataSpec
from scalesearch.data.split import Masking, RaggedArray, Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.errors import UserError
from scalesearch.lowering import EXTRA_LENGTH, LENGTH_FACTOR
from scalesearch.tasks import TASKS

_LENGTH_QUANTILE = 0.999


@dataclass(frozen=True)
class CorpusFacts:
    """Facts about a corpus, as in ``data.json``; see :class:`Corpus`."""

    name: str
    hash: str
    synthetic: bool
    spec: dict[str, Any]
    vocab: int
    counts: SplitCounts
    notes: tuple[str, ...]
    max_length_a: float = LENGTH_FACTOR


@dataclass(frozen=True)
class Corpus:
    """Tokenized training, validation and test splits.

    Attributes:
        name: for tables, for example ``multi30k en-de``.
        content_hash: 16 hex digits of vocabulary, ids and text. Corpora with equal hashes are
            equal. Part of each record.
        is_synthetic: the text was generated; reports of scores mention it.
        spec: the data spec, with paths as written.
        tokenizer: that of both languages, or with one for each.
        train, validation, test: the splits.
        counts: per split the pairs read, left out (train), truncated (validation, test) and kept;
            the overlap of the splits; and the number of each class.
        notes: the counts in words, and whether a damaged cache was repaired.
        folder: cache folder.
    """

    name: str
    content_hash: str
    is_synthetic: bool
    spec: DataSpec
    tokenizer: Tokenizer
    train: Split
    validation: Split
    test: Split
    counts: SplitCounts
    notes: tuple[str, ...]
    folder: Path | None = None

    @property
    def mean_lengths(self) -> tuple[int, int]:
        """Rounded mean source and target tokens of training pairs, with EOS or BOS.

        For a masked language model, they are the tokens and the masked tokens of a window; for
        classes, the tokens of a text and 1.
        """
        if (masking := self.train.masking) is not None:
            lengths = self.train.target_ids.lengths
            return int(lengths.mean() + 0.5), int(masking.counts(lengths).mean() + 0.5)
        source = int(self.train.source_ids.lengths.mean() + 1.5)
        has_eos = self.train.window_overlap is None  # a window holds the ends of its lines
        target = int(self.train.target_ids.lengths.mean() + has_eos + 0.5)
        return source, 1 if self.train.has_classes else target

    @property
    def n_classes(self) -> int | None:
        """Number of classes, in alphabetical order from 1; None if targets are texts."""
        return len(self.counts["classes"]) if self.train.has_classes else None

    def class_mismatch(self, n_classes: object) -> tuple[str, str] | None:
        """Why an architecture with ``n_classes`` classes does not fit the text, and the fix.

        None if it fits.
        """
        if n_classes == self.n_classes:
            return None
        reason = f"the architecture has {n_classes or 'none'}, and the data have "
        if self.n_classes is None:
            return f"{reason}none", ("only the task classification has classes; remove `classes` "
                                     "from the architecture")
        fix = (f"set classes: {self.n_classes} in the architecture" if self.n_classes > 1 else
               "add training texts of another class")
        names = list_classes(list(self.counts["classes"]))
        return f"{reason}{self.n_classes}: {names}", fix

    @property
    def facts(self) -> CorpusFacts:
        """Facts for records."""
        return CorpusFacts(self.name, self.content_hash, self.is_synthetic, self.spec.model_dump(),
                           self.tokenizer.vocab_size, self.counts, self.notes,
                           self.max_length_a)

    @property
    def max_length_a(self) -> float:
        """Factor of the default limit of a translation, in steps of 0.1.

        It is at least 1.5. With ``EXTRA_LENGTH`` it suffices for 99.9 % of the training pairs.
        """
        if self.train.window_overlap is not None or self.train.has_classes:
            return LENGTH_FACTOR
        source = self.train.source_ids.lengths + 1
        ratios = (self.train.target_ids.lengths - EXTRA_LENGTH) / source
        needed = float(np.quantile(ratios, _LENGTH_QUANTILE, method="higher"))
        return max(LENGTH_FACTOR, math.ceil(10 * needed) / 10)


def load_corpus(spec: DataSpec, cache: Path | None = None, base: Path | None = None) -> Corpus:
    """Load the corpus of ``spec``; it is prepared once and stored under ``cache``.

    The cache is keyed by the content of the files, wherever they are. If several processes load a
    corpus at the same time, one of them prepares it and the others wait.

        >>> load_corpus(DataSpec(builtin="grammar", pairs=2000, vocab=500)).train.source_text[0]
        'This guest will laugh about the answers.'

    Args:
        cache: default ``$XDG_CACHE_HOME/scalesearch/corpora``.
        base: folder of relative paths in ``spec``; default: the working directory.

    Raises:
        UserError: a file is missing or invalid, the vocabulary does not fit, the cache cannot be
            written, or the metrics of the task cannot score the references.
    """
    resolved = spec.with_absolute_paths(base)
    folder = (cache or default_cache()) / cache_key(_hashed_settings(resolved))
    repairs: list[str] = []
    try:
        metadata, tokenizer, splits = read_cache(folder)
    except DamagedCacheError:
        (metadata, tokenizer, splits), repairs = _build_and_store(resolved, folder)
    content_hash = metadata["hash"]
    notes = list(describe_counts(spec, metadata["counts"]))
    for split in ("validation", "test"):
        notes += (f"{split}: {note}"
                  for note in TASKS[spec.task].check_texts(splits[split].texts, spec))
    if TASKS[spec.task].masks_tokens:
        splits = {name: split.masked(Masking(tokenizer.vocab_size))
                  for name, split in splits.items()}
    elif spec.file_format == "labels":
        splits = {name: split.with_classes() for name, split in splits.items()}
    if resolved.soft_targets is not None:
        train = splits["train"]
        soft_targets = SoftTargets.read(Path(resolved.soft_targets), content_hash, train,
                                        tokenizer.target.vocab_size)
        train.soft_targets = soft_targets
        content_hash = hash_json([content_hash, soft_targets.metadata])
        notes.append(f"train: soft targets, the {soft_targets.metadata['top']} most probable "
                     "tokens of a teacher at each position")
    name = resolved.name or resolved.builtin
    if not name:
        first = resolved.train[0]
        text_folder = Path(first if isinstance(first, str) else first.source).parent.name
        languages = (f"{resolved.source}-{resolved.target}"
                     if resolved.source and resolved.target else resolved.task)
        name = f"{text_folder} {languages}".strip()
    if resolved.distilled:
        name += " (distilled, mixed)" if resolved.mix_distilled else " (distilled)"
    return Corpus(name=name, content_hash=content_hash,
                  is_synthetic=spec.builtin is not None, spec=spec, tokenizer=tokenizer,
                  counts=metadata["counts"], notes=(*notes, *repairs), folder=folder, **splits)


def hash_text(spec: DataSpec) -> str:
    """Hash the text and the tokenization of a spec, without the vocabulary size."""
    soft = {"soft": read_metadata(Path(spec.soft_targets))} if spec.soft_targets else {}
    return hash_json({**_hashed_settings(spec),
                      "vocabulary": [spec.vocab_type, spec.character_coverage], **soft})


def _hashed_settings(spec: DataSpec) -> dict[str, Any]:
    """Return everything that determines the token ids: text and settings.

    The keys are part of the corpus hash. They must stay as they are, whatever the fields are
    called.
    """
    if spec.tokenizer is None:
        vocabulary: Any = [spec.fitted_vocab_size, spec.vocab_type, spec.character_coverage]
    else:
        vocabulary = Tokenizer.from_file(Path(spec.tokenizer)).model_hash
    if spec.has_target_vocabulary:
        target = (spec.target_vocab if spec.target_tokenizer is None else
                  Tokenizer.from_file(Path(spec.target_tokenizer), "target_tokenizer").model_hash)
        vocabulary = [vocabulary, target]
    settings = {"text": fingerprint_text(spec), "vocabulary": vocabulary,
                "lowercase": spec.lowercase, "max_length": spec.max_length,
                "max_ratio": spec.max_ratio, "limit": spec.max_pairs}
    if spec.file_format != "pairs":
        settings["form"] = spec.file_format
    if spec.file_format == "text":
        settings |= {"window": spec.window, "stride": spec.stride}
    if spec.distilled:
        settings["mix"] = spec.mix_distilled
    return settings


def _build_and_store(spec: DataSpec, folder: Path) -> tuple[StoredCorpus, list[str]]:
    """Prepare and store the corpus, unless another process just did.

    Returns:
        The corpus, and notes about repairs.
    """
    repairs: list[str] = []
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            try:
                return read_cache(folder), repairs
            except DamagedCacheError as error:
                if folder.exists():
                    repairs.append("the cached corpus was damaged and has been prepared again "
                                   f"({error})")
            write_cache(folder, prepare_corpus(spec, read_sentences(spec)))
            return read_cache(folder), repairs
    except OSError as error:
        raise UserError(f"data: the cache {folder.parent} cannot be written: "
                        f"{error.strerror or error}. Choose another cache folder, or set "
                        "XDG_CACHE_HOME", key="data", code="cache-not-writable") from None


def remask(corpus: Corpus, ratio: float, seed: int, epoch: int) -> Split:
    """Return the training split with the masked tokens of an epoch."""
    return corpus.train.masked(Masking(corpus.tokenizer.vocab_size, ratio, seed, epoch))


def retokenize(corpus: Corpus, dropout: float, seed: int, epoch: int) -> Split:
    """Tokenize the training pairs with BPE-dropout (Provilkov et al. 2020).

    The arguments determine the result. The order of the pairs stays the same. A side that becomes
    longer than ``max_length`` is truncated.

    Raises:
        UserError: see :meth:`Tokenizer.encode_with_dropout`.
    """
    texts = corpus.train.texts
    seeds = np.random.SeedSequence([seed, epoch]).generate_state(2)
    sides = []
    tokenizers = corpus.tokenizer, corpus.tokenizer.target
    for lines, tokenizer, side_seed in zip((texts.source, texts.target), tokenizers, seeds):
        ids = tokenizer.encode_with_dropout(lines, dropout, int(side_seed))
        sides.append(RaggedArray.from_lists(ids).truncate(corpus.spec.max_length))
    if corpus.train.has_classes:
        return Split(sides[0], corpus.train.target_ids, lambda: texts).with_classes()
    return Split(*sides, lambda: texts)
