"""The German realisation of a meaning tree: case, agreement, and where the verb stands.

A clause is a bracket: the finite verb second (main), first (question) or last (subordinate), the
rest of the verb at the end, everything else in the middle field between. Functions return lists of
words; a comma is a word of its own until the sentence is joined.
"""

from . import german_forms as forms
from .german_forms import ACCUSATIVE, DATIVE, GENDERS, GENITIVE, NOMINATIVE, PLURAL, STRONG
from .meaning import Adjunct, Clause, Gap, Nominal, Pair, Phrase, Predicate, Pronoun, Relative, Sentence
from .numbers import german_digits, german_number

_MODALS = {"can": "können", "must": "müssen", "should": "sollen", "want": "wollen", "may": "dürfen"}
_LINKS = {"that": "dass", "whether": "ob"}
_CASES = {"subject": NOMINATIVE, "direct": ACCUSATIVE, "indirect": DATIVE}
_INDEFINITE = ("a", "")


def german(sentence: Sentence) -> str:
    """The sentence in German, capitalised and punctuated."""
    words = [] if sentence.address is None else [sentence.address[1], ","]
    before = sentence.first and sentence.subordinate is not None
    if before:
        words += [*_subordinate(sentence), ",", *_main(sentence.main, [])]
    elif sentence.mood == "question":
        words += _main(sentence.main, [sentence.question_word[1]] if sentence.question_word else [])
    else:
        words += _main(sentence.main, None)
    if sentence.conjunction and sentence.second:
        words += [*sentence.conjunction[1].split(), *_main(sentence.second, None)]
    if sentence.subordinate and not before:
        words += [",", *_subordinate(sentence)]
    return punctuate(words, "?" if sentence.mood == "question" else ".")


def punctuate(words: list[str], end: str) -> str:
    """Join words: commas close up, a repeated one or one at the end goes."""
    text = " ".join(word for word in words if word).replace(" ,", ",")
    while ",," in text:
        text = text.replace(",,", ",")
    text = text.rstrip(",") + end
    return text[0].upper() + text[1:]


def _subordinate(sentence: Sentence) -> list[str]:
    assert sentence.subordinator is not None and sentence.subordinate is not None
    return [sentence.subordinator[1], *_final(sentence.subordinate)]


def _main(clause: Clause, front: list[str] | None) -> list[str]:
    """Verb second: [front] finite [subject] middle tail.

    ``front`` None: the subject or the fronted adjunct.
    """
    assert clause.subject is not None
    subject = nominal(clause.subject, NOMINATIVE)
    adjuncts = clause.adjuncts
    if front is None and clause.fronted:
        front = _adjunct(adjuncts[0])
        adjuncts = adjuncts[1:]
    if front is None:
        front = subject
        subject = []
    finite, tail, _ = finite_verb(clause)
    return [*front, finite, *subject, *_middle(clause, adjuncts), tail, *_complement(clause)]


def _final(clause: Clause) -> list[str]:
    """Verb last: subject middle tail finite; without a subject, an infinitive with zu."""
    if clause.subject is None:
        return [
            *_middle(clause, clause.adjuncts),
            forms.infinitive_with_zu(clause.verb),
            *_complement(clause),
        ]
    finite, tail, separable = finite_verb(clause)
    verb = [tail + finite] if separable else [tail, finite]
    return [
        *nominal(clause.subject, NOMINATIVE),
        *_middle(clause, clause.adjuncts),
        *verb,
        *_complement(clause),
    ]


def _complement(clause: Clause) -> list[str]:
    """A that-, whether- or to-clause stands behind the whole clause, after a comma."""
    if clause.complement is None:
        return []
    link = [_LINKS[clause.link]] if clause.link in _LINKS else []
    return [",", *link, *_final(clause.complement), ","]


def finite_verb(clause: Clause) -> tuple[str, str, bool]:
    """The finite verb, the rest of the verb, and whether that is a particle (written as one word at the end)."""
    verb = clause.verb
    person = person_of(clause.subject)
    if clause.modal:
        modal = _MODALS[clause.modal]
        if clause.modal == "must" and clause.negated and clause.tense == "present":
            modal = "dürfen"
        finite = forms.past(modal, person) if clause.tense == "past" else forms.present(
            modal, "", person)
        return finite, forms.infinitive(verb), False
    if clause.tense == "future":
        return forms.present("werden", "", person), forms.infinitive(verb), False
    if clause.tense == "past" and verb.infinitive in ("sein", "haben") and not verb.particle:
        return forms.past(verb.infinitive, person), "", False
    if clause.tense in ("past", "perfect"):
        return forms.present(verb.auxiliary, "", person), verb.participle, False
    return forms.present(verb.infinitive, verb.third, person), verb.particle, True


def person_of(subject: Nominal | None) -> int:
    """0 to 5: ich, du, er, wir, ihr, sie."""
    if isinstance(subject, Pronoun):
        return 5 if subject.polite else subject.person - 1 + 3 * subject.plural
    if isinstance(subject, Pair):
        return 5 if subject.conjunction == "and" else person_of(subject.second)
    return 5 if subject is not None and subject.plural else 2


def _middle(clause: Clause, adjuncts: tuple[Adjunct, ...]) -> list[str]:
    """Pronouns, times, dative, accusative, nicht, manner, place, predicate: the unmarked order."""
    direct = clause.direct
    indirect = clause.indirect
    negation = ["nicht"] if clause.negated else []
    if negation and isinstance(direct, Phrase) and _takes_kein(direct):
        direct = direct._replace(determiner="no")
        negation = []
    predicate = _predicate(clause.predicate, bool(negation)) if clause.predicate else []
    if clause.predicate and clause.predicate.phrase and _takes_kein(clause.predicate.phrase):
        negation = []
    early = [word for item in adjuncts if item.kind in ("time", "frequency", "sentence")
             for word in _adjunct(item)]
    late = [
        word
        for kind in ("manner", "place")
        for item in adjuncts
        if item.kind == kind
        for word in _adjunct(item)
    ]
    accusative = nominal(direct, ACCUSATIVE) if direct is not None else []
    dative = nominal(indirect, DATIVE) if indirect is not None else []
    words: list[str] = []
    for light in (True, False):
        if isinstance(direct,
                      Pronoun) == light and (light or not dative or isinstance(indirect, Pronoun)):
            words += accusative
            accusative = []
        if isinstance(indirect, Pronoun) == light:
            words += dative
            words += [] if light else accusative
        words += early if light else []
    if clause.prepositional is not None and not isinstance(clause.prepositional.phrase, Gap):
        late = [*late, *_adjunct(clause.prepositional)]
    return [*words, *negation, *late, *predicate]


def _takes_kein(phrase: Phrase) -> bool:
    """Indefinite phrases are negated by kein, all others by nicht."""
    return phrase.determiner in _INDEFINITE and not (
        phrase.number or phrase.owner or phrase.noun.proper)


def _predicate(predicate: Predicate, negated: bool) -> list[str]:
    if predicate.phrase is not None:
        phrase = predicate.phrase
        return nominal(phrase._replace(determiner="no") if negated and _takes_kein(phrase)
                       else phrase, NOMINATIVE)
    adjective = predicate.adjective
    assert adjective is not None
    if predicate.than is None:
        return [adjective.german]
    than = nominal(predicate.than, NOMINATIVE)
    return (["so", adjective.german, "wie", *than] if predicate.equal
            else [adjective.comparative, "als", *than])


def _adjunct(adjunct: Adjunct) -> list[str]:
    """Fixed words, or a preposition that may contract with the article behind it."""
    if adjunct.phrase is None:
        return [adjunct.german]
    words = nominal(adjunct.phrase, adjunct.case)
    contracted = forms.CONTRACTED.get((adjunct.german, words[0]))
    bare = isinstance(adjunct.phrase, Phrase) and adjunct.phrase.relative is None
    return [contracted, *words[1:]] if contracted and bare else [adjunct.german, *words]


def nominal(item: Nominal, case: int) -> list[str]:
    """A phrase, a pronoun or a pair in its case; a gap leaves nothing."""
    if isinstance(item, Phrase):
        return _phrase(item, case)
    if isinstance(item, Pronoun):
        return [_pronoun(item, case)]
    if isinstance(item, Pair):
        joint = "und" if item.conjunction == "and" else "oder"
        return [*_phrase(item.first, case), joint, *_phrase(item.second, case)]
    return []


def _pronoun(pronoun: Pronoun, case: int) -> str:
    if pronoun.person == 3:
        gender = PLURAL if pronoun.plural or pronoun.noun is None else GENDERS[pronoun.noun.gender]
        return forms.REFERENCE[case][gender]
    return forms.PRONOUNS[case][5 if pronoun.polite else pronoun.person - 1 + 3 * pronoun.plural]


def _phrase(phrase: Phrase, case: int) -> list[str]:
    """Determiner, number, adjectives, noun, owner in the genitive, place, relative clause."""
    noun = phrase.noun
    gender = PLURAL if phrase.plural else GENDERS[phrase.noun.gender]
    owner = phrase.owner
    endings = STRONG
    if owner is not None and owner.noun.proper:
        words = [forms.noun_form(owner.noun, GENITIVE, False)]
    else:
        word, endings = forms.determiner("the" if owner else phrase.determiner, case, gender)
        words = [word] if word else []
    if phrase.number:
        words.append(german_digits(phrase.number) if phrase.digits
                     else german_number(phrase.number))
    words += [adjective.stem + endings[case][gender] for adjective in phrase.adjectives]
    words.append(forms.noun_form(noun, case, phrase.plural))
    if owner is not None and not owner.noun.proper:
        words += _phrase(owner, GENITIVE)
    if phrase.place is not None:
        words += _adjunct(phrase.place)
    return words + _relative(phrase.relative, gender) if phrase.relative else words


def _relative(relative: Relative, gender: int) -> list[str]:
    """The pronoun has its gender and number from the noun and its case from its own clause."""
    clause = relative.clause
    if relative.role == "prepositional":
        assert clause.prepositional is not None
        pronoun = (f"{clause.prepositional.german} "
                   f"{forms.RELATIVE[clause.prepositional.case][gender]}")
    else:
        pronoun = forms.RELATIVE[_CASES[relative.role]][gender]
    return [",", pronoun, *_final(clause), ","]
