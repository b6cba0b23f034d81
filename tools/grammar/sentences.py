"""Draws clauses and sentences: the grammar of the built-in language, as a random process over meaning trees."""

import random
from collections.abc import Callable

from .german_forms import ACCUSATIVE, DATIVE
from .meaning import Adjunct, Clause, Gap, Nominal, Phrase, Predicate, Pronoun, Relative, Sentence
from .modifiers import SUBORDINATORS
from .phrases import Phrases
from .vocabulary import Vocabulary
from .words import Noun, Verb, pairs

BE = Verb(("be", "was", "been"), "", "sein", "", "ist", "gewesen", "sein", "b", ())
_FRAMES = tuple("t" * 22 + "i" * 4 + "d" * 4 + "g" * 5 + "p" * 5 + "m" * 6 + "l" * 4 + "u" * 3)
_TENSES = ("present",) * 8 + ("past",) * 5 + ("perfect",) * 3 + ("future",) * 2
_MODALS = ("can", "must", "should", "want", "want", "may")
_SUBORDINATORS = pairs(SUBORDINATORS)
_WHEN = ("when", "wenn")
_WHEN_PAST = ("when", "als")  # once in the past is als
_PURPOSE = ("in order to", "um")
_QUESTION_WORDS = (("where", "wo"), ("when", "wann"), ("why", "warum"), ("how", "wie"))
_CONJUNCTIONS = (("and", "und"), (", but", ", aber"), ("or", "oder"))
_ADDRESSES = (("Sir", "mein Herr"), ("Madam", "gnädige Frau"))
_SUBJECTS = ("person", "person", "animal", "thing", "building", "food", "idea", "text", "place")


class Sentences(Phrases):
    """Draws sentences; one object for one corpus."""

    def __init__(self, rng: random.Random, words: Vocabulary) -> None:
        super().__init__(rng, words)
        self._shapes: tuple[Callable[[], Sentence], ...] = (
            *(self.simple,) * 18,
            *(self.with_subordinate,) * 6,
            *(self.with_complement,) * 4,
            self.with_purpose,
            *(self.question,) * 2,
            *(self.coordination,) * 2,
            *(self.addressed,) * 1,
        )

    def sentence(self) -> Sentence:
        """A sentence; where an ambiguous noun was planted, one of its cues and none of the other sense's."""
        while True:
            self.planted = []
            self.used = []
            self.polite = False
            cues = self.plant() if self.chance(0.12) else ()
            sentence = self.rng.choice(self._shapes)()
            if len(self.planted) == 1:
                sentence = self.beside(sentence, self.planted.pop())
            if not self.planted and not any(word in cues for word in self.used):
                return sentence

    def beside(self, sentence: Sentence, noun: Noun) -> Sentence:
        """Put in a planted noun for which no verb had a place: next to it, all this happens."""
        self.used.append(noun.english)
        plural = noun.plural is not None and self.chance(0.2)
        place = Adjunct("place", "next to", "neben", DATIVE, Phrase(noun, plural))
        return sentence._replace(
            main=sentence.main._replace(adjuncts=(*sentence.main.adjuncts, place)))

    def plant(self) -> tuple[str, ...]:
        """Plant an ambiguous noun and a cue of its sense; returns the cues that must not occur."""
        noun, cues = self.rng.choice(self.words.senses)
        cue = self.rng.choice(cues)
        self.planted = [noun, self.words.real[cue]]
        self.rng.shuffle(self.planted)
        return tuple(
            word
            for other, theirs in self.words.senses
            if other.english == noun.english and other != noun
            for word in theirs
            if word not in cues
        )

    def simple(self) -> Sentence:
        return Sentence(self.clause(2))

    def with_subordinate(self) -> Sentence:
        """Because, when, if, ...: before or after; often about someone or something of the main clause."""
        main = self.clause(1)
        subordinator = self.rng.choice(_SUBORDINATORS)
        clause = self.about(main) if self.chance(0.5) else self.clause(
            1, tense=main.tense, fronting=False)
        if subordinator == _WHEN and clause.tense in ("past", "perfect"):
            subordinator = _WHEN_PAST
        first = self.chance(0.4) and not main.fronted
        return Sentence(main, subordinator=subordinator, subordinate=clause, first=first)

    def about(self, main: Clause) -> Clause:
        """A clause with a pronoun for a noun of ``main``: its German gender has to be carried over."""
        thing = (main.direct if isinstance(main.direct, Phrase) and not main.direct.noun.proper
                 else main.subject)
        if not isinstance(thing,
                          Phrase) or (thing.noun.kind == "person" and thing.noun.gender == "n"):
            return self.clause(1, tense=main.tense, fronting=False)
        noun = thing.noun._replace(kind="person") if thing.noun.kind == "name" else thing.noun
        pronoun = Pronoun(3, thing.plural, noun)
        if self.chance(0.5):
            objects = self.words.verbs_with("object", noun.kind, "td")
            if objects:
                return self.filled(objects.pick(self.rng), 0, main.tense, {"object": pronoun})
        return self.copula(pronoun, main.tense)

    def with_complement(self) -> Sentence:
        """Says that, asks whether, tries to."""
        verb = self.words.verbs("cwz").pick(self.rng)
        self.negated = self.chance(0.1)
        tense = self.rng.choice(_TENSES[:13])
        subject = self.nominal(("person",), 0)
        link = {"c": "that", "w": "whether", "z": "to"}[verb.frame]
        negated = self.negated
        if link == "to":
            complement = self.clause(1, fronting=False, infinitive=True)
        else:
            complement = self.clause(1, fronting=False)
        adjuncts = (self.fixed("time", tense),) if self.chance(0.15) else ()
        main = Clause(
            verb,
            subject,
            tense=tense,
            negated=negated,
            link=link,
            complement=complement,
            adjuncts=adjuncts,
            fronted=bool(adjuncts),
        )
        return Sentence(main)

    def with_purpose(self) -> Sentence:
        return Sentence(self.clause(1), subordinator=_PURPOSE,
                        subordinate=self.clause(0, fronting=False, infinitive=True))

    def question(self) -> Sentence:
        question_word = self.rng.choice(_QUESTION_WORDS) if self.chance(0.45) else None
        main = self.clause(1, fronting=False)
        kept = tuple(item for item in main.adjuncts if item.kind != "sentence")
        return Sentence(main._replace(adjuncts=kept), mood="question", question_word=question_word)

    def coordination(self) -> Sentence:
        conjunction = self.rng.choice(_CONJUNCTIONS)
        return Sentence(self.clause(0), conjunction=conjunction,
                        second=self.clause(0, fronting=False))

    def addressed(self) -> Sentence:
        """Sir / Madam makes every *you* of the sentence polite."""
        self.polite = True
        main = self.clause(1, fronting=False)
        return Sentence(main, address=self.rng.choice(_ADDRESSES),
                        mood="question" if self.chance(0.3) else "statement")

    def clause(self, depth: int, tense: str = "", fronting: bool = True,
               infinitive: bool = False) -> Clause:
        """Any clause: a copula now and then, otherwise a verb of some frame."""
        tense = tense or self.rng.choice(_TENSES)
        if not infinitive and self.chance(0.12):
            kind = self.rng.choice(_SUBJECTS)
            return self.copula(self.nominal((kind,), depth), tense)
        verb = self.words.verbs(self.rng.choice(_FRAMES)).pick(self.rng)
        clause = self.filled(verb, depth, tense, {"subject": None} if infinitive else {}, fronting)
        if not infinitive:
            return clause
        adjuncts = tuple(item for item in clause.adjuncts if item.kind != "sentence")
        return clause._replace(modal="", tense="present", negated=False, adjuncts=adjuncts)

    def filled(self, verb: Verb, depth: int, tense: str, given: dict[str, Nominal | None],
               fronting: bool = False) -> Clause:
        """A clause of this verb; ``given`` says what its subject or object is, the rest is drawn."""
        self.negated = self.chance(0.12)
        negated = self.negated
        frame = verb.frame[0]
        modal = self.rng.choice(_MODALS) if tense in (
            "present", "past") and self.chance(0.2) else ""
        if modal in ("should", "may"):
            tense = "present"
        subject = given["subject"] if "subject" in given else self.nominal(verb.subjects, depth)
        if frame == "u" or (isinstance(subject, Phrase) and subject.relative):
            depth = 0
        thing = given.get("object") or self.object(verb, depth, subject)
        direct = thing if frame in "tgu" else None
        indirect = thing if frame == "d" else self.recipient(
            given, subject) if frame == "g" else None
        prepositional = self.prepositional(verb, thing) if frame == "p" else None
        adjuncts, front = self.arranged(self.adjuncts(frame, tense, depth, negated), frame, thing,
                                        fronting)
        return Clause(verb, subject, direct, indirect, prepositional, None, tense, modal, negated,
                      adjuncts, front)

    def arranged(
        self, adjuncts: tuple[Adjunct, ...], frame: str, thing: Nominal | None, fronting: bool
    ) -> tuple[tuple[Adjunct, ...], bool]:
        """The adjuncts and whether the first is fronted. None follows a relative clause: it would
        seem to belong there."""
        movable = bool(adjuncts) and fronting and adjuncts[0].kind in ("time", "place", "sentence")
        movable = movable and not (frame in "mlu" and adjuncts[0].kind == "place")
        if isinstance(thing, Phrase) and thing.relative:
            return adjuncts[:1] if movable else (), movable
        return adjuncts, movable and self.chance(0.5)

    def object(self, verb: Verb, depth: int, subject: Nominal | None) -> Nominal | None:
        """The object, if the verb has one; never the subject's own pronoun, which would have to be reflexive."""
        if not verb.objects:
            return None
        thing = self.nominal(verb.objects, depth)
        if isinstance(thing, Pronoun) and isinstance(
                subject, Pronoun) and thing.person == subject.person:
            return self.phrase(verb.objects, depth)
        return thing

    def recipient(self, given: dict[str, Nominal | None],
                  subject: Nominal | None) -> Nominal | None:
        if "recipient" in given:
            return given["recipient"]
        return self.nominal(("person",), 0) if isinstance(subject, Phrase) else self.phrase(
            ("person",), 0)

    def prepositional(self, verb: Verb, thing: Nominal | None) -> Adjunct:
        _, german, case = verb.frame.split(":")
        return Adjunct("object", "", german, ACCUSATIVE if case == "acc" else DATIVE, thing)

    def adjuncts(self, frame: str, tense: str, depth: int, negated: bool) -> tuple[Adjunct, ...]:
        """Times, frequency, manner, circumstance, place: each now and then, a place where the verb needs one."""
        found = []
        if self.chance(0.24):
            found.append(self.fixed("time", tense))
        elif self.chance(0.06):
            found.append(self.fixed("sentence", tense))
        if self.chance(0.08) and not negated:
            found.append(self.fixed("frequency", tense))
        if self.chance(0.09):
            found.append(self.fixed("manner", tense))
        elif self.chance(0.08):
            found.append(self.circumstance(0))
        if frame in "mlu":
            found.append(self.place(frame in "mu", depth))
        elif self.chance(0.08):
            found.append(self.place(False, 0))
        return tuple(found)

    def copula(self, subject: Nominal, tense: str) -> Clause:
        """X is new, newer than Y, as new as Y, a doctor."""
        self.negated = self.chance(0.12)
        negated = self.negated
        tense = "present" if tense == "perfect" else tense
        adjuncts = (self.fixed("time", tense),) if self.chance(0.12) else ()
        return Clause(BE, subject, predicate=self.predicate(subject), tense=tense, negated=negated,
                      adjuncts=adjuncts)

    def predicate(self, subject: Nominal) -> Predicate:
        kind = subject.noun.kind if isinstance(subject, Phrase | Gap) else "person"
        if isinstance(subject, Pronoun) and subject.person == 3 and subject.noun is not None:
            kind = subject.noun.kind
        kind = "person" if kind == "name" else kind
        adjective = self.words.adjectives(kind).pick(
            self.rng) if self.words.adjectives(kind) else None
        if adjective is None or (kind == "person" and isinstance(subject, Phrase)
                                 and not subject.plural and self.chance(0.2)):
            return Predicate(phrase=Phrase(self.noun((kind,)), determiner="a"))
        if self.chance(0.35):
            return Predicate(adjective, self.phrase((kind,), 0, plain=True), self.chance(0.35))
        return Predicate(adjective)

    def relative(self, phrase: Phrase, depth: int) -> Relative | None:
        """A clause in which the phrase is the subject, or an object in the case that the verb gives it."""
        kind = phrase.noun.kind
        negated = self.negated
        gap = Gap(phrase.noun, phrase.plural)
        subject = self.chance(0.4)
        pool = self.words.verbs_with(
            "subject" if subject else "object", kind, "tidpml" if subject else "tttdpg"
        )
        if not pool:
            return None
        verb = pool.pick(self.rng)
        given: dict[str, Nominal | None] = {"subject" if subject else "object": gap}
        role = ("subject" if subject
                else {"t": "direct", "g": "direct", "d": "indirect",
                      "p": "prepositional"}[verb.frame[0]])
        if verb.frame == "g" and kind == "person":
            given = {"recipient": gap}
            role = "indirect"
        clause = self.filled(verb, depth, self.rng.choice(_TENSES), given)
        self.negated = negated
        return Relative(clause, role)
