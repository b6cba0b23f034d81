"""The meaning trees that both languages realise: phrases, clauses, sentences.

A tree says who does what to whom, when and where; it holds words (each of which knows both its
languages) and no word order, no agreement and no case. Those are each language's own business
(``english.py``, ``german.py``).
"""

from __future__ import annotations

from typing import NamedTuple

from .words import Adjective, Noun, Verb


class Phrase(NamedTuple):
    """A noun and what comes with it.

    ``determiner`` is the English one, "" for none; ``number`` > 1 counts.
    """

    noun: Noun
    plural: bool = False
    determiner: str = "the"
    adjectives: tuple[Adjective, ...] = ()
    number: int = 0
    digits: bool = False
    owner: Phrase | None = None
    place: Adjunct | None = None
    relative: Relative | None = None


class Pronoun(NamedTuple):
    """``person`` 1 to 3; in the third, ``noun`` is the noun it stands for; ``polite`` makes *you* a *Sie*."""

    person: int
    plural: bool = False
    noun: Noun | None = None
    polite: bool = False


class Pair(NamedTuple):
    """Two phrases joined by and / or."""

    first: Phrase
    second: Phrase
    conjunction: str = "and"


class Gap(NamedTuple):
    """What a relative pronoun stands for inside its own clause."""

    noun: Noun
    plural: bool


Nominal = Phrase | Pronoun | Pair | Gap


class Relative(NamedTuple):
    """A relative clause; ``role`` is the gap's: subject, direct, indirect or prepositional."""

    clause: Clause
    role: str


class Adjunct(NamedTuple):
    """An adverbial. Fixed words in both languages, or a preposition with its ``case`` and a phrase.

    ``kind``: time, frequency, manner, place, or sentence (perhaps, unfortunately).
    """

    kind: str
    english: str
    german: str
    case: int = 0
    phrase: Nominal | None = None


class Predicate(NamedTuple):
    """What a copula says of its subject: an adjective (compared with ``than``) or a phrase."""

    adjective: Adjective | None = None
    than: Nominal | None = None
    equal: bool = False
    phrase: Phrase | None = None


class Clause(NamedTuple):
    """One verb and its company.

    ``tense``: present, past, perfect, future; ``modal`` an English modal or "".

    ``link`` introduces the complement: that, whether, or to (an infinitive without a subject).
    """

    verb: Verb
    subject: Nominal | None
    direct: Nominal | None = None
    indirect: Nominal | None = None
    prepositional: Adjunct | None = None
    predicate: Predicate | None = None
    tense: str = "present"
    modal: str = ""
    negated: bool = False
    adjuncts: tuple[Adjunct, ...] = ()
    fronted: bool = False
    link: str = ""
    complement: Clause | None = None


class Sentence(NamedTuple):
    """A main clause; perhaps a subordinate one before or after it, a second main clause, a question, an address."""

    main: Clause
    mood: str = "statement"
    subordinator: tuple[str, str] | None = None
    subordinate: Clause | None = None
    first: bool = False
    conjunction: tuple[str, str] | None = None
    second: Clause | None = None
    question_word: tuple[str, str] | None = None
    address: tuple[str, str] | None = None
