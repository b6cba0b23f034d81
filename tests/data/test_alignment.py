"""Warnings about sides that are equal, shuffled or swapped."""

import random

import pytest

from scalesearch.data.prepare import describe_alignment, measure_alignment
from scalesearch.data.sources import ParallelText


def parallel(n_pairs, rng, n_words=60):
    """Pairs of 3 to 20 words, translated word by word."""
    words = [f"w{number}" for number in range(n_words)]
    source = [" ".join(rng.choices(words, k=rng.randint(3, 20))) for _ in range(n_pairs)]
    return source, [line.replace("w", "translated") for line in source]


def warnings(change=lambda source, target: (source, target), n_pairs=200):
    rng = random.Random(1)
    train = change(*parallel(n_pairs, rng))
    validation = parallel(50, rng)
    text = {name: ParallelText(list(pair[0]), list(pair[1]), {})
            for name, pair in (("train", train), ("validation", validation))}
    return list(describe_alignment(measure_alignment(text)))


def test_parallel_text_has_no_warning():
    assert warnings() == []


@pytest.mark.parametrize("words, change", [
    ("equal sides", lambda source, target: (source, source)),
    ("equal sides", lambda source, target: (target, target)),
    ("line n", lambda source, target: (source, random.Random(2).sample(target, len(target)))),
    ("swapped", lambda source, target: (target, source)),
])
def test_mixed_up_sides_are_noticed(words, change):
    assert any(words in warning for warning in warnings(change))


def test_short_or_uniform_text_has_no_warning():
    assert warnings(lambda source, target: (source, target[::-1]), n_pairs=20) == []
    uniform = ["a b"] * 200
    text = {name: ParallelText(uniform, ["c d"] * 200, {}) for name in ("train", "validation")}
    assert list(describe_alignment(measure_alignment(text))) == []
