"""Folder of a training: its description, the state to resume from, the trained model.

::

    architecture.yaml  tokenizer.model  recipe.json  data.json     description
    checkpoint.pt  snapshots/                                      state to resume from; deleted at the end
    model.safetensors  result.json                                 trained model and result
"""

import hashlib
import io
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from scalesearch.data import Corpus, DataSpec, Tokenizer
from scalesearch.errors import UserError
from scalesearch.files import read_json, read_regular, try_read_json, write_atomic, write_json, write_text
from scalesearch.nn import build_model
from scalesearch.space.binding.config_reader import flatten
from scalesearch.space.schema.cost_names import OWN_VOCABULARY
from scalesearch.train.hardware import TrainingFailedError, check_memory
from scalesearch.train.recipe import RESUME_FREE_KEYS, Recipe, fill_defaults
from scalesearch.train.result import Result
from scalesearch.train.updates.averaging import read_weights

STATE_FORMAT_VERSION = 6
STATE_FILE = "checkpoint.pt"
WEIGHTS_FILE = "model.safetensors"
ARCHITECTURE_FILE = "architecture.yaml"
TOKENIZER_FILE = "tokenizer.model"
RECIPE_FILE = "recipe.json"
DATA_FILE = "data.json"
# keys of the data that its hash has not; older states have not these
UNHASHED_DATA_KEYS = ("task", "tokenized", "comet")
DESCRIPTION_FILES = (ARCHITECTURE_FILE, TOKENIZER_FILE, RECIPE_FILE, DATA_FILE)


def run_identity(architecture: Any, corpus: Corpus, recipe: Recipe, seed: int,
                 processes: int = 1) -> dict[str, Any]:
    """Settings that a resumed run must share."""
    fields = {key: value for key, value in recipe.to_json().items() if key not in RESUME_FREE_KEYS}
    read_as = {key: getattr(corpus.spec, key) for key in UNHASHED_DATA_KEYS}
    return {"architecture": architecture.id, "data": corpus.content_hash, "seed": seed,
            "processes": processes, **read_as, **fields}


def finished_run_identity(result: Result, directory: Path) -> dict[str, Any]:
    """The :func:`run_identity` of a finished training, as far as its folder tells."""
    spec = (try_read_json(directory / DATA_FILE, dict[str, Any]) or {}).get("spec", {})
    return {"architecture": result.architecture_id, "data": result.corpus_hash, "seed": result.seed,
            "processes": result.processes,
            **{key: spec[key] for key in UNHASHED_DATA_KEYS if key in spec}, **result.recipe}


def check_identity(stored: Mapping[str, Any], expected: Mapping[str, Any], directory: Path) -> None:
    """Checks that a training to be resumed has the same settings.

    Raises:
        UserError: naming those that differ.
    """
    before = dict(flatten(fill_defaults(stored)))
    differ = [f"{key} was {before.get(key)!r} and is now {value!r}"
              for key, value in flatten(expected)
              if before.get(key) != value and (key in before or key not in UNHASHED_DATA_KEYS)]
    if differ:
        raise UserError(f"{directory}: holds another training: {'; '.join(differ)}. "
                        "Give the same settings to go on, or another folder", code="other-training")


def write_description(directory: Path, architecture: Any, corpus: Corpus, recipe: Recipe) -> None:
    """Writes the description of a run; an existing architecture file stays."""
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / ARCHITECTURE_FILE).exists():
        protocol = {**architecture.description,
                    "vocab": OWN_VOCABULARY if architecture.vocab else corpus.tokenizer.vocab_size}
        write_text(directory / ARCHITECTURE_FILE,
                   replace(architecture, protocol=protocol).to_yaml())
    write_atomic(directory / TOKENIZER_FILE, lambda file: file.write(corpus.tokenizer.model_bytes))
    write_json(directory / RECIPE_FILE, recipe.to_json())
    write_json(directory / DATA_FILE, corpus.to_json())


def save_state(directory: Path, state: Mapping[str, Any]) -> None:
    """Writes a run's state atomically, behind its checksum.

    Of tensors and plain values, so reading runs no code.
    """
    saved = io.BytesIO()
    torch.save(dict(state), saved)
    write_atomic(
        directory / STATE_FILE,
        lambda file: file.writelines((_checkpoint_header(saved.getbuffer()), saved.getbuffer())))


def _checkpoint_header(content: bytes | memoryview) -> bytes:
    """First line of a checkpoint: format and checksum."""
    return (f"scalesearch checkpoint {STATE_FORMAT_VERSION} "
            f"{hashlib.blake2b(content, digest_size=16).hexdigest()}\n".encode())


def load_state(directory: Path) -> dict[str, Any] | None:
    """Reads the state in ``directory``, onto the CPU; None if there is none.

    Raises:
        UserError: the file is not as this version wrote it.
    """
    file = directory / STATE_FILE
    if not file.exists():
        return None
    head, _, content = read_regular(file).partition(b"\n")
    if head + b"\n" != _checkpoint_header(content):
        raise UserError(f"{file}: damaged, or not a checkpoint of this version. Delete it to train "
                        "from the start", code="not-a-checkpoint")
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def get_random_state() -> dict[str, Any]:
    """States of the random number generators of PyTorch (CPU and GPUs), NumPy and Python."""
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global one is what libraries draw from
    return {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all(),
            "numpy": [name, keys.tolist(), *rest], "python": random.getstate()}


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restores the random number generators."""
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([item.cpu() for item in state["cuda"]])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))  # noqa: NPY002 - as above
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


@dataclass
class Checkpoint:
    """Trained model with what it takes to use it.

    Attributes:
        is_lowercase: it was trained on lower-cased text.
        is_tokenized: its text has words apart by blanks.
        max_source_length: of source sentences in training, in tokens.
        task: that it was trained for.
        folder: that it was read from.
    """

    model: Any
    tokenizer: Tokenizer
    architecture: Any
    is_lowercase: bool
    max_source_length: int
    recipe: Recipe
    task: str
    folder: Path | None = None
    is_tokenized: bool = False


def _describe_folder(folder: Path, missing: Sequence[str]) -> str:
    """What ``folder`` is, where it is no finished training."""
    if not folder.is_dir():
        return "there is no such folder"
    if (folder / "study.json").is_file():
        trials = sorted((folder / "trials").glob(f"*/{WEIGHTS_FILE}"))
        return ("this is a study. Name a trial of "
                f"it{f', such as {trials[0].parent}' if trials else ''}")
    if (folder / "artifact.json").is_file():
        return "this is an artifact. Name the training that it was made from"
    unfinished = ". It is a training that is not finished; go on with --resume" * (
        folder / STATE_FILE).exists()
    return f"{', '.join(missing)} missing{unfinished}"


def read_checkpoint(directory: Path | str, load_weights: bool = True) -> Checkpoint:
    """Reads the finished model in ``directory``, in eval mode on the CPU; without ``load_weights`` on the meta device.

    Raises:
        UserError: the folder is not a finished training.
    """
    from scalesearch.space import read_space

    folder = Path(directory)
    missing = [name
               for name in (*DESCRIPTION_FILES, *[WEIGHTS_FILE] * load_weights)
               if not (folder / name).is_file()]
    if missing:
        raise UserError(f"{folder}: no checkpoint: {_describe_folder(folder, missing)}",
                        code="no-checkpoint")
    architecture = read_space(folder / ARCHITECTURE_FILE).single_architecture()
    tokenizer = Tokenizer.from_file(folder / TOKENIZER_FILE)
    spec = DataSpec.from_mapping(read_json(folder / DATA_FILE, _DataFile)["spec"])
    recipe = Recipe.from_mapping(read_json(folder / RECIPE_FILE, dict[str, Any]))
    block = architecture.block
    vocab = tokenizer.vocab_size
    model = _load_model(folder, block, vocab) if load_weights else build_model(
        block, vocab=vocab, device="meta")
    return Checkpoint(model.eval(), tokenizer, architecture, spec.lowercase, spec.max_length,
                      recipe, spec.task, folder, spec.tokenized)


def read_ensemble(folders: Sequence[Path | str]) -> Checkpoint:
    """Reads several finished models as one that gives the mean of their probabilities; all else is the first's.

    Raises:
        UserError: one is not a finished training, or its vocabulary, task or case is not the
            first's.
    """
    from scalesearch.nn.ensemble import Ensemble

    first, *others = members = [read_checkpoint(folder) for folder in folders]
    for other in others:
        alike = "tokenizer", "task", "lowercase"
        differing = [name for name in alike if getattr(other, name) != getattr(first, name)]
        if differing:
            raise UserError(f"{other.folder}: its {' and its '.join(differing)} differ from those "
                            f"of {first.folder}: they cannot translate together. Name models that "
                            "were trained on the same data and vocab", code="models-incompatible")
    return replace(first,
                   model=Ensemble([member.model for member in members]).eval()) if others else first


class _DataFile(TypedDict):
    spec: dict[str, Any]


def _load_model(folder: Path, block: Any, vocab: int) -> Any:
    """The model with the weights in ``folder``, which are counted before anything is built.

    Raises:
        UserError: they are damaged, not finite, or of another architecture.
    """
    weights = read_weights(folder / WEIGHTS_FILE)
    held = sum(weight.numel() for weight in weights.values())
    try:
        wanted = check_memory(block, vocab)
        if held != wanted:
            raise TrainingFailedError(f"it has {wanted:,} weights, and {WEIGHTS_FILE} holds "
                                      f"{held:,}")
        model = build_model(block, vocab=vocab)
        model.load_state_dict(weights)
    except (TrainingFailedError, RuntimeError) as error:
        raise UserError(f"{folder / ARCHITECTURE_FILE}: not the architecture that was trained: "
                        f"{str(error).splitlines()[-1].strip()}", code="other-weights") from None
    if endless := [name for name, weight in weights.items() if not torch.isfinite(weight).all()]:
        raise UserError(f"{folder / WEIGHTS_FILE}: not every weight is a finite number "
                        f"({endless[0]}): its training diverged", code="weights-not-finite")
    return model
