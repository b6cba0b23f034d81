"""Laws that all sampled sentences of the built-in grammar obey."""

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tools.grammar.english import english
from tools.grammar.german import finite_verb, german
from tools.grammar.meaning import Clause, Gap, Phrase, Pronoun, Sentence
from tools.grammar.sentences import Sentences
from tools.grammar.vocabulary import vocabulary
from tools.grammar.words import read_verbs

CALL = next(verb for verb in read_verbs() if verb.particle + verb.infinitive == "anrufen")
MAIN = Clause(CALL, Pronoun(1), Pronoun(2))
BECAUSE = ("because", "weil")


def drawn(seed: int) -> Sentence:
    return Sentences(random.Random(seed), vocabulary()).sentence()


def clauses(item):
    """Every clause of a tree."""
    if isinstance(item, Clause):
        yield item
    if (isinstance(item, tuple) and hasattr(item, "_fields")) or isinstance(item, tuple):
        for part in item:
            yield from clauses(part)


SEEDS = st.integers(0, 10**9)


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_commas_and_spaces_are_clean(seed):
    sentence = drawn(seed)
    for text in (english(sentence), german(sentence)):
        assert ((text[0].isupper() or text[0].isdigit()) and text[-1] in ".?"
                and not text.endswith((",.", ",?")))
        assert not any(bad in text for bad in ("  ", ",,", " ,", " .", "None", "|", "_")), text


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_clause_is_the_same_words_verb_second_and_verb_last(seed):
    """Main and subordinate order hold the same words, but for separable verbs, which are joined at the end."""
    for clause in clauses(drawn(seed)):
        if clause.subject is None or isinstance(clause.subject, Gap) or clause.complement:
            continue
        plain = clause._replace(fronted=False)
        main = german(Sentence(plain))[:-1]
        last = german(
            Sentence(MAIN, subordinator=BECAUSE, subordinate=plain))[:-1].split(", weil ", 1)[1]
        finite = forms_of(plain)
        assert last.split()[-1].endswith(finite), (main, last)
        assert sorted("".join(main.lower().split()).replace(",", "")) == sorted(
            "".join(last.lower().split()).replace(",", "")
        )


def forms_of(clause: Clause) -> str:
    """The finite verb of a clause, from its subject alone."""
    return finite_verb(clause)[0]


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_the_finite_verb_agrees_with_its_subject(seed):
    """A plural subject takes the infinitive's form (except sein); a singular phrase never does in the present."""
    for clause in clauses(drawn(seed)):
        if isinstance(clause.subject,
                      Phrase | Gap) and clause.tense == "present" and not clause.modal:
            expected = {"sein": ("ist", "sind")}.get(clause.verb.infinitive)
            finite = forms_of(clause)
            if expected:
                assert finite == expected[clause.subject.plural]
            else:
                assert (finite == clause.verb.infinitive) == clause.subject.plural


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_questions_start_with_their_verb(seed):
    sentence = drawn(seed)
    if sentence.mood == "question" and not sentence.question_word and not sentence.address:
        assert german(sentence).split()[0].lower() == forms_of(sentence.main)


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_an_ambiguous_noun_has_its_cue_and_not_the_others(seed):
    drawer = Sentences(random.Random(seed), vocabulary())
    text = german(drawer.sentence())
    senses = {noun.german: (noun.english, set(cues)) for noun, cues in vocabulary().senses}
    # A German word may belong to two nouns: Spiel is a translation of game and of match, next to
    # it means.
    plain = {entry[0].german: entry[0].english for entry in vocabulary()._nouns}
    for word, (source, cues) in senses.items():
        if plain.get(word) in drawer.used:
            continue
        if re.search(rf"\b{word}\b", text) and source in drawer.used:
            others = {
                cue
                for name, (other, other_senses) in senses.items()
                if other == source and name != word
                for cue in other_senses
            }
            assert cues & set(drawer.used) and not (others - cues) & set(drawer.used)
