"""Trained models: train, load, translate, score and export them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.api.architecture import Architecture
from scalesearch.api.display import Displayable, as_subclass
from scalesearch.api.error_messages import python_error_messages
from scalesearch.api.files import ConfigSource, load_data, load_data_spec, load_recipe
from scalesearch.api.space import space
from scalesearch.errors import UserError
from scalesearch.files import read_json
from scalesearch.space import read_space
from scalesearch.space.assembly.architecture import ModelSpec as Plain

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.api.study import Study
    from scalesearch.data import DataSpec
    from scalesearch.export.export import Artifact
    from scalesearch.export.translator import Translator
    from scalesearch.nn import Seq2SeqModel as Module
    from scalesearch.train import Recipe, Result

TextSource = str | Path | Sequence[str]
ARTIFACT_FILE = "artifact.json"
WEIGHTS_FILE = "model.safetensors"


@python_error_messages()
def train(architecture: str | Path | Plain, data: ConfigSource | DataSpec = "builtin",
          recipe: ConfigSource | Recipe = "quick", out: str | Path | None = None, *, seed: int = 1,
          resume: bool = True, report: Callable[[dict[str, Any]], None] | None = None) -> Model:
    """Train an architecture and score it; the same call resumes an interrupted run.

    Args:
        architecture: an architecture, its file, or the name of a shipped one.
        data: a data file or its keys; `builtin` is the built-in corpus.
        recipe: a preset, a recipe file or its keys, such as ``{"preset": "quick", "steps": 500}``.
        out: folder of the training, ``runs/model-ID`` if not given.
        resume: resume the run in the folder; a finished run is returned.
        report: takes progress as mappings, in place of the bar on standard error.

    Raises:
        UserError: something given is wrong, the folder holds another training, or training failed.
        KeyboardInterrupt: after everything was saved.
    """
    from scalesearch.api.progress import training_bar
    from scalesearch.export.scoring import artifact_decoder, check_decoder
    from scalesearch.terminal import open_console
    from scalesearch.train.training import train as run

    chosen = architecture if isinstance(architecture, Plain) else space(architecture).architecture()
    how = load_recipe(recipe)
    folder = Path(out or f"runs/model-{chosen.id}")
    if not resume and (folder / "result.json").exists():
        raise UserError(f"{folder}: already contains a training run; resume it (resume=True), or give "
                        "another folder", code="training-exists")
    check_decoder(how, chosen.block)
    corpus = load_data(data, how, chosen.vocab)
    with training_bar(open_console(stderr=True)) as bar:
        result = run(chosen, corpus, how, folder, seed=seed, report=report or bar, resume=resume,
                     open_artifact=artifact_decoder)
    if result.state != "complete":
        raise UserError(f"{folder}: {result.reason}", code="training-failed")
    return Model(folder)


@python_error_messages()
def load(folder: str | Path) -> Model | Study:
    """The model, or the study, in a folder that scalesearch has made.

    Raises:
        UserError: it holds neither.
    """
    place = Path(folder)
    if (place / "study.json").is_file():
        from scalesearch.api.study import Study

        return Study(place)
    if (place / ARTIFACT_FILE).is_file() or (place / WEIGHTS_FILE).is_file():
        return Model(place)
    raise UserError(f"{folder}: no finished training, artifact or study is here",
                    help="give a folder that `ss.train`, `model.export` or `study.run` has written",
                    code="no-checkpoint")


@dataclass(frozen=True, repr=False)
class Model(Displayable):
    """A finished training or an exported artifact; what it needs is read when it is asked for.

    Attributes:
        folder: that it is in.
        selection_reason: it was chosen of a study, in words.
    """

    folder: Path
    selection_reason: str = ""

    @cached_property
    def architecture(self) -> Architecture:
        """The architecture."""
        return as_subclass(Architecture,
                           read_space(self.folder / "architecture.yaml").single_architecture())

    @cached_property
    def result(self) -> Result | None:
        """Scores, curve and facts of the training; None of an artifact."""
        from scalesearch.train import Result

        return Result.read(self.folder)

    @cached_property
    def artifact(self) -> Artifact | None:
        """Verification of an exported model; None for a training run."""
        from scalesearch.export.export import Artifact

        return read_json(self.folder / ARTIFACT_FILE,
                         Artifact) if (self.folder / ARTIFACT_FILE).is_file() else None

    @property
    def metrics(self) -> dict[str, Any]:
        """Scores of the training, with their signatures."""
        return self.result.metrics if self.result else dict(
            self.artifact.provenance if self.artifact else {})

    def module(self) -> Module:
        """The trained ``nn.Module``, in eval mode on the CPU."""
        from scalesearch.train import read_checkpoint

        model: Module = read_checkpoint(self.folder).model
        return model

    @python_error_messages()
    def translate(self, lines: str | Sequence[str], *, beam: int | None = None,
                  length_penalty: float | None = None) -> list[str]:
        """The best translation of each line, in the same order; that of an empty line is empty.

        Args:
            beam, length_penalty: of the search; as the model was scored, if not given.
        """
        return self._best(self._translator(beam, length_penalty),
                          [lines] if isinstance(lines, str) else lines)

    @python_error_messages()
    def score(self, source: TextSource, target: TextSource, *, beam: int | None = None,
              length_penalty: float | None = None, resamples: int = 1000) -> dict[
            str, dict[str, Any]]:
        """Metrics on any text, with 95 % intervals by bootstrap where the task is translation.

        Args:
            source, target: files whose lines translate each other, or their lines.
            resamples: of the bootstrap.

        Returns:
            metric to ``score``, ``mean``, ``half`` width of the interval, ``p`` (None) and
            ``signature``; of BLEU also
            ``brevity_penalty`` and ``length_ratio``.
        """
        from scalesearch.export.translator import score_translations

        translator = self._translator(beam, length_penalty)
        texts = translator.normalize_texts(*_pairs(source, target))
        return score_translations([translator], [self._best(translator, texts.source)], texts,
                                  resamples)[0]

    @python_error_messages(to="format")
    def export(self, format: str, out: str | Path | None = None, *, quantize: str | None = None,
               data: ConfigSource | DataSpec | None = None, sentences: int = 1000,
               threads: int = 1) -> Model:
        """The model as an artifact of another runtime, verified against it; opened again as a model.

        Args:
            format: ctranslate2, onnx, huggingface or torch.
            out: folder to write, ``export-NAME-FORMAT`` if not given.
            quantize: none, int8, int16 or bf16; the format's own, if not given.
            data: of whose validation text the first ``sentences`` are verified on; the training's
                own, if not given.

        Raises:
            UserError: the folder is there, the format cannot hold the architecture, or a package is
                missing.
        """
        from scalesearch.export.export import export_training

        folder = Path(out or f"export-{self.folder.resolve().name}-{format}")
        spec = None if data is None else load_data_spec(data)
        export_training(self.folder, folder, format, quantize, spec, sentences, threads,
                        self.selection_reason or str(self.folder))
        return Model(folder, self.selection_reason)

    @cached_property
    def _cached_translator(self) -> Translator:
        from scalesearch.export.translator import Translator

        return Translator(self.folder)

    def _translator(self, beam: int | None, length_penalty: float | None) -> Translator:
        self._cached_translator.decoding = self._cached_translator.resolve_decoding(
            beam, length_penalty)
        return self._cached_translator

    def _best(self, translator: Translator, lines: Sequence[str]) -> list[str]:
        return [best for _, ((best, _), *_) in translator(lines)]

    def _display_parts(self) -> Iterator[Table | str]:
        from scalesearch.train.score_tables import protocol_lines, score_table

        yield f"architecture {self.architecture.id} in {self.folder}" + f": {self.selection_reason}" * bool(self.selection_reason)  # noqa: E501
        if self.result:
            yield score_table(self.result.metrics)
            yield from protocol_lines(self.result)
        elif self.artifact:
            yield from self.artifact.summary_lines()


def _pairs(source: TextSource, target: TextSource) -> tuple[Sequence[str], Sequence[str]]:
    """The lines of two sides.

    Raises UserError where they are not as many, or a file cannot be read.
    """
    from scalesearch.data.sources import read_pairs

    files = [Path(side) for side in (source, target) if isinstance(side, str | Path)]
    if len(files) == 2:
        pairs = read_pairs((files[0], files[1]), "test", False)
        return pairs.source, pairs.target
    if files or len(source) != len(target):  # type: ignore[arg-type]
        description = "a file and a list" if files else f"{len(source)} and {len(target)} lines"  # type: ignore[arg-type]
        raise UserError(
            f"source and target: {description}; give two files, or two lists of as many lines",
            code="unequal-lines")
    return source, target  # type: ignore[return-value]
