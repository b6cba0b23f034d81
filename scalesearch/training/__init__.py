"""Training of one model: recipe, loop, checkpoints, metrics.

The package does not depend on Ray and Optuna. Names are imported on first use, so that the recipe
of a study file can be validated without loading PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalesearch.training.checkpoint import Checkpoint, read_checkpoint
    from scalesearch.training.recipe import PRESETS, Recipe
    from scalesearch.training.result import Result
    from scalesearch.training.run import train

_MODULES = {"Checkpoint": "checkpoint", "read_checkpoint": "checkpoint",
            "PRESETS": "recipe", "Recipe": "recipe", "Result": "result", "train": "run"}

__all__ = ["PRESETS", "Checkpoint", "Recipe", "Result", "read_checkpoint", "train"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
