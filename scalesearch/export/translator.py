"""Translation with trained or exported models, scores of several models, and language models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import eq
from pathlib import Path
from typing import Any

from scalesearch.data import load_corpus
from scalesearch.data.prepare import lowercase_pairs
from scalesearch.data.sources import ParallelText, read_pairs
from scalesearch.errors import UserError
from scalesearch.nn.ensemble import Ensemble
from scalesearch.nn.shortlist import Shortlist
from scalesearch.tasks import TASKS, Texts
from scalesearch.training import Recipe
from scalesearch.training.checkpoint import (
    Checkpoint,
    is_runtime_artifact,
    read_checkpoint,
    read_ensemble,
)
from scalesearch.training.hardware import Hardware
from scalesearch.training.scoring.evaluate import (
    DECODE_BATCH_TOKENS,
    DecodeFunction,
    DecodingOptions,
    TranslatedLine,
    check_beam,
    classify,
    resolve_decoding,
    translate,
    translate_lines,
)
from scalesearch.training.scoring.texts import check_language_model

MAX_LINES_PER_CHUNK = 1000  # lines sorted by length together; the first output waits for them
MAX_CHARACTERS_PER_CHUNK = 1 << 20  # limits the memory of tokenization; a longer line is one chunk


class Translator:
    """Translates lines with a trained model, an artifact, or an ensemble.

    The translation of a classifier is the most probable class.

    Attributes:
        decoding: search options; options that are not set come from the recipe of the model.
        compute_type: number type of matrix products on this machine; empty if it is unknown.
        notes: why translations are less accurate on this machine, or may differ from verified ones.

    Raises:
        UserError: the folder is neither a training run nor an artifact, its task does not map a
            line to a line, ``n_best`` exceeds the beam, or the models cannot form an ensemble.
    """

    def __init__(self, folder: Path | str | Sequence[str], beam: int | None = None,
                 length_penalty: float | None = None, batch_tokens: int = DECODE_BATCH_TOKENS,
                 n_best: int = 1, max_length_a: float | None = None,
                 max_length_b: int | None = None, threads: int | None = None,
                 allow_unk: bool = False, shortlist: int | None = None) -> None:
        folders = [Path(folder)] if isinstance(folder, Path | str) else list(map(Path, folder))
        self.folder = " + ".join(map(str, folders))
        self.notes: list[str] = []
        is_artifact = is_runtime_artifact(folders[0])
        if is_artifact and len(folders) == 1:
            from scalesearch.export.export import open_artifact

            self.checkpoint, decoder = open_artifact(folders[0], threads or 1)
            self.compute_type = decoder.compute_type
            self.notes = [note for note in (decoder.accuracy_note, decoder.version_note) if note]
            self._decode: DecodeFunction = (
                lambda split, search: decoder.translate(split, self.checkpoint, search))
        else:
            self.checkpoint = read_ensemble(folders)
            recipe = Recipe(steps=1, threads=threads, precision=self.checkpoint.recipe.precision)
            hardware = Hardware.from_recipe(recipe)
            self.compute_type = hardware.dtype
            self.checkpoint.model.to(hardware.device).set_attention(hardware.attention_kernel)
            self._decode = lambda split, search: translate(
                self.checkpoint.model, split, self.checkpoint.tokenizer, hardware, search)
            if TASKS[self.checkpoint.task].has_classes:
                self._decode = self._classifier(hardware)
        self.task = TASKS[self.checkpoint.task]
        if self.task.score is None and not self.task.has_classes:
            raise UserError(f"{self.folder}: trained for the task {self.task.name}, which does not "
                            "map a line to a line", code="other-task", help=(
                "`generate` continues a text with this model, and `score --text` (in Python "
                "`score_text`) scores one" if self.task.name == "language-model" else
                "its scores are in result.json, and in Python `ss.load(FOLDER).module()` is its "
                "PyTorch module"))
        self.decoding = self.resolve_decoding(
            beam=beam, length_penalty=length_penalty, batch_tokens=batch_tokens, n_best=n_best,
            max_length_a=max_length_a, max_length_b=max_length_b, allow_unk=allow_unk)
        if shortlist is not None:
            if is_artifact or len(folders) > 1 or self.task.has_classes:
                raise UserError(f"{self.folder}: only a single trained model that generates text "
                                "supports a shortlist", help="remove --shortlist",
                                code="shortlist-output")
            if self.checkpoint.tokenizer.is_pair:
                raise UserError(f"{self.folder}: source and target have a vocabulary each, and a "
                                "shortlist needs one for both", help="remove --shortlist",
                                code="shortlist-output")
            corpus = load_corpus(self.checkpoint.spec)
            table = Shortlist.from_pairs(zip(corpus.train.source_ids, corpus.train.target_ids),
                                         corpus.tokenizer.vocab_size, shortlist, shortlist)
            self.decoding = replace(self.decoding, shortlist=table)

    @property
    def description(self) -> str:
        """How translations are chosen."""
        return ("most probable class" if self.task.has_classes else self.decoding.description)

    def resolve_decoding(self, **options: Any) -> DecodingOptions:
        """Complete search options; see :func:`.evaluate.resolve_decoding`."""
        decoding = resolve_decoding(self.checkpoint.recipe, self.checkpoint.max_length_a, **options)
        check_beam(decoding.beam, self.checkpoint.tokenizer.target.vocab_size)
        return decoding

    def _classifier(self, hardware: Hardware) -> DecodeFunction:
        """Return a function that gives the most probable classes of sources.

        Raises:
            UserError: the names of the classes are not in the folder, or models form an ensemble.
        """
        trained = self.checkpoint
        if isinstance(trained.model, Ensemble):
            raise UserError(f"{self.folder}: classifiers do not form an ensemble",
                            help="name one model", code="models-incompatible")
        if len(trained.classes) != trained.architecture.config["classes"]:
            raise UserError(f"{self.folder}: an earlier version trained this classifier, and did "
                            "not save the names of its classes. Train it again",
                            code="no-checkpoint")
        return lambda split, search: classify(trained.model, split, trained.classes, hardware,
                                              search.n_best)

    def best_translations(self, lines: Iterable[str]) -> list[str]:
        """Return the best translation of each line."""
        return [line.translations[0].text
                for chunk in self.translate_chunks(lines) for line in chunk]

    def translate_chunks(self, lines: Iterable[str | None]) -> Iterator[list[TranslatedLine]]:
        """Yield lines with their translations, up to 1,000 at a time; see :func:`chunk_lines`."""
        for chunk in chunk_lines(lines):
            yield translate_lines(self.checkpoint, chunk,
                                  lambda split: self._decode(split, self.decoding))

    def read_texts(self, source: Path, targets: Sequence[Path]) -> Texts:
        """Read a source and one or more references; see :meth:`make_texts`."""
        edits = self.task.file_format == "corrections"
        return self.make_texts(read_pairs((source, *targets), "test", edits))

    def make_texts(self, pairs: ParallelText) -> Texts:
        """Return the texts, in lower case if the model was trained on lower case."""
        pairs = lowercase_pairs(pairs) if self.checkpoint.is_lowercase else pairs
        return Texts(pairs.source, pairs.target, pairs.gold_edits, pairs.more_references)


def score_translations(translators: Sequence[Translator], translations: Sequence[list[str]],
                       texts: Texts, n_resamples: int) -> list[dict[str, dict[str, Any]]]:
    """Score the translations of several models.

    See :func:`scalesearch.tasks.translation.compare_systems`.

    Args:
        translations: the best translation of each line, per model.
        n_resamples: number of bootstrap resamples.

    Raises:
        UserError: ``texts`` is empty, or ``n_resamples`` is below 1.
    """
    from scalesearch.tasks.translation import choose_tokenizer, compare_systems

    if not len(texts.target):
        raise UserError("no lines to score", code="nothing-to-score")
    if n_resamples < 1:
        raise UserError(f"resamples: expected at least 1, found {n_resamples}", code="below-one")
    task = translators[0].task
    spec = translators[0].checkpoint.spec
    if task.name == "translation":
        tokenizer, _ = choose_tokenizer(texts, spec)
        return compare_systems(translations, texts.references, n_resamples, spec.tokenized,
                               tokenizer)
    if task.score is not None:
        metrics = [task.score(lines, texts, spec) for lines in translations]
    else:
        assert task.score_correct is not None, "a translator does one of the two"
        metrics = [task.score_correct(sum(map(eq, lines, texts.target)), len(lines))
                   for lines in translations]
    signature = next(text for key, text in metrics[0].items() if key.endswith("_signature"))
    return [{name: {"score": values[name], "signature": signature} for name in task.metrics}
            for values in metrics]


def read_language_model(folder: Path | str,
                        threads: int | None = None) -> tuple[Checkpoint, list[str]]:
    """Read a trained or exported language model; an exported one runs in its runtime.

    Returns:
        The model for :mod:`scalesearch.training.scoring.texts`, and notes as of a
        :class:`Translator`.

    Raises:
        UserError: the folder holds neither, or the model has another task.
    """
    from scalesearch.export.export import open_artifact

    if not is_runtime_artifact(Path(folder)):
        return read_checkpoint(folder), []
    trained, decoder = open_artifact(Path(folder), threads or 1)
    check_language_model(trained)
    model = decoder.language_model()
    if model is None:
        raise UserError(f"{folder}: an earlier version exported this language model for pairs of "
                        "texts (Seq2Seq). Export the model again", code="no-checkpoint")
    notes = [note for note in (decoder.accuracy_note, decoder.version_note) if note]
    return replace(trained, model=model), notes


def chunk_lines(lines: Iterable[str | None]) -> Iterator[list[str]]:
    """Group lines into chunks that are limited in lines and characters.

    None is a pause of the input: it ends a chunk, so that its lines are not delayed.
    """
    chunk: list[str] = []
    n_characters = 0
    for line in lines:
        if line is not None:
            chunk.append(line)
            n_characters += len(line)
        is_full = len(chunk) == MAX_LINES_PER_CHUNK or n_characters > MAX_CHARACTERS_PER_CHUNK
        if chunk and (is_full or line is None):
            yield chunk
            chunk = []
            n_characters = 0
    if chunk:
        yield chunk
