"""Draws noun phrases, pronouns and adverbials for a sentence."""

import random
from functools import cache

from .german_forms import ACCUSATIVE, DATIVE, GENITIVE, compound
from .meaning import Adjunct, Nominal, Pair, Phrase, Pronoun, Relative
from .modifiers import FREQUENCIES, MANNERS, ONE_WAY, SENTENCE_ADVERBS, TIMES, TWO_WAY
from .vocabulary import Vocabulary
from .words import Adjective, Noun, kinds_of, pairs, rows

_SINGULAR = ("the",) * 12 + ("a",) * 8 + ("my", "your", "his", "her", "our", "their", "this",
                                          "this", "every")
_PLURAL = (("the",) * 8 + ("",) * 5
           + ("my", "your", "his", "her", "our", "their", "all", "many", "some", "few"))
_JOINTS = ("and", "and", "and", "or")
_MASS = ("the", "the", "the", "", "", "my", "his", "her")
_SOLID = (
    "thing",
    "furniture",
    "clothing",
    "device",
    "building",
    "food",
    "text",
    "vehicle",
    "instrument",
    "event",
)
_MADE = (*_SOLID, "plant", "place", "animal", "idea")


def _fields(table: str) -> list[list[str]]:
    return [[field.strip() for field in row.split(";")] for row in rows(table)]


_TIMES = {tense: [Adjunct("time", english, german)
                  for english, german, when in _fields(TIMES) if when in (tense, "any")]
          for tense in ("past", "present")}
_FIXED = {kind: [Adjunct(kind, english, german) for english, german in pairs(table)]
          for kind, table in (("frequency", FREQUENCIES), ("manner", MANNERS),
                              ("sentence", SENTENCE_ADVERBS))}
_TWO_WAY = [(rest, motion, german, kinds_of(kinds))
            for rest, motion, german, kinds in _fields(TWO_WAY)]
_CASE = {"acc": ACCUSATIVE, "dat": DATIVE, "gen": GENITIVE}
_ONE_WAY = [(english, german, _CASE[case], kinds_of(kinds))
            for english, german, case, kinds in _fields(ONE_WAY)]


@cache
def noun_of_gender(gender: str) -> Noun:
    """What a he or a she without an antecedent stands for."""
    return Noun("", "", "", gender, None, "person")


class Phrases:
    """Draws phrases; ``planted`` nouns are put in where their kind fits, before any others."""

    def __init__(self, rng: random.Random, words: Vocabulary) -> None:
        self.rng = rng
        self.words = words
        self.planted: list[Noun] = []
        self.used: list[str] = []
        self.polite = self.negated = False

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def noun(self, kinds: tuple[str, ...]) -> Noun:
        """A planted noun if one fits, else any of these kinds; remembered in ``used``."""
        for noun in self.planted:
            if noun.kind in kinds and self.chance(0.7):
                self.planted.remove(noun)
                break
        else:
            noun = self.words.nouns(kinds).pick(self.rng)
        self.used.append(noun.english)
        return noun

    def nominal(self, kinds: tuple[str, ...], depth: int) -> Nominal:
        """A pronoun or a name where people may stand, a pair, or a phrase."""
        draw = self.rng.random()
        if "person" in kinds and draw < 0.30:
            return self.pronoun() if draw < 0.17 else self.name()
        if draw > 0.96:
            return Pair(
                self.phrase(kinds, 0, plain=True),
                self.phrase(kinds, 0, plain=True),
                self.rng.choice(_JOINTS),
            )
        phrase = self.phrase(kinds, depth)
        if phrase.determiner == "a" and not self.negated and self.chance(0.12):
            return phrase._replace(determiner="no")
        return phrase

    def name(self) -> Phrase:
        return Phrase(self.noun(("name",)), determiner="")

    def pronoun(self) -> Pronoun:
        """One that needs no antecedent: first and second person, he, she, they."""
        if self.polite and self.chance(0.7):
            return Pronoun(2, polite=True)
        draw = self.rng.randrange(10)
        if draw < 6:
            person, plural = ((1, False), (1, False), (2, False), (1, True), (2, True),
                              (3, True))[draw]
            return Pronoun(person, plural, polite=self.polite and person == 2)
        return Pronoun(3, noun=noun_of_gender("m" if draw < 8 else "f"))

    def phrase(self, kinds: tuple[str, ...], depth: int, plain: bool = False) -> Phrase:
        """A noun with what comes with it; ``plain`` without clauses, places and owners."""
        noun = self.noun(kinds)
        if noun.proper:
            return Phrase(noun, determiner="")
        plural = noun.plural is not None and self.chance(0.25)
        number, digits = (
            self.number(), self.chance(0.3)) if plural and self.chance(0.28) else (0, False)
        phrase = Phrase(
            self.compound(noun),
            plural,
            self.determiner(noun, plural, number),
            self.adjectives(noun),
            number,
            digits or number >= 1000,
        )
        return phrase if plain else self.extended(phrase, depth)

    def extended(self, phrase: Phrase, depth: int) -> Phrase:
        """At most one of: an owner, a place, a relative clause."""
        draw = self.rng.random()
        if draw < 0.06 and not phrase.number:
            return phrase._replace(owner=self.owner())
        if draw < 0.11 and phrase.noun.kind not in ("idea", "event", "time"):
            return phrase._replace(place=self.place(False, 0))
        if draw < 0.24 and depth > 0 and phrase.noun.kind not in ("time", "group"):
            return phrase._replace(relative=self.relative(phrase, depth - 1))
        return phrase

    def relative(self, phrase: Phrase, depth: int) -> Relative | None:
        """A relative clause for a phrase; the sentence drawer knows how."""
        raise NotImplementedError

    def compound(self, noun: Noun) -> Noun:
        if (
            noun.kind not in _SOLID
            or not noun.link
            or noun.plural is None
            or " " in noun.english
            or not self.chance(0.09)
        ):
            return noun
        first = self.words.nouns(_MADE).pick(self.rng)
        if not first.link or first.english == noun.english:
            return noun
        self.used.append(first.english)
        return compound(first, noun)

    def determiner(self, noun: Noun, plural: bool, number: int) -> str:
        if number:
            return "the" if self.chance(0.25) else ""
        word = self.rng.choice(_PLURAL if plural else _MASS if noun.plural is None else _SINGULAR)
        return "your-polite" if word == "your" and self.polite else word

    def adjectives(self, noun: Noun) -> tuple[Adjective, ...]:
        draw = self.rng.random()
        pool = self.words.adjectives(noun.kind)
        if draw > 0.30 or not pool:
            return ()
        first = pool.pick(self.rng)
        second = pool.pick(self.rng)
        return (first, second) if draw < 0.04 and first != second else (first,)

    def number(self) -> int:
        """Mostly small, sometimes up to 99, rarely up to 9,999."""
        draw = self.rng.random()
        low, high = (
            (2, 12)
            if draw < 0.5
            else (13, 99)
            if draw < 0.85
            else (100, 999)
            if draw < 0.96
            else (1000, 9999)
        )
        return self.rng.randint(low, high)

    def owner(self) -> Phrase:
        if self.chance(0.5):
            return self.name()
        determiner = self.rng.choice(("the", "the", "my", "our", "his"))
        return Phrase(self.noun(("person",)), self.chance(0.2), determiner)

    def place(self, motion: bool, depth: int) -> Adjunct:
        """Where (dative) or, with ``motion``, where to (accusative, or nach / zu)."""
        if motion and self.chance(0.35):
            return self.destination(depth)
        rest, towards, german, kinds = self.rng.choice(_TWO_WAY)
        if not motion and self.chance(0.12):
            return Adjunct("place", "in", "in", DATIVE, Phrase(self.noun(("city",)), determiner=""))
        phrase = self.phrase(kinds, depth)
        return Adjunct("place", towards if motion else rest, german,
                       ACCUSATIVE if motion else DATIVE, phrase)

    def destination(self, depth: int) -> Adjunct:
        """English to: nach for towns, zu for people and buildings."""
        if self.chance(0.5):
            return Adjunct("place", "to", "nach", DATIVE,
                           Phrase(self.noun(("city",)), determiner=""))
        return Adjunct("place", "to", "zu", DATIVE, self.phrase(("person", "building"), depth))

    def circumstance(self, depth: int) -> Adjunct:
        """With whom, for whom, when, why: a preposition with one case."""
        english, german, case, kinds = self.rng.choice(_ONE_WAY)
        kind = "time" if kinds[0] == "event" else "manner"
        return Adjunct(
            kind,
            english,
            german,
            case,
            self.phrase(kinds, 0 if case == GENITIVE else depth, case == GENITIVE),
        )

    def fixed(self, kind: str, tense: str) -> Adjunct:
        """A fixed adverb; times agree with the tense."""
        if kind == "time":
            return self.rng.choice(_TIMES["past" if tense in ("past", "perfect") else "present"])
        return self.rng.choice(_FIXED[kind])
