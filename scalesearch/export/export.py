"""Export of a trained model to a folder, verified against the model.

A folder appears only when it is complete. ``artifact.json`` describes it: format, quantization,
versions, bytes and checksum per file, verification and provenance of the model.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.data import DataSpec, Split
from scalesearch.data.prepare import lowercase_pairs
from scalesearch.data.sources import read_sentences
from scalesearch.errors import UserError, option
from scalesearch.export.base import (
    ArtifactDecoder,
    ExportFormat,
    check_exportable,
    get_format,
    resolve_quantization,
)
from scalesearch.export.torch_ import TorchDecoder
from scalesearch.files import disk_full_guard, file_checksum, read_json, sync_folder, write_json
from scalesearch.tasks import TASKS, Texts, format_score
from scalesearch.terminal import format_count
from scalesearch.training.checkpoint import (
    ARTIFACT_FILE,
    DATA_FILE,
    DESCRIPTION_FILES,
    Checkpoint,
    read_checkpoint,
)
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.result import Result, package_versions
from scalesearch.training.scoring.evaluate import decode_rows, resolve_decoding

MODEL_CARD_FILE = "README.md"
# Largest share of sentences that may differ in float32. Rounding decides near ties in a few
# sentences; an error in the export affects many more.
MAX_DIFFERENT_SHARE = 0.02


@dataclass
class Artifact:
    """Content of ``artifact.json``.

    Attributes:
        versions: versions of the packages of the format, and of those that results depend on. The
            artifact was verified with them.
        bytes: size of each file of the format.
        folder_bytes: size of all files, with tokenizer and description, without ``artifact.json``.
        checksums: SHA-256 of all files, except the model card, which may be edited.
        notes: facts about the files that their user should know.
        verification: see :func:`verify_artifact`; empty if the weights are unchanged.
        provenance: architecture, costs under their protocol, scores with signatures, data, seed,
            and why a study selected the model.
    """

    format: str
    quantization: str
    versions: dict[str, str] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    folder_bytes: int = 0
    checksums: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    verification: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def summary_lines(self) -> list[str]:
        """Describe what was written and verified, line by line."""
        lines = [f"{self.format}, {self.quantization}: {sum(self.bytes.values()):,} bytes in "
                 f"{format_count(len(self.bytes), 'file')}; {self.folder_bytes:,} bytes with "
                 "tokenizer and description", *self.notes]
        checked = self.verification
        for name in [name for name in ("model", "float", "quantized") if name in checked]:
            scores = ", ".join(f"{key} {format_score(value, key)}"
                               for key, value in checked[name].items() if isinstance(value, float))
            facts = [scores] if scores else []
            if "different" in checked[name]:
                facts.append(f"{checked[name]['different']} of {checked['sentences']:,} sentences "
                             "differ")
            if checked[name].get("reached_limit"):
                facts.append(f"{checked[name]['reached_limit']} translations ended at the length "
                             "limit")
            if "compute_type" in checked[name]:
                facts.append(f"computed in {checked[name]['compute_type']}")
            lines.append(f"{name}: {'; '.join(facts) or 'no metric'}")
            if "accuracy_note" in checked[name]:
                lines.append(f"note: {checked[name]['accuracy_note']}")
        return lines


@dataclass(frozen=True)
class VerificationSample:
    """Validation sentences for verification; ``name`` is the name of the data."""

    name: str
    split: Split
    texts: Texts
    spec: DataSpec

    @classmethod
    def from_data(cls, trained: Checkpoint, spec: DataSpec, sentences: int) -> VerificationSample:
        """Take the first ``sentences`` of the validation set, tokenized for ``trained``.

        For language modeling, the source is the beginning of each line, at most half a window.
        """
        pairs = read_sentences(spec)["validation"]
        pairs = lowercase_pairs(pairs) if trained.is_lowercase else pairs
        source = pairs.source[:sentences]
        target = pairs.target[:sentences]
        max_length = spec.window // 2 if spec.window else trained.max_source_length
        source_ids = [ids[:max_length] for ids in trained.tokenizer.encode(source or target)]
        name = spec.name or spec.builtin or ", ".join(
            Path(str(part)).name for part in spec.validation)
        gold_edits = pairs.gold_edits[:sentences] if pairs.gold_edits else None
        return cls(name, Split.from_lists(source_ids), Texts(source, target, gold_edits), spec)


def export_model(trained: Checkpoint, folder: Path, format: ExportFormat, quantization: str,
                 sample: VerificationSample | None, extra_provenance: dict[str, Any] | None = None,
                 threads: int = 1) -> Artifact:
    """Export ``trained`` to the new folder ``folder``, and verify it on ``sample``.

    Args:
        sample: None for a format that holds the unchanged weights.
        extra_provenance: additional entries of ``provenance``.

    Raises:
        UserError: the folder exists, the format cannot hold the architecture, or the translations
            of the artifact differ from the model's.
    """
    check_exportable(format, trained.architecture.block, quantization)
    if trained.tokenizer.is_pair and not format.holds_two_vocabularies:
        raise UserError(f"{option('to', format.name)} holds models with one vocabulary, and this "
                        "one has two\nThese formats support it: torch, onnx, ctranslate2",
                        key="target_vocab", code="not-exportable")
    packages = format.package_versions()
    if folder.exists():
        raise UserError(f"{folder} already exists; choose another folder with {option('out')}",
                        code="already-exists")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with disk_full_guard(folder), tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        written = Path(temporary) / "artifact"
        written.mkdir()
        format.write(trained, written, quantization)
        artifact = write_description(trained, written, format, quantization)
        artifact.versions = package_versions() | packages
        artifact.provenance = strip_paths(collect_provenance(trained) | (extra_provenance or {}))
        if sample is not None:
            float_decoder = decoder = format.open_decoder(written, threads)
            if quantization != "none":
                unquantized = Path(temporary) / "float"
                unquantized.mkdir()
                format.write(trained, unquantized, "none")
                float_decoder = format.open_decoder(unquantized, threads)
            artifact.verification = verify_artifact(trained, sample, float_decoder, decoder)
        write_json(written / ARTIFACT_FILE, asdict(artifact))
        for file in written.rglob("*"):  # so that the content survives a power failure
            with suppress(OSError), file.open("rb") as handle:
                os.fsync(handle.fileno())
        os.replace(written, folder)
        sync_folder(folder.parent)
    return artifact


def export_training(source: Path, folder: Path, format_name: str, quantization: str | None = None,
                    data: DataSpec | None = None, sentences: int = 1000, threads: int = 1,
                    selection_reason: str = "", opset: int | None = None) -> Artifact:
    """Export the finished training in ``source`` to the new ``folder``, and verify it.

    Args:
        quantization: default: the default of the format.
        data: data for the verification, on the first ``sentences`` of its validation set; default:
            the data of the training.
        selection_reason: why the model was selected, for ``provenance``.
        opset: see :func:`.base.get_format`.

    Raises:
        UserError: as :func:`export_model`; or ``source`` is not a finished training, or its data
            are not available.
    """
    format = get_format(format_name, opset)
    trained = read_checkpoint(source)
    sample = None
    if format.has_decoder:
        spec = data or DataSpec.from_mapping(
            read_json(source / DATA_FILE, dict[str, Any])["spec"]).with_absolute_paths()
        sample = VerificationSample.from_data(trained, spec, sentences)
    return export_model(trained, folder, format, resolve_quantization(format, quantization), sample,
                        {"chosen": selection_reason}, threads)


def write_description(trained: Checkpoint, folder: Path, format: ExportFormat,
                      quantization: str) -> Artifact:
    """Add the files that are needed to open the exported files in ``folder``."""
    sizes = {str(file.relative_to(folder)): file.stat().st_size
             for file in sorted(folder.rglob("*")) if file.is_file()}
    artifact = Artifact(format.name, quantization, bytes=sizes, notes=format.notes(trained))
    for name in DESCRIPTION_FILES:
        if trained.folder is None or (folder / name).exists():
            continue
        if name == DATA_FILE:
            write_json(folder / name, strip_paths(read_json(trained.folder / name, dict[str, Any])))
        else:
            shutil.copyfile(trained.folder / name, folder / name)
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        artifact.folder_bytes += file.stat().st_size
        if file.name != MODEL_CARD_FILE:
            artifact.checksums[str(file.relative_to(folder))] = file_checksum(file)
    write_json(folder / ARTIFACT_FILE, asdict(artifact))
    return artifact


def verify_artifact(trained: Checkpoint, sample: VerificationSample, float_decoder: ArtifactDecoder,
                    quantized_decoder: ArtifactDecoder) -> dict[str, Any]:
    """Compare greedy translations of an artifact with those of the model in float32.

    Args:
        quantized_decoder: decoder of the quantized weights; ``float_decoder`` if they are not.

    Returns:
        ``text``: name of the data; ``sentences``: their number; ``decoding``: the search; and for
        ``model``, ``float`` and ``quantized`` the metrics of the task. If the task generates no
        text, only ``model`` has metrics: those of the training run. ``float`` and ``quantized``
        also have ``different``, the number of sentences with any different token, and
        ``compute_type`` and ``accuracy_note`` of the :class:`.ArtifactDecoder` if they are set.
        ``reached_limit`` is the number of translations that the length limit ended.

    Raises:
        UserError: more than 2 % of the sentences differ in float32.
    """
    search = resolve_decoding(trained.recipe, trained.max_length_a, beam=1)
    task = TASKS[trained.task]
    score = task.score
    result = Result.read(trained.folder) if trained.folder and score is None else None
    decoders = {"model": TorchDecoder(trained.model.to(torch.float32)), "float": float_decoder}
    if quantized_decoder is not float_decoder:
        decoders["quantized"] = quantized_decoder
    verification: dict[str, Any] = {"text": sample.name, "sentences": len(sample.split),
                                    "decoding": search.description}
    expected: Sequence[list[int]] = []
    for name, decoder in decoders.items():
        rows = decoder.decode(sample.split, trained.model, search)
        ids = [row[0][0] for row in rows]
        expected = expected or ids
        lines = [best.text for best, *_ in decode_rows(trained.tokenizer, rows)]
        metrics = {}
        if score is not None:
            metrics = {**score(lines, sample.texts, sample.spec),
                       "reached_limit": sum(row[0][2] for row in rows)}
        elif result is not None and name == "model":
            metrics = {key: value for key, value in result.metrics.items() if key in task.metrics}
        compute_type = decoder.compute_type or ("" if name == "quantized" else "float32")
        properties = {"compute_type": compute_type, "accuracy_note": decoder.accuracy_note}
        verification[name] = metrics | {key: value for key, value in properties.items() if value}
        if name != "model":
            verification[name]["different"] = sum(a != b for a, b in zip(expected, ids))
    different = verification["float"]["different"]
    if different > MAX_DIFFERENT_SHARE * len(sample.split):
        raise UserError(f"the artifact translates {different} of {len(sample.split)} sentences of "
                        f"{sample.name} differently from the model in float32; nothing was "
                        "written. Please report this", code="export-differs")
    if Hardware.from_recipe(Recipe(steps=1, precision=trained.recipe.precision)).uses_bf16:
        verification["model"]["accuracy_note"] = (
            "translate and score run the trained model in bf16 on this machine (recipe: "
            f"precision: {trained.recipe.precision}), so more sentences can differ there")
    return verification


def collect_provenance(trained: Checkpoint) -> dict[str, Any]:
    """Collect the provenance of a model: architecture, costs, scores, data and seed."""
    architecture = trained.architecture
    protocol = load_protocol(architecture.protocol).with_vocab(architecture.vocab)
    provenance = {"architecture": architecture.id, "task": trained.task,
                  "costs": evaluate_cost(architecture.block, protocol).values,
                  "protocol": protocol.facts}
    if trained.folder and (result := Result.read(trained.folder)):
        data = read_json(trained.folder / DATA_FILE, dict[str, Any])
        data.pop("counts", None)
        provenance |= {"metrics": result.metrics, "data": data, "seed": result.seed,
                       "trained_with": result.versions}
    return provenance


def strip_paths(value: Any) -> Any:
    """Replace absolute paths in ``value`` by file names, which are valid anywhere."""
    match value:
        case dict():
            return {key: strip_paths(inside) for key, inside in value.items()}
        case list() | tuple():
            return [strip_paths(inside) for inside in value]
        case str() if value.startswith("/") and Path(value).parent != Path(value):
            return Path(value).name
    return value


@contextmanager
def temporary_artifact(folder: Path, format: ExportFormat,
                       quantization: str) -> Iterator[tuple[Checkpoint, Path]]:
    """Export the training in ``folder`` to a temporary folder, without verification.

    Yields:
        The trained model, and the folder of the artifact.
    """
    trained = read_checkpoint(folder)
    check_exportable(format, trained.architecture.block, quantization)
    format.package_versions()
    with tempfile.TemporaryDirectory() as temporary:
        format.write(trained, Path(temporary), quantization)
        write_description(trained, Path(temporary), format, quantization)
        yield trained, Path(temporary)


def open_artifact(folder: Path, threads: int = 1) -> tuple[Checkpoint, ArtifactDecoder]:
    """Open the artifact in ``folder``.

    Returns:
        Its description, with a model that has no weights, and its decoder.

    Raises:
        UserError: the artifact is damaged, or needs a package that is not installed.
    """
    artifact = read_json(folder / ARTIFACT_FILE, Artifact)
    format = get_format(artifact.format)
    installed = format.package_versions().get(format.runtime)
    described = read_checkpoint(folder, load_weights=False)
    verified = artifact.versions.get(format.runtime)
    version_note = "" if verified in (None, installed) else (
        f"verified with {format.runtime} {verified}, but {installed} is installed, with which "
        "translations may differ; export the model again, or install the earlier version")
    try:
        decoder = format.open_decoder(folder, threads)
    except UserError:
        raise
    except Exception as error:  # the exceptions of runtimes have no other common base class
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"{folder}: the {format.name} artifact cannot be opened: {reason}. Export "
                        "it again", help=version_note or None, code="file-damaged") from error
    decoder.version_note = version_note
    return described, decoder
