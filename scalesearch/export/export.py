"""Export of a trained model: files of a format, verified against the model, with ``artifact.json`` beside them.

A folder appears whole or not at all. ``artifact.json`` says what it is: format, quantization,
versions, bytes by file, verification, and where the model comes from.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.data import DataSpec, Split
from scalesearch.data.prepare import lowercase_pairs
from scalesearch.data.sources import read_sentences
from scalesearch.errors import UserError
from scalesearch.export.base import ArtifactDecoder, ExportFormat
from scalesearch.export.formats import check_exportable, get_format, resolve_quantization
from scalesearch.export.torch_ import TorchDecoder
from scalesearch.files import disk_full_guard, read_json, sync_folder, write_json
from scalesearch.tasks import TASKS, Texts
from scalesearch.train.checkpoint import DATA_FILE, DESCRIPTION_FILES, Checkpoint, read_checkpoint
from scalesearch.train.result import Result, package_versions
from scalesearch.train.scoring.evaluate import DecodingOptions

ARTIFACT_FILE = "artifact.json"
# of the sentences, in float: rounding decides a near tie now and then, an error much more
MAX_DIFFERENT_SHARE = 0.02


@dataclass
class Artifact:
    """What ``artifact.json`` says.

    Attributes:
        versions: of the format's packages and of those that results depend on.
        bytes: of each file of the format, by name.
        verification: see :func:`verify_artifact`; empty for the very weights.
        provenance: architecture, costs under their protocol, scores with signatures, data, seed,
            and a study's words.
    """

    format: str
    quantization: str
    versions: dict[str, str] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    verification: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def summary_lines(self) -> list[str]:
        """What was written and verified, for people."""
        lines = [f"{self.format}, {self.quantization}: {sum(self.bytes.values()):,} bytes in "
                 f"{len(self.bytes)} files"]
        checked = self.verification
        for name in [name for name in ("model", "float", "quantized") if name in checked]:
            scores = ", ".join(f"{key} {value:.2f}"
                               for key, value in checked[name].items() if isinstance(value, float))
            different = checked[name].get("different")
            words = ("" if different is None
                     else f"; {different} of {checked['sentences']:,} sentences differ")
            words += f"; computed in {computed}" if (
                computed := checked[name].get("compute_type")) else ""
            lines.append(f"{name}: {scores or 'no metric'}{words}")
            lines += [f"note: {note}"] if (note := checked[name].get("note")) else []
        return lines


@dataclass(frozen=True)
class VerificationSample:
    """Validation sentences to verify on; ``name`` says which."""

    name: str
    split: Split
    texts: Texts
    spec: DataSpec

    @classmethod
    def from_data(cls, trained: Checkpoint, spec: DataSpec, sentences: int) -> VerificationSample:
        """The first ``sentences`` of the validation text of ``spec``, in the tokens of ``trained``.

        Lines of text alone are read as a source is, at most half a window of each, and the model
        goes on.
        """
        pairs = read_sentences(spec)["validation"]
        count = sentences
        pairs = lowercase_pairs(pairs) if trained.is_lowercase else pairs
        source = pairs.source[:count]
        target = pairs.target[:count]
        most = spec.window // 2 if spec.window else trained.max_source_length
        rows = [row[:most] for row in trained.tokenizer.encode(source or target)]
        name = spec.name or spec.builtin or ", ".join(
            Path(str(part)).name for part in spec.validation)
        return cls(name, Split.from_lists(rows),
                   Texts(source, target, pairs.gold_edits[:count] if pairs.gold_edits else None),
                   spec)


def export_model(trained: Checkpoint, folder: Path, format: ExportFormat, quantization: str,
                 sample: VerificationSample | None, extra_provenance: dict[str, Any] | None = None,
                 threads: int = 1) -> Artifact:
    """Writes ``trained`` as ``format`` into the new folder ``folder``, and verifies it on ``sample``.

    Args:
        sample: None for a format that holds the very weights.
        extra_provenance: more of where it comes from, for ``provenance``.

    Raises:
        UserError: the folder is there, the format cannot hold the architecture, or the artifact
            decodes otherwise.
    """
    check_exportable(format, trained.architecture.block, quantization)
    packages = format.package_versions()
    if folder.exists():
        raise UserError(f"{folder} is there already; choose another folder with --out",
                        code="already-exists")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with disk_full_guard(folder), tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f".{folder.name}.") as place:
        made = Path(place) / "artifact"
        made.mkdir()
        format.write(trained, made, quantization)
        found = write_description(trained, made, format, quantization)
        found.versions = package_versions() | packages
        found.provenance = strip_paths(collect_provenance(trained) | (extra_provenance or {}))
        if sample is not None:
            plain = made
            if quantization != "none":
                plain = Path(place) / "float"
                plain.mkdir()
                format.write(trained, plain, "none")
            found.verification = verify_artifact(
                trained, sample, format.open_decoder(plain, threads),
                format.open_decoder(made, threads) if quantization != "none" else None)
        write_json(made / ARTIFACT_FILE, asdict(found))
        for file in made.rglob("*"):
            sync_file(file)
        os.replace(made, folder)
        sync_folder(folder.parent)
    return found


def export_training(source: Path, folder: Path, format_name: str, quantization: str | None = None,
                    data: DataSpec | None = None, sentences: int = 1000, threads: int = 1,
                    selection_reason: str = "") -> Artifact:
    """Writes the finished training in ``source`` as the format ``format_name`` into the new folder
    ``folder``; verifies it.

    Args:
        quantization: the format's own, if not given.
        data: of whose validation text the first ``sentences`` are verified on; the training's own,
            if not given.
        selection_reason: it was chosen.

    Raises:
        UserError: as :func:`export_model`; or ``source`` is no finished training, or its text is
            not to be had.
    """
    trained = read_checkpoint(source)
    format = get_format(format_name)
    sample = None
    if format.has_decoder:
        spec = data or DataSpec.from_mapping(
            read_json(source / DATA_FILE, dict[str, Any])["spec"]).with_absolute_paths()
        sample = VerificationSample.from_data(trained, spec, sentences)
    return export_model(trained, folder, format, resolve_quantization(format, quantization), sample,
                        {"chosen": selection_reason}, threads)


def write_description(trained: Checkpoint, folder: Path, format: ExportFormat,
                      quantization: str) -> Artifact:
    """Makes the files of a format, written into ``folder``, an artifact that can be opened; says what it is."""
    sizes = {str(file.relative_to(folder)): file.stat().st_size
             for file in sorted(folder.rglob("*")) if file.is_file()}
    found = Artifact(format.name, quantization, bytes=sizes)
    for name in DESCRIPTION_FILES:
        if trained.folder is None or (folder / name).exists():
            continue
        if name == DATA_FILE:
            write_json(folder / name, strip_paths(read_json(trained.folder / name, dict[str, Any])))
        else:
            shutil.copyfile(trained.folder / name, folder / name)
    write_json(folder / ARTIFACT_FILE, asdict(found))
    return found


def verify_artifact(trained: Checkpoint, sample: VerificationSample, float_decoder: ArtifactDecoder,
                    quantized_decoder: ArtifactDecoder | None) -> dict[str, Any]:
    """Greedy translations of an artifact beside the model's own in float32: sentences that differ, and scores.

    Returns:
        the text, the number of its sentences, and for ``model``, ``float`` and
        ``quantized_decoder`` the task's metrics; for
        the latter two ``different``, the sentences of which any token differs, and as far as there
        are any,
        ``compute_type`` and ``accuracy_note`` of the :class:`.ArtifactDecoder`.

    Raises:
        UserError: more than 2 % of the sentences differ in float.
    """
    search = DecodingOptions(1)
    score = TASKS[trained.task].score
    names = {"model": TorchDecoder(trained.model.to(torch.float32)), "float": float_decoder,
             "quantized": quantized_decoder}
    said: dict[str, Any] = {"text": sample.name, "sentences": len(sample.split),
                            "decoding": search.description}
    wanted: Sequence[list[int]] = []
    for name, decoder in names.items():
        if decoder is None:
            continue
        ids = [row[0][0] for row in decoder.decode(sample.split, trained.model, search)]
        wanted = wanted or ids
        lines = [" ".join(text.split()) for text in trained.tokenizer.decode(ids)]
        metrics = {} if score is None else score(lines, sample.texts, sample.spec)
        words = {key: word
                 for key in ("compute_type", "accuracy_note") if (word := getattr(decoder, key))}
        said[name] = metrics | words
        if name != "model":
            said[name]["different"] = sum(a != b for a, b in zip(wanted, ids))
    different = said["float"]["different"]
    if different > MAX_DIFFERENT_SHARE * len(sample.split):
        raise UserError(f"the artifact translates {different} of {len(sample.split)} sentences of "
                        f"{sample.name} otherwise than the model, in float32; nothing was written. "
                        "Please report it", code="export-differs")
    return said


def collect_provenance(trained: Checkpoint) -> dict[str, Any]:
    """Where a model comes from: its architecture, costs, scores, data and seed."""
    architecture = trained.architecture
    folder = trained.folder
    result = folder and Result.read(folder)
    protocol = load_protocol(architecture.protocol).with_vocab(architecture.vocab)
    costs = evaluate_cost(architecture.block, protocol).values
    said = {"architecture": architecture.id, "task": trained.task, "costs": costs,
            "protocol": protocol.to_json()}
    if folder and result:
        data = {key: value
                for key, value in read_json(folder / DATA_FILE, dict[str, Any]).items()
                if key != "counts"}
        said |= {"metrics": result.metrics, "data": data, "seed": result.seed,
                 "trained_with": result.versions}
    return said


def strip_paths(value: Any) -> Any:
    """``value`` with names in place of whole paths, which are of one machine: an artifact goes to others."""
    match value:
        case dict():
            return {key: strip_paths(inside) for key, inside in value.items()}
        case list() | tuple():
            return [strip_paths(inside) for inside in value]
        case str() if value.startswith("/") and Path(value).parent != Path(value):
            return Path(value).name
    return value


def sync_file(file: Path) -> None:
    """Makes a file's content survive a power cut."""
    with suppress(OSError), file.open("rb") as handle:
        os.fsync(handle.fileno())


def open_artifact(folder: Path, threads: int = 1) -> tuple[Checkpoint, ArtifactDecoder]:
    """The artifact in ``folder``: its description with a model that has no weights, and what decodes it.

    Raises:
        UserError: it is damaged, or needs a package that is not installed.
    """
    format = get_format(read_json(folder / ARTIFACT_FILE, Artifact).format)
    format.package_versions()
    described = read_checkpoint(folder, load_weights=False)
    try:
        return described, format.open_decoder(folder, threads)
    except (OSError, RuntimeError, ValueError) as error:  # as runtimes raise them
        raise UserError(f"{folder}: its {format.name} artifact cannot be opened: "
                        f"{str(error).splitlines()[0]}. Export it again",
                        code="file-damaged") from error
