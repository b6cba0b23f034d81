"""A parallel text of a few short sentences, which is faster to score than the built-in corpus."""

from pathlib import Path

ENGLISH = ["one red dog", "the old house", "a big tree stands here", "two cats",
           "the dog sees the cat"]
GERMAN = ["ein roter Hund", "das alte Haus", "ein großer Baum steht hier", "zwei Katzen",
          "der Hund sieht die Katze"]
# for a working directory that contains the text
DATA = "{ source: en, target: de, train: train, validation: val, test: test, vocab: 60 }"


def write_text(folder: Path, train: int = 60) -> Path:
    """Write ``train`` training pairs and 8 pairs per other split; return the data file."""
    for split, start, count in (("train", 0, train), ("val", 200, 8), ("test", 300, 8)):
        for side, lines in (("en", ENGLISH), ("de", GERMAN)):
            (folder / f"{split}.{side}").write_text(
                "".join(f"{lines[i % 5]} {start + i}\n" for i in range(count)))
    file = folder / "data.yaml"
    file.write_text(f"data: {DATA}\n")
    return file
