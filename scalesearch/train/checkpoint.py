"""A training's folder: what is needed to go on after an interruption, and what is needed to translate.

::

    architecture.yaml  tokenizer.model  recipe.json  data.json     what it is
    checkpoint.pt  snapshots/                                      to go on; gone once it is finished
    model.safetensors  result.json                                 what came of it
"""

import pickle
import random
from collections.abc import Mapping
from dataclasses import dataclass
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

FORMAT = 1
STATE, WEIGHTS = "checkpoint.pt", "model.safetensors"
ARCHITECTURE, TOKENIZER, RECIPE, DATA = "architecture.yaml", "tokenizer.model", "recipe.json", "data.json"
# Fields of a recipe that do not change what is learned: a run may go on with others.
FREE = ("threads", "checkpoint_minutes", "name")


def identity(architecture: Any, corpus: Corpus, recipe: Recipe, seed: int,
             processes: int = 1) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    fields = {key: value for key, value in recipe.to_json().items() if key not in FREE}
    return {"architecture": architecture.id, "data": corpus.hash, "seed": seed, "processes": processes, **fields}


def check_identity(found: Mapping[str, Any], wanted: Mapping[str, Any], directory: Path) -> None:
    """Refuse to go on with something else.

    Raises:
        UserError: naming what differs.
    """
    differ = [f"{key} was {found.get(key)!r} and is now {value!r}" for key, value in wanted.items()
              if found.get(key) != value]
    if differ:
        raise UserError(f"{directory}: holds another training: {'; '.join(differ)}. "
                        "Give the same settings to go on, or another folder")


def describe(directory: Path, architecture: Any, corpus: Corpus, recipe: Recipe) -> None:
    """Write what the run is; an architecture file that is there already stays."""
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / ARCHITECTURE).exists():
        write_text(directory / ARCHITECTURE, architecture.to_yaml())
    write_atomic(directory / TOKENIZER, lambda file: file.write(corpus.tokenizer.bytes))
    write_json(directory / RECIPE, recipe.to_json())
    write_json(directory / DATA, corpus.to_json())


def save_state(directory: Path, state: Mapping[str, Any]) -> None:
    """Atomically write a run's state: tensors and plain values only, so that reading it can run nothing."""
    write_atomic(directory / STATE, lambda file: torch.save({"format": FORMAT, **state}, file))


def load_state(directory: Path, device: torch.device) -> dict[str, Any] | None:
    """The state in ``directory``, or None if there is none.

    Raises:
        UserError: the file is not one that this version wrote.
    """
    file = directory / STATE
    if not file.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UserError(f"{file}: not a checkpoint of this version ({str(error).splitlines()[0]}). "
                        "Delete it to train from the start") from None
    if state.get("format") != FORMAT:
        raise UserError(f"{file}: format {state.get('format')}, this version reads {FORMAT}. "
                        "Delete it to train from the start")
    return state


def random_state() -> dict[str, Any]:
    """Where all random number generators stand: PyTorch's (CPU and GPUs), NumPy's and Python's."""
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global one is what libraries draw from
    return {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all(),
            "numpy": [name, [int(key) for key in keys], *rest], "python": random.getstate()}


def restore_random(state: Mapping[str, Any]) -> None:
    """Put all random number generators back to where they stood."""
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([item.cpu() for item in state["cuda"]])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))  # noqa: NPY002 - as above
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


@dataclass
class Checkpoint:
    """A trained model and what it takes to use it.

    Attributes:
        lowercase: it was trained on lower-cased text.
        max_length: tokens of a source sentence that it was trained on at most.
        task: that it was trained for.
    """

    model: Any
    tokenizer: Tokenizer
    architecture: Any
    lowercase: bool
    max_length: int
    recipe: Recipe
    task: str = "translation"


def read_checkpoint(directory: Path | str) -> Checkpoint:
    """The finished model in ``directory``, in eval mode on the CPU.

    Raises:
        UserError: the folder is not a finished training.
    """
    from scalesearch.space import read_space

    folder = Path(directory)
    missing = [name for name in (ARCHITECTURE, TOKENIZER, RECIPE, DATA, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        unfinished = " It is a training that is not finished; go on with --resume." * (folder / STATE).exists()
        raise UserError(f"{folder}: no checkpoint: {', '.join(missing)} missing.{unfinished}")
    space = read_space(folder / ARCHITECTURE)
    architecture = space.architecture(space.answer(_closed))
    tokenizer = Tokenizer.from_file(folder / TOKENIZER)
    weights = read_weights(folder / WEIGHTS)
    model = build(architecture.block, vocab=tokenizer.vocab_size)
    model.load_state_dict(weights)
    spec = loads((folder / DATA).read_text())["spec"]
    recipe = Recipe.from_mapping(loads((folder / RECIPE).read_text()))
    return Checkpoint(model.eval(), tokenizer, architecture, spec.get("lowercase", False),
                      spec.get("max_length", 256), recipe, spec.get("task", "translation"))


def load_checkpoint(directory: Path | str) -> tuple[Any, Tokenizer, Any]:
    """Model, tokenizer and architecture of a finished training; see :func:`read_checkpoint`."""
    found = read_checkpoint(directory)
    return found.model, found.tokenizer, found.architecture


def _closed(path: str, question: Any) -> Any:
    raise UserError(f"{ARCHITECTURE}: leaves {path} open; a checkpoint holds one architecture")
