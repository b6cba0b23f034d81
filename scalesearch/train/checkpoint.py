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
from scalesearch.files import peek_json, read_json, read_regular, write_atomic, write_json, write_text
from scalesearch.nn import build
from scalesearch.space.binding.constants import flattened
from scalesearch.space.schema.cost_names import OWN
from scalesearch.train.hardware import TrainingFailed, require_memory
from scalesearch.train.recipe import FREE, Recipe, with_defaults
from scalesearch.train.result import Result
from scalesearch.train.updates.averaging import read_weights

FORMAT = 6
STATE, WEIGHTS = "checkpoint.pt", "model.safetensors"
ARCHITECTURE, TOKENIZER, RECIPE, DATA = "architecture.yaml", "tokenizer.model", "recipe.json", "data.json"
READ_AS = ("task", "tokenised", "comet")  # keys of the data that its hash has not; older states have not these
DESCRIPTION = (ARCHITECTURE, TOKENIZER, RECIPE, DATA)


def identity(architecture: Any, corpus: Corpus, recipe: Recipe, seed: int, processes: int = 1) -> dict[str, Any]:
    """Settings that a resumed run must share."""
    fields = {key: value for key, value in recipe.to_json().items() if key not in FREE}
    read_as = {key: getattr(corpus.spec, key) for key in READ_AS}
    return {"architecture": architecture.id, "data": corpus.hash, "seed": seed, "processes": processes, **read_as,
            **fields}


def identity_of(done: Result, directory: Path) -> dict[str, Any]:
    """The :func:`identity` of a finished training, as far as its folder tells."""
    spec = (peek_json(directory / DATA, dict[str, Any]) or {}).get("spec", {})
    return {"architecture": done.architecture_id, "data": done.corpus, "seed": done.seed, "processes": done.processes,
            **{key: spec[key] for key in READ_AS if key in spec}, **done.recipe}


def check_identity(stored: Mapping[str, Any], wanted: Mapping[str, Any], directory: Path) -> None:
    """Checks that a training to be resumed has the same settings.

    Raises:
        UserError: naming those that differ.
    """
    before = dict(flattened(with_defaults(stored)))
    differ = [f"{key} was {before.get(key)!r} and is now {value!r}" for key, value in flattened(wanted)
              if before.get(key) != value and (key in before or key not in READ_AS)]
    if differ:
        raise UserError(f"{directory}: holds another training: {'; '.join(differ)}. "
                        "Give the same settings to go on, or another folder", code="other-training")


def describe(directory: Path, architecture: Any, corpus: Corpus, recipe: Recipe) -> None:
    """Writes the description of a run; an existing architecture file stays."""
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / ARCHITECTURE).exists():
        protocol = {**architecture.protocol, "vocab": OWN if architecture.vocab else corpus.tokenizer.vocab_size}
        write_text(directory / ARCHITECTURE, replace(architecture, protocol=protocol).to_yaml())
    write_atomic(directory / TOKENIZER, lambda file: file.write(corpus.tokenizer.bytes))
    write_json(directory / RECIPE, recipe.to_json())
    write_json(directory / DATA, corpus.to_json())


def save_state(directory: Path, state: Mapping[str, Any]) -> None:
    """Writes a run's state atomically, behind its checksum. Of tensors and plain values, so reading runs no code."""
    saved = io.BytesIO()
    torch.save(dict(state), saved)
    write_atomic(directory / STATE, lambda file: file.writelines((_head(saved.getbuffer()), saved.getbuffer())))


def _head(content: bytes | memoryview) -> bytes:
    """First line of a checkpoint: format and checksum."""
    return f"scalesearch checkpoint {FORMAT} {hashlib.blake2b(content, digest_size=16).hexdigest()}\n".encode()


def load_state(directory: Path) -> dict[str, Any] | None:
    """Reads the state in ``directory``, onto the CPU; None if there is none.

    Raises:
        UserError: the file is not as this version wrote it.
    """
    file = directory / STATE
    if not file.exists():
        return None
    head, _, content = read_regular(file).partition(b"\n")
    if head + b"\n" != _head(content):
        raise UserError(f"{file}: damaged, or not a checkpoint of this version. Delete it to train from the start",
                        code="not-a-checkpoint")
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def random_state() -> dict[str, Any]:
    """States of the random number generators of PyTorch (CPU and GPUs), NumPy and Python."""
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global one is what libraries draw from
    return {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all(),
            "numpy": [name, keys.tolist(), *rest], "python": random.getstate()}


def restore_random(state: Mapping[str, Any]) -> None:
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
        lowercase: it was trained on lower-cased text.
        tokenised: its text has words apart by blanks.
        max_length: of source sentences in training, in tokens.
        task: that it was trained for.
        folder: that it was read from.
    """

    model: Any
    tokenizer: Tokenizer
    architecture: Any
    lowercase: bool
    max_length: int
    recipe: Recipe
    task: str
    folder: Path | None = None
    tokenised: bool = False


def _in_its_place(folder: Path, missing: Sequence[str]) -> str:
    """What ``folder`` is, where it is no finished training."""
    if not folder.is_dir():
        return "there is no such folder"
    if (folder / "study.json").is_file():
        trials = sorted((folder / "trials").glob(f"*/{WEIGHTS}"))
        return f"this is a study. Name a trial of it{f', such as {trials[0].parent}' if trials else ''}"
    if (folder / "artefact.json").is_file():
        return "this is an artefact. Name the training that it was made from"
    unfinished = ". It is a training that is not finished; go on with --resume" * (folder / STATE).exists()
    return f"{', '.join(missing)} missing{unfinished}"


def read_checkpoint(directory: Path | str, weights: bool = True) -> Checkpoint:
    """Reads the finished model in ``directory``, in eval mode on the CPU; without ``weights`` on the meta device.

    Raises:
        UserError: the folder is not a finished training.
    """
    from scalesearch.space import read_space

    folder = Path(directory)
    missing = [name for name in (*DESCRIPTION, *[WEIGHTS] * weights) if not (folder / name).is_file()]
    if missing:
        raise UserError(f"{folder}: no checkpoint: {_in_its_place(folder, missing)}", code="no-checkpoint")
    architecture = read_space(folder / ARCHITECTURE).closed()
    tokenizer = Tokenizer.from_file(folder / TOKENIZER)
    spec = DataSpec.from_mapping(read_json(folder / DATA, _Data)["spec"])
    recipe = Recipe.from_mapping(read_json(folder / RECIPE, dict[str, Any]))
    block, vocab = architecture.block, tokenizer.vocab_size
    model = _with_weights(folder, block, vocab) if weights else build(block, vocab=vocab, device="meta")
    return Checkpoint(model.eval(), tokenizer, architecture, spec.lowercase, spec.max_length, recipe, spec.task, folder,
                      spec.tokenised)


def read_ensemble(folders: Sequence[Path | str]) -> Checkpoint:
    """Reads several finished models as one that gives the mean of their probabilities; all else is the first's.

    Raises:
        UserError: one is not a finished training, or its vocabulary, task or case is not the first's.
    """
    from scalesearch.nn.ensemble import Ensemble

    first, *others = members = [read_checkpoint(folder) for folder in folders]
    for other in others:
        alike = "tokenizer", "task", "lowercase"
        differing = [name for name in alike if getattr(other, name) != getattr(first, name)]
        if differing:
            raise UserError(f"{other.folder}: its {' and its '.join(differing)} differ from those of {first.folder}: "
                            "they cannot translate together. Name models that were trained on the same data and vocab",
                            code="not-alike")
    return replace(first, model=Ensemble([member.model for member in members]).eval()) if others else first


class _Data(TypedDict):
    spec: dict[str, Any]


def _with_weights(folder: Path, block: Any, vocab: int) -> Any:
    """The model with the weights in ``folder``, which are counted before anything is built.

    Raises:
        UserError: they are damaged, not finite, or of another architecture.
    """
    weights = read_weights(folder / WEIGHTS)
    held = sum(weight.numel() for weight in weights.values())
    try:
        wanted = require_memory(block, vocab)
        if held != wanted:
            raise TrainingFailed(f"it has {wanted:,} weights, and {WEIGHTS} holds {held:,}")
        model = build(block, vocab=vocab)
        model.load_state_dict(weights)
    except (TrainingFailed, RuntimeError) as error:
        raise UserError(f"{folder / ARCHITECTURE}: not the architecture that was trained: "
                        f"{str(error).splitlines()[-1].strip()}", code="other-weights") from None
    if endless := [name for name, weight in weights.items() if not torch.isfinite(weight).all()]:
        raise UserError(f"{folder / WEIGHTS}: not every weight is a finite number ({endless[0]}): its training "
                        "diverged", code="weights-not-finite")
    return model
