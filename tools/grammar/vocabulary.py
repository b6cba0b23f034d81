"""The vocabulary to draw from: every word with its frequency, grouped by what it can be combined with."""

import random
from bisect import bisect
from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate
from typing import Any, Generic, TypeVar

from .invented import invent
from .words import Adjective, Noun, Verb, read_adjectives, read_nouns, read_senses, read_verbs

_NOUNS = 700
_VERBS = 240
_ADJECTIVES = 150  # invented words of each class
_EXPONENT = 1.2
_OFFSET = 3.0  # Zipf-Mandelbrot: frequency of rank r is 1 / (r + offset) ** exponent

Word = TypeVar("Word")


class Pool(Generic[Word]):
    """Words and their frequencies."""

    def __init__(self, items: Iterable[tuple[Word, float]]) -> None:
        entries = list(items)
        self.words = [word for word, _ in entries]
        self.cumulative = list(accumulate(weight for _, weight in entries))

    def __bool__(self) -> bool:
        return bool(self.words)

    def pick(self, rng: random.Random) -> Word:
        """A word, with a chance in proportion to its frequency."""
        return self.words[
            bisect(self.cumulative, rng.random() * self.cumulative[-1], 0, len(self.words) - 1)
        ]


class Vocabulary:
    """All words of the language, the same in every run; the pools are made when first asked for."""

    def __init__(self) -> None:
        nouns = read_nouns()
        verbs = read_verbs()
        adjectives = read_adjectives()
        self.senses = read_senses()
        self.real = {noun.english: noun for noun in reversed(nouns)}
        taken = _taken(nouns, verbs, adjectives, [noun for noun, _ in self.senses])
        more_nouns, more_verbs, more_adjectives = invent(_NOUNS, _VERBS, _ADJECTIVES, taken)
        self._nouns = _weighed(nouns + more_nouns, lambda noun: noun.kind)
        self._verbs = _weighed(verbs + more_verbs, lambda verb: verb.frame[0])
        self._adjectives = _weighed(adjectives + more_adjectives, lambda adjective: "")
        self._pools: dict[object, Pool[Any]] = {}

    def nouns(self, kinds: tuple[str, ...]) -> Pool[Noun]:
        """The nouns of some kinds."""
        return self._pool(("noun", kinds),
                          lambda: [entry for entry in self._nouns if entry[0].kind in kinds])

    def verbs(self, frames: str) -> Pool[Verb]:
        """The verbs of a set of one-letter frames."""
        return self._pool(("verb", frames),
                          lambda: [entry for entry in self._verbs if entry[0].frame[0] in frames])

    def verbs_with(self, role: str, kind: str, frames: str) -> Pool[Verb]:
        """The verbs of some frames that accept a kind of noun as their subject or object."""
        return self._pool(
            (role, kind, frames),
            lambda: [
                entry
                for entry in self._verbs
                if entry[0].frame[0] in frames
                and kind in (entry[0].subjects if role == "subject" else entry[0].objects)
            ],
        )

    def adjectives(self, kind: str) -> Pool[Adjective]:
        """The adjectives that go with a kind of noun."""
        return self._pool(("adjective", kind),
                          lambda: [entry for entry in self._adjectives if kind in entry[0].kinds])

    def _pool(self, key: object, make: Callable[[], list[Any]]) -> Pool[Any]:
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(make())
        return pool


@cache
def vocabulary() -> Vocabulary:
    """The one vocabulary of the language."""
    return Vocabulary()


def _weighed(words: list[Word], group: Callable[[Word], str]) -> list[tuple[Word, float]]:
    """Words with their frequencies by rank within their group: how often a group occurs is the grammar's affair."""
    ranks: dict[str, int] = {}
    weighed = []
    for word in words:
        rank = ranks[group(word)] = ranks.get(group(word), -1) + 1
        weighed.append((word, (rank + _OFFSET) ** -_EXPONENT))
    return weighed


def _taken(nouns: list[Noun], verbs: list[Verb], adjectives: list[Adjective],
           senses: list[Noun]) -> set[str]:
    forms = {
        form
        for noun in nouns + senses
        for form in (noun.english, noun.english_plural, noun.german, noun.plural or "")
    }
    forms |= {form for verb in verbs for form in (*verb.english, verb.infinitive, verb.participle)}
    forms |= {form for adjective in adjectives
              for form in (adjective.english, adjective.german, adjective.stem)}
    return {form.lower() for form in forms}
