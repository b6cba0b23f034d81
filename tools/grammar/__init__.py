"""Generates synthetic English-German-like sentence pairs with a grammar of our own: the package's built-in corpus.

A random meaning tree (``sentences``) is realised in both languages (``english``, ``german``). The
German side shows what makes that direction hard to learn: case and agreement, verb-second and
verb-final order, separable verbs, compounds, inverted numbers, pronouns whose gender lies in
another clause, words that only their context tells apart; the vocabulary is Zipfian, with a long
tail of invented words.
"""

import random
from collections.abc import Iterator

from .english import english
from .german import german
from .sentences import Sentences
from .vocabulary import vocabulary

MIN_WORDS = 4
MAX_WORDS = 25  # of a source sentence

Pairs = list[tuple[str, str]]


def generate(
        seed: int = 1, pairs: int = 50_000, valid: int = 500, test: int = 500) -> dict[str, Pairs]:
    """The splits "train", "valid" and "test", each a list of (source, target) sentences.

    A pure function of its arguments. No source and no target of valid or test occurs in another
    split or twice in its own. Valid and test do not depend on ``pairs``, and fewer pairs are the
    first ones of more.
    """
    sources: set[str] = set()
    targets: set[str] = set()
    held: Pairs = []
    stream = _stream(seed, "held out")
    while len(held) < valid + test:
        source, target = next(stream)
        if source not in sources and target not in targets:
            held.append((source, target))
            sources.add(source)
            targets.add(target)
    train: Pairs = []
    stream = _stream(seed, "train")
    while len(train) < pairs:
        source, target = next(stream)
        if source not in sources and target not in targets:
            train.append((source, target))
    return {"train": train, "valid": held[:valid], "test": held[valid:]}


def _stream(seed: int, purpose: str) -> Iterator[tuple[str, str]]:
    """Sentence pairs without end; a seed of text gives the same stream on every platform and in every process."""
    sentences = Sentences(random.Random(f"{seed} {purpose}"), vocabulary())
    while True:
        sentence = sentences.sentence()
        source = english(sentence)
        if MIN_WORDS <= source.count(" ") + 1 <= MAX_WORDS:
            yield source, german(sentence)
