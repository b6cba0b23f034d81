"""Number words of both languages, from 0 to 999,999."""

from functools import cache

_ENGLISH = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_ENGLISH_TENS = (
    "-",
    "-",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
)
_GERMAN = (
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
)
_GERMAN_TENS = (
    "-",
    "-",
    "zwanzig",
    "dreißig",
    "vierzig",
    "fünfzig",
    "sechzig",
    "siebzig",
    "achtzig",
    "neunzig",
)


@cache
def english_number(number: int) -> str:
    """The English words of 0 <= number < 1,000,000 (British: ``one hundred and five``)."""
    if number < 20:
        return _ENGLISH[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _ENGLISH_TENS[tens] + (f"-{_ENGLISH[ones]}" if ones else "")
    unit, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    head, rest = divmod(number, unit)
    if not rest:
        return f"{english_number(head)} {name}"
    link = " and " if rest < 100 else " "
    return f"{english_number(head)} {name}{link}{english_number(rest)}"


@cache
def german_number(number: int) -> str:
    """The German word of 0 <= number < 1,000,000: ones before tens (``einundzwanzig``), one word throughout."""
    if number < 20:
        return _GERMAN[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return (_inside(ones) + "und" if ones else "") + _GERMAN_TENS[tens]
    unit, name = (1000, "tausend") if number >= 1000 else (100, "hundert")
    head, rest = divmod(number, unit)
    return _inside(head) + name + (german_number(rest) if rest else "")


def _inside(number: int) -> str:
    """A number in front of another part of the same word: only there is one ``ein``, not ``eins``."""
    word = german_number(number)
    return word[:-1] if word.endswith("eins") else word


def english_digits(number: int) -> str:
    """Digits with the English thousands separator: 12,500."""
    return f"{number:,}"


def german_digits(number: int) -> str:
    """Digits with the German thousands separator: 12.500."""
    return f"{number:,}".replace(",", ".")
