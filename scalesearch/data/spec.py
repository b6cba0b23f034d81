"""Data specs: the built-in corpus or text files, and the tokenization."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import model_serializer, model_validator

from scalesearch.config.model import (
    NAME_DESCRIPTION,
    Config,
    Flag,
    Name,
    Size,
    Text,
    number,
    setting,
    size,
    words,
)
from scalesearch.data.files import expand_path
from scalesearch.data.split_files import (
    PARTS_SYNTAX,
    FilePair,
    Parts,
    SplitPart,
    is_prefix,
    parts_to_json,
)
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.errors import UserError
from scalesearch.lowering import MAX_SOURCE_TOKENS
from scalesearch.spaces.syntax.diagnostics import format_alternatives
from scalesearch.tasks import TASKS
from scalesearch.tasks.translation import AUTO_TOKENIZER, BLEU_TOKENIZERS

SPLIT_NAMES = ("train", "validation", "test")
# in the corpus hash and the cache
HASHED_SPLIT_NAMES = {"train": "train", "validation": "valid", "test": "test"}
DEFAULT_FILES_VOCAB = 8000
MAX_PAIRS = 50_000  # training pairs of the built-in corpus
DEFAULT_BUILTIN_VOCAB = 2000
DEFAULT_BUILTIN_PAIRS = 20_000
DEFAULT_WINDOW = 128
BUILTIN_TASKS = ("translation", "language-model")
MAX_VOCAB = 1_000_000
TEXT_FILE_KEYS = ("source", "target", *SPLIT_NAMES)
FILE_KEYS = ("tokenizer", "target_tokenizer", "soft_targets")
SPLIT_FILE_KEYS = (*SPLIT_NAMES, "distilled")
TASK_KEYS = ("tokenized", "tokenize", "comet", "window", "stride")
VOCABULARY_KEYS = (("vocab", "tokenizer"), ("target_vocab", "target_tokenizer"))
MULTI_REFERENCE_SPLITS = ("validation", "test")
Conflict = tuple[str, str, str | None]  # key, problem, help


class DataSpec(Config):
    """Training data: the built-in corpus (``builtin: grammar``), or text files.

    Each of ``train``, ``validation`` and ``test`` is a prefix, a :class:`FilePair`, or a sequence
    of these, which are concatenated. The prefix ``data/train`` names ``data/train.en`` and
    ``data/train.de``, or the same with ``.gz``. The task determines the metrics and which other
    files are possible:

    - ``correction``: sentences and their corrections. A part may be an M2 file of gold edits
      (``test.m2``). ``source`` and ``target`` are only needed for prefixes.
    - ``language-model``: a part is one text file; ``source`` and ``target`` do not exist. The text
      is one stream of tokens with EOS after each line; empty lines are dropped. Perplexity uses
      windows that start ``stride`` tokens after one another. Each token is scored once, after at
      least ``window`` - ``stride`` tokens of context, except at the start of the text.

    In ``validation`` and ``test``, the ``target`` of a pair may be a list of files: several
    references, or one file per annotator. Training and loss use the first.

    Paths may hold ``~`` and ``$VARIABLES``. They are stored as written, so records do not depend
    on the machine; :meth:`with_absolute_paths` expands them. Training pairs longer than
    ``max_length`` are dropped. Longer validation and test sentences are truncated for the model;
    their references stay complete. With ``distilled``, the vocabulary is fitted to the real
    training text, and validation and test do not change.

    Raises:
        ConfigError: lists every invalid field, with help.
    """

    section = "data"
    shorthand_key = "builtin"
    unsupported = {"seed": "the built-in corpus is one fixed text, and the seed of a training "
                           "run is not part of its data"}

    task: Annotated[str, words(*TASKS, deprecated={"summarisation": "summarization"})] = setting(
        "translation", "the task, which determines the metrics")
    builtin: Annotated[str, words("grammar")] | None = setting(
        None, "the built-in corpus of synthetic pairs", synonyms=("corpus", "dataset"))
    pairs: Annotated[int, size(high=MAX_PAIRS)] | None = setting(
        None, "number of training pairs of the built-in corpus, from its start "
        f"({DEFAULT_BUILTIN_PAIRS:,}); a language model reads their English lines", unit="pairs")
    source: Name | None = setting(None, "source language: the suffix of its files, such as en",
                                  expected=NAME_DESCRIPTION,
                                  synonyms=("source_lang", "src", "src_lang"))
    target: Name | None = setting(None, "target language: the suffix of its files, such as de",
                                  expected=NAME_DESCRIPTION,
                                  synonyms=("target_lang", "tgt", "trg", "tgt_lang"))
    train: Parts = setting((),
                           "training text, such as data/train for data/train.en and data/train.de",
                           expected=PARTS_SYNTAX, synonyms=("trainpref", "train_file",
                                                            "path_train"))
    validation: Parts = setting((), "validation text, such as data/val", expected=PARTS_SYNTAX,
                                deprecated=("valid",), synonyms=("dev", "val", "validpref", "eval"))
    test: Parts = setting((), "test text, such as data/test; without it, only the validation text "
                              "is scored", expected=PARTS_SYNTAX,
                          synonyms=("testpref", "test_file"))
    vocab: Annotated[int, size(5, MAX_VOCAB)] | None = setting(
        None, "entries of the sentencepiece vocabulary that both sides share "
        f"({DEFAULT_FILES_VOCAB} for files, {DEFAULT_BUILTIN_VOCAB} for the built-in corpus)",
        unit="entries", synonyms=("vocab_size", "vocabulary", "vocabulary_size", "num_words"))
    tokenizer: Text | None = setting(
        None, "sentencepiece model file to use instead of fitting `vocab` entries",
        synonyms=("spm", "tokeniser", "sentencepiece", "bpe_codes"))
    target_vocab: Annotated[int, size(5, MAX_VOCAB)] | None = setting(
        None, "entries of a separate vocabulary of the target; `vocab` is then that of the source",
        unit="entries", synonyms=("tgt_vocab_size", "target_vocab_size"))
    target_tokenizer: Text | None = setting(
        None, "sentencepiece model file of the target, instead of fitting `target_vocab` entries",
        synonyms=("target_spm",))
    vocab_type: Annotated[str, words("bpe", "unigram")] = setting(
        "bpe", "algorithm that fits the vocabulary", deprecated=("model",),
        synonyms=("level", "model_type"))
    character_coverage: Annotated[float, number(0.9, 1)] = setting(
        1.0, "share of the characters of the training text that get an entry of their own: 1.0 for "
        "alphabets, 0.9995 for Chinese, Japanese or noisy web text", deprecated=("coverage",))
    lowercase: Flag = setting(False, "lower-case all splits, references too",
                              synonyms=("lower", "lc", "do_lower_case"))
    max_length: Size = setting(MAX_SOURCE_TOKENS, "maximum tokens of a side, without EOS",
                               unit="tokens", synonyms=("max_len", "max_sent_length",
                                                        "max_source_positions", "seq_len"))
    max_ratio: Annotated[float, number(1)] | None = setting(
        None, "drop training pairs if one side has more than this many times the tokens of the "
        "other", synonyms=("length_ratio",))
    max_pairs: Size | None = setting(
        None, "use only this many training pairs from the start, for the vocabulary too",
        unit="pairs", deprecated=("limit",), synonyms=("subset", "max_samples", "num_samples"))
    tokenized: Flag = setting(False, "the text has spaces between all tokens: also report "
                              "tokenized BLEU; ROUGE uses these tokens", deprecated=("tokenised",),
                              synonyms=("pretokenized",))
    tokenize: Annotated[str, words(AUTO_TOKENIZER, *BLEU_TOKENIZERS)] = setting(
        AUTO_TOKENIZER, "sacreBLEU's tokenizer; auto: by the target language or the script of the "
        "references, such as zh for Chinese, and 13a for languages with spaces between words",
        synonyms=("bleu_tokenizer", "sacrebleu_tokenize"))
    comet: Text | None = setting(
        None, "COMET model to score translations with: its name or checkpoint file")
    window: Annotated[int, size(2)] | None = setting(
        None, f"context length of a language model ({DEFAULT_WINDOW})", unit="tokens",
        synonyms=("block_size", "context", "context_length", "bptt"))
    stride: Size | None = setting(
        None, "distance between the windows for perplexity (half a window; a window if tokens are "
        "masked)", unit="tokens")
    distilled: Parts = setting((), "teachers' translations of the training text to train on, such "
                               "as kd/train; `scalesearch distill --targets text` writes them",
                               expected=PARTS_SYNTAX)
    mix_distilled: Flag = setting(False, "train on the real pairs in addition to `distilled`",
                                  deprecated=("mix",))
    soft_targets: Text | None = setting(
        None, "file of a teacher's token probabilities for the training pairs; `scalesearch "
        "distill --targets soft` writes it")
    name: Text | None = setting(None, "name of the corpus in tables")

    def find_problems(self) -> Iterator[Conflict]:
        """Yield conflicts of keys."""
        yield from _check_key_combination(self)
        task = TASKS[self.task]
        for key in TASK_KEYS:
            is_set = getattr(self, key) not in (None, DataSpec.model_fields[key].default)
            if is_set and key not in task.data_keys:
                names = format_alternatives(other.name for other in TASKS.values()
                                            if key in other.data_keys)
                yield key, f"it is for {names}, and the task is {task.name}", None
        for split in SPLIT_NAMES:
            for part in getattr(self, split):
                if task.file_format == "text" and not isinstance(part, str):
                    yield (split, f"pairs of files are not for the task {task.name}",
                           "give one text file")
                has_references = isinstance(part, FilePair) and part.references
                if has_references and split not in MULTI_REFERENCE_SPLITS:
                    yield split, "several references are for the validation and test text", None
        pair_keys = ("max_ratio", "distilled", "soft_targets", "target_vocab", "target_tokenizer")
        for key in {"text": ("source", "target", *pair_keys),
                    "labels": pair_keys}.get(task.file_format, ()):
            if getattr(self, key) not in (None, ()):
                yield key, f"it is for pairs of texts, and the task is {task.name}", None
        for vocab, tokenizer in VOCABULARY_KEYS:
            if getattr(self, vocab) is not None and getattr(self, tokenizer) is not None:
                yield (tokenizer, f"give `{vocab}` (to fit a vocabulary) or `{tokenizer}` (to use "
                       "a fitted one), not both", None)
        if self.mix_distilled and not self.distilled:
            yield ("mix_distilled", "no translations to mix are given",
                   "name a teacher's translations under `distilled`")
        window = self.window or DEFAULT_WINDOW
        if self.stride and self.stride > window:
            yield ("stride",
                   "tokens between two windows would not be scored; use at most the window of "
                   f"{window}", None)

    @model_validator(mode="after")
    def _fill_defaults(self) -> Self:
        """Fill in the defaults that depend on other keys."""
        if self.builtin:
            self.__dict__["pairs"] = DEFAULT_BUILTIN_PAIRS if self.pairs is None else self.pairs
        if self.file_format == "text":
            self.__dict__["window"] = window = self.window or DEFAULT_WINDOW
            # Masked tokens have context on both sides: windows need not overlap.
            overlaps = not TASKS[self.task].masks_tokens
            self.__dict__["stride"] = self.stride or (max(1, window // 2) if overlaps else window)
        return self

    @property
    def fitted_vocab_size(self) -> int | None:
        """Entries of the vocabulary that is fitted; None if the spec has a tokenizer."""
        if self.tokenizer is not None:
            return None
        return self.vocab or (DEFAULT_BUILTIN_VOCAB if self.builtin else DEFAULT_FILES_VOCAB)

    @property
    def has_target_vocabulary(self) -> bool:
        """Whether the keys give the target a vocabulary of its own."""
        return self.target_vocab is not None or self.target_tokenizer is not None

    def with_vocab(self, vocab: int | None, target_vocab: int | None = None) -> "DataSpec":
        """Return a copy with the vocabulary sizes of an architecture, if it fixes them.

        Raises:
            UserError: the spec fixes another vocabulary size, or a tokenizer for ``vocab``.
        """
        if self.target_tokenizer is not None:  # its size is compared when it is read
            target_vocab = None
        sizes = {key: entries for key, entries in (("vocab", vocab), ("target_vocab", target_vocab))
                 if entries is not None and getattr(self, key) != entries}
        for vocab_key, entries in sizes.items():
            for key in (vocab_key, dict(VOCABULARY_KEYS)[vocab_key]):
                value = getattr(self, key)
                if value is not None:
                    shown = value if isinstance(value, str) else f"{value:,}"
                    raise UserError(f"data: {key}: it is {shown}, but the model has a vocabulary "
                                    f"of {entries:,} entries", help=f"remove `{key}`",
                                    key=f"data.{key}", code="given-twice")
        return self.replace(**sizes) if sizes else self

    def with_tokenizer(self, tokenizer: Tokenizer, file: Path) -> "DataSpec":
        """Return a copy with the tokenizer of a trained model, which is in ``file``.

        Raises:
            UserError: the spec has another vocabulary size or another tokenizer.
        """
        sides = tokenizer.source, tokenizer.target
        for (size_key, file_key), side in zip(VOCABULARY_KEYS, sides):
            same_size = getattr(self, size_key) in (None, side.vocab_size)
            own_file = getattr(self, file_key)
            if not same_size or (own_file is not None and Tokenizer.from_file(
                    Path(own_file), file_key) not in (side, tokenizer)):
                key = file_key if same_size else size_key
                shown = own_file if same_size else f"{getattr(self, key):,}"
                raise UserError(f"data: {key}: it is {shown}, but the model keeps its "
                                f"vocabulary of {side.vocab_size:,} entries",
                                help=f"remove `{key}`", key=f"data.{key}", code="given-twice")
        return self.use_tokenizer(file)

    def use_tokenizer(self, file: Path) -> "DataSpec":
        """Return a copy with the tokenizer in ``file`` for both sides."""
        return self.replace(vocab=None, tokenizer=str(file.resolve()), target_vocab=None,
                            target_tokenizer=None)

    @property
    def file_format(self) -> str:
        """Format of the files: one of :data:`scalesearch.tasks.FILE_FORMATS`."""
        return TASKS[self.task].file_format

    @model_serializer
    def _keys_in_file(self) -> dict[str, Any]:
        """Return the keys that are set; ``from_mapping`` reads them back."""
        values = {name: value for name, value in self if value not in (None, ())}
        return values | {split: parts_to_json(values[split])
                         for split in SPLIT_FILE_KEYS if split in values}

    def describe(self, vocab: str = "") -> str:
        """Describe text and vocabulary; ``vocab`` replaces the number of entries."""
        if self.builtin:
            unit = "lines" if self.file_format == "text" else "pairs"
            text = f"built-in {self.builtin} (synthetic), {self.pairs:,} {unit}"
        else:
            languages = f"{self.source}-{self.target}" if self.source and self.target else self.task
            text = f"{languages} from {', '.join(map(str, self.train))}"
        size = vocab or f"{self.fitted_vocab_size or 0:,}"
        fitted = f"{self.vocab_type} vocabulary of {size}"
        parts = [text, f"tokenizer {self.tokenizer}" if self.tokenizer else fitted]
        if self.has_target_vocabulary:
            parts.append(f"target tokenizer {self.target_tokenizer}" if self.target_tokenizer
                         else f"target vocabulary of {self.target_vocab:,}")
        if self.max_pairs:
            parts.append(f"first {self.max_pairs:,} pairs")
        if self.lowercase:
            parts.append("lower-cased")
        if self.distilled:
            translations = ", ".join(map(str, self.distilled))
            parts.append(f"{'with' if self.mix_distilled else 'as'} translated in {translations}")
        if self.soft_targets:
            parts.append(f"soft targets in {self.soft_targets}")
        return "; ".join(parts)

    @property
    def suffixes(self) -> tuple[str, str]:
        """Suffixes of the source and target files."""
        return self.source or "en", self.target or "de"

    def with_absolute_paths(self, base: Path | None = None) -> "DataSpec":
        """Return a copy with absolute paths; see :func:`.files.expand_path`.

        Raises:
            UserError: an environment variable is not set.
        """
        def absolute(key: str, path: str) -> str:
            return str(expand_path(path, key, base))

        def absolute_part(split: str, part: SplitPart) -> SplitPart:
            if isinstance(part, str):
                return absolute(split, part)
            return part.map_paths(lambda path: absolute(split, path))

        parts = {split: tuple(absolute_part(split, part) for part in getattr(self, split))
                 for split in SPLIT_FILE_KEYS}
        files = {key: absolute(key, getattr(self, key)) for key in FILE_KEYS if getattr(self, key)}
        return self.replace(**parts, **files)


def _check_key_combination(spec: DataSpec) -> Iterator[Conflict]:
    """Yield missing keys and keys that exclude each other."""
    task = TASKS[spec.task]
    text_keys = [key for key in TEXT_FILE_KEYS if getattr(spec, key) not in (None, ())]
    if spec.builtin:
        for key in text_keys:
            yield (key, "it is for text files and cannot be combined with `builtin`",
                   "remove one of the two")
        if spec.task not in BUILTIN_TASKS:
            yield ("task", f"the built-in corpus is for {format_alternatives(BUILTIN_TASKS)}, and "
                   f"the task is {spec.task}", None)
        return
    if spec.pairs is not None:
        yield "pairs", "it is only for `builtin: grammar`", "for text files, use `max_pairs`"
    if not text_keys:
        yield "", "no text is given", ("give `builtin: grammar`, or `source`, `target`, `train`, "
                                       "`validation` and `test` for text files")
        return
    parts = [part for split in SPLIT_NAMES for part in getattr(spec, split)]
    needs_suffixes = not parts or any(map(is_prefix, parts))
    prefixes = [part for part in (*parts, *spec.distilled) if is_prefix(part)]
    for key in TEXT_FILE_KEYS if task.file_format != "text" and needs_suffixes else SPLIT_NAMES:
        if key not in text_keys and key != "test":
            yield ("", f"`{key}` is missing: {DataSpec.model_fields[key].description}",
                   f"`{prefixes[0]}` stands for two files, `{prefixes[0]}.SOURCE` and "
                   f"`{prefixes[0]}.TARGET`; or name a table (.tsv or .jsonl) or "
                   "`{source: FILE, target: FILE}`" if key == "source" and prefixes else None)
    if task.file_format != "text" and prefixes and spec.source and spec.source == spec.target:
        yield ("target",
               f"the source has the same suffix, so {prefixes[0]}.{spec.target} would be both "
               "sides", "give `source` and `target` different suffixes")
