"""Loads a corpus from the cache, or makes it from its text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from scalesearch.data.cache import DamagedCacheError, StoredCorpus, cache_key, hash_json, read_cache, write_cache
from scalesearch.data.files import default_cache
from scalesearch.data.prepare import SplitCounts, describe_counts, prepare_corpus
from scalesearch.data.soft_targets import SoftTargets, read_metadata
from scalesearch.data.sources import fingerprint_text, read_sentences
from scalesearch.data.spec import DataSpec
from scalesearch.data.split import Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.errors import UserError


@dataclass(frozen=True)
class Corpus:
    """Corpus: tokenised splits to train, validate and test on.

    Attributes:
        name: for tables, such as ``multi30k en-de``.
        content_hash: 16 hex digits of vocabulary, ids and text; equal hashes are equal corpora.
            Part of each record.
        is_synthetic: the text was generated; reports of scores say so.
        spec: the data spec, as it was written.
        tokenizer: of both languages.
        train, validation, test: the splits.
        counts: per split, pairs read, left out (train), cut (valid, test) and kept; and the splits'
            overlap.
        notes: the counts in words, and whether a damaged cache was made anew.
        folder: of the cache.
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
        """Tokens that a model reads of a training pair's source and target, EOS or BOS included: rounded means."""
        source, target = (int(rows.lengths.mean() + 1.5)
                          for rows in (self.train.source_ids, self.train.target_ids))
        return source, target

    def to_json(self) -> dict[str, Any]:
        """Description of the data in records."""
        return {"name": self.name, "hash": self.content_hash, "synthetic": self.is_synthetic,
                "spec": self.spec.to_json(), "vocab": self.tokenizer.vocab_size,
                "counts": self.counts, "notes": list(self.notes)}


def load_corpus(spec: DataSpec, cache: Path | None = None, base: Path | None = None) -> Corpus:
    """Loads the corpus of ``spec``, made once and kept under ``cache`` (``$XDG_CACHE_HOME/scalesearch/corpora``).

    The cache goes by the content of the files, wherever they are. Of processes that load it at the
    same time one makes it, the others wait. Relative paths in ``spec`` start at ``base`` or the
    working directory.

        >>> load_corpus(DataSpec(builtin="grammar", pairs=2000, vocab=500)).train.source_text[0]
        'This guest will laugh about the answers.'

    Raises:
        UserError: a file is missing or bad, the vocabulary does not fit, or the cache cannot be
            written.
    """
    full = spec.with_absolute_paths(base)
    folder = (cache or default_cache()) / cache_key(_hashed_settings(full))
    try:
        (meta, tokenizer, splits), repairs = read_cache(folder), []
    except DamagedCacheError:
        (meta, tokenizer, splits), repairs = _build_and_store(full, folder)
    digest = meta["hash"]
    remarks = list(describe_counts(spec, meta["counts"]))
    if full.soft_targets is not None:
        soft = splits["train"].soft_targets = SoftTargets.read(
            Path(full.soft_targets), digest, splits["train"], tokenizer.vocab_size)
        digest = hash_json([digest, soft.metadata])
        remarks.append(f"train: beside the tokens, a teacher's {soft.metadata['top']} likeliest at "
                       "every place")
    return Corpus(name=_corpus_name(full), content_hash=digest,
                  is_synthetic=spec.builtin is not None, spec=spec, tokenizer=tokenizer,
                  counts=meta["counts"], notes=(*remarks, *repairs), folder=folder, **splits)


def hash_text(spec: DataSpec) -> str:
    """Hash of a resolved spec's text and of how it is cut, whatever the size of the vocabulary."""
    softened = {"soft": read_metadata(Path(spec.soft_targets))} if spec.soft_targets else {}
    return hash_json({**_hashed_settings(spec),
                      "vocabulary": [spec.vocab_type, spec.character_coverage], **softened})


def _hashed_settings(spec: DataSpec) -> dict[str, Any]:
    """Everything that decides the ids: the text's fingerprint and the fields that change them."""
    if spec.tokenizer is None:
        vocabulary: Any = [spec.fitted_vocab_size, spec.vocab_type, spec.character_coverage]
    else:
        vocabulary = Tokenizer.from_file(Path(spec.tokenizer)).model_hash
    fields = {key: getattr(spec, key) for key in ("lowercase", "max_length", "max_ratio", "limit")}
    shape: dict[str, Any] = {} if spec.file_format == "pairs" else {"form": spec.file_format}
    if spec.file_format == "text":
        shape |= {"window": spec.window, "stride": spec.stride}
    mixed = {"mix": spec.mix_distilled} if spec.distilled else {}
    return {"text": fingerprint_text(spec), "vocabulary": vocabulary, **fields, **shape, **mixed}


def _build_and_store(spec: DataSpec, folder: Path) -> tuple[StoredCorpus, list[str]]:
    """Makes and stores the corpus, unless another process has meanwhile; with notes of repairs."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            try:
                return read_cache(folder), []
            except DamagedCacheError as damage:
                note = f"the cached corpus was damaged and has been made again ({damage})"
                repairs = [note] if folder.exists() else []
            write_cache(folder, prepare_corpus(spec, read_sentences(spec)))
            return read_cache(folder), repairs
    except OSError as error:
        raise UserError(f"data: the cache {folder.parent} cannot be written: "
                        f"{error.strerror or error}. Give another cache folder, or set "
                        "XDG_CACHE_HOME to one", key="data", code="cache-not-writable") from None


def _corpus_name(spec: DataSpec) -> str:
    suffix = (" (distilled, mixed)" if spec.mix_distilled
              else " (distilled)") if spec.distilled else ""
    if given := spec.name or spec.builtin:
        return given + suffix
    first = spec.train[0]
    folder = Path(first if isinstance(first, str) else first.source).parent.name
    what = f"{spec.source}-{spec.target}" if spec.source and spec.target else spec.task
    return f"{folder} {what}".strip() + suffix
