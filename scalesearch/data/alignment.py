"""Measures by which files are noticed that are not translations of each other, line by line."""

from collections.abc import Iterator

import numpy as np

from scalesearch.data.sources import ParallelText

MIN_PAIRS = 100  # with fewer pairs, the measures vary too much
MAX_EQUAL = 50  # percent of pairs with equal sides
MIN_LENGTH_CORRELATION = 10  # percent; about 0 if one side is shuffled, 60 to 95 for real text
MIN_SWAPPED_EXCESS = 30  # percent of words


def measure_alignment(text: dict[str, ParallelText]) -> dict[str, int]:
    """Measure how well the two sides of the text fit together, in percent.

    Returns:
        ``equal``: training pairs with equal sides. ``length_correlation``: correlation of the
        numbers of characters of the two sides; missing if a side has lines of one length.
        ``swapped``: validation words that are found in the other side of the training text, minus
        those that are found in their own side.
    """
    train = text["train"]
    if len(train.source) < MIN_PAIRS:
        return {}
    n_equal = sum(source == target for source, target in zip(train.source, train.target))
    measures = {"equal": round(100 * n_equal / len(train.source))}
    lengths = np.array([list(map(len, side)) for side in (train.source, train.target)], float)
    if lengths.std(axis=1).all():
        measures["length_correlation"] = round(100 * float(np.corrcoef(lengths)[0, 1]))
    source_words, target_words = ({word for line in side for word in line.split()}
                                  for side in (train.source, train.target))
    validation = text["validation"]
    n_own = n_other = n_words = 0
    for lines, own, other in ((validation.source, source_words, target_words),
                              (validation.target, target_words, source_words)):
        for line in lines:
            words = line.split()
            n_words += len(words)
            n_own += sum(word in own for word in words)
            n_other += sum(word in other for word in words)
    measures["swapped"] = round(100 * (n_other - n_own) / max(1, n_words))
    return measures


def describe_alignment(measures: dict[str, int]) -> Iterator[str]:
    """Yield warnings about training pairs that do not look like translations."""
    equal = measures.get("equal", 0)
    if equal >= MAX_EQUAL:
        yield (f"warning: {equal} % of the training pairs have two equal sides; check that the "
               "files are in two languages")
    elif measures.get("length_correlation", 100) < MIN_LENGTH_CORRELATION:
        yield ("warning: long training sources do not have long targets (correlation of their "
               f"lengths: {measures['length_correlation'] / 100:.2f}); check that line n of one "
               "file is the translation of line n of the other")
    if measures.get("swapped", 0) >= MIN_SWAPPED_EXCESS:
        yield ("warning: the validation source looks like the training target; check that source "
               "and target are not swapped")
