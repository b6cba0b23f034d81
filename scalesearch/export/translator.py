"""Translates lines with a finished training or an artifact, and scores several of them on one text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scalesearch.data import DataSpec, Split
from scalesearch.errors import UserError
from scalesearch.tasks import TASKS, Texts
from scalesearch.train import Recipe
from scalesearch.train.checkpoint import Checkpoint, read_ensemble
from scalesearch.train.hardware import Hardware
from scalesearch.train.scoring.evaluate import (
    DECODE_BATCH_TOKENS,
    DecodingOptions,
    Translations,
    translate,
    translate_lines,
)

# lines that are sorted by length together, and how long the first answer takes
MAX_LINES_PER_CHUNK = 1000
MAX_CHARACTERS_PER_CHUNK = 1 << 20  # of these lines, or one more: what is tokenized takes memory


class Translator:
    """A finished training, or an artifact, that translates lines; of several trainings, their ensemble.

    Attributes:
        search: how; what is not given is as in the model's recipe.
        note: what makes its translations worse here than elsewhere; empty if nothing does.

    Raises:
        UserError: the folder is neither, its task turns no line into another, ``n_best`` is more
            than the beam, or
            trainings do not go together.
    """

    def __init__(self, folder: Path | str | Sequence[str], beam: int | None = None,
                 length_penalty: float | None = None, batch_tokens: int = DECODE_BATCH_TOKENS,
                 n_best: int = 1) -> None:
        folders = [folder] if isinstance(folder, (Path, str)) else folder
        self.folder = " + ".join(map(str, folders))
        self.checkpoint, self._decode, self.accuracy_note = _open_model(*map(Path, folders))
        self.task = TASKS[self.checkpoint.task]
        if self.task.score is None:
            raise UserError(f"{self.folder}: trained for the task {self.task.name}, which turns no "
                            "line into another", code="other-task")
        self.decoding = self.resolve_decoding(beam, length_penalty, batch_tokens, n_best)

    def resolve_decoding(self, beam: int | None = None, length_penalty: float | None = None,
                         batch_tokens: int = DECODE_BATCH_TOKENS,
                         n_best: int = 1) -> DecodingOptions:
        """How to search; what is not given is as in the recipe.

        Raises:
            UserError: ``n_best`` is more than the beam, or the penalty is no number from 0 to 10.
        """
        recipe = self.checkpoint.recipe
        penalty = recipe.length_penalty if length_penalty is None else length_penalty
        if not 0 <= penalty <= 10:
            raise UserError(
                f"--length-penalty {penalty}: expected a number from 0 to 10, such as 1",
                code="bad-value")
        if beam is not None and beam < 1:
            raise UserError(f"a beam of {beam}: expected at least 1, which is greedy",
                            code="below-one")
        search = DecodingOptions(recipe.beam if beam is None else beam, penalty, batch_tokens,
                                 n_best)
        if n_best > search.beam:
            raise UserError(f"--nbest {n_best}: a search of beam {search.beam} finds no more than "
                            "that; give a larger --beam", code="nbest-above-beam")
        return search

    def __call__(self, lines: Iterable[str]) -> Iterator[tuple[str, Translations]]:
        """Lines with their translations, the best first."""
        for some in self.translate_chunks(lines):
            yield from some

    def translate_chunks(self, lines: Iterable[str]) -> Iterator[list[tuple[str, Translations]]]:
        """Lines with their translations, some hundred at a time."""
        for some in _chunk_lines(lines):
            yield translate_lines(self.checkpoint, some,
                                  lambda split: self._decode(split, self.decoding))

    def normalize_texts(self, source: Sequence[str], target: Sequence[str]) -> Texts:
        """Text and references as the model has learned them: in lower case where it has."""
        low = self.checkpoint.is_lowercase
        return Texts(*([line.lower() for line in side] if low else list(side)
                       for side in (source, target)))


def score_translations(translators: Sequence[Translator], translations: Sequence[list[str]],
                       texts: Texts, n_resamples: int) -> list[dict[str, dict[str, Any]]]:
    """Metrics of what each model has made of ``texts``; see :func:`scalesearch.tasks.translation.compare_systems`.

    Args:
        translations: the best translations of each.
        n_resamples: of the bootstrap.

    Raises:
        UserError: there is no line, or no sample.
    """
    from scalesearch.tasks.translation import compare_systems

    if not len(texts.target):
        raise UserError("there is no line to score", code="nothing-to-score")
    if n_resamples < 1:
        raise UserError(f"samples: expected at least 1, found {n_resamples}", code="below-one")
    task = translators[0].task
    if task.name == "translation":
        return compare_systems(translations, texts.target, n_resamples,
                               translators[0].checkpoint.is_tokenized)
    options = DataSpec(task=task.name, train="-", validation="-", test="-", source="s", target="t",
                       tokenized=translators[0].checkpoint.is_tokenized)
    values = [task.score(said, texts, options) for said in translations] if task.score else []
    signed = {"signature": next(text
                                for key, text in values[0].items() if key.endswith("_signature"))}
    return [{name: {"score": row[name], **signed} for name in task.metrics} for row in values]


def _open_model(folder: Path, *others: Path) -> tuple[
        Checkpoint, Callable[[Split, DecodingOptions], list[Translations]], str]:
    """The training or the artifact in ``folder``, or the ensemble of several, what translates with it, and its note."""
    # not a training's copy
    artifact = (folder / "artifact.json").is_file() and not (folder / "result.json").is_file()
    if artifact and not others:
        from scalesearch.export.export import open_artifact

        described, decoder = open_artifact(folder)
        return described, lambda split, search: decoder.translate(
            split, described, search), decoder.accuracy_note
    trained = read_ensemble([folder, *others])
    hardware = Hardware.from_recipe(Recipe(steps=1))
    trained.model.to(hardware.device).set_attention(hardware.attention_kernel)
    return trained, lambda split, search: translate(
        trained.model, split, trained.tokenizer, hardware, search), ""


def _chunk_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines in lists of ``AT_ONCE``, or fewer where they are long."""
    some: list[str] = []
    room = MAX_CHARACTERS_PER_CHUNK
    for line in lines:
        some.append(line)
        room -= len(line)
        if len(some) == MAX_LINES_PER_CHUNK or room < 0:
            yield some
            some = []
            room = MAX_CHARACTERS_PER_CHUNK
    if some:
        yield some
