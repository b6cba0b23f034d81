"""The built-in language's morphology against tables from the grammar book."""

import re

import pytest

from tools.grammar import german_forms as forms
from tools.grammar.german import german, nominal
from tools.grammar.meaning import Adjunct, Clause, Gap, Phrase, Pronoun, Relative, Sentence
from tools.grammar.vocabulary import vocabulary
from tools.grammar.words import read_adjectives, read_nouns, read_verbs

NOUNS = {noun.english: noun for noun in reversed(read_nouns())}
VERBS = {verb.particle + verb.infinitive: verb for verb in reversed(read_verbs())}
ADJECTIVES = {adjective.german: adjective for adjective in read_adjectives()}
ME = Pronoun(1)
THEY = Pronoun(3, plural=True)

# case: masculine, feminine, neuter, plural
PARADIGMS = {
    "the": (
        "der alte Mann, die alte Frau, das alte Auto, die alten Männer",
        "den alten Mann, die alte Frau, das alte Auto, die alten Männer",
        "dem alten Mann, der alten Frau, dem alten Auto, den alten Männern",
        "des alten Mannes, der alten Frau, des alten Autos, der alten Männer",
    ),
    "no": (
        "kein alter Mann, keine alte Frau, kein altes Auto, keine alten Männer",
        "keinen alten Mann, keine alte Frau, kein altes Auto, keine alten Männer",
        "keinem alten Mann, keiner alten Frau, keinem alten Auto, keinen alten Männern",
        "keines alten Mannes, keiner alten Frau, keines alten Autos, keiner alten Männer",
    ),
    "": (
        "alter Mann, alte Frau, altes Auto, alte Männer",
        "alten Mann, alte Frau, altes Auto, alte Männer",
        "altem Mann, alter Frau, altem Auto, alten Männern",
        "alten Mannes, alter Frau, alten Autos, alter Männer",
    ),
    "my": (
        "mein alter Mann, meine alte Frau, mein altes Auto, meine alten Männer",
        "meinen alten Mann, meine alte Frau, mein altes Auto, meine alten Männer",
        "meinem alten Mann, meiner alten Frau, meinem alten Auto, meinen alten Männern",
        "meines alten Mannes, meiner alten Frau, meines alten Autos, meiner alten Männer",
    ),
}


def realised(phrase: Phrase, case: int) -> str:
    return " ".join(nominal(phrase, case))


@pytest.mark.parametrize("determiner", PARADIGMS)
@pytest.mark.parametrize("case", range(4))
def test_articles_and_adjective_endings(determiner, case):
    old = (ADJECTIVES["alt"],)
    phrases = [Phrase(NOUNS[word], False, determiner, old) for word in ("man", "woman", "car")]
    phrases.append(Phrase(NOUNS["man"], True, determiner, old))
    assert ", ".join(realised(phrase, case) for phrase in phrases) == PARADIGMS[determiner][case]


@pytest.mark.parametrize(
    "determiner, expected",
    [("this", "diesem guten Hund"), ("every", "jedem guten Hund"), ("which", "welchem guten Hund")],
)
def test_determiners_with_the_articles_endings(determiner, expected):
    assert realised(Phrase(NOUNS["dog"], False, determiner, (ADJECTIVES["gut"],)),
                    forms.DATIVE) == expected


def test_quantifiers_differ_in_the_endings_they_call_for():
    good = (ADJECTIVES["gut"],)
    assert realised(Phrase(NOUNS["dog"], True, "all", good), forms.ACCUSATIVE) == "alle guten Hunde"
    assert realised(Phrase(NOUNS["dog"], True, "many", good),
                    forms.ACCUSATIVE) == "viele gute Hunde"
    assert realised(Phrase(NOUNS["dog"], True, "", good, 21),
                    forms.DATIVE) == "einundzwanzig guten Hunden"
    assert (
        realised(Phrase(NOUNS["dog"], True, "the", good, 21), forms.NOMINATIVE)
        == "die einundzwanzig guten Hunde"
    )


def test_adjective_stems_change_before_endings():
    assert realised(Phrase(NOUNS["tower"], False, "a", (ADJECTIVES["hoch"],)),
                    0) == "ein hoher Turm"
    assert realised(Phrase(NOUNS["coat"], False, "a", (ADJECTIVES["teuer"],)),
                    1) == "einen teuren Mantel"
    assert realised(Phrase(NOUNS["dog"], False, "the", (ADJECTIVES["müde"],)),
                    2) == "dem müden Hund"


@pytest.mark.parametrize(
    "word, expected",
    [("man", "Mann Mann Mann Mannes | Männer Männer Männern Männer"),
     ("customer", "Kunde Kunden Kunden Kunden " "| Kunden Kunden Kunden Kunden"),
     ("car", "Auto Auto Auto " "Autos | Autos Autos Autos Autos"),
     ("house", "Haus Haus Haus Hauses | " "Häuser Häuser Häusern Häuser"),
     ("teacher", "Lehrer Lehrer Lehrer " "Lehrers | Lehrer Lehrer Lehrern Lehrer"),
     ("garden", "Garten Garten Garten Gartens | Gärten Gärten Gärten Gärten"),
     ("sister",
      "Schwester Schwester Schwester Schwester | Schwestern Schwestern " "Schwestern Schwestern"),
     ("glass", "Glas Glas Glas Glases | Gläser Gläser " "Gläsern Gläser")])
def test_nouns_in_their_cases(word, expected):
    rows = [" ".join(forms.noun_form(NOUNS[word], case, plural) for case in range(4))
            for plural in (False, True)]
    assert " | ".join(rows) == expected


@pytest.mark.parametrize(
    "first, second, expected",
    [
        ("kitchen", "chair", "Küchenstuhl Küchenstühle"),
        ("wedding", "cake", "Hochzeitskuchen Hochzeitskuchen"),
        ("house", "key", "Hausschlüssel Hausschlüssel"),
        ("school", "book", "Schulbuch Schulbücher"),
        ("egg", "basket", "Eierkorb Eierkörbe"),
    ],
)
def test_compounds_have_linking_elements_and_the_last_parts_gender(first, second, expected):
    senses = {"key": next(noun for noun, _ in vocabulary().senses if noun.german == "Schlüssel")}
    head = NOUNS.get(second) or senses[second]
    whole = forms.compound(NOUNS[first], head)
    assert f"{whole.german} {whole.plural}" == expected
    assert (whole.gender, whole.english) == (head.gender, f"{first} {second}")


@pytest.mark.parametrize(
    "infinitive, expected",
    [
        ("kaufen", "kaufe kaufst kauft kaufen kauft kaufen"),
        ("sehen", "sehe siehst sieht sehen seht sehen"),
        ("lesen", "lese liest liest lesen lest lesen"),
        ("essen", "esse isst isst essen esst essen"),
        ("halten", "halte hältst hält halten haltet halten"),
        ("einladen", "lade lädst lädt laden ladet laden"),
        ("arbeiten", "arbeite arbeitest arbeitet arbeiten arbeitet arbeiten"),
        ("tanzen", "tanze tanzt tanzt tanzen tanzt tanzen"),
        ("öffnen", "öffne öffnest öffnet öffnen öffnet öffnen"),
        ("lächeln", "lächle lächelst lächelt lächeln lächelt lächeln"),
        ("wandern", "wandere wanderst wandert wandern wandert wandern"),
        ("wissen", "weiß weißt weiß wissen wisst wissen"),
        ("nehmen", "nehme nimmst nimmt nehmen nehmt nehmen"),
        ("waschen", "wasche wäschst wäscht waschen wascht waschen"),
        ("anbieten", "biete bietest bietet bieten bietet bieten"),
        ("verlassen", "verlasse verlässt verlässt verlassen verlasst verlassen"),
    ],
)
def test_present_of_regular_and_strong_verbs(infinitive, expected):
    verb = VERBS.get(infinitive)
    plain, third = (verb.infinitive, verb.third) if verb else (infinitive, "")
    assert " ".join(forms.present(plain, third, person) for person in range(6)) == expected


@pytest.mark.parametrize(
    "infinitive, participle, with_zu",
    [
        ("anrufen", "angerufen", "anzurufen"),
        ("einladen", "eingeladen", "einzuladen"),
        ("abholen", "abgeholt", "abzuholen"),
        ("zurückkommen", "zurückgekommen", "zurückzukommen"),
        ("besuchen", "besucht", "zu besuchen"),
        ("reparieren", "repariert", "zu reparieren"),
        ("verstehen", "verstanden", "zu verstehen"),
        ("bellen", "gebellt", "zu bellen"),
        ("arbeiten", "gearbeitet", "zu arbeiten"),
        ("zuhören", "zugehört", "zuzuhören"),
        ("retten", "gerettet", "zu retten"),
    ],
)
def test_participles_and_infinitives(infinitive, participle, with_zu):
    verb = VERBS[infinitive]
    assert (verb.participle, forms.infinitive_with_zu(verb)) == (participle, with_zu)


def call(**changes) -> Clause:
    return Clause(VERBS["anrufen"], ME, Phrase(NOUNS["man"]), **changes)


@pytest.mark.parametrize(
    "clause, main, subordinate",
    [
        (call(), "Ich rufe den Mann an.", "weil ich den Mann anrufe."),
        (call(tense="past"), "Ich habe den Mann angerufen.", "weil ich den Mann angerufen habe."),
        (call(tense="future"), "Ich werde den Mann anrufen.", "weil ich den Mann anrufen werde."),
        (call(modal="want"), "Ich will den Mann anrufen.", "weil ich den Mann anrufen will."),
        (
            call(modal="must", tense="past"),
            "Ich musste den Mann anrufen.",
            "weil ich den Mann anrufen musste.",
        ),
        (call(negated=True), "Ich rufe den Mann nicht an.", "weil ich den Mann nicht anrufe."),
    ],
)
def test_separable_verbs_in_all_positions(clause, main, subordinate):
    assert german(Sentence(clause)) == main
    whole = german(Sentence(clause, subordinator=("because", "weil"), subordinate=clause))
    assert whole == main[:-1] + ", " + subordinate


@pytest.mark.parametrize("plural", [False, True])
@pytest.mark.parametrize("word, gender", [("man", 0), ("woman", 1), ("child", 2)])
@pytest.mark.parametrize("role, case", [("subject", 0), ("direct", 1), ("indirect", 2)])
def test_relative_pronouns(word, gender, plural, role, case):
    table = (("der", "die", "das", "die"), ("den", "die", "das", "die"),
             ("dem", "der", "dem", "denen"))
    gap = Gap(NOUNS[word], plural)
    clause = {
        "subject": Clause(VERBS["schlafen"], gap),
        "direct": Clause(VERBS["kennen"], THEY, gap),
        "indirect": Clause(VERBS["helfen"], THEY, indirect=gap),
    }[role]
    forms_found = realised(Phrase(NOUNS[word], plural, relative=Relative(clause, role)), 0)
    expected = table[case][forms.PLURAL if plural else gender]
    assert re.search(rf", {expected} (?:schl\w+|sie kennen|sie helfen) ,$", forms_found)


def test_a_preposition_stands_before_the_relative_pronoun():
    wait = Clause(
        VERBS["warten"],
        THEY,
        prepositional=Adjunct("object", "", "auf", forms.ACCUSATIVE, Gap(NOUNS["man"], False)),
    )
    relative_form = realised(
        Phrase(NOUNS["man"], relative=Relative(wait, "prepositional")), forms.DATIVE
    )
    assert relative_form == "dem Mann , auf den sie warten ,"
