"""Translates lines of text with a finished training."""

from collections.abc import Iterable

from scalesearch.data import Split
from scalesearch.train.checkpoint import Checkpoint
from scalesearch.train.hardware import Hardware
from scalesearch.train.scoring.evaluate import Search, translate


def translate_lines(checkpoint: Checkpoint, lines: list[str], search: Search, hardware: Hardware,
                    ) -> Iterable[tuple[str, str, float | None]]:
    """Translates lines; yields line, translation and score, empty and None without words."""
    text = [line.lower() for line in lines] if checkpoint.lowercase else lines
    ids = [row[: checkpoint.max_length] for row in checkpoint.tokenizer.encode(text)]
    filled = [place for place, row in enumerate(ids) if row]
    translations = [""] * len(lines)
    scores: list[float | None] = [None] * len(lines)
    if filled:
        split = Split.of([ids[place] for place in filled])
        results = translate(checkpoint.model, split, checkpoint.tokenizer, hardware, search)
        for place, translation, score in zip(filled, *results):
            # One line in, one line out, whatever the vocabulary holds.
            translations[place], scores[place] = " ".join(translation.split()), score
    return zip(lines, translations, scores)
