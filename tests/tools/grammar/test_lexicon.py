"""Number words and size of the lexicon of the built-in language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.grammar import german_forms as forms
from tools.grammar.numbers import english_digits, english_number, german_digits, german_number
from tools.grammar.vocabulary import vocabulary
from tools.grammar.words import read_adjectives, read_nouns, read_verbs


@pytest.mark.parametrize(
    "number, english, german_word",
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (7, "seven", "sieben"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (70, "seventy", "siebzig"),
        (99, "ninety-nine", "neunundneunzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (217, "two hundred and seventeen", "zweihundertsiebzehn"),
        (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
        (1001, "one thousand and one", "eintausendeins"),
        (21500, "twenty-one thousand five hundred", "einundzwanzigtausendfünfhundert"),
    ],
)
def test_number_words(number, english, german_word):
    assert (english_number(number), german_number(number)) == (english, german_word)


def test_all_number_words_up_to_999_can_be_read_back():
    units = {german_number(number): number for number in range(20)} | {"ein": 1}
    tens = {german_number(number): number for number in range(20, 100, 10)}

    def read(word: str) -> int:
        head, hundred, remainder = word.partition("hundert")
        if hundred:
            return units[head] * 100 + (read(remainder) if remainder else 0)
        ones, _, ten = word.rpartition("und")
        return units[word] if word in units else tens[ten] + (units[ones] if ones else 0)

    assert [read(german_number(number)) for number in range(1000)] == list(range(1000))
    assert len({english_number(number) for number in range(1000)}) == 1000


@given(st.integers(0, 999_999))
def test_digits_have_each_languages_separator(number):
    assert (int(english_digits(number).replace(",", ""))
            == int(german_digits(number).replace(".", "")) == number)
    assert english_digits(number).replace(",", ".") == german_digits(number)


def test_the_lexicon_is_as_large_as_promised():
    nouns = read_nouns()
    verbs = read_verbs()
    adjectives = read_adjectives()
    assert len([noun for noun in nouns if not noun.proper]) >= 150
    assert len(verbs) >= 100 and sum(bool(verb.particle) for verb in verbs) >= 25
    assert len(adjectives) >= 60
    assert all(noun.gender in forms.GENDERS for noun in nouns)


def ambiguous(words) -> set[str]:
    """English words with several German translations."""
    meanings: dict[str, set[str]] = {}
    for english, german_word in words:
        meanings.setdefault(english, set()).add(german_word)
    return {english for english, german_words in meanings.items() if len(german_words) > 1}


def test_ten_words_of_each_class_are_ambiguous():
    assert len(ambiguous((noun.english, noun.german) for noun, _ in vocabulary().senses)) >= 10
    assert (len(ambiguous((verb.english[0] + verb.tail, verb.particle + verb.infinitive)
                          for verb in read_verbs())) >= 10)
    assert len(ambiguous((adjective.english, adjective.german)
                         for adjective in read_adjectives())) >= 10


def test_cue_of_one_sense_never_fits_the_other():
    """Two verbs (adjectives) with one English form in one frame share no kind of object or no kind of subject."""
    verbs = [verb for verb in read_verbs() if verb.frame[0] in "tui"]
    for verb in verbs:
        for other in verbs:
            same = (verb.english, verb.tail, verb.frame) == (other.english, other.tail, other.frame)
            if same and (verb.particle + verb.infinitive) < (other.particle + other.infinitive):
                is_distinct = not set(verb.objects) & set(other.objects) or not set(
                    verb.subjects
                ) & set(other.subjects)
                assert is_distinct, (verb, other)
    adjectives = read_adjectives()
    for first in adjectives:
        for second in adjectives:
            if first.english == second.english and first.german < second.german:
                assert not set(first.kinds) & set(second.kinds), (first, second)
