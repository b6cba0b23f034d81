"""What to learn from: the built-in corpus or parallel text files, and how to cut the text into tokens."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from scalesearch.data.paths import expand
from scalesearch.errors import UserError

SPLITS = ("train", "valid", "test")
BUILTINS = ("grammar",)
MODELS = ("bpe", "unigram")
_OF_BUILTIN, _OF_FILES = ("pairs", "seed"), ("source", "target", *SPLITS)
_FILES_VOCAB, _BUILTIN_VOCAB, _DEFAULT_PAIRS, _DEFAULT_SEED = 8000, 2000, 20_000, 1


@dataclass(frozen=True)
class PairOfFiles:
    """Two files whose lines translate each other, for data that is not named ``prefix.language``."""

    source: str
    target: str


Part = str | PairOfFiles


@dataclass(frozen=True)
class DataSpec:
    """A corpus, in one of two shapes.

    The built-in one: ``builtin="grammar"`` with ``pairs`` training pairs drawn with ``seed``.

    Parallel text: ``source`` and ``target`` are the languages, that is the file endings, and each of
    ``train``, ``valid`` and ``test`` is a prefix (``data/train`` stands for ``data/train.en`` and
    ``data/train.de``, or the same with ``.gz``), a :class:`PairOfFiles`, or a sequence of these to be joined.
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

    builtin: str | None = None
    pairs: int | None = None
    seed: int | None = None
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
    distilled: str | None = None
    mix: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        problems = _check(self)
        for split in SPLITS:
            parts, wrong = _parts(split, getattr(self, split))
            object.__setattr__(self, split, parts)
            problems += wrong
        _refuse(problems)
        if self.vocab is None and self.tokenizer is None:
            object.__setattr__(self, "vocab", _BUILTIN_VOCAB if self.builtin else _FILES_VOCAB)
        if self.builtin:
            object.__setattr__(self, "pairs", _DEFAULT_PAIRS if self.pairs is None else self.pairs)
            object.__setattr__(self, "seed", _DEFAULT_SEED if self.seed is None else self.seed)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "DataSpec":
        """The spec that the ``data:`` section of a file describes; its keys are this class's fields.

        Raises:
            UserError: an unknown key, with the nearest known one, or a wrong value.
        """
        if not isinstance(mapping, Mapping):
            raise UserError(f"data: expected keys such as `builtin: grammar` or `train: PREFIX`, not {mapping!r}")
        known = [field.name for field in fields(cls)]
        _refuse([_unknown(str(key), known) for key in mapping if key not in known])
        return cls(**mapping)

    def to_json(self) -> dict[str, Any]:
        """The fields that say something, as JSON values; ``from_mapping`` reads them back."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        said = {key: value for key, value in given.items() if value not in (None, ())}
        return said | {split: _plain(said[split]) for split in SPLITS if split in said}

    def describe(self) -> str:
        """One line for a person: what text, and which vocabulary."""
        if self.builtin:
            text = f"built-in {self.builtin} (synthetic), {self.pairs} pairs, seed {self.seed}"
        else:
            text = f"{self.source}-{self.target} from {', '.join(_names(self.train))}"
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
            if isinstance(value, str):
                return full(split, value)
            return PairOfFiles(full(split, value.source), full(split, value.target))

        changes: dict[str, Any] = {}
        for split in SPLITS:
            changes[split] = tuple(part(split, value) for value in getattr(self, split))
        for key in ("tokenizer", "distilled"):
            if getattr(self, key) is not None:
                changes[key] = full(key, getattr(self, key))
        return replace(self, **changes)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise UserError("\n".join(f"data: {problem}" for problem in problems))


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
    return f"unknown key `{key}`; {hint}"


def _parts(split: str, value: Any) -> tuple[tuple[Part, ...], list[str]]:
    """The prefixes and pairs of files of a split, and what is wrong with them."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    parts: list[Part] = []
    problems = []
    for item in items:
        match item:
            case str() if item.strip():
                parts.append(item)
            case PairOfFiles():
                parts.append(item)
            case {"source": str(source), "target": str(target), **rest} if not rest:
                parts.append(PairOfFiles(source, target))
            case _:
                problems.append(f"{split}: {item!r} is no path prefix and no {{source: FILE, target: FILE}}")
    return tuple(parts), problems


def _plain(parts: tuple[Part, ...]) -> Any:
    plain = [part if isinstance(part, str) else asdict(part) for part in parts]
    return plain[0] if len(plain) == 1 else plain


def _names(parts: tuple[Part, ...]) -> list[str]:
    return [part if isinstance(part, str) else f"{part.source} + {part.target}" for part in parts]


def _check(spec: DataSpec) -> list[str]:
    return [*_check_shape(spec), *_check_values(spec)]


def _check_shape(spec: DataSpec) -> list[str]:
    """Which keys go together."""
    of_files = [key for key in _OF_FILES if getattr(spec, key) not in (None, ())]
    of_builtin = [key for key in _OF_BUILTIN if getattr(spec, key) is not None]
    if spec.builtin is not None:
        problems = [f"`{key}` is for text files and cannot stand beside `builtin`" for key in of_files]
        if spec.builtin not in BUILTINS:
            problems.append(f"builtin: no built-in corpus is called {spec.builtin!r}; {', '.join(BUILTINS)} is")
        return problems
    problems = [f"`{key}` is only for `builtin: grammar`" for key in of_builtin]
    missing = [key for key in _OF_FILES if key not in of_files]
    if len(missing) == len(_OF_FILES):
        shapes = "give `builtin: grammar`, or `source`, `target`, `train`, `valid` and `test` for text files"
        return [*problems, shapes]
    return problems + [f"`{key}` is missing: {_MEANING[key]}" for key in missing]


_MEANING = {
    "source": "the language to translate from, which is the ending of its files, such as en",
    "target": "the language to translate into, which is the ending of its files, such as de",
    "train": "the path prefix of the training text, such as data/train for data/train.en and data/train.de",
    "valid": "the path prefix of the validation text, such as data/val for data/val.en and data/val.de",
    "test": "the path prefix of the test text, such as data/test for data/test.en and data/test.de",
}


def _check_values(spec: DataSpec) -> list[str]:
    """Each value by itself."""
    problems = [f"{key}: expected text, found {getattr(spec, key)!r}"
                for key in ("builtin", "source", "target", "tokenizer", "distilled", "name")
                if not isinstance(getattr(spec, key), str | None)]
    lowest = {"pairs": 1, "seed": 0, "vocab": 5, "max_length": 1, "limit": 1}
    problems += [f"{key}: expected a whole number of at least {low}, found {getattr(spec, key)!r}"
                 for key, low in lowest.items() if not _whole(getattr(spec, key), low, key != "max_length")]
    if spec.vocab is not None and spec.tokenizer is not None:
        problems.append("give `vocab` (to fit a vocabulary) or `tokenizer` (to use one as it is), not both")
    if spec.model not in MODELS:
        problems.append(f"model: expected {' or '.join(MODELS)}, found {spec.model!r}")
    problems += [f"{key}: expected true or false, found {getattr(spec, key)!r}"
                 for key in ("lowercase", "mix") if not isinstance(getattr(spec, key), bool)]
    if spec.mix and spec.distilled is None:
        problems.append("mix: there is nothing to mix with; name a teacher's translations under `distilled`")
    if not (_number(spec.coverage) and 0.9 <= spec.coverage <= 1):
        problems.append(f"coverage: expected a number from 0.9 to 1, found {spec.coverage!r}")
    if not (spec.max_ratio is None or (_number(spec.max_ratio) and spec.max_ratio >= 1)):
        problems.append(f"max_ratio: expected a number of at least 1, found {spec.max_ratio!r}")
    return problems


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: Any, low: int, optional: bool) -> bool:
    if value is None:
        return optional
    return isinstance(value, int) and not isinstance(value, bool) and value >= low
