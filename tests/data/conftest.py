"""Small parallel texts, written for each test."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from scalesearch.data import DataSpec

SOURCE = ["the small dog runs .", "a dog sees the old house .", "the house is old .", "dogs run",
          "she sees a dog ."]
TARGET = ["der kleine Hund läuft .", "ein Hund sieht das alte Haus .", "das Haus ist alt .",
          "Hunde laufen", "sie sieht einen Hund ."]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write lines or bytes to a file below ``tmp_path``, compressed if its name ends in .gz."""
    def write_file(name: str, content: list[str] | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(line + "\n" for line in content).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write_file


@pytest.fixture
def spec(write: Write, tmp_path: Path) -> DataSpec:
    """A spec of three small splits without common sentences, in the folder ``text``."""
    for split, start in (("train", 0), ("val", 100), ("test", 200)):
        count = 40 if split == "train" else 5
        for side, lines in (("en", SOURCE), ("de", TARGET)):
            write(f"text/{split}.{side}", [f"{lines[i % 5]} {start + i}" for i in range(count)])
    text = tmp_path / "text"
    return DataSpec(source="en", target="de", train=str(text / "train"),
                    validation=str(text / "val"), test=str(text / "test"), vocab=60)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty folder for binarized corpora."""
    return tmp_path / "cache"
