"""A tiny corpus and architecture, with which a training run takes a second."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from scalesearch.data import Corpus, DataSpec, load_corpus
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.training import Recipe
from tests.architectures import transformer_config

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "blue": "blau", "dog": "Hund", "cat": "Katze",
         "sees": "sieht", "and": "und", "the": "das", "big": "groß", "house": "Haus", "old": "alt",
         "tree": "Baum", "runs": "läuft"}


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of 1 to 9 words, translated word by word."""
    rng = Random(seed)
    sources = [rng.choices(list(WORDS), k=rng.randint(1, 9)) for _ in range(count)]
    return [(" ".join(words), " ".join(WORDS[word] for word in words)) for words in sources]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A corpus with 300 training pairs and 20 pairs per other split."""
    folder = tmp_path_factory.mktemp("text")
    for split, count, seed in (("train", 300, 1), ("val", 20, 2), ("test", 20, 3)):
        pairs = sentences(count, seed)
        for side, column in (("en", 0), ("de", 1)):
            (folder / f"{split}.{side}").write_text("".join(pair[column] + "\n" for pair in pairs))
    spec = DataSpec(source="en", target="de", train=str(folder / "train"),
                    validation=str(folder / "val"), test=str(folder / "test"), vocab=80)
    return load_corpus(spec, folder / "cache")


def tiny(**changes: Any) -> ModelSpec:
    """An architecture of width 16 with one layer per stack; see ``transformer_config``."""
    small = {"width": 16, "encoder__depth": 1, "decoder__depth": 1, "embedding__max_length": 128}
    return assemble(transformer_config(**(small | changes)))


def recipe(**changes: Any) -> Recipe:
    """A recipe of 12 updates with all types of dropout and greedy search."""
    base: dict[str, Any] = {"steps": 12, "max_tokens": 200, "lr": 5e-3, "beam": 1, "dropout": 0.1,
                            "attention_dropout": 0.1, "activation_dropout": 0.1, "average_every": 2,
                            "average_count": 3, "validate_every": 4}
    return Recipe.from_mapping(base | changes)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"
