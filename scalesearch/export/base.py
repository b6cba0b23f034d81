"""Export formats by name; interfaces of formats and decoders."""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.seq2seq import EncoderOnly
from scalesearch.data import Split, eval_batches, restore_order
from scalesearch.errors import UserError, option
from scalesearch.library import install_command

if TYPE_CHECKING:
    from scalesearch.blocks.core import Block
    from scalesearch.training.checkpoint import Checkpoint
    from scalesearch.training.recipe import Recipe
    from scalesearch.training.scoring.evaluate import DecodeFunction, DecodingOptions, Translations

# Hypotheses of one sentence, best first: token ids, and a score if the decoder computes one.
RankedHypotheses = list[tuple[list[int], float | None]]

# A format is imported when it is used.
FORMAT_CLASSES = {
    "ctranslate2": "scalesearch.export.ctranslate2_:CTranslate2Format",
    "torch": "scalesearch.export.torch_:TorchFormat",
    "huggingface": "scalesearch.export.huggingface.format:HuggingFaceFormat",
    "onnx": "scalesearch.export.onnx_:OnnxFormat",
}


class ExportFormat(ABC):
    """An export format.

    Attributes:
        name: value of ``--to``.
        quantizations: values of ``--quantize``, the default first; ``none`` is float32.
        opsets: ONNX operator sets that the format can write, the default first.
        opset: the one that it writes.
        packages: packages that are needed to write and to open an artifact.
        runtime: the package that runs an artifact, or empty.
        install_extra: extra of this package that installs them.
        has_decoder: whether an artifact is verified by its translations. If not, it holds the
            unchanged weights.
        holds_two_vocabularies: whether source and target can have a vocabulary each.
    """

    name: str
    quantizations: tuple[str, ...] = ("none",)
    opsets: tuple[int, ...] = ()
    opset: int | None = None
    packages: tuple[str, ...] = ()
    runtime = ""
    install_extra = "export"
    has_decoder = True
    holds_two_vocabularies = True

    def unsupported_reasons(self, block: Block) -> list[str]:
        """List why the format cannot hold an architecture, without its packages."""
        if self.has_decoder and isinstance(block, EncoderOnly):
            return [f"{self.name} holds models that generate text, and this one is encoder-only"]
        return []

    def notes(self, trained: Checkpoint) -> list[str]:
        """List facts about the export of a model that its user should know."""
        return []

    @abstractmethod
    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        """Write the files of the format into the empty ``folder``."""

    @abstractmethod
    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        """Open the files that :meth:`write` wrote."""

    def package_versions(self) -> dict[str, str]:
        """Return the versions of the packages. Raises UserError if a package is missing."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                raise UserError(f"{self.name} needs {package}, which is not installed: "
                                f"{install_command(self.install_extra)}", code="package-missing")
        return {package: version(package) for package in self.packages}


class ArtifactDecoder(ABC):
    """Decoder of an exported model.

    ``source_ids`` are the token ids of each sentence, with EOS at the end and without padding.
    ``max_lengths`` is the largest number of tokens of each translation. A translation contains
    neither BOS nor EOS. PAD, BOS and, unless ``allow_unk``, UNK are never generated.

    Attributes:
        accuracy_note: why translations are less accurate on this machine than on others, or empty.
        version_note: that the artifact was verified with another version of its runtime, or empty.
        compute_type: data type of matrix products on this machine, if the runtime chooses it; else
            empty.
    """

    accuracy_note = version_note = compute_type = ""

    @abstractmethod
    def greedy(self, source_ids: list[list[int]], max_lengths: list[int],
               allow_unk: bool = False) -> list[list[int]]:
        """Translate greedily, as :func:`scalesearch.nn.decode.greedy_search` does."""

    @abstractmethod
    def beam_search(self, source_ids: list[list[int]], max_lengths: list[int],
                    search: DecodingOptions) -> list[RankedHypotheses]:
        """Return the ``search.n_best`` best hypotheses of a beam search per sentence."""

    @abstractmethod
    def decode_fixed_length(self, source_ids: list[list[int]], length: int, beam: int) -> None:
        """Decode exactly ``length`` tokens per sentence, also after EOS, for timing."""

    def language_model(self) -> Any:
        """Return a decoder-only model for :mod:`scalesearch.training.scoring.texts`.

        It has the methods of :class:`.Seq2SeqModel` that a search needs, and is called with source
        and target. None if the artifact cannot do this, as those of earlier versions.
        """
        return None

    def decode(self, split: Split, model: Any, search: DecodingOptions
               ) -> list[list[tuple[list[int], float | None, bool]]]:
        """Return the translations of each sentence, in the order of the split.

        They have token ids, a score, and whether the length limit ended them.

        Args:
            model: the trained model, for its length limits; its weights are not read.
        """
        import torch

        from scalesearch.nn.decode import length_limits

        batches = eval_batches(split, max(1, search.batch_tokens * 2 // (search.beam + 1)))
        hypotheses = []
        for batch in batches:
            model.check_length(batch.source.shape[1])
            source_ids = [row[row > 0].tolist() for row in batch.source]
            source = torch.from_numpy(batch.source)
            max_lengths = length_limits(model, source, search.max_lengths(source)).tolist()
            if search.beam == 1:
                translations = self.greedy(source_ids, max_lengths, search.allow_unk)
                ranked: list[RankedHypotheses] = [[(ids, None)] for ids in translations]
            else:
                ranked = self.beam_search(source_ids, max_lengths, search)
            hypotheses.append([[(ids, score, len(ids) >= limit) for ids, score in row]
                               for row, limit in zip(ranked, max_lengths)])
        return restore_order(batches.indices_by_batch, hypotheses)

    def translate(self, split: Split, trained: Checkpoint,
                  search: DecodingOptions) -> list[Translations]:
        """Return the detokenized translations of each sentence, in the order of the split."""
        from scalesearch.training.scoring.evaluate import decode_rows

        return decode_rows(trained.tokenizer, self.decode(split, trained.model, search))


def get_format(name: str, opset: int | None = None) -> ExportFormat:
    """Return the format ``name``, which writes ``opset`` or its default.

    Raises UserError if the format does not exist, or cannot write the operator set.
    """
    if name not in FORMAT_CLASSES:
        raise UserError(f"format {name} does not exist; available: "
                        f"{', '.join(FORMAT_CLASSES)}", code="unknown-format")
    module, _, class_name = FORMAT_CLASSES[name].partition(":")
    format: ExportFormat = getattr(importlib.import_module(module), class_name)()
    if opset is not None:
        if opset not in format.opsets:
            supported = (", ".join(map(str, sorted(format.opsets)))
                         or "none, as only onnx has opsets")
            raise UserError(f"{option('opset', opset)}: {name} supports {supported}",
                            code="unknown-opset")
        format.opset = opset
    return format


def resolve_quantization(format: ExportFormat, quantization: str | None) -> str:
    """Return the requested quantization, or the default of the format.

    Raises UserError if the format does not have the quantization.
    """
    if quantization not in (None, *format.quantizations):
        supported = ", ".join(format.quantizations)
        raise UserError(f"{option('quantize', quantization)}: {format.name} does not support it; "
                        f"supported: {supported}", help="none is float32",
                        code="unknown-quantization")
    return quantization or format.quantizations[0]


def check_exportable(format: ExportFormat, block: object, quantization: str) -> None:
    """Check that ``format`` supports an architecture.

    Raises UserError with every reason, and the formats that support it.
    """
    resolve_quantization(format, quantization)
    if reasons := format.unsupported_reasons(block):  # type: ignore[arg-type]
        others = [name for name in FORMAT_CLASSES if name != format.name
                  and not get_format(name).unsupported_reasons(block)]  # type: ignore[arg-type]
        listed = "".join(f"\n  {reason}" for reason in reasons)
        raise UserError(f"{option('to', format.name)} does not support this architecture:{listed}\n"
                        f"These formats support it: {', '.join(others)}", code="not-exportable")


# -- scoring with an exported model, if a recipe sets ``decode_with``


def resolve_decoder_format(recipe: Recipe) -> tuple[ExportFormat, str] | None:
    """Return format and quantization of the decoder, or None for the model itself.

    Raises:
        UserError: a package of the format is missing.
    """
    from scalesearch.training.recipe import DECODE_WITH_MODEL

    if recipe.decode_with == DECODE_WITH_MODEL:
        return None
    name, _, quantization = recipe.decode_with.partition("-")
    format = get_format(name)
    try:
        format.package_versions()
    except UserError as error:
        raise UserError(f"decode_with: {error.message}", key="recipe.decode_with",
                        code=error.code) from None
    return format, quantization


def check_decoder(recipe: Recipe, block: Block) -> None:
    """Raise a UserError if the format of the decoder cannot hold an architecture."""
    if decoder_format := resolve_decoder_format(recipe):
        format, quantization = decoder_format
        check_exportable(format, block, quantization)


@contextmanager
def artifact_decoder(folder: Path, name: str) -> Iterator[DecodeFunction]:
    """Yield a function that translates with an export of the model in ``folder``.

    ``name`` is a format and a quantization, such as ``ctranslate2-int8``.
    """
    import torch

    from scalesearch.export.export import temporary_artifact

    format_name, _, quantization = name.partition("-")
    format = get_format(format_name)
    with temporary_artifact(folder, format, quantization) as (trained, artifact_folder):
        decoder = format.open_decoder(artifact_folder, torch.get_num_threads())
        yield lambda split, search: decoder.translate(split, trained, search)
