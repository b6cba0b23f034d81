"""What to learn from: the built-in corpus or parallel text files, and how to cut the text into tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from scalesearch.data.checks import DEFAULT_WINDOW, SPLITS, check, check_task, refuse, unknown
from scalesearch.data.parts import Part, names, plain, read_parts
from scalesearch.data.paths import expand
from scalesearch.errors import UserError
from scalesearch.tasks import TASKS

_FILES_VOCAB, _BUILTIN_VOCAB, _DEFAULT_PAIRS = 8000, 2000, 20_000


@dataclass(frozen=True)
class DataSpec:
    """A corpus, in one of two shapes.

    The built-in one: ``builtin="grammar"`` with the first ``pairs`` of its 50,000 training pairs (20,000, unless said).

    Parallel text: ``source`` and ``target`` are the languages, that is the file endings, and each of
    ``train``, ``valid`` and ``test`` is a prefix (``data/train`` stands for ``data/train.en`` and
    ``data/train.de``, or the same with ``.gz``), a :class:`PairOfFiles`, or a sequence of these to be joined.
    What else the parts may be, and which metrics there are, is the task's:

    - ``task``: ``translation``, ``summarisation`` (texts and their summaries), ``correction`` or ``language-model``.
    - ``correction``: sentences and their corrections. A part may be an M2 file of gold edits (``test.m2``), and a
      pair's ``target`` of ``valid`` and ``test`` a list of files, each another annotator's corrections. ``source`` and
      ``target`` are only needed for prefixes. Training, and the loss, are on the first annotator's corrections.
    - ``language-model``: a part is one text file, and there is no ``source`` and ``target``. The text is one stream of
      tokens, an end mark behind each line; empty lines are left out. It is cut into windows of ``window`` tokens to
      train on; perplexity is of windows that begin ``stride`` tokens apart (half a window, unless said), so that each
      token is scored once, with at least ``window`` - ``stride`` tokens before it where the text has them.
    - ``tokenised``: words are apart by blanks. For translation, ``tokenised_bleu`` is reported beside BLEU; for
      summarisation, ROUGE takes such words in place of its own.
    - ``comet``: a COMET model's name or checkpoint file, to score translations with; needs the package.

    Paths may hold ``~`` and ``$VARIABLES``; they are kept as written, so that a spec in a record names no
    machine, and expanded by :meth:`resolve`.

    For both:

    - ``vocab``: entries of the sentencepiece vocabulary shared by the two languages (unless said, 8000,
      and 2000 for the built-in corpus), or ``tokenizer``: a sentencepiece model file to use as it is.
    - ``model``: ``bpe`` or ``unigram``. ``coverage``: share of the training text's characters that get an
      entry of their own; 1.0 suits alphabets, 0.9995 Chinese, Japanese or noisy web text.
    - ``lowercase``: lower-case all three splits. References too, so BLEU is then case-insensitive.
    - ``max_length``: tokens of a side, without the end mark. Longer training pairs are dropped; longer
      validation and test sentences are cut for the model, while their text, the reference, stays whole.
    - ``max_ratio``: drop training pairs one side of which has more than this many times the other's tokens.
    - ``limit``: use only the first so many training pairs (also to fit the vocabulary).
    - ``distilled``: prefix of a teacher's translations of the training text, as ``scalesearch distill`` writes them;
      they are learned from in place of the real pairs, or with ``mix`` beside them. The vocabulary stays that of the
      real training text, and validation and test stay as they are.
    - ``name``: what tables call the corpus.

    Raises:
        UserError: naming every field that is wrong and what would be right.
    """

    task: str = "translation"
    builtin: str | None = None
    pairs: int | None = None
    source: str | None = None
    target: str | None = None
    train: Any = ()
    valid: Any = ()
    test: Any = ()
    vocab: int | None = None
    tokenizer: str | None = None
    model: str = "bpe"
    coverage: float = 1.0
    lowercase: bool = False
    max_length: int = 256
    max_ratio: float | None = None
    limit: int | None = None
    tokenised: bool = False
    comet: str | None = None
    window: int | None = None
    stride: int | None = None
    distilled: str | None = None
    mix: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        refuse(check_task(self.task))
        problems = check(self)
        for split in SPLITS:
            parts, wrong = read_parts(split, getattr(self, split), self.form)
            object.__setattr__(self, split, parts)
            problems += wrong
        refuse(problems)
        if self.vocab is None and self.tokenizer is None:
            object.__setattr__(self, "vocab", _BUILTIN_VOCAB if self.builtin else _FILES_VOCAB)
        if self.builtin:
            object.__setattr__(self, "pairs", _DEFAULT_PAIRS if self.pairs is None else self.pairs)
        if self.form == "text":
            window = DEFAULT_WINDOW if self.window is None else self.window
            object.__setattr__(self, "window", window)
            object.__setattr__(self, "stride", max(1, window // 2) if self.stride is None else self.stride)

    @property
    def form(self) -> str:
        """Of the files: one of :data:`scalesearch.tasks.FORMS`."""
        return TASKS[self.task].form

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "DataSpec":
        """The spec that the ``data:`` section of a file describes; its keys are this class's fields.

        Raises:
            UserError: an unknown key, with the nearest known one, or a wrong value.
        """
        if not isinstance(mapping, Mapping):
            raise UserError(f"data: expected keys such as `builtin: grammar` or `train: PREFIX`, not {mapping!r}")
        known = [field.name for field in fields(cls)]
        refuse([unknown(str(key), known) for key in mapping if key not in known])
        return cls(**mapping)

    def to_json(self) -> dict[str, Any]:
        """The fields that say something, as JSON values; ``from_mapping`` reads them back."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        said = {key: value for key, value in given.items() if value not in (None, ())}
        return said | {split: plain(said[split]) for split in SPLITS if split in said}

    def describe(self) -> str:
        """One line for a person: what text, and which vocabulary."""
        if self.builtin:
            text = f"built-in {self.builtin} (synthetic), {self.pairs} pairs"
        else:
            what = f"{self.source}-{self.target}" if self.source and self.target else self.task
            text = f"{what} from {', '.join(names(self.train))}"
        given = f"tokenizer {self.tokenizer}"
        vocabulary = given if self.tokenizer else f"{self.model} vocabulary of {self.vocab}"
        extras = [f"first {self.limit} pairs"] * bool(self.limit) + ["lower-cased"] * self.lowercase
        extras += [f"{'with' if self.mix else 'as'} translated in {self.distilled}"] * bool(self.distilled)
        return "; ".join([text, vocabulary, *extras])

    @property
    def suffixes(self) -> tuple[str, str]:
        """What the files of the two sides end with; the built-in corpus has none, but its translations do."""
        return self.source or "en", self.target or "de"

    def resolve(self, base: Path | None = None) -> "DataSpec":
        """This spec with variables and ``~`` expanded and relative paths made absolute under ``base`` (or the
        working directory), so that it means the same in another process.

        Raises:
            UserError: a variable that is not set.
        """
        def full(where: str, path: str) -> str:
            return str(expand(path, where, base))

        def part(split: str, value: Part) -> Part:
            return full(split, value) if isinstance(value, str) else value.map_paths(lambda path: full(split, path))

        changes: dict[str, Any] = {}
        for split in SPLITS:
            changes[split] = tuple(part(split, value) for value in getattr(self, split))
        for key in ("tokenizer", "distilled"):
            if getattr(self, key) is not None:
                changes[key] = full(key, getattr(self, key))
        return replace(self, **changes)
