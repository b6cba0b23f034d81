"""Corpora of a study: its text in one or every vocabulary of the search space."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from scalesearch.cost import Protocol, load_protocol
from scalesearch.cost.protocol import override_settings
from scalesearch.data import Corpus, default_cache, load_corpus
from scalesearch.data.corpus import hash_text
from scalesearch.errors import UserError, error_context
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.schema.cost_names import TRAINING_COSTS
from scalesearch.spaces.syntax.diagnostics import ConfigError, UnbuildableError
from scalesearch.studies.config.sections import CORPUS_WORD
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.trials.study_meta import DataFacts

MAX_VOCABULARIES = 16  # each one needs a tokenizer and a tokenized copy of the text


@dataclass(frozen=True)
class Corpora:
    """Corpora of a study by vocabulary size, in ascending order.

    The key is ``None`` if the space does not set vocabulary sizes; the corpus then defines the
    vocabulary. The files are memory-mapped from the cache: only the parts that are read take
    memory, and workers open the same files.
    """

    by_vocab: Mapping[int | None, Corpus]

    @property
    def first(self) -> Corpus:
        """The corpus with the smallest vocabulary. All corpora hold the same text."""
        return next(iter(self.by_vocab.values()))

    def of_architecture(self, architecture: ModelSpec) -> Corpus:
        """Return the corpus with the vocabulary of ``architecture``."""
        return self.by_vocab[architecture.vocab]

    @property
    def data_facts(self) -> DataFacts:
        """Facts about the text for ``study.json``.

        A record holds those of its trial's corpus.
        """
        corpus = self.by_vocab.get(None)
        if corpus is not None:
            return msgspec.convert(corpus.facts, DataFacts, from_attributes=True)
        spec = self.first.spec.replace(vocab=None)
        hashes = {str(size): corpus.content_hash for size, corpus in self.by_vocab.items()}
        return DataFacts(self.first.name, hash_text(spec.with_absolute_paths(Path.cwd())),
                         self.first.is_synthetic, spec.model_dump(), corpora=hashes)

    def protocol(self, spec: StudySpec) -> Protocol:
        """Return the cost protocol of the study.

        The vocabulary is the one that is trained. With ``lengths: corpus``, the sentence lengths
        are the mean lengths of the training text.
        """
        uses_lengths = "lengths" in spec.protocol
        corpus = self.by_vocab.get(None)
        settings: dict[str, object] = {}
        if corpus is not None:
            if spec.vocab == CORPUS_WORD:
                settings["vocab"] = corpus.tokenizer.vocab_size
            if uses_lengths:
                settings |= dict(zip(("source", "target"), corpus.mean_lengths))
        elif uses_lengths:
            settings["lengths"] = {size: corpus.mean_lengths
                                   for size, corpus in self.by_vocab.items()}
        epoch_pairs = len(self.first.train)
        return load_protocol({**protocol_settings(spec, epoch_pairs), **settings})


def protocol_settings(spec: StudySpec, epoch_pairs: int | None = None) -> dict[str, str | int]:
    """Settings of the cost protocol that do not depend on the text of a corpus.

    Args:
        epoch_pairs: sentence pairs of the training text.
    """
    settings = {key: value for key, value in spec.protocol.items() if value != CORPUS_WORD}
    training: dict[str, Any] = {}
    if uses_training_costs(spec):
        training = spec.recipe.protocol_settings(epoch_pairs)
    return override_settings(spec.space.protocol, {**training, **settings,
                                                   "longest": spec.data.max_length})


def uses_training_costs(spec: StudySpec) -> bool:
    """Whether objectives, limits or the protocol use the costs of training."""
    limits = (*spec.space.constraints, *((spec.budget,) if spec.budget else ()))
    names = {objective.name for objective in spec.objectives}.union(
        *(limit.costs for limit in limits))
    settings = {**spec.space.protocol, **spec.protocol}
    return settings.get("name") == "train" or not names.isdisjoint(TRAINING_COSTS)


def load_corpora(spec: StudySpec, report: Callable[[str], object] = str) -> Corpora:
    """Build or load the corpora of a study and of its references.

    They are cached, so workers only open them.

    Args:
        spec: the study.
        report: receives each note of the corpora once.

    Raises:
        UserError: a file is invalid, a vocabulary does not fit the text, the space has too many or
            computed vocabularies, or a reference sets one and the space does not, or the reverse.
            All architectures have the same target vocabulary, or none.
    """
    space_sizes = spec.space.vocabularies(MAX_VOCABULARIES)
    sizes = set(space_sizes)
    is_own = bool(sizes)
    for reference in spec.named_architectures:
        vocab = reference.architecture.vocab
        if bool(vocab) != is_own:
            difference = ("does not set `vocab`, but the space does" if is_own
                          else "sets `vocab`, but the space does not")
            raise UserError(f"reference: {reference.label} {difference}",
                            help="set it for all, with set: {vocab: 8k}, or for none",
                            key="reference", code="vocab-missing" if is_own else "vocab-mismatch")
        if vocab:
            sizes.add(vocab)
    target_size = next(iter(spec.space.vocabularies(1, "target_vocab")), None)
    for reference in spec.named_architectures:
        if reference.architecture.vocab_sizes[1] != target_size:
            raise UserError(f"reference: {reference.label} and the space differ in target_vocab",
                            help="set it to one size for all, or for none", key="reference",
                            code="vocab-mismatch")
    sizes_by_note: dict[str, list[int | None]] = {}
    corpora: dict[int | None, Corpus] = {}
    for size in sorted(sizes) or (None,):
        try:
            with error_context("data"):
                corpora[size] = load_corpus(spec.data.with_vocab(size, target_size),
                                            default_cache(), Path.cwd())
        except UserError as error:
            key = (error.key or "").removeprefix("data.")
            is_of_space = size in space_sizes if key == "vocab" else bool(target_size)
            if error.code != "vocab-size-unsupported" or not is_of_space:
                raise
            reason = error.message.removeprefix(f"data: {key}: ")
            problem = spec.space.problem_of(UnbuildableError(key, reason))
            raise ConfigError([replace(problem, code=error.code)]) from None
        for note in corpora[size].notes:
            sizes_by_note.setdefault(note, []).append(size)
    notes = dict.fromkeys(note if len(note_sizes) == len(corpora)
                          else f"vocab {', '.join(map(str, note_sizes))}: {note}"
                          for note, note_sizes in sizes_by_note.items())
    loaded = Corpora(corpora)
    _check_classes(spec, loaded.first)
    if None in corpora:
        vocab = corpora[None].tokenizer.vocab_size
        vocab_of_space = spec.space.protocol.get("vocab")
        if isinstance(spec.vocab, int) and spec.vocab != vocab:
            notes[f"warning: costs use {spec.vocab:,} vocabulary entries (protocol.vocab), but the "
                  f"models have {vocab:,}"] = None
        elif "vocab" not in spec.protocol and vocab_of_space not in (vocab, None):
            notes[f"costs use the vocabulary of the data ({vocab:,}), not that of the space "
                  f"({vocab_of_space:,})"] = None
    for note in notes:
        report(note)
    return loaded


def _check_classes(spec: StudySpec, corpus: Corpus) -> None:
    """Check that the space and the named architectures have the classes of the text.

    Raises:
        UserError: they do not.
    """
    for named in spec.named_architectures:
        if mismatch := corpus.class_mismatch(named.architecture.config.get("classes")):
            reason, fix = mismatch
            raise UserError(f"{named.label}: classes: {reason}", help=fix, key="reference",
                            code="class-mismatch")
    if spec.architectures is not None:
        return
    nodes = spec.space.parameter_space.nodes_by_key.get("classes", [])
    numbers = [number for node in nodes for number in node.domain.constants or (str(node.domain),)]
    for number in numbers or [None]:
        if mismatch := corpus.class_mismatch(number):
            problem = spec.space.problem_of(UnbuildableError("classes", "; ".join(mismatch)))
            raise ConfigError([replace(problem, code="class-mismatch")])
