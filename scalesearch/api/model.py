"""Trained models: train, load, translate, score and export them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.api.architecture import Architecture
from scalesearch.api.base import Displayable, as_subclass, python_error_messages
from scalesearch.api.space import space
from scalesearch.errors import UserError
from scalesearch.files import read_json
from scalesearch.library import ARCHITECTURE_FILE
from scalesearch.spaces import read_space
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.training.input_files import ConfigSource, load_data, load_data_spec, load_recipe

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.api.study import Study
    from scalesearch.data import DataSpec
    from scalesearch.export.export import Artifact
    from scalesearch.export.translator import Translator
    from scalesearch.nn import Seq2SeqModel as Module
    from scalesearch.tasks import Texts
    from scalesearch.training import Recipe, Result
    from scalesearch.training.checkpoint import Checkpoint

TextSource = str | Path | Sequence[str]


@python_error_messages(**{"from": "initial_model"})
def train(architecture: str | Path | Mapping[str, Any] | ModelSpec,
          data: ConfigSource | DataSpec = "builtin",
          recipe: ConfigSource | Recipe = "quick", out: str | Path | None = None, *, seed: int = 1,
          resume: bool = True, report: Callable[[dict[str, Any]], None] | None = None,
          initial_model: str | Path | None = None) -> Model:
    """Train an architecture and score it; the same call resumes an interrupted run.

    Args:
        architecture: an architecture, its file or keys, or the name of a shipped one.
        data: a data file or its keys; `builtin` is the built-in corpus.
        recipe: a preset, a recipe file or its keys, such as ``{"preset": "quick", "steps": 500}``.
        out: folder of the training run; by default ``runs/model-ID``.
        seed: seed of initial weights, batches and dropout.
        resume: resume the run in the folder, or return its result; False refuses such a folder.
        report: callback for progress, in place of the bar on standard error.
        initial_model: folder of a trained model to fine-tune: training starts from its weights,
            with its vocabulary and a new optimizer.

    Raises:
        UserError: an argument is invalid, the folder holds another run, or training failed.
        KeyboardInterrupt: after the run was saved.
    """
    from scalesearch.export.base import artifact_decoder, check_decoder
    from scalesearch.terminal import open_console
    from scalesearch.training.checkpoint import (
        TOKENIZER_FILE,
        check_initial_model,
        read_checkpoint,
    )
    from scalesearch.training.display import training_bar
    from scalesearch.training.hardware import check_device
    from scalesearch.training.run import train as run

    name = architecture
    if not isinstance(architecture, ModelSpec):
        architecture = space(architecture).architecture()
    recipe = load_recipe(recipe)
    folder = Path(out or f"runs/model-{architecture.id}")
    if isinstance(name, str | Path) and initial_model is None:
        check_initial_model(name, folder)
    if not resume and (folder / "result.json").exists():
        raise UserError(f"{folder}: already contains a training run; resume it (resume=True), or "
                        "give another folder", code="training-exists")
    check_decoder(recipe, architecture.block)
    check_device(recipe)
    initial = None if initial_model is None else read_checkpoint(initial_model)
    corpus = load_data(data, recipe, architecture.vocab_sizes,
                       initial and Path(initial_model or "") / TOKENIZER_FILE,
                       architecture.config["model"])
    with training_bar(open_console(stderr=True)) as bar:
        result = run(architecture, corpus, recipe, folder, seed=seed, report=report or bar,
                     resume=resume, open_artifact=artifact_decoder, initial_model=initial)
    if result.state != "complete":
        raise UserError(f"{folder}: {result.reason}", code="training-failed")
    return Model(folder)


@python_error_messages()
def load(folder: str | Path) -> Model | Study:
    """Open the model or the study in a folder.

    Raises:
        UserError: the folder holds neither, or a file of an exported model has changed.
    """
    path = Path(folder)
    if (path / "study.json").is_file():
        from scalesearch.api.study import Study

        return Study(path)
    if any((path / name).is_file() for name in ("artifact.json", "model.safetensors")):
        from scalesearch.training.checkpoint import check_artifact

        check_artifact(path)
        return Model(path)
    raise UserError(f"{folder}: no finished training, artifact or study is here",
                    help="give a folder that `ss.train`, `model.export` or `study.run` has written",
                    code="no-checkpoint")


@dataclass(frozen=True, repr=False)
class Model(Displayable):
    """A finished training run or an exported model; files are read on first use.

    Attributes:
        folder: its folder.
        selection_reason: why it was selected in a study, if it was.
    """

    folder: Path
    selection_reason: str = ""

    @cached_property
    def architecture(self) -> Architecture:
        """Architecture of the model."""
        return as_subclass(Architecture,
                           read_space(self.folder / ARCHITECTURE_FILE).single_architecture())

    @cached_property
    def result(self) -> Result | None:
        """Result of the training run; None for an exported model."""
        from scalesearch.training import Result

        return Result.read(self.folder)

    @cached_property
    def artifact(self) -> Artifact | None:
        """Verification of an exported model; None for a training run."""
        from scalesearch.export.export import ARTIFACT_FILE, Artifact

        file = self.folder / ARTIFACT_FILE
        return read_json(file, Artifact) if file.is_file() else None

    @property
    def metrics(self) -> dict[str, Any]:
        """Scores of the training run, with their signatures."""
        if self.result:
            return self.result.metrics
        return dict(self.artifact.provenance.get("metrics", {})) if self.artifact else {}

    def module(self) -> Module:
        """Load the trained ``nn.Module``, in eval mode on the CPU."""
        from scalesearch.training import read_checkpoint

        model: Module = read_checkpoint(self.folder).model
        return model

    @python_error_messages()
    def translate(self, lines: str | Iterable[str], *, beam: int | None = None,
                  length_penalty: float | None = None) -> list[str]:
        """Translate lines; the translation of an empty line is empty.

        The translation of a classifier is the most probable class.

        Args:
            beam, length_penalty: options of beam search; by default those of the recipe.

        Returns:
            The best translation of each line, in the order of the lines.
        """
        translator = self._translator(beam, length_penalty)
        return translator.best_translations([lines] if isinstance(lines, str) else lines)

    @python_error_messages()
    def score(self, source: TextSource,
              target: TextSource | Sequence[Path] | Sequence[Sequence[str]], *,
              beam: int | None = None, length_penalty: float | None = None,
              resamples: int = 1000) -> dict[str, dict[str, Any]]:
        """Score translations of a text; metrics of translation have 95 % intervals.

        Args:
            source, target: parallel files, or their lines. For several references, ``target`` is a
                list of ``Path`` objects or of lists of lines.
            beam, length_penalty: options of beam search; by default those of the recipe.
            resamples: number of bootstrap samples.

        Returns:
            Metric to ``score``, ``mean``, ``half`` (half-width of the interval) and
            ``signature``; ``difference``, ``difference_half`` and ``p`` are None (see
            ``scalesearch score``). BLEU also has ``brevity_penalty`` and ``length_ratio``.
        """
        from scalesearch.export.translator import score_translations

        translator = self._translator(beam, length_penalty)
        texts = _read_texts(translator, source, target)
        translations = translator.best_translations(texts.source)
        return score_translations([translator], [translations], texts, resamples)[0]

    @python_error_messages()
    def score_text(self, text: TextSource) -> dict[str, Any]:
        """Score a language model on a text.

        Args:
            text: a file, or lines.

        Returns:
            ``loss`` (nats per token), ``perplexity``, ``word_perplexity``, ``bits_per_byte``,
            ``unknown_tokens`` and a signature.
        """
        from scalesearch.data.files import read_lines, select_column
        from scalesearch.training.scoring.texts import score_text

        lines = (select_column(read_lines(Path(text)), Path(text), "text")
                 if isinstance(text, str | Path) else text)
        return score_text(self._read_language_model(), lines)

    @python_error_messages()
    def generate(self, prompt: str = "", tokens: int = 100, *, temperature: float = 1.0,
                 top_k: int | None = None, seed: int = 1) -> str:
        """Continue a text with a language model.

        Args:
            prompt: the text before; a newline starts a new line.
            tokens: number of tokens to generate, with ends of lines.
            temperature: divisor of the logits; 0 selects the most probable token.
            top_k: sample from the most probable tokens only.
            seed: seed of the samples.

        Returns:
            The continuation, without the prompt.
        """
        from scalesearch.training.scoring.texts import continue_text

        return continue_text(self._read_language_model(), prompt, tokens, temperature, top_k,
                             seed).text

    @python_error_messages(to="format")
    def export(self, format: str, out: str | Path | None = None, *, quantize: str | None = None,
               data: ConfigSource | DataSpec | None = None, sentences: int = 1000,
               threads: int = 1, opset: int | None = None) -> Model:
        """Export the model to another runtime and verify it; return the exported model.

        Args:
            format: ctranslate2, onnx, huggingface or torch.
            out: new folder; by default ``export-NAME-FORMAT``.
            quantize: none, int8, int16 or bf16; by default that of the format.
            data: data whose validation text is used to verify; by default those of the training
                run.
            sentences: number of sentences to verify.
            threads: threads of the runtime.
            opset: operator set of ONNX graphs, 18 to 22; by default 20.

        Raises:
            UserError: the folder exists, the format cannot hold the architecture, or a package is
                missing.
        """
        from scalesearch.export.export import export_training

        folder = Path(out or f"export-{self.folder.resolve().name}-{format}")
        spec = None if data is None else load_data_spec(data)
        export_training(self.folder, folder, format, quantize, spec, sentences, threads,
                        self.selection_reason or str(self.folder), opset)
        return Model(folder, self.selection_reason)

    def _read_language_model(self) -> Checkpoint:
        from scalesearch.export.translator import read_language_model

        trained, notes = read_language_model(self.folder)
        for note in notes:
            warnings.warn(f"{self.folder}: {note}", stacklevel=3)
        return trained

    @cached_property
    def _cached_translator(self) -> Translator:
        from scalesearch.export.translator import Translator

        translator = Translator(self.folder)
        for note in translator.notes:
            warnings.warn(f"{self.folder}: {note}", stacklevel=3)
        return translator

    def _translator(self, beam: int | None, length_penalty: float | None) -> Translator:
        self._cached_translator.decoding = self._cached_translator.resolve_decoding(
            beam=beam, length_penalty=length_penalty)
        return self._cached_translator

    def _display_parts(self) -> Iterator[Table | str]:
        from scalesearch.training.display import protocol_lines, score_table

        reason = f": {self.selection_reason}" if self.selection_reason else ""
        yield f"architecture {self.architecture.id} in {self.folder}{reason}"
        if self.result:
            yield score_table(self.result.metrics)
            yield from protocol_lines(self.result)
        elif self.artifact:
            yield from self.artifact.summary_lines()


def _read_texts(translator: Translator, source: TextSource,
                target: TextSource | Sequence[Path] | Sequence[Sequence[str]]) -> Texts:
    """Return the lines of source and references.

    Raises:
        UserError: they have different numbers of lines, or a file cannot be read.
    """
    from scalesearch.data.sources import ParallelText

    references: Any = target if isinstance(target, str | Path) else list(target)
    is_single = isinstance(target, str | Path) or not references or isinstance(references[0], str)
    sides = [source, references] if is_single else [source, *references]
    files = [Path(side) for side in sides if isinstance(side, str | Path)]
    if len(files) == len(sides):
        return translator.read_texts(files[0], files[1:])
    texts = [] if files else [_read_lines(side) for side in sides]
    if len(set(map(len, texts))) != 1:
        description = ("files and lists" if files
                       else " and ".join(str(len(text)) for text in texts) + " lines")
        raise UserError(
            f"source and target: {description}; give files, or lists of as many lines",
            code="unequal-lines")
    lines, first, *others = texts
    return translator.make_texts(ParallelText(lines, first, more_references=others))


def _read_lines(text: Any) -> list[str]:
    lines = list(text) if isinstance(text, Iterable) else [text]
    if not all(isinstance(line, str) for line in lines):
        raise UserError(f"source and target: expected lines of text, found {text!r}",
                        code="bad-value")
    return [line.removesuffix("\n") for line in lines]
