"""German morphology: articles, adjective endings, pronouns, nouns in their cases, verbs in their forms.

Cases are numbered nominative, accusative, dative, genitive; genders m, f, n, and 3 for every
plural; persons ich, du, er, wir, ihr, sie (0 to 5; the polite *Sie* conjugates as 5).
"""

from functools import cache

from .words import Noun, Verb, german_stem, needs_e

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
GENDERS = {"m": 0, "f": 1, "n": 2}
PLURAL = 3
Table = tuple[tuple[str, ...], ...]  # a form for each case and gender

THE: Table = (
    ("der", "die", "das", "die"),
    ("den", "die", "das", "die"),
    ("dem", "der", "dem", "den"),
    ("des", "der", "des", "der"),
)
RELATIVE: Table = (*THE[:2], ("dem", "der", "dem", "denen"), ("dessen", "deren", "dessen", "deren"))
EIN: Table = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"),
              ("es", "er", "es", "er"))
DIES: Table = (
    ("er", "e", "es", "e"),
    ("en", "e", "es", "e"),
    ("em", "er", "em", "en"),
    ("es", "er", "es", "er"),
)
WEAK: Table = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en",) * 4, ("en",) * 4)
MIXED: Table = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en",) * 4, ("en",) * 4)
STRONG: Table = (*DIES[:3], ("en", "er", "en", "er"))
REFERENCE: Table = (("er", "sie", "es", "sie"), ("ihn", "sie", "es", "sie"),
                    ("ihm", "ihr", "ihm", "ihnen"))
PRONOUNS: Table = (
    ("ich", "du", "", "wir", "ihr", "Sie"),
    ("mich", "dich", "", "uns", "euch", "Sie"),
    ("mir", "dir", "", "uns", "euch", "Ihnen"),
)
POSSESSIVES = {
    "my": "mein",
    "your": "dein",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
    "their": "ihr",
    "your-polite": "Ihr",
}
CONTRACTED = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
}
_DIES_STEMS = {"this": "dies", "every": "jed", "which": "welch"}

PRESENT = {
    "sein": ("bin", "bist", "ist", "sind", "seid", "sind"),
    "haben": ("habe", "hast", "hat", "haben", "habt", "haben"),
    "werden": ("werde", "wirst", "wird", "werden", "werdet", "werden"),
    "wissen": ("weiß", "weißt", "weiß", "wissen", "wisst", "wissen"),
    "können": ("kann", "kannst", "kann", "können", "könnt", "können"),
    "müssen": ("muss", "musst", "muss", "müssen", "müsst", "müssen"),
    "sollen": ("soll", "sollst", "soll", "sollen", "sollt", "sollen"),
    "wollen": ("will", "willst", "will", "wollen", "wollt", "wollen"),
    "dürfen": ("darf", "darfst", "darf", "dürfen", "dürft", "dürfen"),
}
_PAST_STEMS = {
    "sein": "war",
    "haben": "hatte",
    "können": "konnte",
    "müssen": "musste",
    "sollen": "sollte",
    "wollen": "wollte",
    "dürfen": "durfte",
}


@cache
def determiner(word: str, case: int, gender: int) -> tuple[str, Table]:
    """The German determiner for an English one, and the adjective endings it calls for."""
    if word == "the":
        return THE[case][gender], WEAK
    if word in _DIES_STEMS:
        return _DIES_STEMS[word] + DIES[case][gender], WEAK
    if word == "all":
        return "all" + DIES[case][gender], WEAK
    if word in ("many", "some", "few"):
        return {"many": "viel", "some": "einig", "few": "wenig"}[word] + DIES[case][gender], STRONG
    if word in ("a", "no"):
        return {"a": "ein", "no": "kein"}[word] + EIN[case][gender], MIXED
    if word in POSSESSIVES:
        return POSSESSIVES[word] + EIN[case][gender], MIXED
    return "", STRONG


@cache
def noun_form(noun: Noun, case: int, plural: bool) -> str:
    """A noun in its case: dative plural -n, genitive -s or -es, the weak nouns' -n."""
    if plural:
        form = noun.plural or noun.german
        return form + "n" if case == DATIVE and form[-1] not in "ns" else form
    if noun.proper:
        return noun.german + "s" if case == GENITIVE else noun.german
    if noun.weak and case != NOMINATIVE:
        return noun.plural or noun.german
    return genitive(noun.german) if case == GENITIVE and noun.gender != "f" else noun.german


@cache
def genitive(word: str) -> str:
    """-es after a hissing sound and for one syllable that ends in a consonant, otherwise -s."""
    if (word.endswith("s") and not word.endswith("us")) or word.endswith(("ß", "x", "z")):
        return word + "es"
    vowels = sum(a in "aeiouyäöü" and b not in "aeiouyäöü"
                 for a, b in zip(word.lower(), word[1:] + " "))
    short = vowels == 1 and word[-1] not in "aeiouyäöü" and word not in {"Chef", "Park", "Film"}
    return word + ("es" if short else "s")


@cache
def compound(first: Noun, second: Noun) -> Noun:
    """One German noun from two: Küche + Tisch -> Küchentisch; gender and plural are the second part's."""
    english = f"{first.english} {second.english}", f"{first.english} {second.english_plural}"
    plural = second.plural and first.link + second.plural.lower()
    return second._replace(
        english=english[0],
        english_plural=english[1],
        german=first.link + second.german.lower(),
        plural=plural,
        link="",
    )


@cache
def present(infinitive: str, third: str, person: int) -> str:
    """The present of a verb (without its particle), irregular forms and changed vowels included."""
    if infinitive in PRESENT:
        return PRESENT[infinitive][person]
    stem = german_stem(infinitive)
    if person in (3, 5):
        return infinitive
    if person == 0:
        return stem[:-2] + "le" if infinitive.endswith("eln") else stem + "e"
    link = "e" if needs_e(stem) else ""
    if person == 4 or not third:
        return stem + (link + "t" if person != 1 else link + _second(stem, bool(link)))
    return third if person == 2 else _changed_second(third, stem)


def _second(stem: str, linked: bool) -> str:
    """-st, after a hissing sound only -t."""
    return "t" if stem[-1] in "sßzx" and not linked else "st"


def _changed_second(third: str, stem: str) -> str:
    """The du-form beside a third person with a changed vowel: sieht -> siehst, hält -> hältst, lädt -> lädst."""
    if stem.endswith("d") and third.endswith("dt"):
        return third[:-1] + "st"
    if stem.endswith("t") and not third.endswith("et"):
        return third + "st"
    return third[:-1] + _second(third[:-1], False)


@cache
def past(infinitive: str, person: int) -> str:
    """The simple past of sein, haben and the modals: the only verbs for which spoken German keeps it."""
    stem = _PAST_STEMS[infinitive]
    if stem == "war":
        return stem + ("", "st", "", "en", "t", "en")[person]
    return stem + ("", "st", "", "n", "t", "n")[person]


def infinitive(verb: Verb) -> str:
    """anrufen"""
    return verb.particle + verb.infinitive


def infinitive_with_zu(verb: Verb) -> str:
    """anzurufen, zu sehen: zu goes between a separable particle and its verb."""
    return f"{verb.particle}zu{verb.infinitive}" if verb.particle else f"zu {verb.infinitive}"
