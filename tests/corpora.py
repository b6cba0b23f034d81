"""A parallel text of a few short sentences: with the built-in corpus, scoring takes most of a tiny training."""

from pathlib import Path

ENGLISH = ["one red dog", "the old house", "a big tree stands here", "two cats",
           "the dog sees the cat"]
GERMAN = ["ein roter Hund", "das alte Haus", "ein großer Baum steht hier", "zwei Katzen",
          "der Hund sieht die Katze"]
# beside its text
DATA = "{ source: en, target: de, train: train, validation: val, test: test, vocab: 60 }"


def write_text(folder: Path, train: int = 60) -> Path:
    """Writes ``train`` training pairs and 8 of each other split below ``folder``, and returns a data file of them."""
    for split, start, count in (("train", 0, train), ("val", 200, 8), ("test", 300, 8)):
        for side, lines in (("en", ENGLISH), ("de", GERMAN)):
            (folder / f"{split}.{side}").write_text(
                "".join(f"{lines[i % 5]} {start + i}\n" for i in range(count)))
    file = folder / "data.yaml"
    file.write_text(f"data: {DATA}\n")
    return file
