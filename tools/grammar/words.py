"""What a word of the built-in language is: its forms in both languages, and the company it keeps."""

from collections.abc import Iterator
from typing import NamedTuple

from .modifiers import ADJECTIVES
from .nouns import NOUNS
from .senses import CITIES, NAMES, SENSES
from .verbs import VERBS

GOODS = ("thing", "food", "text", "device", "instrument", "vehicle", "clothing")
BEING = ("person", "animal")
ANY = (*GOODS, *BEING, "furniture", "plant")
_GROUPS = {"goods": GOODS, "being": BEING, "any": ANY}
_INSEPARABLE = ("be", "ge", "er", "ver", "zer", "ent", "emp", "miss")
_VOWELS = "aeiouyäöü"


class Noun(NamedTuple):
    """One noun; ``plural`` is None for mass nouns; ``proper`` nouns (people, towns) take no article."""

    english: str
    english_plural: str
    german: str
    gender: str
    plural: str | None
    kind: str
    link: str = ""
    weak: bool = False
    proper: bool = False


class Verb(NamedTuple):
    """One verb in one frame; ``tail`` is the English word that stays put, ``particle`` the German separable part."""

    english: tuple[str, str, str]
    tail: str
    infinitive: str
    particle: str
    third: str
    participle: str
    auxiliary: str
    frame: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...] = ()


class Adjective(NamedTuple):
    """One adjective: predicative form, attributive stem and comparative of German; kinds it goes with."""

    english: str
    english_comparative: str
    german: str
    stem: str
    comparative: str
    kinds: tuple[str, ...]


def kinds_of(text: str) -> tuple[str, ...]:
    """``being,place`` -> ("person", "animal", "place"); an order without repeats, so that draws do not vary."""
    spread = [
        kind
        for part in text.split(",")
        if part.strip()
        for kind in _GROUPS.get(part.strip(), (part.strip(),))
    ]
    return tuple(dict.fromkeys(spread))


def rows(table: str) -> Iterator[str]:
    """The lines of a table that hold something."""
    return (line.strip() for line in table.splitlines() if line.strip())


def pairs(table: str) -> list[tuple[str, str]]:
    """``often=oft; always=immer`` -> pairs."""
    entries = (entry.strip().partition("=")
               for entry in table.replace("\n", " ").split(";") if entry.strip())
    return [(english, german) for english, _, german in entries]


def english_plural(word: str) -> str:
    """The regular English plural; also the third person singular of a verb."""
    if word.endswith(("s", "x", "z", "ch", "sh")) or word in {"tomato", "potato", "go"}:
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def english_past(word: str) -> str:
    """The regular English past: -ed, after e only -d, -ied for a consonant and y."""
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ied"
    return word + "ed"


def german_stem(infinitive: str) -> str:
    """What is left of an infinitive without -en or -n: ruf-en, sammel-n."""
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def needs_e(stem: str) -> bool:
    """Whether -t and -st take an e before them: arbeit-et, öffn-et, but lern-t."""
    if stem.endswith(("t", "d")):
        return True
    return len(stem) > 1 and stem[-1] in "mn" and stem[-2] not in _VOWELS + "lrhmn"


def regular_participle(infinitive: str) -> str:
    """ge-...-t, without ge after an unstressed prefix or in -ieren."""
    prefixed = infinitive.startswith(_INSEPARABLE) and infinitive != "bellen"
    full = simple_participle(infinitive)
    return full.removeprefix("ge") if prefixed or infinitive.endswith("ieren") else full


def simple_participle(infinitive: str) -> str:
    """ge-...-t of a regular verb that has no prefix: gelernt, gearbeitet."""
    stem = german_stem(infinitive)
    return f"ge{stem}et" if needs_e(stem) else f"ge{stem}t"


def read_nouns() -> list[Noun]:
    """The hand-written nouns, in order of frequency within their kind; names and towns at the end."""
    nouns = []
    kind = ""
    for line in rows(NOUNS):
        if line.startswith("#"):
            kind = line[1:].strip()
            continue
        english, german, gender, plural, *rest = line.split()
        singular, _, many = english.partition("/")
        weak = "weak" in rest
        link = next((word for word in rest if word != "weak"), german)
        nouns.append(
            Noun(
                singular,
                many or english_plural(singular),
                german,
                gender,
                None if plural == "=" else plural,
                kind,
                link,
                weak,
            )
        )
    return nouns + list(_proper())


def _proper() -> Iterator[Noun]:
    for entry in NAMES.replace("\n", " ").split(";"):
        name, gender = entry.split()
        yield Noun(name, name, name, gender, None, "name", proper=True)
    for entry in CITIES.replace("\n", " ").split(";"):
        german, _, english = entry.strip().partition("=")
        yield Noun(english or german, english or german, german, "n", None, "city", proper=True)


def read_senses() -> list[tuple[Noun, tuple[str, ...]]]:
    """The ambiguous nouns, each with the English words that decide for it."""
    senses = []
    for line in rows(SENSES):
        word, cues = line.split(":")
        english, german, gender, plural, kind = word.split()
        senses.append(
            (
                Noun(english, english_plural(english), german, gender, plural, kind, german),
                tuple(cues.split()),
            )
        )
    return senses


def read_verbs() -> list[Verb]:
    """The hand-written verbs; irregular parts as given, the others derived."""
    return [_verb(*(field.strip() for field in line.split(";"))) for line in rows(VERBS)]


def _verb(english: str, german: str, frame: str, subjects: str, objects: str) -> Verb:
    base, *parts = english.split()
    base, _, tail = base.partition("+")
    past, participle = parts if parts else (english_past(base), english_past(base))
    words = german.split()
    auxiliary = "sein" if words[-1] == "s" else "haben"
    words = words[:-1] if auxiliary == "sein" else words
    particle, _, infinitive = words[0].rpartition("|")
    third = words[1] if len(words) > 1 and words[1] != "-" else ""
    done = particle + (words[2] if len(words) > 2 else regular_participle(infinitive))
    return Verb(
        (base, past, participle),
        tail.replace("+", " "),
        infinitive,
        particle,
        third,
        done,
        auxiliary,
        frame,
        kinds_of(subjects),
        kinds_of(objects),
    )


def read_adjectives() -> list[Adjective]:
    """The hand-written adjectives; comparatives as given, the others derived."""
    return [_adjective(*(field.strip() for field in line.split(";"))) for line in rows(ADJECTIVES)]


def _adjective(english: str, german: str, kinds: str) -> Adjective:
    word, _, more = english.partition("/")
    positive, _, comparative = german.partition(" ")
    base, _, stem = positive.partition("/")
    more = more.replace("_", " ") or english_comparative(word)
    comparative = comparative or base + ("r" if base.endswith("e") else "er")
    stem = stem or base.removesuffix("e")
    return Adjective(word, more, base, stem, comparative,
                     ANY_KIND if kinds == "*" else kinds_of(kinds))


ANY_KIND = (*ANY, "building", "place", "drink", "idea", "event", "body", "group", "city")


def english_comparative(word: str) -> str:
    """-er for one syllable, otherwise more: the few exceptions are written in the table."""
    syllables = sum(a in _VOWELS and b not in _VOWELS for a, b in zip(word, word[1:] + " "))
    silent = word.endswith("e")
    if syllables - silent <= 1:
        return word + ("r" if silent else "er")
    return f"more {word}"
