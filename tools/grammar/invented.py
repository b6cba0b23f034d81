"""The tail of the vocabulary: invented words, pronounceable in each language and unrelated between the two.

The tables of real words give the language its grammar, a few hundred lemmas. These give it the long
tail that costs a model capacity: nothing in the spelling of an English word tells its German one,
its gender or its plural, so each pair has to be learnt from its occurrences. The lists are the same
in every run, whatever the corpus's seed.
"""

import random
from collections.abc import Callable

from .words import (
    ANY_KIND,
    GOODS,
    Adjective,
    Noun,
    Verb,
    english_past,
    english_plural,
    kinds_of,
    simple_participle,
)

_SEED = "scalesearch built-in language"
_TWO_SYLLABLES = 0.15
_ENGLISH_ONSETS = ("b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sl sm "
                   "sp st str t th tr tw v w")
_ENGLISH_NUCLEI = "a e i o u ai ea ee oa oo ou ow"
_ENGLISH_CODAS = ("b ck d ft g ld lk ll lt m mp n nd ng nk nt p rb rd rk rm rn rt sk sp st t tch "
                  "th v x")
_ENGLISH_ENDINGS = " - - - - - er le ow et ock in on ard"
_GERMAN_ONSETS = (
    "b bl br d dr f fl fr g gl gr h k kl kn kr l m n p pf pl pr r s sch schl schm schn schr schw "
    "sp spr st str t tr w z zw"
)
_GERMAN_NUCLEI = "a e i o u au ei ie eu ä ö ü"
_GERMAN_CODAS = (
    "b bs ch cht ck d ff g ll lm lz m mm n nd ng nk nn pf r rb rg rk rm rn rst rz s sch ss st t tz"
)

_NOUN_KINDS = ("person animal food thing furniture building place vehicle clothing text device "
               "instrument idea event plant")
_OBJECTS = (
    "any",
    "any",
    "goods",
    "person",
    "being",
    "thing,furniture,device",
    "food,plant",
    "text,idea",
    "building,place",
)
_PARTICLES = ("an", "auf", "aus", "ab", "ein", "mit", "vor", "zu", "nach", "um", "weg", "zurück")
_INSEPARABLE = ("be", "ver", "er", "zer", "ent")


class _Coiner:
    """Coins words and never the same one twice, nor one that is taken."""

    def __init__(self, taken: set[str]) -> None:
        self.random = random.Random(_SEED)
        self.taken = set(taken)

    def pick(self, text: str) -> str:
        return self.random.choice(text.split())

    def coin(self, make: Callable[[], str]) -> str:
        while True:
            word = make()
            if word.lower() not in self.taken and len(word) >= 4:
                self.taken.add(word.lower())
                return word

    def english(self) -> str:
        word = self.pick(_ENGLISH_ONSETS) + self.pick(_ENGLISH_NUCLEI)
        if self.random.random() < _TWO_SYLLABLES:
            word += self.random.choice("bdglmnprstv") + self.pick("a e i o u")
        return word + self.pick(_ENGLISH_CODAS) + self.pick(_ENGLISH_ENDINGS).replace("-", "")

    def german(self) -> str:
        word = self.pick(_GERMAN_ONSETS) + self.pick(_GERMAN_NUCLEI)
        if self.random.random() < _TWO_SYLLABLES:
            word += self.random.choice("bdglmnrst") + self.pick("a e i o u")
        return word + self.pick(_GERMAN_CODAS)


def invent(
    nouns: int, verbs: int, adjectives: int, taken: set[str]
) -> tuple[list[Noun], list[Verb], list[Adjective]]:
    """The invented words, most frequent first; ``taken`` are real words to stay clear of."""
    coiner = _Coiner(taken)
    return (
        [_noun(coiner) for _ in range(nouns)],
        [_verb(coiner) for _ in range(verbs)],
        [_adjective(coiner) for _ in range(adjectives)],
    )


def _noun(coiner: _Coiner) -> Noun:
    english = coiner.coin(coiner.english)
    stem = coiner.coin(coiner.german).capitalize()
    gender = coiner.random.choice("mfn")
    singular, plural, link = _noun_class(coiner, stem, gender)
    kind = coiner.pick(_NOUN_KINDS)
    weak = gender == "m" and plural.endswith("en")
    return Noun(english, english_plural(english), singular, gender, plural, kind, link, weak)


def _noun_class(coiner: _Coiner, stem: str, gender: str) -> tuple[str, str, str]:
    """Singular, plural and compound form: each gender has its usual classes."""
    classes = {"m": ((stem, stem + "e", stem), (stem + "er", stem + "er", stem + "er"),
                     (stem, stem + "en", stem + "en")),
               "f": ((stem + "e", stem + "en", stem + "en"),
                     (stem + "ung", stem + "ungen", stem + "ungs")),
               "n": ((stem, stem + "e", stem), (stem, stem + "er", stem + "er"),
                     (stem + "chen", stem + "chen", stem + "chen"))}
    return coiner.random.choice(classes[gender])


def _verb(coiner: _Coiner) -> Verb:
    base = coiner.coin(coiner.english)
    stem = coiner.coin(coiner.german)
    infinitive = stem + "en"
    particle = ""
    participle = simple_participle(stem + "en")
    draw = coiner.random.random()
    if draw < 0.3:
        particle = coiner.random.choice(_PARTICLES)
    elif draw < 0.5:
        prefix = coiner.random.choice(_INSEPARABLE)
        infinitive = prefix + infinitive
        participle = prefix + participle.removeprefix("ge")
    past = english_past(base)
    frame = coiner.random.choices(("t", "i", "d"), (80, 15, 5))[0]
    objects = {"t": kinds_of(coiner.random.choice(_OBJECTS)), "i": (),
               "d": ("person", "animal")}[frame]
    auxiliary = "sein" if frame == "i" and coiner.random.random() < 0.4 else "haben"
    return Verb(
        (base, past, past),
        "",
        infinitive,
        particle,
        "",
        particle + participle,
        auxiliary,
        frame,
        kinds_of("being" if frame == "i" else "person"),
        objects,
    )


def _adjective(coiner: _Coiner) -> Adjective:
    english = coiner.coin(coiner.english) + coiner.pick("y ish ful ous")
    german = coiner.coin(coiner.german)
    german += coiner.pick("ig lich isch los haft sam")
    kinds = coiner.random.choice(
        (ANY_KIND, GOODS, ("person", "animal"), ("idea", "event", "text"), ("building", "place"))
    )
    return Adjective(english, f"more {english}", german, german, german + "er", kinds)
