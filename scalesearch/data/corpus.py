"""Loads a corpus from the cache, or makes it from its text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from scalesearch.data.cache import Damaged, Stored, fetch, hash_of, key_of, store
from scalesearch.data.files import default_cache
from scalesearch.data.prepare import Counts, notes, prepare
from scalesearch.data.soft import SoftTargets, facts_of
from scalesearch.data.sources import fingerprint, read
from scalesearch.data.spec import DataSpec
from scalesearch.data.split import Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.errors import UserError


@dataclass(frozen=True)
class Corpus:
    """Corpus: tokenised splits to train, validate and test on.

    Attributes:
        name: for tables, such as ``multi30k en-de``.
        hash: 16 hex digits of vocabulary, ids and text; equal hashes are equal corpora. Part of each record.
        synthetic: the text was generated; reports of scores say so.
        spec: the data spec, as it was written.
        tokenizer: of both languages.
        train, valid, test: the splits.
        counts: per split, pairs read, left out (train), cut (valid, test) and kept; and the splits' overlap.
        notes: the counts in words, and whether a damaged cache was made anew.
        folder: of the cache.
    """

    name: str
    hash: str
    synthetic: bool
    spec: DataSpec
    tokenizer: Tokenizer
    train: Split
    valid: Split
    test: Split
    counts: Counts
    notes: tuple[str, ...]
    folder: Path | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens that a model reads of a training pair's source and target, EOS or BOS included: rounded means."""
        source, target = (int(rows.lengths.mean() + 1.5) for rows in (self.train.source_ids, self.train.target_ids))
        return source, target

    def to_json(self) -> dict[str, Any]:
        """Description of the data in records."""
        return {"name": self.name, "hash": self.hash, "synthetic": self.synthetic,
                "spec": self.spec.to_json(), "vocab": self.tokenizer.vocab_size,
                "counts": self.counts, "notes": list(self.notes)}


def load_corpus(spec: DataSpec, cache: Path | None = None, base: Path | None = None) -> Corpus:
    """Loads the corpus of ``spec``, made once and kept under ``cache`` (``$XDG_CACHE_HOME/scalesearch/corpora``).

    The cache goes by the content of the files, wherever they are. Of processes that load it at the same time one makes
    it, the others wait. Relative paths in ``spec`` start at ``base`` or the working directory.

        >>> load_corpus(DataSpec(builtin="grammar", pairs=2000, vocab=500)).train.source_text[0]
        'This guest will laugh about the answers.'

    Raises:
        UserError: a file is missing or bad, the vocabulary does not fit, or the cache cannot be written.
    """
    full = spec.resolve(base)
    folder = (cache or default_cache()) / key_of(_identity(full))
    try:
        (meta, tokenizer, splits), repairs = fetch(folder), []
    except Damaged:
        (meta, tokenizer, splits), repairs = _make(full, folder)
    digest, remarks = meta["hash"], list(notes(spec, meta["counts"]))
    if full.soft_targets is not None:
        soft = splits["train"].soft = SoftTargets.read(Path(full.soft_targets), digest, splits["train"],
                                                      tokenizer.vocab_size)
        digest = hash_of([digest, soft.facts])
        remarks.append(f"train: beside the tokens, a teacher's {soft.facts['top']} likeliest at every place")
    return Corpus(name=_name(full), hash=digest, synthetic=spec.builtin is not None,
                  spec=spec, tokenizer=tokenizer, counts=meta["counts"],
                  notes=(*remarks, *repairs), folder=folder, **splits)


def text_hash(spec: DataSpec) -> str:
    """Hash of a resolved spec's text and of how it is cut, whatever the size of the vocabulary."""
    softened = {"soft": facts_of(Path(spec.soft_targets))} if spec.soft_targets else {}
    return hash_of({**_identity(spec), "vocabulary": [spec.model, spec.coverage], **softened})


def _identity(spec: DataSpec) -> dict[str, Any]:
    """Everything that decides the ids: the text's fingerprint and the fields that change them."""
    if spec.tokenizer is None:
        vocabulary: Any = [spec.entries, spec.model, spec.coverage]
    else:
        vocabulary = Tokenizer.from_file(Path(spec.tokenizer)).digest
    fields = {key: getattr(spec, key) for key in ("lowercase", "max_length", "max_ratio", "limit")}
    shape: dict[str, Any] = {} if spec.form == "pairs" else {"form": spec.form}
    if spec.form == "text":
        shape |= {"window": spec.window, "stride": spec.stride}
    mixed = {"mix": spec.mix} if spec.distilled else {}
    return {"text": fingerprint(spec), "vocabulary": vocabulary, **fields, **shape, **mixed}


def _make(spec: DataSpec, folder: Path) -> tuple[Stored, list[str]]:
    """Makes and stores the corpus, unless another process has meanwhile; with notes of repairs."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            try:
                return fetch(folder), []
            except Damaged as damage:
                note = f"the cached corpus was damaged and has been made again ({damage})"
                repairs = [note] if folder.exists() else []
            store(folder, prepare(spec, read(spec)))
            return fetch(folder), repairs
    except OSError as error:
        raise UserError(f"data: the cache {folder.parent} cannot be written: {error.strerror or error}. "
                        "Give another cache folder, or set XDG_CACHE_HOME to one", key="data",
                        code="cache-not-writable") from None


def _name(spec: DataSpec) -> str:
    suffix = (" (distilled, mixed)" if spec.mix else " (distilled)") if spec.distilled else ""
    if given := spec.name or spec.builtin:
        return given + suffix
    first = spec.train[0]
    folder = Path(first if isinstance(first, str) else first.source).parent.name
    what = f"{spec.source}-{spec.target}" if spec.source and spec.target else spec.task
    return f"{folder} {what}".strip() + suffix
