"""What to learn from: the built-in corpus or parallel text files, and how to cut the text into tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from scalesearch.data.builtin import MAX_PAIRS
from scalesearch.data.files import expand_path
from scalesearch.data.split_files import PARTS_SYNTAX, FilePair, SplitPart, is_m2, parts_to_json, read_parts
from scalesearch.errors import UserError
from scalesearch.lowering import MAX_SOURCE_TOKENS
from scalesearch.space.binding.config_reader import coerce_settings, read_constants, to_node
from scalesearch.space.schema.settings import NAME_DESCRIPTION, read_name, schema_of, setting
from scalesearch.space.syntax.diagnostics import format_alternatives
from scalesearch.tasks import TASKS

SPLIT_NAMES = ("train", "valid", "test")
DEFAULT_FILES_VOCAB = 8000
DEFAULT_BUILTIN_VOCAB = 2000
DEFAULT_BUILTIN_PAIRS = 20_000
DEFAULT_WINDOW = 128
MAX_VOCAB = 1_000_000
TEXT_FILE_KEYS = ("source", "target", *SPLIT_NAMES)
FILE_KEYS = ("tokenizer", "soft_targets")
SPLIT_FILE_KEYS = (*SPLIT_NAMES, "distilled")
TASK_KEYS = ("tokenised", "comet", "window", "stride")
Conflict = tuple[str, str, str | None]


@dataclass(frozen=True)
class DataSpec:
    """What to learn from: the built-in corpus (``builtin: grammar``), or text files.

    Each of ``train``, ``validation`` and ``test`` is a prefix (``data/train`` stands for
    ``data/train.en`` and ``data/train.de``, or the same with ``.gz``), a :class:`FilePair`, or a
    sequence of these to be joined. What else the parts may be, and which metrics there are, is the
    task's:

    - ``correction``: sentences and their corrections. A part may be an M2 file of gold edits (``test.m2``), and a
      pair's ``target`` of ``validation`` and ``test`` a list of files, each another annotator's
      corrections. ``source`` and
      ``target`` are only needed for prefixes. Training, and the loss, are on the first annotator's
      corrections.
    - ``language-model``: a part is one text file, and there is no ``source`` and ``target``. The text is one stream of
      tokens, an end mark behind each line; empty lines are left out. Perplexity is of windows that
      begin ``stride``
      tokens apart, so that each token is scored once, with at least ``window`` - ``stride`` tokens
      before it where the
      text has them.

    Paths may hold ``~`` and ``$VARIABLES``; they are kept as written, so that a spec in a record
    names no machine, and expanded by :meth:`resolve`. Longer training pairs than ``max_length`` are
    dropped; longer validation and test sentences are cut for the model, while their text, the
    reference, stays whole. With ``distilled`` the vocabulary stays that of the real training text,
    and validation and test stay as they are.

    Raises:
        SpaceErrors: naming every field that is wrong and what would be right.
    """

    task: str = setting("translation", "what is learned, and by which metrics it is scored",
                        words=tuple(TASKS))
    builtin: str | None = setting(None, "the built-in corpus of synthetic pairs",
                                  words=("grammar",), synonyms=("corpus", "dataset"))
    pairs: int | None = setting(None,
                                "of the built-in corpus, its first training pairs "
                                f"({DEFAULT_BUILTIN_PAIRS:,})", high=MAX_PAIRS, unit="pairs")
    source: str | None = setting(
        None, "language to translate from: the ending of its files, such as en", read=read_name,
        form=NAME_DESCRIPTION, synonyms=("source_lang", "src", "src_lang"))
    target: str | None = setting(
        None, "language to translate into: the ending of its files, such as de", read=read_name,
        form=NAME_DESCRIPTION, synonyms=("target_lang", "tgt", "trg", "tgt_lang"))
    train: Any = setting(
        (), "text to train on, such as data/train for data/train.en and data/train.de",
        read=read_parts, form=PARTS_SYNTAX, synonyms=("trainpref", "train_file", "path_train"))
    validation: Any = setting((), "text to validate on, such as data/val", read=read_parts,
                              form=PARTS_SYNTAX,
                              synonyms=("validation", "dev", "val", "validpref", "eval"))
    test: Any = setting((), "text to report scores on, such as data/test", read=read_parts,
                        form=PARTS_SYNTAX, synonyms=("testpref", "test_file"))
    vocab: int | None = setting(None,
                                "entries of the sentencepiece vocabulary shared by the two sides "
                                f"({DEFAULT_FILES_VOCAB} for files, {DEFAULT_BUILTIN_VOCAB} for "
                                "the built-in corpus)", low=5, high=MAX_VOCAB, unit="entries",
                                synonyms=("vocab_size", "vocabulary", "vocabulary_size",
                                          "num_words"))
    tokenizer: str | None = setting(
        None, "a sentencepiece model file to use as it is, in place of " "`vocab`",
        synonyms=("spm", "tokeniser", "sentencepiece", "bpe_codes"))
    vocab_type: str = setting("bpe", "how the vocabulary is fitted", words=("bpe", "unigram"),
                         synonyms=("vocab_type", "level", "model_type"))
    character_coverage: float = setting(1.0,
                                        "share of the training text's characters that get an entry "
                                        "of their own: 1.0 suits alphabets, 0.9995 Chinese, "
                                        "Japanese or noisy web text", low=0.9, high=1,
                                        synonyms=("character_coverage",))
    lowercase: bool = setting(False, "lower-case all splits, references too",
                              synonyms=("lower", "lc", "do_lower_case"))
    max_length: int = setting(
        MAX_SOURCE_TOKENS, "tokens of a side, without the end mark", unit="tokens",
        synonyms=("max_len", "max_sent_length", "max_source_positions", "seq_len"))
    max_ratio: float | None = setting(None,
                                      "drop training pairs whose one side has more than this many "
                                      "times the other's tokens", low=1, synonyms=("length_ratio",))
    max_pairs: int | None = setting(
        None, "use only the first so many training pairs, for the vocabulary " "too", unit="pairs",
        synonyms=("max_pairs", "subset", "max_samples", "num_samples"))
    tokenized: bool = setting(False,
                              "words are apart by blanks: tokenised BLEU too, and ROUGE of such "
                              "words", synonyms=("tokenized", "pretokenized"))
    comet: str | None = setting(
        None, "a COMET model's name or checkpoint file to score translations " "with")
    window: int | None = setting(
        None, f"tokens that a language model sees at once ({DEFAULT_WINDOW})", low=2, unit="tokens",
        synonyms=("block_size", "context", "context_length", "bptt"))
    stride: int | None = setting(
        None, "distance of the windows that perplexity is of (half a window)", unit="tokens")
    distilled: Any = setting((),
                             "teachers' translations of the training text, as `scalesearch "
                             "distill` writes them, to learn from, such as kd/train",
                             read=read_parts, form=PARTS_SYNTAX)
    mix_distilled: bool = setting(False, "learn from the real pairs as well as from `distilled`")
    soft_targets: str | None = setting(None,
                                       "file of a teacher's probabilities at every place of the "
                                       "training pairs, as `scalesearch soften` writes it, to "
                                       "learn beside the tokens")
    name: str | None = setting(None, "what tables call the corpus")

    def __post_init__(self) -> None:
        coerce_settings(self, DATA_SCHEMA, "data")
        if self.builtin:
            object.__setattr__(self, "pairs",
                               DEFAULT_BUILTIN_PAIRS if self.pairs is None else self.pairs)
        if self.file_format == "text":
            object.__setattr__(self, "window", self.window or DEFAULT_WINDOW)
            object.__setattr__(self, "stride", self.stride or max(1, self.window // 2))

    @property
    def fitted_vocab_size(self) -> int | None:
        """Entries of the vocabulary that is fitted; None where a tokenizer is given."""
        if self.tokenizer is not None:
            return None
        return self.vocab or (DEFAULT_BUILTIN_VOCAB if self.builtin else DEFAULT_FILES_VOCAB)

    def with_vocab(self, vocab: int | None) -> "DataSpec":
        """This spec with the vocabulary of an architecture that has its own; itself for one that has none.

        Raises:
            UserError: the data fix another vocabulary, or a tokenizer.
        """
        if vocab is None or self.vocab == vocab:
            return self
        for key in ("vocab", "tokenizer"):
            if (given := getattr(self, key)) is not None:
                raise UserError(f"data: {key}: it is {given} here, and {vocab:,} entries are the "
                                "model's own", help=f"leave `{key}` out", key=f"data.{key}",
                                code="given-twice")
        return replace(self, vocab=vocab)

    @property
    def file_format(self) -> str:
        """Of the files: one of :data:`scalesearch.tasks.FILE_FORMATS`."""
        return TASKS[self.task].file_format

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "DataSpec":
        """The spec that the ``data:`` section of a file describes; its keys are this class's fields.

        Raises:
            SpaceErrors: an unknown key, with the nearest known one, or a wrong value.
        """
        found: DataSpec = read_constants(DATA_SCHEMA, to_node("data", mapping))
        return found

    def to_json(self) -> dict[str, Any]:
        """The fields that say something, as JSON values; ``from_mapping`` reads them back."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        said = {key: value for key, value in given.items() if value not in (None, ())}
        return said | {split: parts_to_json(said[split])
                       for split in SPLIT_FILE_KEYS if split in said}

    def describe(self, vocab: str = "") -> str:
        """One line for a person: what text, and which vocabulary (``vocab`` in place of the number of entries)."""
        if self.builtin:
            text = f"built-in {self.builtin} (synthetic), {self.pairs} pairs"
        else:
            what = f"{self.source}-{self.target}" if self.source and self.target else self.task
            text = f"{what} from {', '.join(map(str, self.train))}"
        fitted = f"{self.vocab_type} vocabulary of {vocab or self.fitted_vocab_size}"
        vocabulary = f"tokenizer {self.tokenizer}" if self.tokenizer else fitted
        extras = [f"first {self.max_pairs} pairs"] * bool(
            self.max_pairs) + ["lower-cased"] * self.lowercase
        translated = ", ".join(map(str, self.distilled))
        extras += [f"{'with' if self.mix_distilled else 'as'} translated in {translated}"] * bool(
            translated)
        extras += [f"soft targets in {self.soft_targets}"] * bool(self.soft_targets)
        return "; ".join([text, vocabulary, *extras])

    @property
    def suffixes(self) -> tuple[str, str]:
        """What the files of the two sides end with; the built-in corpus has none, but its translations do."""
        return self.source or "en", self.target or "de"

    def with_absolute_paths(self, base: Path | None = None) -> "DataSpec":
        """This spec with absolute paths, which mean the same in another process; see :func:`.files.expand`.

        Raises:
            UserError: a variable that is not set.
        """
        def full(where: str, path: str) -> str:
            return str(expand_path(path, where, base))

        def part(split: str, value: SplitPart) -> SplitPart:
            return full(split, value) if isinstance(value, str) else value.map_paths(
                lambda path: full(split, path))

        parts = {split: tuple(part(split, value) for value in getattr(self, split))
                 for split in SPLIT_FILE_KEYS}
        files = {key: full(key, getattr(self, key)) for key in FILE_KEYS if getattr(self, key)}
        return replace(self, **parts, **files)


def _find_conflicts(values: Mapping[str, Any]) -> Iterator[Conflict]:
    """What is wrong with fields that are each right."""
    said = {field.name: values.get(field.name, field.default) for field in fields(DataSpec)}
    yield from _check_key_combination(said)
    yield from _check_task_keys(said)
    if said["vocab"] is not None and said["tokenizer"] is not None:
        yield "tokenizer", "give `vocab` (to fit a vocabulary) or `tokenizer` (to use one as it is), not both", None
    if said["mix"] and not said["distilled"]:
        yield "mix", "there is nothing to mix with", "name a teacher's translations under `distilled`"
    window = said["window"] or DEFAULT_WINDOW
    if said["stride"] and said["stride"] > window:
        yield "stride", f"tokens between two windows would not be scored; use at most the window of {window}", None


def _check_key_combination(said: Mapping[str, Any]) -> Iterator[Conflict]:
    """Which keys go together."""
    task = TASKS[said["task"]]
    given = [key for key in TEXT_FILE_KEYS if said[key] not in (None, ())]
    if said["builtin"]:
        for key in given:
            yield key, "it is for text files and cannot stand beside `builtin`", "remove one of the two"
        if said["task"] != "translation":
            yield "task", f"the built-in corpus is one of translations, and the task is {said['task']}", None
        return
    if said["pairs"] is not None:
        yield "pairs", "it is only for `builtin: grammar`", "of text files, give `limit`"
    if not given:
        yield "", "no text is given", ("give `builtin: grammar`, or `source`, `target`, `train`, "
                                       "`valid` and `test` for text files")
        return
    parts = [part for split in SPLIT_NAMES for part in said[split]]
    prefixes = task.file_format == "pairs" or any(
        isinstance(part, str) and not is_m2(part) for part in parts)
    for key in TEXT_FILE_KEYS if task.file_format != "text" and prefixes else SPLIT_NAMES:
        if key not in given:
            yield "", f"`{key}` is missing: {DATA_SCHEMA.fields[key].doc}", None
    endings = [
        part for part in (*parts, *said["distilled"]) if isinstance(part, str) and not is_m2(part)]
    if task.file_format != "text" and endings and said["source"] and said["source"] == said[
            "target"]:
        yield "target", f"the source ends so as well, and {endings[0]}.{said['target']} would be both sides", \
            "give `source` and `target` endings of their own"


def _check_task_keys(said: Mapping[str, Any]) -> Iterator[Conflict]:
    """What the task has no use for."""
    task = TASKS[said["task"]]
    for key in TASK_KEYS:
        if said[key] and key not in task.data_keys:
            having = format_alternatives(other.name
                                         for other in TASKS.values() if key in other.data_keys)
            yield key, f"it is for {having}, and the task is {task.name}", None
    for split in SPLIT_NAMES:
        for part in said[split]:
            if task.file_format == "text" and not isinstance(part, str):
                yield split, f"pairs of files are not for the task {task.name}", "give one text file"
            if isinstance(part, FilePair) and part.references and (
                    task.file_format, split) not in MULTI_REFERENCE_SPLITS:
                yield split, "several references are for the validation and test text of `task: correction`", None
    if task.file_format == "text":
        for key in ("source", "target", "max_ratio", "distilled", "soft_targets"):
            if said[key] not in (None, ()):
                yield key, f"it is for pairs of texts, and the task is {task.name}", None


MULTI_REFERENCE_SPLITS = (("corrections", "valid"), ("corrections", "test"))
DATA_SCHEMA = schema_of(DataSpec, bare="builtin", check=_find_conflicts,
                        gone={"seed": "the built-in corpus is one " "fixed text (`python -m "
                              "tools.grammar` in the source repository writes others), and the "
                              "seed of a training is no part of its data"})
