"""Corpora of a study: its text in one vocabulary, or in each that its architectures may have of their own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from scalesearch.cost import Protocol, load_protocol
from scalesearch.data import Corpus, default_cache, load_corpus
from scalesearch.data.corpus import hash_text
from scalesearch.errors import UserError, error_context
from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.config.spec import CORPUS_WORD, StudySpec
from scalesearch.study.trials.study_meta import DataFacts

MAX_VOCABULARIES = 16  # vocabularies: each is a tokenizer, and a copy of the text in its tokens


@dataclass(frozen=True)
class Corpora:
    """Corpora of a study by vocabulary, the smallest first; ``None`` for the one of a space that has none of its own.

    They are mapped from the cache, where workers find them: of none is more in memory than what is
    read.
    """

    by_vocab: Mapping[int | None, Corpus]

    @property
    def first(self) -> Corpus:
        """The corpus, or that of the smallest vocabulary: they are of one text."""
        return next(iter(self.by_vocab.values()))

    @property
    def data_facts(self) -> DataFacts:
        """Facts of the text for the study; records have those of their own corpus."""
        only = self.by_vocab.get(None)
        if only is not None:
            return msgspec.convert(only.to_json(), DataFacts)
        spec = replace(self.first.spec, vocab=None)
        hashes = {str(size): corpus.content_hash for size, corpus in self.by_vocab.items()}
        return DataFacts(self.first.name, hash_text(spec.with_absolute_paths(Path.cwd())),
                         self.first.is_synthetic, spec.to_json(), corpora=hashes)

    def protocol(self, spec: StudySpec) -> Protocol:
        """The protocol of the study's costs: the model that is trained, at the lengths that it reads if so wished."""
        lengths = "lengths" in spec.protocol
        only = self.by_vocab.get(None)
        given: dict[str, object] = {}
        if only is not None:
            given |= {"vocab": only.tokenizer.vocab_size} if spec.vocab == CORPUS_WORD else {}
            given |= dict(zip(("source", "target"), only.mean_lengths)) if lengths else {}
        elif lengths:
            given["lengths"] = {size: corpus.mean_lengths for size, corpus in self.by_vocab.items()}
        return load_protocol({**protocol_settings(spec), **given})


def protocol_settings(spec: StudySpec) -> dict[str, str | int]:
    """What the space and the study say of the protocol, as far as no corpus is needed for it."""
    given = {key: value for key, value in spec.protocol.items() if value != CORPUS_WORD}
    return {**spec.space.protocol, **given, "longest": spec.data.max_length}


def load_corpora(spec: StudySpec, references: tuple[FixedArchitecture, ...],
                 report: Callable[[str], object] = str) -> Corpora:
    """The corpora of a study, made and cached now, so that workers find them.

    Their notes go to ``report``, each once.

    Raises:
        UserError: a file is wrong, a vocabulary does not fit the text, or a reference has another
            kind of vocabulary.
    """
    sizes = vocabulary_sizes(spec, references)
    notes: dict[str, None] = {}
    found: dict[int | None, Corpus] = {}
    for size in sizes or (None,):
        with error_context("data"):
            found[size] = load_corpus(spec.data.with_vocab(size), default_cache(), Path.cwd())
        notes |= dict.fromkeys(f"vocab {size}: {note}" if size and "token" in note else note
                               for note in found[size].notes)
    for note in notes:
        report(note)
    return Corpora(found)


def vocabulary_sizes(spec: StudySpec, references: tuple[FixedArchitecture, ...]) -> tuple[int, ...]:
    """The vocabularies that a study's architectures may have, rising; none where they are all the corpus's.

    Raises:
        UserError: they are computed, or too many, or a reference has none, or one of its own alone.
    """
    sizes = set(spec.space.vocabularies(MAX_VOCABULARIES))
    for one in references:
        if bool(one.architecture.vocab) != bool(sizes):
            have = ("has none, and the space's have" if sizes
                    else "has one, and the space's have none")
            raise UserError(f"reference: of a vocabulary of its own, under `vocab`, {one.label} "
                            f"{have}", help="answer it for all, with set: {vocab: 8k}, or for none",
                            key="reference", code="vocab-missing" if sizes else "vocab-mismatch")
        sizes |= {one.architecture.vocab} if one.architecture.vocab else set()
    return tuple(sorted(sizes))
