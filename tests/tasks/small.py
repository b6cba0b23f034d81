"""Small corpora of each file format, written for a test."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from scalesearch.data import Corpus, DataSpec, load_corpus
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.tasks import Task
from tests.architectures import transformer_config

WORDS = ["one", "two", "red", "blue", "dog", "cat", "sees", "and", "the", "big", "house", "old",
         "tree", "runs"]
COUNTS = {"train": 120, "validation": 12, "test": 12}


def lines(split: str) -> list[str]:
    """Sentences of 3 to 9 words."""
    rng = Random(split)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(COUNTS[split])]


def write(file: Path, text: list[str]) -> str:
    file.write_text("".join(line + "\n" for line in text))
    return file.name


def pairs(folder: Path) -> dict[str, Any]:
    """Pairs of sentences and the same sentences without the last word."""
    for split in COUNTS:
        write(folder / f"{split}.a", lines(split))
        write(folder / f"{split}.b", [line.rsplit(" ", 1)[0] for line in lines(split)])
    return {"source": "a", "target": "b", **{split: split for split in COUNTS}}


def corrections(folder: Path) -> dict[str, Any]:
    """Pairs for training, two references for validation, and gold edits for testing."""
    result = pairs(folder)
    write(folder / "other.b", [f"{line} please" for line in lines("validation")])
    edits = ["A 0 1|||R:OTHER|||the||a|||REQUIRED|||-NONE-|||0",
             "A -1 -1|||noop|||-NONE-|||-NONE-|||-NONE-|||1", ""]
    write(folder / "test.m2", [row for line in lines("test") for row in (f"S {line}", *edits)])
    return result | {"validation": {"source": "validation.a",
                                    "target": ["validation.b", "other.b"]}, "test": "test.m2"}


def text(folder: Path) -> dict[str, Any]:
    """One file per split, each with an empty line."""
    files = {split: write(folder / f"{split}.txt", ["", *lines(split)]) for split in COUNTS}
    return files | {"window": 12, "stride": 5}


def labels(folder: Path) -> dict[str, Any]:
    """Sentences, and whether they have a dog, a cat, both or neither."""
    result = pairs(folder)
    for split in COUNTS:
        write(folder / f"{split}.b", [" and ".join(word for word in ("dog", "cat") if word in line)
                                      or "none" for line in lines(split)])
    return result


FORMS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "pairs": pairs, "corrections": corrections, "text": text, "labels": labels}


def spec_of(task: Task, folder: Path, **more: Any) -> DataSpec:
    """A data spec for the task; its files are written below ``folder``."""
    return DataSpec.from_mapping({"task": task.name, "vocab": 60, **FORMS[task.file_format](folder),
                                  **more})


def corpus_of(task: Task, folder: Path, **more: Any) -> Corpus:
    return load_corpus(spec_of(task, folder, **more), folder / "cache", folder)


def model_for(task: Task, **more: Any) -> ModelSpec:
    """An architecture of width 16 with one layer per stack."""
    classes = {"classes": 4} if task.file_format == "labels" else {}
    return assemble(transformer_config(width=16, encoder__depth=1, decoder__depth=1,
                                       embedding__max_length=128,
                                       model=task.model_types[0], **(classes | more)))
