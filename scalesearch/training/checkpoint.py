"""Folder of a training run: description, state to resume from, trained model.

::

    architecture.yaml  tokenizer.model  recipe.json  data.json     description checkpoint.pt
    snapshots/                                      state to resume from; deleted at the end
    model.safetensors  result.json                                 trained model and result
"""

import hashlib
import io
import pickle
import random
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch

from scalesearch.blocks.core import Block
from scalesearch.data import Corpus, DataSpec, Tokenizer
from scalesearch.errors import UserError, option
from scalesearch.files import (
    file_checksum,
    flatten,
    read_json,
    read_regular,
    try_read_json,
    write_atomic,
    write_json,
    write_text,
)
from scalesearch.library import ARCHITECTURE_FILE
from scalesearch.lowering import LENGTH_FACTOR
from scalesearch.nn import build_model
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from scalesearch.training.hardware import TrainingFailedError, check_memory
from scalesearch.training.recipe import RESUME_FREE_KEYS, Recipe, fill_defaults
from scalesearch.training.result import RESULT_FILE, Result
from scalesearch.training.updates.averaging import read_weights

STATE_FORMAT_VERSION = 8
STATE_FILE = "checkpoint.pt"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.model"
RECIPE_FILE = "recipe.json"
ARTIFACT_FILE = "artifact.json"  # of an exported model
EXPORTED_FILES = ("config.json", "decoder.onnx")  # of formats other than `torch`
DATA_FILE = "data.json"
# not in the corpus hash; missing in old checkpoints
UNHASHED_DATA_KEYS = ("task", "tokenized", "tokenize", "comet")
DESCRIPTION_FILES = (ARCHITECTURE_FILE, TOKENIZER_FILE, RECIPE_FILE, DATA_FILE)


def run_identity(architecture: ModelSpec, corpus: Corpus, recipe: Recipe, seed: int,
                 initial_weights: str | None = None) -> dict[str, Any]:
    """Return the settings that must not change when a run is resumed.

    ``initial_weights`` is a hash of the weights that training starts from, if they are trained.
    """
    recipe_keys = {key: value
                   for key, value in recipe.model_dump().items() if key not in RESUME_FREE_KEYS}
    data_keys = {key: getattr(corpus.spec, key) for key in UNHASHED_DATA_KEYS}
    return {"architecture": architecture.id, "data": corpus.content_hash, "seed": seed,
            "processes": Result.processes, "initial_weights": initial_weights, **data_keys,
            **recipe_keys}


def finished_run_identity(result: Result, directory: Path) -> dict[str, Any]:
    """Return the :func:`run_identity` of a finished run, as far as it is stored."""
    spec = (try_read_json(directory / DATA_FILE, dict[str, Any]) or {}).get("spec", {})
    data_keys = {key: spec[key] for key in UNHASHED_DATA_KEYS if key in spec}
    return {"architecture": result.architecture_id, "data": result.corpus_hash, "seed": result.seed,
            "processes": result.processes,
            "initial_weights": result.initial_model.get("weights"), **data_keys, **result.recipe}


def check_identity(stored: Mapping[str, Any], expected: Mapping[str, Any], directory: Path) -> None:
    """Check that a run to be resumed has the same settings.

    Raises:
        UserError: settings differ; the message lists them.
    """
    before = dict(flatten(fill_defaults(stored)))
    differences = [f"{key} was {before.get(key)!r} and is now {value!r}"
                   for key, value in flatten(expected)
                   if before.get(key) != value and (key in before or key not in UNHASHED_DATA_KEYS)]
    if differences:
        raise UserError(f"{directory}: holds another training run: {'; '.join(differences)}. "
                        "Use the same settings to resume, or another folder", code="other-training")


def check_initial_model(architecture: Path | str, directory: Path) -> None:
    """Check that an architecture to be trained is not the folder of a trained model.

    The folder of the run itself is allowed: its result is returned.

    Raises:
        UserError: it is, so its weights might be meant.
    """
    folder = Path(architecture)
    if (folder / WEIGHTS_FILE).is_file() and folder.resolve() != directory.resolve():
        raise UserError(f"{folder}: this is a trained model, and its weights would not be used",
                        help=f"continue from its weights with {option('from', folder)}, or train "
                        f"its architecture from new weights: {folder / ARCHITECTURE_FILE}",
                        code="weights-unused")


def hash_weights(folder: Path) -> str:
    """Hash the weights of a finished training run."""
    return hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()[:16]


def write_description(directory: Path, architecture: ModelSpec, corpus: Corpus,
                      recipe: Recipe) -> None:
    """Write the description of a run; an existing architecture file is kept."""
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / ARCHITECTURE_FILE).exists():
        vocab = OWN_VOCABULARY if architecture.vocab else corpus.tokenizer.vocab_size
        protocol = {**architecture.protocol, "vocab": vocab}
        write_text(directory / ARCHITECTURE_FILE,
                   replace(architecture, protocol=protocol).to_yaml())
    write_atomic(directory / TOKENIZER_FILE, lambda file: file.write(corpus.tokenizer.model_bytes))
    write_json(directory / RECIPE_FILE, recipe.model_dump())
    write_json(directory / DATA_FILE, asdict(corpus.facts))


def save_state(directory: Path, state: Mapping[str, Any]) -> None:
    """Write the state of a run atomically, after its checksum.

    The state holds only tensors and plain values, so reading it runs no code.
    """
    saved = io.BytesIO()
    torch.save(dict(state), saved)
    content = saved.getbuffer()
    write_atomic(directory / STATE_FILE,
                 lambda file: file.writelines((_checkpoint_header(content), content)))


def _checkpoint_header(content: bytes | memoryview) -> bytes:
    """Return the first line of a checkpoint: format version and checksum."""
    checksum = hashlib.blake2b(content, digest_size=16).hexdigest()
    return f"scalesearch checkpoint {STATE_FORMAT_VERSION} {checksum}\n".encode()


def load_state(directory: Path) -> dict[str, Any] | None:
    """Read the state in ``directory`` to the CPU; None if it does not exist.

    Raises:
        UserError: the file is damaged, or was written by another version.
    """
    file = directory / STATE_FILE
    if not file.exists():
        return None
    header, _, content = read_regular(file).partition(b"\n")
    try:
        if header + b"\n" != _checkpoint_header(content):
            raise ValueError("wrong version or checksum")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # torch.save does not compress; an archive that does could need any amount of memory
            if sum(entry.file_size for entry in archive.infolist()) > len(content):
                raise ValueError("compressed")
        state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu",
                                           weights_only=True)
    except (ValueError, RuntimeError, zipfile.BadZipFile, pickle.UnpicklingError):
        raise UserError(f"{file}: damaged, or not a checkpoint of this version. Delete it to train "
                        "from the start", code="not-a-checkpoint") from None
    return state


def get_random_state() -> dict[str, Any]:
    """Return the states of the generators of PyTorch, NumPy and Python."""
    # Libraries sample from NumPy's global generator.
    state: Any = np.random.get_state(legacy=True)  # noqa: NPY002
    name, keys, *others = state
    return {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all(),
            "numpy": [name, keys.tolist(), *others], "python": random.getstate()}


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore the result of :func:`get_random_state`."""
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([item.cpu() for item in state["cuda"]])
    name, keys, *others = state["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *others))  # noqa: NPY002
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


@dataclass
class Checkpoint:
    """Trained model with everything that is needed to use it.

    Attributes:
        spec: the data that it was trained on.
        folder: the folder that it was read from.
        max_length_a: factor of the length limit, learned from the training text.
        classes: names of the classes of a classifier, in the order of its logits.
    """

    model: Any
    tokenizer: Tokenizer
    architecture: ModelSpec
    spec: DataSpec
    recipe: Recipe
    folder: Path | None = None
    max_length_a: float = LENGTH_FACTOR
    classes: Sequence[str] = ()

    @property
    def is_lowercase(self) -> bool:
        """Whether it was trained on lower-cased text."""
        return self.spec.lowercase

    @property
    def max_source_length(self) -> int:
        """Maximum length of source sentences in training, in tokens."""
        return self.spec.max_length

    @property
    def task(self) -> str:
        """The task that it was trained for."""
        return self.spec.task


def read_checkpoint(directory: Path | str, load_weights: bool = True) -> Checkpoint:
    """Read the finished model in ``directory``, in eval mode.

    The model is on the CPU; without ``load_weights``, on the meta device.

    Raises:
        UserError: the folder is not a finished training run, or an exported model whose files
            changed.
    """
    from scalesearch.spaces import read_space

    folder = Path(directory)
    check_artifact(folder)
    needed = (*DESCRIPTION_FILES, WEIGHTS_FILE) if load_weights else DESCRIPTION_FILES
    missing = [name for name in needed if not (folder / name).is_file()]
    has_runtime_files = any((folder / name).is_file() for name in EXPORTED_FILES)
    has_artifact_file = (folder / ARTIFACT_FILE).is_file()
    if missing in ([], [WEIGHTS_FILE]) and has_runtime_files and not has_artifact_file:
        raise UserError(f"{folder}: {ARTIFACT_FILE} of this exported model is missing. Export the "
                        "model again", code="no-checkpoint")
    # The weights in a folder for transformers have other names.
    if missing or (load_weights and has_runtime_files and has_artifact_file):
        if not folder.is_dir():
            reason = "the folder does not exist"
        elif (folder / "study.json").is_file():
            trials = sorted((folder / "trials").glob(f"*/{WEIGHTS_FILE}"))
            example = f", such as {trials[0].parent}" if trials else ""
            reason = f"this is a study. Name one of its trials{example}"
        elif has_artifact_file:
            reason = ("this is an exported model (artifact). Name the training run that it was "
                      "made from")
        else:
            reason = f"{', '.join(missing)} missing"
            if (folder / STATE_FILE).exists():
                reason += f". The training run is not finished; continue it with {option('resume')}"
        raise UserError(f"{folder}: no checkpoint: {reason}", code="no-checkpoint")
    architecture = read_space(folder / ARCHITECTURE_FILE).single_architecture()
    tokenizer = Tokenizer.from_file(folder / TOKENIZER_FILE)
    data = read_json(folder / DATA_FILE, _DataFile)
    spec = DataSpec.from_mapping(data["spec"])
    recipe = Recipe.from_mapping(read_json(folder / RECIPE_FILE, dict[str, Any]))
    if load_weights:
        model = _load_model(folder, architecture.block, tokenizer.vocab_size)
    else:
        model = build_model(architecture.block, vocab=tokenizer.vocab_size, device="meta")
    return Checkpoint(model.eval(), tokenizer, architecture, spec, recipe, folder,
                      data.get("max_length_a", LENGTH_FACTOR),
                      list(data.get("counts", {}).get("classes", {})))


def is_runtime_artifact(folder: Path) -> bool:
    """Whether ``folder`` holds an exported model of a runtime.

    The format ``torch`` is a copy of the training folder, which has a result.
    """
    return (folder / ARTIFACT_FILE).is_file() and not (folder / RESULT_FILE).is_file()


def check_artifact(folder: Path) -> None:
    """Check that the files of an exported model are unchanged, if ``folder`` holds one.

    Raises:
        UserError: a file was changed, or cannot be read.
    """
    if not (folder / ARTIFACT_FILE).is_file():
        return
    checksums = read_json(folder / ARTIFACT_FILE, _ArtifactFile).get("checksums", {})
    for name, checksum in checksums.items():
        try:
            change = None if file_checksum(folder / name) == checksum else "was changed"
        except OSError as error:
            change = f"cannot be read ({error.strerror})"
        if change:
            raise UserError(f"{folder / name}: {change} after the export. Restore the file, or "
                            "export the model again", code="file-damaged")


def read_ensemble(folders: Sequence[Path | str]) -> Checkpoint:
    """Read finished models as an ensemble, which averages their probabilities.

    All other attributes are those of the first model.

    Raises:
        UserError: a folder is not a finished training run, or its vocabulary, task or case differs
            from the first.
    """
    from scalesearch.nn.ensemble import Ensemble

    members = [read_checkpoint(folder) for folder in folders]
    first = members[0]
    for member in members[1:]:
        attributes = {"tokenizer": "tokenizer", "task": "task", "is_lowercase": "lowercase"}
        differing = [label
                     for name, label in attributes.items()
                     if getattr(member, name) != getattr(first, name)]
        if differing:
            raise UserError(f"{member.folder}: its {' and its '.join(differing)} differ from those "
                            f"of {first.folder}: they cannot translate together. Name models that "
                            "were trained on the same data and vocab", code="models-incompatible")
    if len(members) == 1:
        return first
    return replace(first, model=Ensemble([member.model for member in members]).eval())


class _DataFile(TypedDict):
    spec: dict[str, Any]
    max_length_a: NotRequired[float]  # missing in runs of earlier versions
    counts: NotRequired[dict[str, dict[str, Any]]]


class _ArtifactFile(TypedDict):
    checksums: NotRequired[dict[str, str]]


def _load_model(folder: Path, block: Block, vocab: int) -> Any:
    """Load the model in ``folder``; the number of weights is checked first.

    Raises:
        UserError: the weights are damaged, not finite, or belong to another architecture.
    """
    weights = read_weights(folder / WEIGHTS_FILE)
    n_stored = sum(weight.numel() for weight in weights.values())
    try:
        n_weights = check_memory(block, vocab)
        if n_stored != n_weights:
            raise TrainingFailedError(f"it has {n_weights:,} weights, and {WEIGHTS_FILE} holds "
                                      f"{n_stored:,}")
        model = build_model(block, vocab=vocab)
        model.load_state_dict(weights)
    except (TrainingFailedError, RuntimeError) as error:
        raise UserError(f"{folder / ARCHITECTURE_FILE}: not the architecture that was trained: "
                        f"{str(error).splitlines()[-1].strip()}", code="other-weights") from None
    not_finite = [name for name, weight in weights.items() if not torch.isfinite(weight).all()]
    if not_finite:
        raise UserError(f"{folder / WEIGHTS_FILE}: not all weights are finite ({not_finite[0]}): "
                        "the training run diverged", code="weights-not-finite")
    return model
