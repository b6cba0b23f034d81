"""Folder of a training: its description, the state to resume from, the trained model.

::

    architecture.yaml  tokenizer.model  recipe.json  data.json     description
    checkpoint.pt  snapshots/                                      state to resume from; deleted at the end
    model.safetensors  result.json                                 trained model and result
"""

import pickle
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scalesearch.data import Corpus, Tokenizer
from scalesearch.errors import UserError
from scalesearch.files import write_atomic, write_json, write_text
from scalesearch.nn import build
from scalesearch.train.averaging import read_weights
from scalesearch.train.recipe import Recipe

FORMAT = 2
STATE, WEIGHTS = "checkpoint.pt", "model.safetensors"
ARCHITECTURE, TOKENIZER, RECIPE, DATA = "architecture.yaml", "tokenizer.model", "recipe.json", "data.json"
# Fields of a recipe that do not change what is learned: a resumed run may have others.
FREE = ("threads", "checkpoint_minutes", "name")


def identity(architecture: Any, corpus: Corpus, recipe: Recipe, seed: int, processes: int = 1) -> dict[str, Any]:
    """Settings that a resumed run must share."""
    fields = {key: value for key, value in recipe.to_json().items() if key not in FREE}
    return {"architecture": architecture.id, "data": corpus.hash, "seed": seed, "processes": processes, **fields}


def check_identity(stored: Mapping[str, Any], wanted: Mapping[str, Any], directory: Path) -> None:
    """Checks that a training to be resumed has the same settings.

    Raises:
        UserError: naming those that differ.
    """
    differ = [f"{key} was {stored.get(key)!r} and is now {value!r}" for key, value in wanted.items()
              if stored.get(key) != value]
    if differ:
        raise UserError(f"{directory}: holds another training: {'; '.join(differ)}. "
                        "Give the same settings to go on, or another folder", code="other-training")


def describe(directory: Path, architecture: Any, corpus: Corpus, recipe: Recipe) -> None:
    """Writes the description of a run; an existing architecture file stays."""
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / ARCHITECTURE).exists():
        protocol = {**architecture.protocol, "vocab": corpus.tokenizer.vocab_size}
        write_text(directory / ARCHITECTURE, replace(architecture, protocol=protocol).to_yaml())
    write_atomic(directory / TOKENIZER, lambda file: file.write(corpus.tokenizer.bytes))
    write_json(directory / RECIPE, recipe.to_json())
    write_json(directory / DATA, corpus.to_json())


def save_state(directory: Path, state: Mapping[str, Any]) -> None:
    """Writes a run's state atomically. It holds tensors and plain values only, so reading runs no code."""
    write_atomic(directory / STATE, lambda file: torch.save({"format": FORMAT, **state}, file))


def load_state(directory: Path) -> dict[str, Any] | None:
    """Reads the state in ``directory``, onto the CPU; None if there is none.

    Raises:
        UserError: the file is not one that this version wrote.
    """
    file = directory / STATE
    if not file.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UserError(f"{file}: not a checkpoint of this version ({str(error).splitlines()[0]}). "
                        "Delete it to train from the start", code="not-a-checkpoint") from None
    if state.get("format") != FORMAT:
        raise UserError(f"{file}: format {state.get('format')}, this version reads {FORMAT}. "
                        "Delete it to train from the start", code="other-format")
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
        max_length: of source sentences in training, in tokens.
        task: that it was trained for.
    """

    model: Any
    tokenizer: Tokenizer
    architecture: Any
    lowercase: bool
    max_length: int
    recipe: Recipe
    task: str


def read_checkpoint(directory: Path | str) -> Checkpoint:
    """Reads the finished model in ``directory``, in eval mode on the CPU.

    Raises:
        UserError: the folder is not a finished training.
    """
    from scalesearch.space import read_space

    folder = Path(directory)
    missing = [name for name in (ARCHITECTURE, TOKENIZER, RECIPE, DATA, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        unfinished = " It is a training that is not finished; go on with --resume." * (folder / STATE).exists()
        raise UserError(f"{folder}: no checkpoint: {', '.join(missing)} missing.{unfinished}", code="no-checkpoint")
    architecture = read_space(folder / ARCHITECTURE).closed()
    tokenizer = Tokenizer.from_file(folder / TOKENIZER)
    weights = read_weights(folder / WEIGHTS)
    model = build(architecture.block, vocab=tokenizer.vocab_size)
    model.load_state_dict(weights)
    spec = loads((folder / DATA).read_text())["spec"]
    recipe = Recipe.from_mapping(loads((folder / RECIPE).read_text()))
    return Checkpoint(model.eval(), tokenizer, architecture, spec["lowercase"],
                      spec["max_length"], recipe, spec["task"])
