"""The English realisation of a meaning tree: a fixed order, do-support, phrasal verbs."""

from functools import cache

from .german import person_of, punctuate
from .meaning import Adjunct, Clause, Gap, Nominal, Pair, Phrase, Predicate, Pronoun, Sentence
from .numbers import english_digits, english_number
from .words import english_plural

_SUBJECTS = ("I", "you", "", "we", "you all", "they")
_OBJECTS = ("me", "you", "", "us", "you all", "them")
_SINGULAR = {"m": ("he", "him"), "f": ("she", "her")}
_BE = ("am", "are", "is", "are", "are", "are")
_WAS = ("was", "were", "was", "were", "were", "were")
_PAST_MODALS = {"can": "could", "should": "should", "may": "might"}
_PHRASAL = ("up", "on", "off", "away", "along", "back")  # "picks him up", but "looks at him"


def english(sentence: Sentence) -> str:
    """The sentence in English, capitalised and punctuated."""
    words = [] if sentence.address is None else [sentence.address[0], ","]
    before = sentence.first and sentence.subordinate is not None
    if before:
        words += [*_subordinate(sentence), ","]
    if sentence.mood == "question":
        words += [sentence.question_word[0]] if sentence.question_word else []
        words += _clause(sentence.main, question=True)
    else:
        words += _clause(sentence.main)
    if sentence.conjunction and sentence.second:
        words += [*sentence.conjunction[0].split(), *_clause(sentence.second)]
    if sentence.subordinate and not before:
        words += _subordinate(sentence)
    return punctuate(words, "?" if sentence.mood == "question" else ".")


def _subordinate(sentence: Sentence) -> list[str]:
    assert sentence.subordinator is not None and sentence.subordinate is not None
    return [sentence.subordinator[0], *_clause(sentence.subordinate)]


def _clause(clause: Clause, question: bool = False) -> list[str]:
    """[fronted ,] subject auxiliary not often verb objects manner place time complement."""
    adjuncts = clause.adjuncts
    front = []
    if clause.fronted and not question:
        front = [*_adjunct(adjuncts[0]), ","]
        adjuncts = adjuncts[1:]
    frequency = [item.english for item in adjuncts if item.kind == "frequency"]
    sentence = [f"{item.english}" for item in adjuncts if item.kind == "sentence"]
    if clause.subject is None:
        head = []
        verb = clause.verb.english[0]
    else:
        subject = nominal(clause.subject, True)
        auxiliary, verb = _verb(clause, question)
        negation = ["not"] if clause.negated else []
        head = [auxiliary, *subject, *negation] if question else [*subject, auxiliary, *negation]
    late = [
        word
        for kind in ("manner", "place", "time")
        for item in adjuncts
        if item.kind == kind
        for word in _adjunct(item)
    ]
    return [*front, *sentence, *head, *frequency, verb, *_objects(clause), *late,
            *_complement(clause)]


def _verb(clause: Clause, question: bool) -> tuple[str, str]:
    """Auxiliary ("" for none) and verb; do-support where a simple form is negated or asked."""
    base, past, participle = clause.verb.english
    person = person_of(clause.subject)
    tense = clause.tense
    modal = clause.modal
    if isinstance(clause.subject, Pronoun) and clause.subject.polite:
        person = 1
    if modal in _PAST_MODALS:
        return _PAST_MODALS[modal] if tense == "past" else modal, base
    if modal == "must" and tense == "present":
        return "must", base
    if tense == "future":
        return "will", base
    if modal:
        return _simple(
            *{"must": ("have", "had"), "want": ("want", "wanted")}[modal],
            clause,
            person,
            question,
            f" to {base}",
        )
    if tense == "perfect":
        return _third("have", person), participle
    if base == "be":
        return (_WAS if tense == "past" else _BE)[person], ""
    return _simple(base, past, clause, person, question, "")


def _simple(base: str, past: str, clause: Clause, person: int, question: bool,
            rest: str) -> tuple[str, str]:
    if clause.negated or question:
        return "did" if clause.tense == "past" else _third("do", person), base + rest
    return "", (past if clause.tense == "past" else _third(base, person)) + rest


@cache
def _third(base: str, person: int) -> str:
    if person != 2:
        return base
    return {"have": "has", "do": "does"}.get(base) or english_plural(base)


def _objects(clause: Clause) -> list[str]:
    """Objects around the verb's tail; with two objects, to whom comes first unless what is only a pronoun."""
    tail = clause.verb.tail
    direct = clause.direct
    indirect = clause.indirect
    what = nominal(direct, False) if direct is not None else []
    whom = nominal(indirect, False) if indirect is not None else []
    if clause.prepositional is not None and clause.prepositional.phrase is not None:
        return [tail, *nominal(clause.prepositional.phrase, False)]
    if clause.predicate is not None:
        return _predicate(clause.predicate)
    if direct is None or indirect is None:
        pronoun = isinstance(direct, Pronoun) and tail in _PHRASAL
        return [*what, tail] if pronoun else [tail, *what, *whom]
    if isinstance(direct, Pronoun | Gap) or tail:
        both = [*what, tail] if isinstance(direct, Pronoun) else [tail, *what]
        return [*both, *(["to", *whom] if whom else [])]
    return [*whom, *what]


def _predicate(predicate: Predicate) -> list[str]:
    if predicate.phrase is not None:
        return nominal(predicate.phrase, False)
    adjective = predicate.adjective
    assert adjective is not None
    if predicate.than is None:
        return [adjective.english]
    than = nominal(predicate.than, True)
    return (
        ["as", adjective.english, "as", *than]
        if predicate.equal
        else [adjective.english_comparative, "than", *than]
    )


def _complement(clause: Clause) -> list[str]:
    return [clause.link, *_clause(clause.complement)] if clause.complement else []


def _adjunct(adjunct: Adjunct) -> list[str]:
    return [adjunct.english] if adjunct.phrase is None else [
        adjunct.english, *nominal(adjunct.phrase, False)]


def nominal(item: Nominal, subject: bool) -> list[str]:
    """A phrase, a pronoun or a pair; a gap leaves nothing."""
    if isinstance(item, Phrase):
        return _phrase(item)
    if isinstance(item, Pronoun):
        return [_pronoun(item, subject)]
    if isinstance(item, Pair):
        return [*_phrase(item.first), item.conjunction, *_phrase(item.second)]
    return []


def _pronoun(pronoun: Pronoun, subject: bool) -> str:
    if pronoun.person == 3 and not pronoun.plural:
        noun = pronoun.noun
        personal = noun is not None and noun.kind in ("person", "name") and noun.gender in _SINGULAR
        return _SINGULAR[noun.gender][0 if subject
                                      else 1] if noun is not None and personal else "it"
    index = pronoun.person - 1 + 3 * pronoun.plural
    return (_SUBJECTS if subject else _OBJECTS)[index]


def _phrase(phrase: Phrase) -> list[str]:
    """Determiner or owner's, number, adjectives, noun, place, relative clause."""
    words = _owner(phrase.owner) if phrase.owner else [phrase.determiner.removesuffix("-polite")]
    if phrase.number:
        words.append(english_digits(phrase.number) if phrase.digits
                     else english_number(phrase.number))
    words += [adjective.english for adjective in phrase.adjectives]
    words.append(phrase.noun.english_plural if phrase.plural else phrase.noun.english)
    if (words[0] == "a"
        and words[1][0] in "aeio" + "u" * (words[1][:2] in ("un", "um"))) or words[:2] == [
            "a", "hour"]:
        words[0] = "an"
    if phrase.place is not None:
        words += _adjunct(phrase.place)
    return words + _relative(phrase) if phrase.relative else words


def _owner(owner: Phrase) -> list[str]:
    words = _phrase(owner)
    return [*words[:-1], words[-1] + ("'" if words[-1].endswith("s") else "'s")]


def _relative(phrase: Phrase) -> list[str]:
    """who sees, whom he sees, to whom he gives; that for all but people."""
    assert phrase.relative is not None
    role = phrase.relative.role
    clause = phrase.relative.clause
    personal = phrase.noun.kind == "person"
    if role == "indirect" and clause.verb.frame == "g":
        return ["to whom" if personal else "to which", *_clause(clause)]
    pronoun = ("who" if role == "subject" else "whom") if personal else "that"
    return [pronoun, *_clause(clause)]
