"""What can be wrong with a data spec, and what would be right."""

import difflib
from collections.abc import Iterable
from typing import Any

from scalesearch.data.builtin import MAX_PAIRS
from scalesearch.data.parts import has_prefix
from scalesearch.errors import UserError
from scalesearch.tasks import TASKS

SPLITS = ("train", "valid", "test")
BUILTINS = ("grammar",)
MODELS = ("bpe", "unigram")
DEFAULT_WINDOW = 128
_OF_FILES = ("source", "target", *SPLITS)
_OF_TASKS = ("tokenised", "comet", "window", "stride")


def refuse(problems: list[str]) -> None:
    """Raises UserError with all ``problems``, where there are any."""
    if problems:
        raise UserError("\n".join(f"data: {problem}" for problem in problems))


def unknown(key: str, known: list[str]) -> str:
    """What to say of a key that is none of ``known``."""
    if key == "seed":
        return ("unknown key `seed`: the built-in corpus is one fixed text (`python -m tools.grammar` in the source "
                "repository writes others), and the seed of a training is no part of its data")
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
    return f"unknown key `{key}`; {hint}"


def check_task(task: Any) -> list[str]:
    """What is wrong with the task's name."""
    if task in TASKS:
        return []
    near = difflib.get_close_matches(str(task), TASKS, n=1)
    return [f"task: there is no task {task!r}; {f'did you mean `{near[0]}`?' if near else f'known are {_list(TASKS)}'}"]


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)


def check(spec: Any) -> list[str]:
    """What is wrong with a spec, but for the parts of its splits."""
    return [*_check_shape(spec), *_check_keys(spec), *_check_values(spec)]


def _check_shape(spec: Any) -> list[str]:
    """Which keys go together."""
    of_files = [key for key in _OF_FILES if getattr(spec, key) not in (None, ())]
    if spec.builtin is not None:
        problems = [f"`{key}` is for text files and cannot stand beside `builtin`" for key in of_files]
        if spec.builtin not in BUILTINS:
            problems.append(f"builtin: no built-in corpus is called {spec.builtin!r}; {', '.join(BUILTINS)} is")
        if spec.task != "translation":
            problems.append(f"builtin: the built-in corpus is one of translations, and the task is {spec.task}")
        return problems
    problems = [] if spec.pairs is None else ["`pairs` is only for `builtin: grammar`; of text files, give `limit`"]
    needed = _needed(spec)
    missing = [key for key in needed if key not in of_files]
    if len(missing) == len(_OF_FILES):
        shapes = "give `builtin: grammar`, or `source`, `target`, `train`, `valid` and `test` for text files"
        return [*problems, shapes]
    means = _MEANING_OF_TEXT if spec.form == "text" else _MEANING
    return problems + [f"`{key}` is missing: {means[key]}" for key in missing]


def _needed(spec: Any) -> tuple[str, ...]:
    """The keys that a spec of text files must have."""
    prefixes = spec.form == "pairs" or any(has_prefix(getattr(spec, split)) for split in SPLITS)
    return _OF_FILES if spec.form != "text" and prefixes else SPLITS


def _check_keys(spec: Any) -> list[str]:
    """Keys that the task has no use for."""
    task = TASKS[spec.task]
    given = [key for key in _OF_TASKS if getattr(spec, key) not in (None, False) and key not in task.keys]
    problems = [f"`{key}` is for {_list(_having(key))}, and the task is {spec.task}" for key in given]
    if task.form == "text":
        unused = [key for key in ("source", "target", "max_ratio") if getattr(spec, key) is not None]
        problems += [f"`{key}` is for pairs of texts, and the task is {spec.task}" for key in unused]
    return problems


def _having(key: str) -> list[str]:
    return [task.name for task in TASKS.values() if key in task.keys]


_MEANING = {
    "source": "the language to translate from, which is the ending of its files, such as en",
    "target": "the language to translate into, which is the ending of its files, such as de",
    "train": "the path prefix of the training text, such as data/train for data/train.en and data/train.de",
    "valid": "the path prefix of the validation text, such as data/val for data/val.en and data/val.de",
    "test": "the path prefix of the test text, such as data/test for data/test.en and data/test.de",
}
_MEANING_OF_TEXT = {split: f"the {words} text, one file, such as data/{split}.txt"
                    for split, words in (("train", "training"), ("valid", "validation"), ("test", "test"))}


def _check_values(spec: Any) -> list[str]:
    """Each value by itself."""
    problems = [f"{key}: expected text, found {getattr(spec, key)!r}"
                for key in ("builtin", "source", "target", "tokenizer", "comet", "distilled", "name")
                if not isinstance(getattr(spec, key), str | None)]
    lowest = {"pairs": 1, "vocab": 5, "max_length": 1, "limit": 1, "window": 2, "stride": 1}
    problems += [f"{key}: expected a whole number of at least {low}, found {getattr(spec, key)!r}"
                 for key, low in lowest.items() if not _whole(getattr(spec, key), low, key != "max_length")]
    if _number(spec.pairs) and spec.pairs > MAX_PAIRS:
        problems.append(f"pairs: the built-in corpus has {MAX_PAIRS} training pairs, found {spec.pairs}; "
                        "`python -m tools.grammar` in the source repository writes text files of more")
    if spec.vocab is not None and spec.tokenizer is not None:
        problems.append("give `vocab` (to fit a vocabulary) or `tokenizer` (to use one as it is), not both")
    if spec.model not in MODELS:
        problems.append(f"model: expected {' or '.join(MODELS)}, found {spec.model!r}")
    flags = ("lowercase", "tokenised", "mix")
    problems += [f"{key}: expected true or false, found {getattr(spec, key)!r}" for key in flags
                 if not isinstance(getattr(spec, key), bool)]
    if spec.mix and spec.distilled is None:
        problems.append("mix: there is nothing to mix with; name a teacher's translations under `distilled`")
    if spec.distilled is not None and spec.form == "text":
        problems.append(f"distilled: a teacher writes targets for sources, and the task is {spec.task}")
    window = DEFAULT_WINDOW if spec.window is None else spec.window
    if _number(window) and _number(spec.stride) and spec.stride > window:
        problems.append(f"stride: expected at most the window of {window}, found {spec.stride}: tokens between two "
                        "windows would not be scored")
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
