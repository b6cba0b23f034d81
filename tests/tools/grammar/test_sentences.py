"""The built-in grammar: golden sentences realised from fixed meaning trees."""

import pytest

from tools.grammar import german_forms as forms
from tools.grammar.english import english
from tools.grammar.german import german
from tools.grammar.meaning import (
    Adjunct,
    Clause,
    Gap,
    Pair,
    Phrase,
    Predicate,
    Pronoun,
    Relative,
    Sentence,
)
from tools.grammar.sentences import BE
from tools.grammar.words import read_adjectives, read_nouns, read_verbs

NOUNS = {noun.english: noun for noun in reversed(read_nouns())}
VERBS = {verb.particle + verb.infinitive + ":" + verb.frame[0]: verb
         for verb in reversed(read_verbs())}
ADJECTIVES = {adjective.german: adjective for adjective in reversed(read_adjectives())}
ME = Pronoun(1)
SHE = Pronoun(3, noun=NOUNS["woman"])
ANNA = Phrase(NOUNS["Anna"], determiner="")
TODAY = Adjunct("time", "today", "heute")
BECAUSE = ("because", "weil")


def the(word: str, **changes) -> Phrase:
    return Phrase(NOUNS[word], **changes)


def verb(name: str, subject, direct=None, **changes) -> Clause:
    return Clause(VERBS[name], subject, direct, **changes)


def place(preposition: str, word: str, case: int, text: str = "in") -> Adjunct:
    return Adjunct("place", text, preposition, case, the(word))


GOLDEN = [
    # agreement in person and number
    (verb("sehen:t", Pronoun(2), the("dog")), "You see the dog.", "Du siehst den Hund."),
    (verb("sehen:t", Pronoun(2, True), the("dog")), "You all see the dog.", "Ihr seht den Hund."),
    (
        verb("sehen:t", Pair(ANNA, the("man")), the("dog")),
        "Anna and the man see the dog.",
        "Anna und der Mann sehen den Hund.",
    ),
    # tenses
    (
        verb(
            "gehen:m",
            SHE,
            tense="perfect",
            adjuncts=(place("in", "house", forms.ACCUSATIVE, "into"),),
        ),
        "She has gone into the house.",
        "Sie ist ins Haus gegangen.",
    ),
    (
        verb("kaufen:t", ME, the("car"), tense="past"),
        "I bought the car.",
        "Ich habe das Auto gekauft.",
    ),
    (
        verb("kaufen:t", ME, the("car"), tense="future"),
        "I will buy the car.",
        "Ich werde das Auto kaufen.",
    ),
    (
        verb("kaufen:t", ME, the("car"), modal="can"),
        "I can buy the car.",
        "Ich kann das Auto kaufen.",
    ),
    (verb("haben:t", SHE, the("car"), tense="past"), "She had the car.", "Sie hatte das Auto."),
    # verb second
    (
        verb("anrufen:t", SHE, the("man"), adjuncts=(TODAY,), fronted=True),
        "Today, she calls the man.",
        "Heute ruft sie den Mann an.",
    ),
    # cases
    (
        verb("helfen:d", SHE, None, indirect=the("man", plural=True)),
        "She helps the men.",
        "Sie hilft den Männern.",
    ),
    (
        verb("geben:g", ANNA, the("book", determiner="a"), indirect=the("man")),
        "Anna gives the man a book.",
        "Anna gibt dem Mann ein Buch.",
    ),
    (
        verb("geben:g", ANNA, Pronoun(3, noun=NOUNS["coat"]), indirect=the("man")),
        "Anna gives it to the man.",
        "Anna gibt ihn dem Mann.",
    ),
    (
        verb(
            "warten:p",
            ME,
            None,
            prepositional=Adjunct("object", "", "auf", forms.ACCUSATIVE, the("doctor")),
        ),
        "I wait for the doctor.",
        "Ich warte auf den Arzt.",
    ),
    # rest and motion
    (
        verb(
            "legen:u",
            SHE,
            the("book"),
            adjuncts=(place("neben", "bed", forms.ACCUSATIVE, "next to"),),
        ),
        "She puts the book next to the bed.",
        "Sie legt das Buch neben das Bett.",
    ),
    (
        verb("liegen:l", the("book"), adjuncts=(place("neben", "bed", forms.DATIVE, "next to"),)),
        "The book lies next to the bed.",
        "Das Buch liegt neben dem Bett.",
    ),
    # negation
    (
        verb("kaufen:t", ME, the("car", determiner="a"), negated=True),
        "I do not buy a car.",
        "Ich kaufe kein Auto.",
    ),
    (
        verb("kaufen:t", SHE, the("car"), negated=True),
        "She does not buy the car.",
        "Sie kauft das Auto nicht.",
    ),
    (
        verb("kaufen:t", ME, the("car"), negated=True, modal="must"),
        "I must not buy the car.",
        "Ich darf das Auto nicht kaufen.",
    ),
    (
        verb("wohnen:l", ME, negated=True, adjuncts=(place("in", "town", forms.DATIVE),)),
        "I do not live in the town.",
        "Ich wohne nicht in der Stadt.",
    ),
    # possessives
    (verb("schlafen:i", the("dog", owner=ANNA)), "Anna's dog sleeps.", "Annas Hund schläft."),
    (
        verb("schlafen:i", the("dog", owner=the("man"))),
        "The man's dog sleeps.",
        "Der Hund des Mannes schläft.",
    ),
    (verb("sehen:t", ME, the("dog", determiner="her")), "I see her dog.", "Ich sehe ihren Hund."),
    # copula, comparatives
    (
        Clause(BE, the("house"), predicate=Predicate(ADJECTIVES["groß"], the("car"))),
        "The house is bigger than the car.",
        "Das Haus ist größer als das Auto.",
    ),
    (
        Clause(
            BE,
            the("house"),
            predicate=Predicate(ADJECTIVES["teuer"], the("car"), True),
            tense="past",
        ),
        "The house was as expensive as the car.",
        "Das Haus war so teuer wie das Auto.",
    ),
    (
        Clause(BE, ANNA, predicate=Predicate(phrase=the("nurse", determiner="a")), negated=True),
        "Anna is not a nurse.",
        "Anna ist keine Pflegerin.",
    ),
    (
        Clause(BE, ANNA, predicate=Predicate(ADJECTIVES["müde"]), negated=True),
        "Anna is not tired.",
        "Anna ist nicht müde.",
    ),
    # complements
    (
        verb("sagen:c", SHE, link="that", complement=verb("anrufen:t", ME, ANNA)),
        "She says that I call Anna.",
        "Sie sagt, dass ich Anna anrufe.",
    ),
    (
        verb(
            "fragen:w",
            SHE,
            link="whether",
            complement=verb(
                "gehen:m", ME, adjuncts=(place("in", "house", forms.ACCUSATIVE, "into"),)
            ),
        ),
        "She asks whether I go into the house.",
        "Sie fragt, ob ich ins Haus gehe.",
    ),
    (
        verb("versuchen:z", SHE, tense="past", link="to", complement=verb("anrufen:t", None, ANNA)),
        "She tried to call Anna.",
        "Sie hat versucht, Anna anzurufen.",
    ),
    # relative clauses
    (
        verb(
            "schlafen:i",
            the(
                "man",
                relative=Relative(
                    verb("helfen:d", SHE, None, indirect=Gap(NOUNS["man"], False)), "indirect"
                ),
            ),
        ),
        "The man whom she helps sleeps.",
        "Der Mann, dem sie hilft, schläft.",
    ),
    (
        verb(
            "schlafen:i",
            the(
                "child",
                plural=True,
                relative=Relative(
                    verb("aufstehen:i", Gap(NOUNS["child"], True), tense="past"), "subject"
                ),
            ),
        ),
        "The children who got up sleep.",
        "Die Kinder, die aufgestanden sind, schlafen.",
    ),
]


@pytest.mark.parametrize("clause, source, target", GOLDEN, ids=[source for _, source, _ in GOLDEN])
def test_golden_clauses(clause, source, target):
    assert (english(Sentence(clause)), german(Sentence(clause))) == (source, target)


SLEEPS = verb("schlafen:i", SHE)
CALLS = verb("anrufen:t", ME, ANNA)
NEW = Clause(BE, Pronoun(3, noun=NOUNS["coat"]), predicate=Predicate(ADJECTIVES["neu"]))
WHOLE = [(Sentence(CALLS, subordinator=BECAUSE, subordinate=SLEEPS),
          "I call Anna because she sleeps.", "Ich rufe Anna an, weil sie schläft."),
         (Sentence(CALLS, subordinator=BECAUSE, subordinate=SLEEPS, first=True),
          "Because she sleeps, I call Anna.", "Weil sie schläft, rufe ich Anna an."),
         (Sentence(verb("kaufen:t", SHE, the("coat")), subordinator=BECAUSE, subordinate=NEW),
          "She buys the coat because it is new.", "Sie kauft den Mantel, weil er neu ist."),
         (Sentence(SLEEPS, subordinator=("in order to", "um"),
                   subordinate=verb("anrufen:t", None, ANNA)), "She sleeps in order to call Anna.",
          "Sie schläft, um Anna anzurufen."),
         (Sentence(CALLS._replace(tense="past"), mood="question"), "Did I call Anna?",
          "Habe ich Anna angerufen?"),
         (Sentence(CALLS, mood="question", question_word=("why", "warum")), "Why do I call Anna?",
          "Warum rufe ich Anna an?"),
         (Sentence(CALLS, conjunction=(", but", ", aber"), second=SLEEPS),
          "I call Anna, but she sleeps.", "Ich rufe Anna an, aber sie schläft."),
         (Sentence(verb("schlafen:i", Pronoun(2, polite=True)), mood="question",
                   address=("Sir", "mein Herr")), "Sir, do you sleep?", "Mein Herr, schlafen Sie?")]


@pytest.mark.parametrize("sentence, source, target", WHOLE, ids=[source for _, source, _ in WHOLE])
def test_golden_sentences(sentence, source, target):
    assert (english(sentence), german(sentence)) == (source, target)


def test_the_gender_of_it_is_its_nouns():
    said = [
        german(Sentence(NEW._replace(subject=Pronoun(3, noun=NOUNS[word]))))
        for word in ("coat", "lamp", "book")
    ]
    assert said == ["Er ist neu.", "Sie ist neu.", "Es ist neu."]


def test_one_english_verb_two_german_ones():
    played = [
        (english(Sentence(clause)), german(Sentence(clause)))
        for clause in (
            verb("sparen:t", SHE, the("money")),
            verb("retten:t", SHE, the("horse")),
            verb("speichern:t", SHE, the("report")),
        )
    ]
    assert played == [
        ("She saves the money.", "Sie spart das Geld."),
        ("She saves the horse.", "Sie rettet das Pferd."),
        ("She saves the report.", "Sie speichert den Bericht."),
    ]
